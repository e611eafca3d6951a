"""Headers of a wheel record: `WheelParser`, its short way against its long one."""

from connectors.contract import CONTROL_HEADERS, GENERATED_HEADERS, is_legal_topic_name
from connectors.kafka import BY_KEY
from sidecar.intake.copies import ELSEWHERE, STRANGER_POSTPONED_AT_MOST_MS, Copied, Copies
from sidecar.intake.parse import Parser
from sidecar.intake.parse_wheel import Cancel, Replace, Schedule, WheelParser
from sidecar.plan import Plan
from sidecar.records import Rejection
from tests.fuzz.headers import NAMES, WORDS, check_rejection, read_headers

DICTIONARY = (*WORDS, "%RETRY%", "SCHEDULE_TOPIC_XXXX-wheel-3-", "999999999999999999", "1700000000000")
WHEEL, OFFSET, AT_MS = "SCHEDULE_TOPIC_XXXX-wheel", 1_000, 1_700_000_000_000
PLAN = Plan(roll_window_ms=100_000, precision_ms=1_000, max_delay_ms=31_622_400_000, levels="1s 5s")


_COPIES = Copies(b"key")


def _make() -> WheelParser:
    return WheelParser(Parser(NAMES), WHEEL, 3, _COPIES)


_KNOWING = _make()
_ROLLED, _POSTPONED, _ROLLED_LATER = (
    b"\n".join(b"%b=%b" % (name.encode(), value or b"") for name, value in _COPIES.headers(b"a", AT_MS + 5_000, copied))
    for copied in (Copied(7, 2), Copied(None, 0, AT_MS + 9_000), Copied(7, 2, roll_after_ms=AT_MS + 9_000))
)
SEEDS = (
    b"REAL_TOPIC=orders\nTIMER_DELIVER_MS=1700000005000",
    b"REAL_TOPIC=orders\nTIMER_DELIVER_MS=1700000005000\nUNIQ_KEY=a\nTAGS=b",
    b"REAL_TOPIC=orders\nTIMER_DELIVER_MS=-5",
    b"REAL_TOPIC=orders\nTIMER_DELAY_SEC=90\nUNIQ_KEY=a",
    b"REAL_TOPIC=orders\nTIMER_DELAY_SEC=999999999999999999",
    b"REAL_TOPIC=orders\nTIMER_DELAY_MS=1500\nREAL_QID=1",
    b"REAL_TOPIC=orders\nDELAY=99",
    b"REAL_TOPIC=orders\nDELAY=0",
    b"REAL_TOPIC=orders",
    b"TIMER_DEL_UNIQKEY=a\nTIMER_DELIVER_MS=1700000005000\nREAL_TOPIC=orders",
    b"TIMER_DEL_UNIQKEY",
    b"REAL_TOPIC=orders\nTIMER_DELAY_MS=1\nTIMER_REPLACE_UNIQKEY=a",
    b"REAL_TOPIC=orders\n" + _ROLLED,
    b"REAL_TOPIC=orders\n" + _POSTPONED,
    b"REAL_TOPIC=orders\n" + _ROLLED_LATER,
    b"REAL_TOPIC=orders\n" + _ROLLED.replace(b"TIMER_ROLL_TIMES=2", b"TIMER_ROLL_TIMES=3"),
)


def fuzz_one(data: bytes) -> None:
    headers = read_headers(data)
    before = list(headers)
    parsed = _make().parse(headers, OFFSET, AT_MS, PLAN)
    assert headers == before
    assert parsed == _KNOWING.parse(headers, OFFSET, AT_MS, PLAN), "what has been parsed before makes a difference"
    _check_the_short_way(parsed, headers)
    if isinstance(parsed, Rejection):
        check_rejection(parsed)
    elif isinstance(parsed, Cancel):
        assert parsed.uniq_key
        assert parsed.real_topic is None or is_legal_topic_name(parsed.real_topic)
        assert parsed.deliver_ms is None or -(2**63) <= parsed.deliver_ms < 2**63
    elif isinstance(parsed, Replace):
        assert parsed.uniq_key
        _check_schedule(parsed.schedule)
    else:
        _check_schedule(Schedule(*parsed))
    _check_among_copies(parsed, _KNOWING.parse(headers, OFFSET, AT_MS, PLAN, is_copied=True))


def _check_among_copies(parsed: object, copied: object) -> None:
    """Another topic's copy is a message of its own, but for whence it came and until when it waits."""
    if copied == parsed:
        return
    if isinstance(parsed, Replace) and isinstance(copied, Replace):
        assert copied.uniq_key == parsed.uniq_key
        parsed, copied = parsed.schedule, copied.schedule
    assert isinstance(parsed, tuple)
    assert isinstance(copied, tuple)
    own, told = Schedule(*parsed), Schedule(*copied)
    assert told.origin_offset in (OFFSET, ELSEWHERE)
    assert told.not_before_ms <= AT_MS + STRANGER_POSTPONED_AT_MOST_MS
    assert told._replace(origin_offset=OFFSET, not_before_ms=0) == own


def _check_the_short_way(parsed: object, headers: list[tuple[str, bytes | None]]) -> None:
    plain = _KNOWING.plain(headers, OFFSET, AT_MS, PLAN.max_delay_ms)
    if plain is not None:
        topic, delivered, uniq_key, due_ms = plain
        assert delivered[-2:] == [("UNIQ_KEY", uniq_key), ("TIMER_OUT_MS", b"%d" % due_ms)]
        assert parsed == (topic, BY_KEY, delivered[:-2], uniq_key, due_ms, 0, OFFSET, 0, 0)


def _check_schedule(wanted: Schedule) -> None:
    assert is_legal_topic_name(wanted.topic)
    assert BY_KEY <= wanted.partition < 2**31
    assert wanted.uniq_key
    assert -(2**63) <= wanted.due_ms < 2**63
    assert not {name for name, _ in wanted.carried} & (CONTROL_HEADERS | GENERATED_HEADERS | {"UNIQ_KEY"})
    if wanted.origin_offset == OFFSET:
        assert wanted.roll_times == 0
        assert wanted.due_ms - AT_MS <= PLAN.max_delay_ms
    else:
        assert 0 <= wanted.origin_offset < OFFSET
