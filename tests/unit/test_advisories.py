"""What `make check` makes of what the advisory service tells."""

from typing import Any

import pytest

from tests.supply import advisories
from tests.supply.advisories import Verdict, judge, main

VULNERABLE = {
    "name": "h11",
    "version": "0.1",
    "vulns": [{"id": "GHSA-1", "aliases": ["CVE-1"], "fix_versions": ["0.2"], "description": "…"}],
}
FINE = {"name": "numpy", "version": "2.0", "vulns": []}
UNKNOWN = {"name": "ours", "skip_reason": "Dependency not found"}


def told(*dependencies: dict[str, Any]) -> dict[str, Any]:
    return {"dependencies": list(dependencies), "fixes": []}


def test_a_known_vulnerability_is_a_failure_and_names_the_remedy() -> None:
    verdict = judge(told(VULNERABLE, FINE), {})
    assert verdict.is_vulnerable
    assert "h11 0.1: GHSA-1, CVE-1: mended in 0.2" in verdict.lines[0]


@pytest.mark.parametrize("id_", ["GHSA-1", "CVE-1"])
def test_one_that_is_none_of_ours_is_passed_over_with_its_reason(id_: str) -> None:
    verdict = judge(told(VULNERABLE), {id_: "only as a client"})
    assert not verdict.is_vulnerable
    assert verdict.lines[0].endswith("passed over, only as a client")
    assert judge(told(VULNERABLE), {id_: " "}).is_vulnerable, "without a reason"


def test_a_reason_that_is_of_no_use_any_more_is_told() -> None:
    verdict = judge(told(FINE), {"CVE-1": "only as a client"})
    assert (verdict.is_vulnerable, verdict.is_unknown) == (False, False)
    assert "CVE-1 is passed over, and is found no more" in verdict.lines[0]


def test_what_the_service_does_not_know_is_told() -> None:
    assert judge(told(FINE, UNKNOWN), {}).lines == ["1 packages looked at, 1 not known to the advisory service"]
    assert judge(told(UNKNOWN), {}).is_unknown


@pytest.mark.parametrize(
    ("verdict", "required", "code"),
    [
        (Verdict(["fine"]), "", 0),
        (Verdict(["found"], is_vulnerable=True), "", 1),
        (Verdict(["not looked at"], is_unknown=True), "", 0),
        (Verdict(["not looked at"], is_unknown=True), "required", 1),
    ],
)
def test_a_service_out_of_reach_fails_only_where_it_is_required(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], verdict: Verdict, required: str, code: int
) -> None:
    monkeypatch.setattr(advisories, "ask", lambda: verdict)
    monkeypatch.setenv("TIMEWHEEL_TEST_ADVISORIES", required)
    assert main() == code
    assert capsys.readouterr().out == f"advisories: {verdict.lines[0]}\n"
