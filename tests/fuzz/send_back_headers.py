"""Headers of a record of the send-back topic: `SendBackParser`."""

from connectors.contract import DelayLevels, TopicKind
from sidecar.intake.parse_send_back import SendBackParser
from sidecar.records import Rejection
from tests.fuzz.headers import NAMES, WORDS, check_rejection, read_headers

DICTIONARY = (*WORDS, "%RETRY%billing", "RETRY-billing", "enc--", "2147483646", "timewheel")
LEVELS = DelayLevels.parse("1s 5s 10s 30s")
_WHO = b"CONSUMER_GROUP=billing\nRETRY_TOPIC=orders"
SEEDS = (
    _WHO,
    _WHO + b"\nRECONSUME_TIME=15\nUNIQ_KEY=a\nORIGIN_MESSAGE_ID=b",
    _WHO + b"\nRECONSUME_TIME=16",
    _WHO + b"\nDELAY=-1",
    _WHO + b"\nDELAY=99\nMAX_RECONSUME_TIMES=3",
    _WHO + b"\nMAX_RECONSUME_TIMES=2147483647",
    _WHO + b"\nRETRY_TOPIC=RETRY-billing\nREAL_TOPIC=x\nTAGS=a",
    b"CONSUMER_GROUP=orders/eu\nRETRY_TOPIC=%RETRY%g",
    b"CONSUMER_GROUP=timewheel\nRETRY_TOPIC=orders",
    b"CONSUMER_GROUP=\xff",
    b"CONSUMER_GROUP=g\nRETRY_TOPIC=no/topic",
    b"TAGS=a",
)


def _make() -> SendBackParser:
    return SendBackParser(NAMES, LEVELS, "timewheel")


_KNOWING = _make()


def fuzz_one(data: bytes) -> None:
    headers = read_headers(data)
    before = list(headers)
    parsed = _make().parse(headers, b"back-0-", 17)
    assert headers == before
    assert parsed == _KNOWING.parse(headers, b"back-0-", 17), "what has been parsed before makes a difference"
    if isinstance(parsed, Rejection):
        check_rejection(parsed)
        return
    topic, retry_topic, carried = parsed
    told = dict(carried)
    for name in ("CONSUMER_GROUP", "RETRY_TOPIC", "RECONSUME_TIME", "UNIQ_KEY", "ORIGIN_MESSAGE_ID"):
        assert [header for header, _ in carried].count(name) == 1, name
        assert told[name]
    group = (told["CONSUMER_GROUP"] or b"").decode()
    assert NAMES.group_of(topic if retry_topic is None else retry_topic) == group
    assert 0 < int(told["RECONSUME_TIME"] or b"") < 2**31
    if retry_topic is None:
        assert NAMES.kind(topic) is TopicKind.DEAD_LETTER
        assert "REAL_TOPIC" not in told
        return
    assert NAMES.kind(topic) is TopicKind.LEVEL
    assert NAMES.level_of(topic) in LEVELS
    assert told["REAL_TOPIC"] == retry_topic.encode()
    # A retry that fails again is understood again.
    again = _make().parse(carried, b"back-0-", 18)
    assert not isinstance(again, Rejection) or int(told["RECONSUME_TIME"] or b"") > 2**31 - 2
