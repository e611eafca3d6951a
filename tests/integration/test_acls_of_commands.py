"""The rights that docs/security.md names for commands suffice; none is needed on the groups that readers name."""

import json
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType
from confluent_kafka.cimpl import NewTopic

from tests.integration.test_acls import ACLS
from tests.support.command import Ended, timewheel
from tests.support.secured_kafka import SecuredKafka, secured_kafka
from tests.support.sidecar import SidecarProcess
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

SIDECAR, SHOP, OTHER, CHOOSER = "timewheel", "shop", "other", "chooser"


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    """With a sidecar that has the documented rights, and a user that may schedule."""
    directory = tmp_path_factory.mktemp("secured")
    with secured_kafka(directory, [SIDECAR, SHOP, OTHER, CHOOSER]) as kafka:
        admin = kafka.admin()
        admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(30)
        kafka.allow([acl.binding(SIDECAR, "") for acl in ACLS])
        allow(kafka, SHOP, "SCHEDULE_TOPIC_XXXX-", AclOperation.WRITE)
        (directory / "sidecar").mkdir()
        sidecar = SidecarProcess(kafka.bootstrap_servers, directory / "sidecar", levels="1s 2s")
        try:
            sidecar.start(wait_ready=False, env={"TIMEWHEEL_KAFKA": json.dumps(kafka.login(SIDECAR))})
            wait_until(lambda: sidecar.get("/readyz")[0] == 200, "the sidecar is ready", 60)
            yield kafka
        finally:
            sidecar.kill()


def allow(kafka: SecuredKafka, user: str, topic: str, *operations: AclOperation) -> None:
    pattern = ResourcePatternType.PREFIXED if topic.endswith("-") else ResourcePatternType.LITERAL
    kafka.allow(
        [
            AclBinding(ResourceType.TOPIC, topic, pattern, f"User:{user}", "*", operation, AclPermissionType.ALLOW)
            for operation in operations
        ]
    )


def run(kafka: SecuredKafka, user: str, *words: str, stdin: str = "") -> Ended:
    login = [f"--kafka={name}={value}" for name, value in kafka.login(user).items()]
    return timewheel(*words, "--bootstrap-servers", kafka.bootstrap_servers, *login, stdin=stdin)


def test_roundtrip_needs_its_topic(kafka: SecuredKafka) -> None:
    words = ("roundtrip", "--timeout", "5s", "--levels", "1s 2s")
    refused = run(kafka, SIDECAR, *words)
    told = "cannot be created: Authorization failed; allow this login to create timewheel-roundtrip"
    assert (refused.returncode, told in refused.stderr) == (1, True)
    allow(kafka, SIDECAR, "timewheel-roundtrip", AclOperation.CREATE, AclOperation.WRITE, AclOperation.READ)
    wait_until(lambda: run(kafka, SIDECAR, *words).returncode == 0, "both messages come", 60)
    assert run(kafka, SIDECAR, *words).stderr == ""


def test_reschedule_needs_to_read_the_wheel(kafka: SecuredKafka) -> None:
    sent = run(kafka, SHOP, "send", "--topic", "orders", "--delay", "1h", "v")
    assert sent.returncode == 0, sent.stderr
    words = ("reschedule", "-", "--delay", "2h")
    refused = run(kafka, SHOP, *words, stdin=sent.stdout)
    assert (refused.returncode, "Topic authorization failed" in refused.stderr) == (1, True), refused.stderr
    allow(kafka, SHOP, "SCHEDULE_TOPIC_XXXX-wheel", AclOperation.READ)

    def rescheduled() -> bool:
        return run(kafka, SHOP, *words, stdin=sent.stdout).returncode == 0

    wait_until(rescheduled, "the message has another time", 60)
    assert all(rescheduled() for _ in range(3))


def test_dead_letters_need_to_be_read(kafka: SecuredKafka) -> None:
    sent = run(kafka, SHOP, "send", "--topic", "absent", "--delay", "0s", "v")
    assert sent.returncode == 0, sent.stderr
    for user, command, topic in (
        (SIDECAR, "dlq list", "DLQ-timewheel"),
        (SIDECAR, "dlq show timewheel", "DLQ-timewheel"),
        (SHOP, "dlq show timewheel", "DLQ-timewheel"),
        (OTHER, "dlq redrive timewheel", "DLQ-timewheel"),
        (OTHER, "dlq list", "SCHEDULE_TOPIC_XXXX-redriven"),
    ):
        refused = run(kafka, user, *command.split())
        assert (refused.returncode, f"allow this login to read {topic}" in refused.stderr) == (1, True), refused.stderr
    allow(kafka, SIDECAR, "DLQ-", AclOperation.READ)

    def listed() -> bool:
        ended = run(kafka, SIDECAR, "dlq", "list", "--json")
        return ended.returncode == 0 and '"waiting": 1' in ended.stdout

    wait_until(listed, "the letter is counted", 60)
    assert all(listed() for _ in range(3))


def test_a_group_that_may_not_be_read_is_no_silence(kafka: SecuredKafka) -> None:
    allow(kafka, SHOP, "SCHEDULE_TOPIC_XXXX-", AclOperation.DESCRIBE)
    ended = run(kafka, SHOP, "progress", "show")
    assert (ended.returncode, "Group authorization failed" in ended.stderr) == (1, True), ended.stderr


def test_logs_that_may_not_be_read_are_no_silence(kafka: SecuredKafka) -> None:
    allow(kafka, CHOOSER, "SCHEDULE_TOPIC_XXXX-", AclOperation.DESCRIBE)
    read = AclBinding(
        ResourceType.GROUP,
        "anew",
        ResourcePatternType.LITERAL,
        f"User:{CHOOSER}",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    kafka.allow([read])
    sent = run(kafka, SHOP, "send", "--topic", "orders", "--delay", "1h", "v")
    assert sent.returncode == 0, sent.stderr
    words = ("progress", "set", "--all", "--due-after", "2020-01-01T00:00:00Z", "--group-id", "anew")
    ended = run(kafka, CHOOSER, *words)
    assert (ended.returncode, "allow this login to read SCHEDULE_TOPIC_XXXX-" in ended.stderr) == (1, True), (
        ended.stderr
    )


def test_topics_that_may_not_be_seen_or_created_are_told_with_what_to_allow(kafka: SecuredKafka) -> None:
    checked = run(kafka, OTHER, "topics", "check")
    assert (checked.returncode, "does not exist, or this login may not describe it" in checked.stdout) == (1, True)
    created = run(kafka, OTHER, "topics", "create")
    assert created.returncode == 1
    assert "Authorization failed; run 'timewheel topics create' as a login that may create topics" in created.stderr
