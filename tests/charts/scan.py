"""``make scan-charts``: what the chart renders by default, by the rules of kube-score. Exit code 1 on any finding."""

import subprocess
import sys
from collections.abc import Callable

import yaml

from tests.support.helm import Object, shop, template

EXCEPTIONS = {
    "container-image-pull-policy": "IfNotPresent is the convention; who wants more names a digest",
}

CASES: dict[str, Callable[[], list[Object]]] = {
    "the defaults": template,
    "one replica without a volume": lambda: template({"replicaCount": 1, "persistence": {"enabled": False}}),
    "the audit": lambda: template({"audit": {"enabled": True}}),
    "a native sidecar": shop,
}

ITS_APPLICATIONS_AFFAIR = (
    "pod-networkpolicy",
    "deployment-has-poddisruptionbudget",
    "deployment-has-host-podantiaffinity",
    "container-ephemeral-storage-request-and-limit",
)
"""Of the pods that a native sidecar is in."""


def main() -> None:
    failed = False
    for name, render in CASES.items():
        # A Pod that `helm test` makes is none that is operated.
        objects = [each for each in render() if each["kind"] != "Pod"]
        command = [
            sys.argv[1],
            "score",
            "--ignore-container-cpu-limit",
            "--exit-one-on-warning",
            "--output-format",
            "ci",
        ]
        ignored = [*EXCEPTIONS, *(ITS_APPLICATIONS_AFFAIR if render is shop else ())]
        command += [word for test in ignored for word in ("--ignore-test", test)]
        ended = subprocess.run(
            [*command, "-"], input=yaml.safe_dump_all(objects), text=True, capture_output=True, check=False
        )
        found = [line for line in ended.stdout.splitlines() if not line.startswith(("[OK]", "[SKIPPED]"))]
        passed = ended.stdout.count("[OK]")
        print(f"{name}: {len(objects)} objects, {passed} checks passed, {len(found)} findings")
        print("".join(f"  {line}\n" for line in found) + ended.stderr, end="")
        failed |= ended.returncode != 0 or not passed
    sys.exit(failed)


if __name__ == "__main__":
    main()
