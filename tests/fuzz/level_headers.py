"""Headers of a level topic's record: `Parser.parse`."""

from connectors.contract import CONTROL_HEADERS, GENERATED_HEADERS, SCHEDULE_KINDS, is_legal_topic_name
from connectors.kafka import BY_KEY
from sidecar.intake.parse import Parser
from sidecar.records import Rejection
from tests.fuzz.headers import NAMES, WORDS, check_rejection, read_headers

DICTIONARY = (*WORDS, "%RETRY%", "%DLQ%", "rmq_sys_wheel_timer", "SCHEDULE_TOPIC_XXXX-1", "2147483647")
SEEDS = (
    b"REAL_TOPIC=orders",
    b"REAL_TOPIC=orders\nREAL_QID=3\nUNIQ_KEY=a\nTAGS=b\nUNIQ_KEY=c",
    b"REAL_TOPIC=%RETRY%billing\nUNIQ_KEY\nDELAY=3",
    b"REAL_TOPIC=SCHEDULE_TOPIC_XXXX-1",
    b"REAL_TOPIC=\xff",
    b"REAL_TOPIC",
    b"REAL_TOPIC=orders\nREAL_QID=2147483648",
    b"REAL_TOPIC=orders\nTIMER_DEL_UNIQKEY=a",
    b"TAGS=a",
)
_KNOWING = Parser(NAMES)


def fuzz_one(data: bytes) -> None:
    headers = read_headers(data)
    before = list(headers)
    parsed = Parser(NAMES).parse(headers)
    assert headers == before
    assert parsed == _KNOWING.parse(headers), "what has been parsed before makes a difference"
    if isinstance(parsed, Rejection):
        check_rejection(parsed)
        return
    topic, partition, carried, uniq_key = parsed
    assert is_legal_topic_name(topic)
    assert NAMES.kind(topic) not in SCHEDULE_KINDS
    assert BY_KEY <= partition < 2**31
    names = [name for name, _ in carried]
    assert not set(names) & (CONTROL_HEADERS | GENERATED_HEADERS)
    assert [value for name, value in carried if name == "UNIQ_KEY"] == ([] if uniq_key is None else [uniq_key])
    assert uniq_key != b""
    kept = [header for header in before if header[0] in set(names) - {"UNIQ_KEY"}]
    assert [header for header in carried if header[0] != "UNIQ_KEY"] == kept
