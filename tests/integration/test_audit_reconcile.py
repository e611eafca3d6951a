"""Verdicts of stories, one an id: told once, judged together 100 s after their beginning, with a grace of 5 s."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.support.audit_story import NAMES, SEND_BACK, WHEEL, Story, rows_of, verdicts_of

pytestmark = pytest.mark.slow

S, DAY = 1_000, 86_400_000
RETRY, DLQ, OWN_DLQ = "RETRY-billing", "DLQ-billing", "DLQ-timewheel"

Expected = list[tuple[str | None, int, str]]
"""Destination, retries, verdict; sorted."""

STORIES: dict[str, tuple[Callable[[Story, str], None], Expected]] = {}


def tells(*expected: tuple[str | None, int, str]) -> Callable[[Callable[[Story, str], None]], None]:
    """Register a story; its function's name is the id."""

    def register(story: Callable[[Story, str], None]) -> None:
        STORIES[story.__name__] = story, sorted(expected, key=str)

    return register


def schedule(story: Story, name: str, delay_ms: int = 20 * S, at_ms: int = 0, **more: Any) -> int:
    headers: dict[str, Any] = {"REAL_TOPIC": "orders", "UNIQ_KEY": name, "TIMER_DELAY_MS": delay_ms, **more}
    return story.write(WHEEL, at_ms, **headers)


def deliver(story: Story, name: str, at_ms: int, due_ms: int | None = None, topic: str = "orders", **more: Any) -> None:
    out = {} if due_ms is None else {"TIMER_OUT_MS": story.due(due_ms)}
    story.write(topic, at_ms, UNIQ_KEY=name, **out, **more)


def cancel(story: Story, name: str, at_ms: int, partition: int = 0, **more: Any) -> int:
    return story.write(WHEEL, at_ms, partition, TIMER_DEL_UNIQKEY=name, **more)


def replace(story: Story, name: str, at_ms: int, delay_ms: int, old: str | None = None, **more: Any) -> int:
    return schedule(story, name, delay_ms, at_ms, TIMER_REPLACE_UNIQKEY=old or name, **more)


def send_back(story: Story, name: str, at_ms: int, **more: Any) -> int:
    return story.write(SEND_BACK, at_ms, UNIQ_KEY=name, CONSUMER_GROUP="billing", RETRY_TOPIC="orders", **more)


def bury(story: Story, topic: str, offset: int, code: str, at_ms: int, **more: Any) -> None:
    source: dict[str, Any] = {"ERROR_TOPIC": topic, "ERROR_PARTITION": 0, "ERROR_OFFSET": offset}
    story.write(more.pop("into", OWN_DLQ), at_ms, ERROR_CODE=code, **source, **more)


# --- once and on time, or not -----------------------------------------------------------------------------------------


@tells(("orders", 0, "on_time"))
def delivered_on_time(story: Story, name: str) -> None:
    schedule(story, name)
    deliver(story, name, 20_900, 20 * S)


@tells(("orders", 0, "late"))
def delivered_late(story: Story, name: str) -> None:
    schedule(story, name)
    deliver(story, name, 21_001, 20 * S)


@tells(("orders", 0, "missing"))
def never_delivered(story: Story, name: str) -> None:
    schedule(story, name)


@tells(("orders", 0, "missing"))
def delivered_elsewhere(story: Story, name: str) -> None:
    schedule(story, name)
    deliver(story, name, 20 * S, 20 * S, topic="payments")


@tells(("orders", 0, "missing"))
def delivered_after_the_audit(story: Story, name: str) -> None:
    schedule(story, name)
    deliver(story, name, 101 * S, 20 * S)


@tells(("orders", 0, "pending"))
def due_later(story: Story, name: str) -> None:
    schedule(story, name, 200 * S)


@tells(("orders", 0, "pending"))
def within_the_grace(story: Story, name: str) -> None:
    schedule(story, name, 95 * S)


@tells(("orders", 0, "missing"))
def just_beyond_the_grace(story: Story, name: str) -> None:
    schedule(story, name, 95 * S - 1)


@tells(("orders", 0, "early"))
def delivered_early(story: Story, name: str) -> None:
    schedule(story, name)
    deliver(story, name, 19_999, 20 * S)


@tells(("orders", 0, "early"))
def delivered_early_with_a_lie(story: Story, name: str) -> None:
    schedule(story, name)
    deliver(story, name, 10 * S, 10 * S)


@tells(("orders", 0, "duplicate"))
def delivered_twice(story: Story, name: str) -> None:
    schedule(story, name)
    deliver(story, name, 20 * S, 20 * S)
    deliver(story, name, 20 * S, 20 * S)


@tells(("orders", 0, "duplicate"))
def delivered_and_copied(story: Story, name: str) -> None:
    schedule(story, name)
    deliver(story, name, 20 * S, 20 * S)
    deliver(story, name, 30 * S)


@tells(("orders", 0, "on_time"))
def by_level(story: Story, name: str) -> None:
    story.write(NAMES.level(3), 0, REAL_TOPIC="orders", UNIQ_KEY=name)
    deliver(story, name, 10_010, 10 * S)


@tells(("orders", 0, "missing"))
def by_level_and_lost(story: Story, name: str) -> None:
    story.write(NAMES.level(3), 0, REAL_TOPIC="orders", UNIQ_KEY=name)


@tells(("orders", 2**31 - 1, "on_time"))
def delivered_with_a_number_of_retries_that_nobody_reaches(story: Story, name: str) -> None:
    schedule(story, name, RECONSUME_TIME=2**31 - 1)
    deliver(story, name, 20 * S, 20 * S, RECONSUME_TIME=2**31 - 1)


@tells(("orders", 0, "on_time"))
def due_at_once_and_stamped_by_a_broker_whose_clock_is_behind(story: Story, name: str) -> None:
    schedule(story, name, 0, 20 * S)
    deliver(story, name, 19_990, 20 * S)


@tells(("orders", 0, "on_time"))
def stamped_in_the_future(story: Story, name: str) -> None:
    story.write(NAMES.level(1), 90 * S, append_time=False, REAL_TOPIC="orders", UNIQ_KEY=name)
    deliver(story, name, 6 * S, 6 * S)


@tells(("orders", 0, "early"))
def early_by_the_clock_of_its_producer(story: Story, name: str) -> None:
    story.write(NAMES.level(2), 10 * S, append_time=False, REAL_TOPIC="orders", UNIQ_KEY=name)
    deliver(story, name, 14 * S, 15 * S)


@tells(("orders", 0, "on_time"))
def due_before_it_was_asked_for(story: Story, name: str) -> None:
    story.write(WHEEL, 50 * S, REAL_TOPIC="orders", UNIQ_KEY=name, TIMER_DELIVER_MS=-5)
    deliver(story, name, 50_010)


@tells()
def delivered_but_never_asked_for(story: Story, name: str) -> None:
    deliver(story, name, 20 * S, 20 * S)
    deliver(story, name, 21 * S, 20 * S)


# --- as it was asked for, or not --------------------------------------------------------------------------------------


@tells(("orders", 0, "missing"))
def delivered_with_another_value(story: Story, name: str) -> None:
    schedule(story, name)
    deliver(story, name, 20 * S, 20 * S, value=b"other")


@tells(("orders", 0, "missing"))
def delivered_with_a_value_for_none(story: Story, name: str) -> None:
    schedule(story, name, value=None)
    deliver(story, name, 20 * S, 20 * S, value=b"")


@tells(("orders", 0, "missing"))
def delivered_with_another_key(story: Story, name: str) -> None:
    schedule(story, name)
    deliver(story, name, 20 * S, 20 * S, key=None)


@tells(("orders", 0, "missing"))
def delivered_without_its_tags(story: Story, name: str) -> None:
    schedule(story, name, TAGS="vip")
    deliver(story, name, 20 * S, 20 * S)


@tells(("orders", 0, "missing"))
def delivered_with_headers_in_another_order(story: Story, name: str) -> None:
    schedule(story, name, one=1, two=2)
    deliver(story, name, 20 * S, 20 * S, two=2, one=1)


@tells(("orders", 0, "on_time"))
def delivered_with_its_own_headers_and_those_of_the_sidecar(story: Story, name: str) -> None:
    schedule(story, name, one=None, REAL_QID="0", TAGS="vip", TIMER_OUT_MS=5)
    deliver(story, name, 20 * S, 20 * S, one=None, TAGS="vip", TIMER_ENQUEUE_MS=1, TIMER_DEQUEUE_MS=2)


@tells(("orders", 0, "missing"))
def delivered_into_another_partition(story: Story, name: str) -> None:
    schedule(story, name, REAL_QID="1")
    deliver(story, name, 20 * S, 20 * S, partition=2)


@tells(("orders", 0, "early"))
def delivered_early_with_another_value(story: Story, name: str) -> None:
    schedule(story, name)
    deliver(story, name, 10 * S, 20 * S, value=b"other")


@tells((RETRY, 1, "missing"))
def retried_with_another_value(story: Story, name: str) -> None:
    send_back(story, name, 11 * S)
    hop(story, name, 11_010, 1)
    deliver(story, name, 21_020, 21_010, RETRY, RECONSUME_TIME=1, value=b"other")


@tells((DLQ, 1, "missing"))
def dead_with_another_value(story: Story, name: str) -> None:
    send_back(story, name, 11 * S, DELAY=-1)
    deliver(story, name, 11_010, 11 * S, DLQ, RECONSUME_TIME=1, value=b"other")


@tells(("orders", 0, "cancelled"), ("orders", 0, "missing"))
def replaced_and_the_first_value_delivered(story: Story, name: str) -> None:
    schedule(story, name)
    replace(story, name, 5 * S, 40 * S, value=b"new")
    deliver(story, name, 45 * S, 45 * S)


@tells(("orders", 0, "cancelled"), ("orders", 0, "on_time"))
def replaced_by_another_value(story: Story, name: str) -> None:
    schedule(story, name)
    replace(story, name, 5 * S, 40 * S, value=b"new")
    deliver(story, name, 45 * S, 45 * S, value=b"new")


@tells(("orders", 0, "cancel_ignored"), ("orders", 0, "cancelled_too_late"))
def replaced_by_another_value_at_the_same_time_and_the_first_delivered(story: Story, name: str) -> None:
    schedule(story, name)
    replace(story, name, 5 * S, 15 * S, value=b"new")
    deliver(story, name, 20 * S, 20 * S)


@tells(("orders", 0, "cancelled_too_late"), ("orders", 0, "cancelled_too_late"))
def replaced_too_late_by_another_value_at_the_same_time(story: Story, name: str) -> None:
    schedule(story, name)
    replace(story, name, 19_990, 10, value=b"new")
    deliver(story, name, 20 * S, 20 * S)


@tells(("orders", 0, "on_time"), ("orders", 0, "on_time"))
def used_twice_for_the_same_time_with_two_values(story: Story, name: str) -> None:
    schedule(story, name, REAL_QID="1")
    schedule(story, name, value=b"other", REAL_QID="0")
    deliver(story, name, 20 * S, 20 * S, value=b"other")
    deliver(story, name, 20 * S, 20 * S, partition=1)


@tells(("orders", 0, "missing"), ("orders", 0, "on_time"))
def used_twice_for_the_same_time_and_one_with_another_value(story: Story, name: str) -> None:
    schedule(story, name)
    schedule(story, name, value=b"other")
    deliver(story, name, 20 * S, 20 * S, value=b"other")
    deliver(story, name, 20 * S, 20 * S, value=b"nobody's")


@tells((RETRY, 1, "on_time"), (RETRY, 1, "on_time"))
def sent_back_twice_with_two_values_and_retried_the_other_way_round(story: Story, name: str) -> None:
    for value in (b"1", b"2"):
        send_back(story, name, 11 * S, value=value)
    for value in (b"2", b"1"):
        hop(story, name, 11_010, 1)
        deliver(story, name, 21_020, 21_010, RETRY, RECONSUME_TIME=1, value=value)


@tells(("orders", 0, "late"))
def postponed_keeps_its_content(story: Story, name: str) -> None:
    origin = schedule(story, name, 10 * S, one=1)
    postpone(story, name, 10 * S, 10 * S, TIMER_ORIGIN_OFFSET=origin, TIMER_ROLL_TIMES=0, one=1)
    deliver(story, name, 25 * S, 10 * S, one=1)


# --- cancelled --------------------------------------------------------------------------------------------------------


@tells(("orders", 0, "cancelled"))
def cancelled_in_time(story: Story, name: str) -> None:
    schedule(story, name)
    cancel(story, name, 10 * S)


@tells(("orders", 0, "cancel_ignored"))
def cancelled_and_delivered(story: Story, name: str) -> None:
    schedule(story, name)
    cancel(story, name, 14_999)
    deliver(story, name, 20 * S, 20 * S)


@tells(("orders", 0, "cancelled_too_late"))
def cancelled_within_the_grace(story: Story, name: str) -> None:
    schedule(story, name)
    cancel(story, name, 15 * S)
    deliver(story, name, 20 * S, 20 * S)


@tells(("orders", 0, "cancelled"))
def cancelled_at_the_last_moment(story: Story, name: str) -> None:
    schedule(story, name)
    cancel(story, name, 19_999)


@tells(("orders", 0, "on_time"))
def cancelled_for_another_topic(story: Story, name: str) -> None:
    schedule(story, name)
    cancel(story, name, S, REAL_TOPIC="payments")
    deliver(story, name, 20 * S, 20 * S)


@tells(("orders", 0, "missing"), ("payments", 0, "cancelled"))
def cancelled_for_one_of_two_topics(story: Story, name: str) -> None:
    schedule(story, name)
    schedule(story, name, REAL_TOPIC="payments")
    cancel(story, name, S, REAL_TOPIC="payments")


@tells(("orders", 0, "on_time"))
def cancelled_in_another_partition(story: Story, name: str) -> None:
    schedule(story, name)
    cancel(story, name, S, partition=1)
    deliver(story, name, 20 * S, 20 * S)


@tells(("orders", 0, "on_time"))
def cancelled_before_it_was_asked_for(story: Story, name: str) -> None:
    cancel(story, name, 0)
    schedule(story, name)
    deliver(story, name, 20 * S, 20 * S)


@tells(("orders", 0, "cancel_ignored"))
def cancelled_and_delivered_twice(story: Story, name: str) -> None:
    schedule(story, name)
    cancel(story, name, S)
    deliver(story, name, 20 * S, 20 * S)
    deliver(story, name, 20 * S, 20 * S)


# --- replaced ---------------------------------------------------------------------------------------------------------


@tells(("orders", 0, "cancelled"), ("orders", 0, "on_time"))
def replaced_in_time(story: Story, name: str) -> None:
    schedule(story, name)
    offset = replace(story, name, 5 * S, 40 * S)
    roll(story, name, 5_001, 45 * S, offset, 0)
    deliver(story, name, 45_010, 45 * S)


@tells(("orders", 0, "cancelled_too_late"), ("orders", 0, "cancelled_too_late"))
def replaced_too_late(story: Story, name: str) -> None:
    schedule(story, name)
    deliver(story, name, 20 * S, 20 * S)
    replace(story, name, 21 * S, 40 * S)


@tells(("orders", 0, "cancelled"), ("orders", 0, "missing"))
def replaced_and_both_lost(story: Story, name: str) -> None:
    schedule(story, name)
    replace(story, name, 5 * S, 40 * S)


@tells(("orders", 0, "cancel_ignored"), ("orders", 0, "on_time"))
def replaced_and_both_delivered(story: Story, name: str) -> None:
    schedule(story, name)
    replace(story, name, 5 * S, 40 * S)
    deliver(story, name, 20 * S, 20 * S)
    deliver(story, name, 45 * S, 45 * S)


@tells(
    ("orders", 0, "cancel_ignored"), ("orders", 0, "cancelled"), ("orders", 0, "cancelled"), ("orders", 0, "on_time")
)
def replaced_again_and_again_and_the_first_delivered_too(story: Story, name: str) -> None:
    schedule(story, name)
    for at_ms in (5 * S, 6 * S, 7 * S):
        replace(story, name, at_ms, 40 * S)
    deliver(story, name, 20 * S, 20 * S)
    deliver(story, name, 47 * S, 47 * S)


@tells(("orders", 0, "cancel_ignored"), ("orders", 0, "cancelled_too_late"), ("orders", 0, "cancelled_too_late"))
def replaced_again_and_the_first_delivered_instead(story: Story, name: str) -> None:
    schedule(story, name)
    replace(story, name, 5 * S, 40 * S)
    replace(story, name, 6 * S, 40 * S)
    deliver(story, name, 20 * S, 20 * S)


@tells(("orders", 0, "cancelled_too_late"), ("orders", 0, "duplicate"))
def replaced_too_late_and_both_delivered(story: Story, name: str) -> None:
    schedule(story, name)
    deliver(story, name, 20 * S, 20 * S)
    replace(story, name, 21 * S, 40 * S)
    deliver(story, name, 61 * S, 61 * S)


@tells(("orders", 0, "cancelled"), ("orders", 0, "cancelled"), ("orders", 0, "on_time"))
def replaced_twice(story: Story, name: str) -> None:
    schedule(story, name)
    replace(story, name, 5 * S, 40 * S)
    replace(story, name, 6 * S, 50 * S)
    deliver(story, name, 56_010, 56 * S)


@tells(("orders", 0, "cancelled"))
def replaced_by_another_id(story: Story, name: str) -> None:
    schedule(story, name)
    replace(story, f"{name} (new)", 5 * S, 40 * S, old=name)
    deliver(story, f"{name} (new)", 45_010, 45 * S)


@tells(("orders", 0, "cancelled_too_late"))
def replaces_what_nobody_knows(story: Story, name: str) -> None:
    replace(story, name, 5 * S, 40 * S, old="nobody")


@tells(("orders", 0, "cancelled_too_late"), ("orders", 0, "cancelled_too_late"), ("orders", 0, "cancelled_too_late"))
def replaced_too_late_again_and_again(story: Story, name: str) -> None:
    schedule(story, name)
    deliver(story, name, 20 * S, 20 * S)
    replace(story, name, 21 * S, 40 * S)
    replace(story, name, 22 * S, 40 * S)


@tells(("orders", 0, "cancelled_too_late"), ("orders", 0, "cancelled_too_late"), ("orders", 0, "duplicate"))
def replaced_too_late_twice_and_the_second_delivered(story: Story, name: str) -> None:
    schedule(story, name)
    deliver(story, name, 20 * S, 20 * S)
    replace(story, name, 21 * S, 40 * S)
    replace(story, name, 22 * S, 40 * S)
    deliver(story, name, 62 * S, 62 * S)


@tells(("orders", 0, "cancelled"), ("orders", 0, "cancelled_too_late"))
def replaced_after_it_was_cancelled(story: Story, name: str) -> None:
    schedule(story, name)
    cancel(story, name, 4 * S)
    replace(story, name, 5 * S, 40 * S)


@tells(("orders", 0, "cancelled"), ("orders", 0, "duplicate"))
def replaced_after_it_was_cancelled_and_delivered(story: Story, name: str) -> None:
    schedule(story, name)
    cancel(story, name, 4 * S)
    replace(story, name, 5 * S, 40 * S)
    deliver(story, name, 45 * S, 45 * S)


@tells(("orders", 0, "on_time"), ("orders", 0, "on_time"))
def replaces_what_was_not_read_and_is_used_again(story: Story, name: str) -> None:
    replace(story, name, 5 * S, 40 * S)
    deliver(story, name, 45 * S, 45 * S)
    schedule(story, name, 10 * S, 50 * S)
    deliver(story, name, 60 * S, 60 * S)


@tells(*[("orders", 0, "cancelled_too_late")] * 20)
def replaced_too_late_by_a_long_chain(story: Story, name: str) -> None:
    schedule(story, name)
    deliver(story, name, 20 * S, 20 * S)
    for number in range(19):
        replace(story, name, 21 * S + number, 40 * S)


@tells(*[("orders", 0, "cancelled")] * 19, ("orders", 0, "on_time"))
def replaced_in_time_by_a_long_chain(story: Story, name: str) -> None:
    schedule(story, name)
    for number in range(19):
        replace(story, name, 5 * S + number, 40 * S)
    deliver(story, name, 45 * S + 18, 45 * S + 18)


@tells(*[("orders", 0, "cancelled_too_late")] * 3, ("orders", 0, "cancelled"), ("orders", 0, "missing"))
def used_again_in_a_chain_of_replacements(story: Story, name: str) -> None:
    schedule(story, name)
    deliver(story, name, 20 * S, 20 * S)
    replace(story, name, 21 * S, 40 * S)
    replace(story, name, 22 * S, 40 * S)
    schedule(story, name, 40 * S, 23 * S)
    replace(story, name, 24 * S, 40 * S)


@tells(("orders", 0, "cancelled_too_late"))
def replaced_too_late_by_ids_that_replace_each_other(story: Story, name: str) -> None:
    schedule(story, name)
    deliver(story, name, 20 * S, 20 * S)
    replace(story, f"{name} (1)", 21 * S, 40 * S, old=name)
    replace(story, f"{name} (2)", 22 * S, 40 * S, old=f"{name} (1)")


@tells(("orders", 0, "rejected"), ("orders", 0, "cancelled_too_late"))
def replaced_after_it_was_rejected(story: Story, name: str) -> None:
    offset = schedule(story, name)
    bury(story, WHEEL, offset, "UNKNOWN_DESTINATION", 20 * S, UNIQ_KEY=name)
    replace(story, name, 21 * S, 40 * S)


@tells(("orders", 0, "on_time"), ("orders", 0, "rejected"))
def replaced_by_what_is_due_too_late(story: Story, name: str) -> None:
    schedule(story, name)
    offset = replace(story, name, 5 * S, 10**13)
    bury(story, WHEEL, offset, "DELAY_TOO_LONG", 5_010, UNIQ_KEY=name)
    deliver(story, name, 20 * S, 20 * S)


@tells(("orders", 0, "cancelled"), ("orders", 0, "rejected"))
def replaced_by_what_is_rejected_when_due(story: Story, name: str) -> None:
    schedule(story, name)
    offset = replace(story, name, 5 * S, 40 * S)
    bury(story, WHEEL, offset, "UNKNOWN_DESTINATION", 45 * S, UNIQ_KEY=name)


@tells(("orders", 0, "cancelled_too_late"), ("orders", 0, "rejected"), ("orders", 0, "cancelled_too_late"))
def replaced_too_late_after_a_replacement_that_was_refused(story: Story, name: str) -> None:
    schedule(story, name)
    offset = replace(story, name, 5 * S, 10**13)
    bury(story, WHEEL, offset, "DELAY_TOO_LONG", 5_010, UNIQ_KEY=name)
    deliver(story, name, 20 * S, 20 * S)
    replace(story, name, 21 * S, 40 * S)


@tells(("orders", 0, "on_time"))
def cancelled_by_a_record_that_cannot_be_read(story: Story, name: str) -> None:
    schedule(story, name)
    bury(story, WHEEL, cancel(story, name, 5 * S), "UNREADABLE_HEADERS", 5_010)
    deliver(story, name, 20 * S, 20 * S)


# --- rolled -----------------------------------------------------------------------------------------------------------


def roll(story: Story, name: str, at_ms: int, due_ms: int, origin: int, times: int) -> int:
    told = {"TIMER_DELIVER_MS": story.due(due_ms), "TIMER_ORIGIN_OFFSET": origin, "TIMER_ROLL_TIMES": times}
    return story.write(WHEEL, at_ms, REAL_TOPIC="orders", UNIQ_KEY=name, **told)


@tells(("orders", 0, "on_time"))
def rolled_twice(story: Story, name: str) -> None:
    origin = schedule(story, name, 60 * S)
    roll(story, name, 20 * S, 60 * S, origin, 1)
    roll(story, name, 40 * S, 60 * S, origin, 2)
    deliver(story, name, 60_010, 60 * S, TIMER_ROLL_TIMES=2)


@tells(("orders", 0, "missing"))
def rolled_and_lost(story: Story, name: str) -> None:
    origin = schedule(story, name, 60 * S)
    roll(story, name, 20 * S, 60 * S, origin, 1)


@tells(("orders", 0, "duplicate"))
def rolled_and_delivered_twice(story: Story, name: str) -> None:
    origin = schedule(story, name, 60 * S)
    roll(story, name, 20 * S, 60 * S, origin, 1)
    deliver(story, name, 60 * S, 60 * S)
    deliver(story, name, 60 * S, 60 * S)


@tells(("orders", 0, "on_time"), ("orders", 0, "missing"))
def a_copy_that_says_another_time_is_no_copy(story: Story, name: str) -> None:
    origin = schedule(story, name, 60 * S)
    roll(story, name, 20 * S, 70 * S, origin, 1)
    deliver(story, name, 60_010, 60 * S)


@tells(("orders", 0, "early"))
def a_roll_cannot_move_the_time(story: Story, name: str) -> None:
    origin = schedule(story, name, 60 * S)
    roll(story, name, 20 * S, 60 * S, origin, 1)
    deliver(story, name, 40 * S, 60 * S)


@tells(("orders", 0, "on_time"))
def rolled_long_ago(story: Story, name: str) -> None:
    last = story.write(WHEEL, 0)  # any record: the origin lies before the copies
    roll(story, name, 20 * S, 60 * S, last, 7)
    roll(story, name, 40 * S, 60 * S, last, 8)
    deliver(story, name, 60_010, 60 * S)


def copied_from_another_cluster(story: Story, name: str) -> int:
    """A copy whose offsets are of elsewhere: a message like any other, which has rolled once more since; the copy."""
    story.write(WHEEL, 0)
    here = roll(story, name, 1 * S, 60 * S, 0, 3)
    roll(story, name, 20 * S, 60 * S, here, 1)
    return roll(story, name, 40 * S, 60 * S, here, 2)


@tells(("orders", 0, "on_time"))
def copied_from_another_cluster_and_rolled(story: Story, name: str) -> None:
    copied_from_another_cluster(story, name)
    deliver(story, name, 60_010, 60 * S)


@tells(("orders", 0, "rejected"))
def copied_from_another_cluster_and_rejected(story: Story, name: str) -> None:
    last = copied_from_another_cluster(story, name)
    bury(story, WHEEL, last, "UNKNOWN_DESTINATION", 60 * S, UNIQ_KEY=name)


@tells(("orders", 0, "on_time"), ("orders", 0, "cancelled"))
def replaced_by_what_rolled(story: Story, name: str) -> None:
    schedule(story, name)
    replacement = replace(story, name, 5 * S, 60 * S)
    roll(story, name, 5_001, 65 * S, replacement, 0)
    roll(story, name, 30 * S, 65 * S, replacement, 1)
    deliver(story, name, 65_010, 65 * S)


def replaced_again_and_again(story: Story, name: str, *ids: str) -> None:
    """The first of all was written before what is read; the last is delivered."""
    old = name
    for number, new in enumerate(ids):
        replacement = replace(story, new, number * 5 * S, 60 * S, old=old)
        roll(story, new, number * 5 * S + 2, (60 + number * 5) * S, replacement, 0)
        old = new
    due_ms = (60 + (len(ids) - 1) * 5) * S
    deliver(story, old, due_ms + 10, due_ms)


@tells(("orders", 0, "cancelled"), ("orders", 0, "cancelled"), ("orders", 0, "on_time"))
def replaced_three_times_and_the_original_not_read(story: Story, name: str) -> None:
    replaced_again_and_again(story, name, name, name, name)


@tells(("orders", 0, "on_time"))
def replaces_another_id_that_replaced_what_was_not_read(story: Story, name: str) -> None:
    replaced_again_and_again(story, f"{name} (not read)", f"{name} (new)", name)


@tells(("orders", 0, "cancelled"))
def cancelled_while_a_copy_of_what_was_not_read_rolled(story: Story, name: str) -> None:
    last = story.write(WHEEL, 0)
    cancel(story, name, 19_999)
    roll(story, name, 20 * S, 60 * S, last, 7)


@tells(("orders", 0, "cancel_ignored"))
def cancelled_while_a_copy_of_what_was_not_read_rolled_and_delivered(story: Story, name: str) -> None:
    last = story.write(WHEEL, 0)
    cancel(story, name, 19_999)
    roll(story, name, 20 * S, 60 * S, last, 7)
    deliver(story, name, 60 * S, 60 * S)


@tells(("orders", 0, "cancelled"), ("orders", 0, "missing"))
def replaced_while_a_copy_of_what_was_not_read_rolled_and_lost(story: Story, name: str) -> None:
    last = story.write(WHEEL, 0)
    replace(story, name, 19_999, 20 * S)
    roll(story, name, 20 * S, 60 * S, last, 7)


# --- postponed: its destination took nothing when it was due ----------------------------------------------------------


def by_level_3(story: Story, name: str, at_ms: int = 0) -> int:
    """It is due ten seconds later."""
    return story.write(NAMES.level(3), at_ms, REAL_TOPIC="orders", UNIQ_KEY=name)


def postpone(story: Story, name: str, at_ms: int, due_ms: int, **more: Any) -> int:
    told = {"TIMER_DELIVER_MS": story.due(due_ms), "TIMER_NOT_BEFORE_MS": story.due(at_ms + 5 * S)}
    return story.write(WHEEL, at_ms, **{"REAL_TOPIC": "orders", "UNIQ_KEY": name, **told, **more})


@tells(("orders", 0, "late"))
def postponed_twice(story: Story, name: str) -> None:
    origin = schedule(story, name, 10 * S)
    again = postpone(story, name, 10 * S, 10 * S, TIMER_ORIGIN_OFFSET=origin, TIMER_ROLL_TIMES=0)
    postpone(story, name, 15 * S, 10 * S, TIMER_ORIGIN_OFFSET=again, TIMER_ROLL_TIMES=0)
    deliver(story, name, 25 * S, 10 * S)


@tells(("orders", 0, "missing"))
def postponed_and_lost(story: Story, name: str) -> None:
    schedule(story, name, 10 * S)
    postpone(story, name, 10 * S, 10 * S)


@tells(("orders", 0, "late"))
def postponed_from_long_ago(story: Story, name: str) -> None:
    postpone(story, name, 10 * S, 5 * S)
    postpone(story, name, 15 * S, 5 * S)
    deliver(story, name, 25 * S, 5 * S)


@tells(("orders", 0, "cancelled"))
def cancelled_while_it_was_postponed(story: Story, name: str) -> None:
    schedule(story, name, 10 * S)
    postpone(story, name, 10 * S, 10 * S)
    cancel(story, name, 20 * S)


@tells(("orders", 0, "cancelled"))
def cancelled_while_what_was_not_read_was_postponed(story: Story, name: str) -> None:
    last = story.write(WHEEL, 0)
    cancel(story, name, 9_999)
    postpone(story, name, 10 * S, 10 * S, TIMER_ORIGIN_OFFSET=last, TIMER_ROLL_TIMES=0)


@tells(("orders", 0, "cancelled"))
def postponed_from_a_level_and_cancelled(story: Story, name: str) -> None:
    by_level_3(story, name)
    first = postpone(story, name, 10 * S, 10 * S)
    cancel(story, name, 15 * S)
    postpone(story, name, 15_001, 10 * S, TIMER_ORIGIN_OFFSET=first, TIMER_ROLL_TIMES=0)


@tells(("orders", 0, "cancelled_too_late"))
def postponed_from_a_level_and_cancelled_too_late(story: Story, name: str) -> None:
    by_level_3(story, name)
    postpone(story, name, 10 * S, 10 * S)
    deliver(story, name, 15 * S, 10 * S)
    cancel(story, name, 20 * S)


@tells(("orders", 0, "missing"))
def cancelled_on_its_level_and_postponed_and_lost(story: Story, name: str) -> None:
    by_level_3(story, name)
    cancel(story, name, 5 * S)
    postpone(story, name, 10 * S, 10 * S)


@tells(("orders", 0, "missing"))
def postponed_from_a_level_and_cancelled_for_another_topic_and_lost(story: Story, name: str) -> None:
    by_level_3(story, name)
    postpone(story, name, 10 * S, 10 * S)
    cancel(story, name, 15 * S, REAL_TOPIC="payments")


@tells(("orders", 0, "cancelled"), ("orders", 0, "missing"))
def used_again_on_a_level_and_postponed_and_cancelled_and_the_second_lost(story: Story, name: str) -> None:
    by_level_3(story, name)
    by_level_3(story, name, 1 * S)
    postpone(story, name, 10 * S, 10 * S)
    cancel(story, name, 15 * S)


@tells(("orders", 0, "late"), ("orders", 0, "cancelled"))
def postponed_from_a_level_and_delivered_and_used_again_and_cancelled(story: Story, name: str) -> None:
    by_level_3(story, name)
    postpone(story, name, 10 * S, 10 * S)
    deliver(story, name, 15 * S, 10 * S)
    schedule(story, name, 20 * S, 20 * S)
    cancel(story, name, 25 * S)


@tells(("orders", 0, "cancelled"), ("orders", 0, "on_time"))
def postponed_from_a_level_and_replaced(story: Story, name: str) -> None:
    by_level_3(story, name)
    postpone(story, name, 10 * S, 10 * S)
    replace(story, name, 15 * S, 20 * S)
    deliver(story, name, 35 * S, 35 * S)


@tells(("orders", 0, "cancelled"), ("orders", 0, "missing"))
def postponed_from_a_level_and_replaced_and_lost(story: Story, name: str) -> None:
    by_level_3(story, name)
    postpone(story, name, 10 * S, 10 * S)
    replace(story, name, 15 * S, 20 * S)


@tells(("orders", 0, "cancelled_too_late"), ("orders", 0, "duplicate"))
def postponed_from_a_level_and_replaced_too_late_and_both_delivered(story: Story, name: str) -> None:
    by_level_3(story, name)
    postpone(story, name, 10 * S, 10 * S)
    deliver(story, name, 15 * S, 10 * S)
    replace(story, name, 16 * S, 20 * S)
    deliver(story, name, 36 * S, 36 * S)


@tells((RETRY, 1, "cancelled"))
def a_retry_that_was_postponed_and_cancelled(story: Story, name: str) -> None:
    send_back(story, name, 11 * S)
    hop(story, name, 11_010, 1)
    postpone(story, name, 21_020, 21_010, REAL_TOPIC=RETRY, RECONSUME_TIME=1)
    cancel(story, name, 25 * S)


@tells(("orders", 0, "on_time"))
def stamped_in_the_future_and_postponed(story: Story, name: str) -> None:
    story.write(NAMES.level(1), 90 * S, append_time=False, REAL_TOPIC="orders", UNIQ_KEY=name)
    first = postpone(story, name, 6 * S, 6 * S)
    postpone(story, name, 11 * S, 6 * S, TIMER_ORIGIN_OFFSET=first, TIMER_ROLL_TIMES=0)
    deliver(story, name, 16 * S, 6 * S)


@tells(("orders", 0, "late"), ("orders", 0, "on_time"))
def used_again_and_the_first_was_not_read_and_postponed(story: Story, name: str) -> None:
    postpone(story, name, 10 * S, 5 * S)
    schedule(story, name, 40 * S, 11 * S)
    postpone(story, name, 15 * S, 5 * S)
    deliver(story, name, 20 * S, 5 * S)
    deliver(story, name, 51 * S, 51 * S)


@tells(("orders", 0, "on_time"), ("orders", 0, "on_time"))
def used_again_by_one_that_calls_itself_postponed(story: Story, name: str) -> None:
    schedule(story, name)
    deliver(story, name, 20 * S, 20 * S)
    schedule(story, name, 10 * S, 30 * S, TIMER_NOT_BEFORE_MS=1)
    deliver(story, name, 40 * S, 40 * S)


@tells(("orders", 0, "on_time"), ("orders", 0, "missing"))
def used_again_by_one_that_calls_itself_postponed_and_is_lost(story: Story, name: str) -> None:
    schedule(story, name)
    deliver(story, name, 20 * S, 20 * S)
    schedule(story, name, 10 * S, 30 * S, TIMER_NOT_BEFORE_MS=1)


@tells(("orders", 0, "cancelled"))
def cancelled_while_it_rolled(story: Story, name: str) -> None:
    origin = schedule(story, name, 60 * S)
    cancel(story, name, 20 * S)
    roll(story, name, 20_001, 60 * S, origin, 1)


# --- retried ----------------------------------------------------------------------------------------------------------


def hop(story: Story, name: str, at_ms: int, retries: int) -> int:
    return story.write(NAMES.level(3), at_ms, UNIQ_KEY=name, REAL_TOPIC=RETRY, RECONSUME_TIME=retries)


@tells(("orders", 0, "on_time"), (RETRY, 1, "on_time"), (DLQ, 2, "on_time"))
def retried_and_dead(story: Story, name: str) -> None:
    schedule(story, name, 10 * S)
    deliver(story, name, 10 * S, 10 * S)
    send_back(story, name, 11 * S)
    hop(story, name, 11_010, 1)
    deliver(story, name, 21_020, 21_010, RETRY, RECONSUME_TIME=1)
    send_back(story, name, 22 * S, RECONSUME_TIME=1, DELAY=-1)
    deliver(story, name, 22_010, 22 * S, DLQ, RECONSUME_TIME=2)


@tells((RETRY, 1, "missing"))
def sent_back_and_lost(story: Story, name: str) -> None:
    send_back(story, name, 11 * S)


@tells((RETRY, 1, "missing"))
def sent_back_and_lost_on_its_level(story: Story, name: str) -> None:
    send_back(story, name, 11 * S)
    hop(story, name, 11_010, 1)


@tells((RETRY, 1, "duplicate"))
def retried_twice_for_one_failure(story: Story, name: str) -> None:
    send_back(story, name, 11 * S)
    for _ in range(2):
        hop(story, name, 11_010, 1)
        deliver(story, name, 21_020, 21_010, RETRY, RECONSUME_TIME=1)


@tells((RETRY, 1, "on_time"), (RETRY, 1, "on_time"))
def sent_back_twice_by_its_consumer(story: Story, name: str) -> None:
    for at_ms in (11 * S, 12 * S):
        send_back(story, name, at_ms)
        hop(story, name, at_ms + 10, 1)
        deliver(story, name, at_ms + 10_020, at_ms + 10_010, RETRY, RECONSUME_TIME=1)


@tells((RETRY, 4, "on_time"))
def sent_back_before_the_audit_began(story: Story, name: str) -> None:
    hop(story, name, 11_010, 4)
    deliver(story, name, 21_020, 21_010, RETRY, RECONSUME_TIME=4)


@tells((DLQ, 1, "on_time"))
def a_dead_letter_stamped_by_a_broker_whose_clock_is_behind(story: Story, name: str) -> None:
    send_back(story, name, 11 * S, DELAY=-1)
    deliver(story, name, 10_990, 11 * S, DLQ, RECONSUME_TIME=1)


@tells((DLQ, 1, "missing"))
def a_dead_letter_that_never_came(story: Story, name: str) -> None:
    send_back(story, name, 11 * S, DELAY=-1)


@tells((DLQ, 2**31 - 1, "on_time"))
def sent_back_for_the_last_time_that_can_be_counted(story: Story, name: str) -> None:
    send_back(story, name, 11 * S, RECONSUME_TIME=2**31 - 2)
    deliver(story, name, 11_010, 11 * S, DLQ, RECONSUME_TIME=2**31 - 1)


@tells((DLQ, 1, "on_time"))
def redriven(story: Story, name: str) -> None:
    send_back(story, name, 11 * S, DELAY=-1)
    deliver(story, name, 11_010, 11 * S, DLQ, RECONSUME_TIME=1)
    deliver(story, name, 30 * S, None, "orders", REDRIVE_COUNT=1)


@tells((DLQ, 1, "on_time"), ("orders", 0, "duplicate"))
def redriven_twice(story: Story, name: str) -> None:
    send_back(story, name, 11 * S, DELAY=-1)
    deliver(story, name, 11_010, 11 * S, DLQ, RECONSUME_TIME=1)
    deliver(story, name, 30 * S, None, "orders", REDRIVE_COUNT=1)
    deliver(story, name, 31 * S, None, "orders", REDRIVE_COUNT=1)


@tells((DLQ, 1, "on_time"), ("orders", 0, "duplicate"))
def redriven_twice_and_parked(story: Story, name: str) -> None:
    send_back(story, name, 11 * S, DELAY=-1, REDRIVE_COUNT=1)
    deliver(story, name, 11_010, 11 * S, DLQ, RECONSUME_TIME=1, REDRIVE_COUNT=1)
    deliver(story, name, 20 * S, 11 * S, f"{DLQ}.parked", RECONSUME_TIME=1, REDRIVE_COUNT=1)
    deliver(story, name, 30 * S, None, "orders", REDRIVE_COUNT=2)
    deliver(story, name, 31 * S, None, "orders", REDRIVE_COUNT=2)


def dies_after_a_redrive(story: Story, name: str, letters: int, parked: int) -> None:
    """It was redriven once, sent back again by a consumer that may do so twice, and then parked."""
    send_back(story, name, 11 * S, DELAY=-1)
    deliver(story, name, 11_010, 11 * S, DLQ, RECONSUME_TIME=1)
    deliver(story, name, 20 * S, None, "orders", CONSUMER_GROUP="billing", RETRY_TOPIC="orders", REDRIVE_COUNT=1)
    for _ in range(letters):
        send_back(story, name, 21 * S, DELAY=-1, REDRIVE_COUNT=1)
        deliver(story, name, 21_010, 21 * S, DLQ, RECONSUME_TIME=1, REDRIVE_COUNT=1)
    for _ in range(parked):
        deliver(story, name, 30 * S, 21 * S, f"{DLQ}.parked", RECONSUME_TIME=1, REDRIVE_COUNT=1)


@tells(*[(DLQ, 1, "on_time")] * 3)
def dead_twice_after_a_redrive_and_both_parked(story: Story, name: str) -> None:
    dies_after_a_redrive(story, name, letters=2, parked=2)


@tells(*[(DLQ, 1, "on_time")] * 3, (f"{DLQ}.parked", 1, "duplicate"))
def dead_twice_after_a_redrive_and_parked_three_times(story: Story, name: str) -> None:
    dies_after_a_redrive(story, name, letters=2, parked=3)


def dies_and_is_redriven(story: Story, name: str, of: str, into: str, times: int = 1, group: str = "billing") -> None:
    story.write(f"DLQ-{group}", 11 * S, UNIQ_KEY=name, CONSUMER_GROUP=group, RETRY_TOPIC=of, RECONSUME_TIME=17)
    for _ in range(times):
        deliver(story, name, 30 * S, None, into, CONSUMER_GROUP=group, RETRY_TOPIC=of, REDRIVE_COUNT=1)


@tells(("orders", 0, "duplicate"))
def dead_of_two_topics_and_redriven_twice_of_one(story: Story, name: str) -> None:
    dies_and_is_redriven(story, name, "orders", "orders", times=2)
    dies_and_is_redriven(story, name, "payments", "payments", times=0)


@tells()
def dead_of_two_topics_and_redriven_into_one(story: Story, name: str) -> None:
    for of in ("orders", "payments"):
        dies_and_is_redriven(story, name, of, "orders")


@tells(("orders", 0, "duplicate"))
def dead_of_two_groups_and_redriven_twice_of_one_that_was_parked(story: Story, name: str) -> None:
    dies_and_is_redriven(story, name, "orders", "orders", times=2)
    story.write(f"{DLQ}.parked", 20 * S, UNIQ_KEY=name, RETRY_TOPIC="orders", RECONSUME_TIME=17)
    dies_and_is_redriven(story, name, "orders", "orders", times=0, group="mails")


# --- an id that is used again -----------------------------------------------------------------------------------------


@tells(("orders", 0, "on_time"), ("orders", 0, "on_time"))
def used_again(story: Story, name: str) -> None:
    schedule(story, name)
    deliver(story, name, 20 * S, 20 * S)
    schedule(story, name, 20 * S, 40 * S)
    deliver(story, name, 60 * S, 60 * S)


@tells(("orders", 0, "missing"), ("orders", 0, "on_time"))
def used_again_and_the_first_lost(story: Story, name: str) -> None:
    schedule(story, name)
    schedule(story, name, 60 * S)
    deliver(story, name, 60 * S, 60 * S)


@tells(("orders", 0, "duplicate"), ("orders", 0, "pending"))
def used_again_and_the_first_copied(story: Story, name: str) -> None:
    schedule(story, name)
    schedule(story, name, 200 * S)
    deliver(story, name, 20 * S, 20 * S)
    deliver(story, name, 20 * S, 20 * S)


@tells(("orders", 0, "on_time"), ("orders", 0, "cancelled"))
def used_again_and_then_cancelled(story: Story, name: str) -> None:
    schedule(story, name)
    deliver(story, name, 20 * S, 20 * S)
    schedule(story, name, 20 * S, 40 * S)
    cancel(story, name, 45 * S)


@tells(("orders", 0, "on_time"), ("payments", 0, "on_time"))
def used_for_two_topics(story: Story, name: str) -> None:
    schedule(story, name)
    schedule(story, name, REAL_TOPIC="payments")
    deliver(story, name, 20 * S, 20 * S)
    deliver(story, name, 20 * S, 20 * S, "payments")


@tells(("orders", 0, "pending"))
def used_again_and_the_first_was_not_read(story: Story, name: str) -> None:
    deliver(story, name, 20_010, 20 * S)
    schedule(story, name, 200 * S, 20_050)


@tells(("orders", 0, "pending"))
def used_again_long_after_the_first_that_was_not_read(story: Story, name: str) -> None:
    deliver(story, name, 20 * S)
    schedule(story, name, 200 * S, 80_001)


@tells(("orders", 0, "early"))
def delivered_before_it_was_asked_for_by_another_clock(story: Story, name: str) -> None:
    deliver(story, name, 20 * S, 90 * S)
    schedule(story, name, 10 * S, 80 * S)


@tells(("orders", 0, "on_time"))
def used_again_for_the_same_time_and_the_first_was_not_read(story: Story, name: str) -> None:
    deliver(story, name, 10_010, 10 * S)
    schedule(story, name, 0, 80 * S, TIMER_DELIVER_MS=story.due(10 * S))
    deliver(story, name, 80_010, 80 * S)


@tells(("orders", 0, "cancelled"))
def used_again_and_cancelled_and_the_first_was_not_read(story: Story, name: str) -> None:
    deliver(story, name, 20_010, 20 * S)
    schedule(story, name, 60 * S, 20_050)
    cancel(story, name, 30 * S)


@tells((RETRY, 1, "early"))
def retried_before_it_was_sent_back_by_another_clock(story: Story, name: str) -> None:
    deliver(story, name, 20 * S, 20_010, RETRY, RECONSUME_TIME=1)
    send_back(story, name, 22 * S, DELAY=1)


# --- rejected ---------------------------------------------------------------------------------------------------------


@tells((None, 0, "rejected"))
def rejected_with_cause(story: Story, name: str) -> None:
    offset = story.write(WHEEL, 0, UNIQ_KEY=name, TIMER_DELAY_MS=1)
    bury(story, WHEEL, offset, "MISSING_REAL_TOPIC", 10, UNIQ_KEY=name)


@tells((None, 0, "missing"))
def wrong_and_swallowed(story: Story, name: str) -> None:
    story.write(WHEEL, 0, UNIQ_KEY=name, TIMER_DELAY_MS=1)


@tells(("orders", 0, "rejected"))
def rejected_for_its_destination(story: Story, name: str) -> None:
    offset = schedule(story, name)
    bury(story, WHEEL, offset, "UNKNOWN_DESTINATION", 20 * S, UNIQ_KEY=name)


@tells(("orders", 0, "missing"))
def rejected_with_another_value(story: Story, name: str) -> None:
    bury(story, WHEEL, schedule(story, name), "UNKNOWN_DESTINATION", 20 * S, UNIQ_KEY=name, value=b"other")


@tells(("orders", 0, "missing"))
def rejected_after_a_roll_without_its_own_headers(story: Story, name: str) -> None:
    origin = schedule(story, name, 60 * S, one=1)
    told = {"TIMER_DELIVER_MS": story.due(60 * S), "TIMER_ORIGIN_OFFSET": origin, "TIMER_ROLL_TIMES": 1}
    copy = story.write(WHEEL, 20 * S, REAL_TOPIC="orders", UNIQ_KEY=name, **told, one=1)
    bury(story, WHEEL, copy, "UNKNOWN_DESTINATION", 60 * S, UNIQ_KEY=name)


@tells(("orders", 0, "rejected"), ("orders", 0, "rejected"))
def rejected_without_what_is_too_large_and_without_headers_that_cannot_be_read(story: Story, name: str) -> None:
    offset = schedule(story, name, one=1)
    bury(story, WHEEL, offset, "RECORD_TOO_LARGE", 20 * S, key=None, value=None, ERROR_OMITTED="record")
    offset = schedule(story, name, 30 * S, one=1)
    bury(story, WHEEL, offset, "UNREADABLE_HEADERS", 1 * S)


@tells(("orders", 0, "rejected"))
def rejected_and_too_large_for_more_than_the_reason(story: Story, name: str) -> None:
    offset = schedule(story, name)
    bury(story, WHEEL, offset, "RECORD_TOO_LARGE", 20 * S)


@tells(("orders", 0, "missing"))
def rejected_without_cause(story: Story, name: str) -> None:
    offset = schedule(story, name)
    bury(story, WHEEL, offset, "NO_DELIVERY_TIME", 20, UNIQ_KEY=name)


@tells(("orders", 0, "missing"))
def rejected_as_nothing_that_there_is(story: Story, name: str) -> None:
    bury(story, WHEEL, schedule(story, name), "BANANA", 20 * S, UNIQ_KEY=name)


@tells(("orders", 0, "missing"))
def rejected_for_a_group_that_it_is_not_of(story: Story, name: str) -> None:
    bury(story, WHEEL, schedule(story, name), "ILLEGAL_CONSUMER_GROUP", 20 * S, UNIQ_KEY=name)


@tells((RETRY, 1, "rejected"))
def sent_back_for_the_sidecars_own_group(story: Story, name: str) -> None:
    bury(story, SEND_BACK, send_back(story, name, 0), "ILLEGAL_CONSUMER_GROUP", 10, UNIQ_KEY=name)


@tells((None, 0, "missing"))
def wrong_and_rejected_for_something_else(story: Story, name: str) -> None:
    offset = story.write(WHEEL, 0, UNIQ_KEY=name, REAL_TOPIC="orders", TIMER_DELIVER_MS="abc")
    bury(story, WHEEL, offset, "MISSING_REAL_TOPIC", 10, UNIQ_KEY=name)


@tells((None, 0, "rejected"))
def wrong_and_farther_off_than_is_allowed(story: Story, name: str) -> None:
    told = {"TIMER_DELAY_SEC": 10**9, "TIMER_REPLACE_UNIQKEY": ""}
    bury(story, WHEEL, schedule(story, name, 1, **told), "DELAY_TOO_LONG", 10, UNIQ_KEY=name)


@tells(("orders", 0, "duplicate"))
def delivered_and_rejected(story: Story, name: str) -> None:
    offset = schedule(story, name)
    deliver(story, name, 20 * S, 20 * S)
    bury(story, WHEEL, offset, "RECORD_TOO_LARGE", 20 * S, UNIQ_KEY=name)


@tells(("orders", 0, "duplicate"))
def rejected_twice(story: Story, name: str) -> None:
    offset = schedule(story, name)
    bury(story, WHEEL, offset, "RECORD_TOO_LARGE", 20 * S, UNIQ_KEY=name)
    bury(story, WHEEL, offset, "RECORD_TOO_LARGE", 20 * S, UNIQ_KEY=name)


@tells(("orders", 0, "rejected"))
def rejected_after_a_roll(story: Story, name: str) -> None:
    origin = schedule(story, name, 60 * S)
    copy = roll(story, name, 20 * S, 60 * S, origin, 1)
    bury(story, WHEEL, copy, "UNKNOWN_DESTINATION", 60 * S, UNIQ_KEY=name)


@tells(("orders", 0, "on_time"), ("orders", 0, "rejected"))
def used_again_and_rejected_after_a_roll(story: Story, name: str) -> None:
    schedule(story, name)
    deliver(story, name, 20 * S, 20 * S)
    origin = schedule(story, name, 40 * S, 20 * S)
    copy = roll(story, name, 40 * S, 60 * S, origin, 1)
    bury(story, WHEEL, copy, "UNKNOWN_DESTINATION", 60 * S, UNIQ_KEY=name)


@tells(("orders", 0, "rejected"))
def rejected_after_a_roll_long_ago(story: Story, name: str) -> None:
    last = story.write(WHEEL, 0)
    roll(story, name, 20 * S, 60 * S, last, 7)
    copy = roll(story, name, 40 * S, 60 * S, last, 8)
    bury(story, WHEEL, copy, "UNKNOWN_DESTINATION", 60 * S, UNIQ_KEY=name)


@tells((RETRY, 1, "rejected"))
def rejected_and_parked(story: Story, name: str) -> None:
    offset = send_back(story, name, 11 * S)
    for topic in (OWN_DLQ, f"{OWN_DLQ}.parked"):
        bury(story, SEND_BACK, offset, "TOO_MANY_GROUP_TOPICS", 12 * S, UNIQ_KEY=name, REDRIVE_COUNT=16, into=topic)


@tells(("orders", 0, "rejected"))
def rejected_and_redriven_to_where_the_letter_was(story: Story, name: str) -> None:
    offset = schedule(story, name)
    bury(story, WHEEL, offset, "UNKNOWN_DESTINATION", 20 * S, UNIQ_KEY=name)
    bury(story, WHEEL, offset, "UNKNOWN_DESTINATION", 40 * S, UNIQ_KEY=name, REDRIVE_COUNT=1)


@tells((RETRY, 1, "rejected"))
def a_retry_that_was_rejected_on_its_level(story: Story, name: str) -> None:
    send_back(story, name, 11 * S)
    bury(story, NAMES.level(3), hop(story, name, 11_010, 1), "UNKNOWN_DESTINATION", 21 * S, UNIQ_KEY=name)


@tells((RETRY, 1, "on_time"), (RETRY, 1, "rejected"))
def sent_back_twice_and_the_second_rejected_on_its_level(story: Story, name: str) -> None:
    send_back(story, name, 11 * S)
    hop(story, name, 11_010, 1)
    deliver(story, name, 21_020, 21_010, RETRY, RECONSUME_TIME=1)
    send_back(story, name, 30 * S)
    bury(story, NAMES.level(3), hop(story, name, 30_010, 1), "UNKNOWN_DESTINATION", 40_020, UNIQ_KEY=name)


@tells((RETRY, 1, "rejected"), (RETRY, 1, "on_time"))
def sent_back_twice_and_the_first_rejected(story: Story, name: str) -> None:
    bury(story, SEND_BACK, send_back(story, name, 11 * S), "TOO_MANY_GROUP_TOPICS", 11_010, UNIQ_KEY=name)
    send_back(story, name, 12 * S)
    hop(story, name, 12_010, 1)
    deliver(story, name, 22_020, 22_010, RETRY, RECONSUME_TIME=1)


@tells(("orders", 0, "rejected"), ("orders", 0, "on_time"))
def used_again_for_the_same_time_and_the_first_rejected(story: Story, name: str) -> None:
    bury(story, WHEEL, schedule(story, name), "RECORD_TOO_LARGE", 20 * S, UNIQ_KEY=name)
    schedule(story, name)
    deliver(story, name, 20 * S, 20 * S)


@tells((RETRY, 1, "rejected"), (RETRY, 1, "rejected"))
def sent_back_twice_and_both_rejected_on_their_level(story: Story, name: str) -> None:
    for at_ms in (11 * S, 12 * S):
        send_back(story, name, at_ms)
        offset = hop(story, name, at_ms + 10, 1)
        bury(story, NAMES.level(3), offset, "UNKNOWN_DESTINATION", at_ms + 10_020, UNIQ_KEY=name)


@tells((RETRY, 1, "rejected"), (RETRY, 1, "missing"))
def sent_back_twice_and_one_rejected_and_one_lost(story: Story, name: str) -> None:
    for at_ms in (11 * S, 12 * S):
        send_back(story, name, at_ms)
    bury(story, NAMES.level(3), hop(story, name, 11_010, 1), "UNKNOWN_DESTINATION", 21_020, UNIQ_KEY=name)


@tells((RETRY, 1, "duplicate"))
def a_retry_that_was_delivered_and_rejected_on_its_level(story: Story, name: str) -> None:
    send_back(story, name, 11 * S)
    offset = hop(story, name, 11_010, 1)
    deliver(story, name, 21_020, 21_010, RETRY, RECONSUME_TIME=1)
    bury(story, NAMES.level(3), offset, "UNKNOWN_DESTINATION", 21_030, UNIQ_KEY=name)


@tells((RETRY, 1, "rejected"))
def a_retry_that_was_rejected_on_its_level_and_sent_back_before_the_audit_began(story: Story, name: str) -> None:
    bury(story, NAMES.level(3), hop(story, name, 11_010, 1), "UNKNOWN_DESTINATION", 21 * S, UNIQ_KEY=name)


@tells(("orders", 0, "on_time"), ("orders", 0, "rejected"))
def used_again_and_postponed_and_rejected(story: Story, name: str) -> None:
    schedule(story, name, 10 * S)
    deliver(story, name, 10 * S, 10 * S)
    origin = schedule(story, name, 10 * S, 20 * S)
    copy = postpone(story, name, 30 * S, 30 * S, TIMER_ORIGIN_OFFSET=origin, TIMER_ROLL_TIMES=0)
    bury(story, WHEEL, copy, "UNKNOWN_DESTINATION", 36 * S, UNIQ_KEY=name)


@tells(("orders", 0, "cancelled"), ("orders", 0, "rejected"))
def cancelled_and_used_again_and_postponed_and_rejected(story: Story, name: str) -> None:
    schedule(story, name, 60 * S)
    cancel(story, name, 5 * S)
    origin = schedule(story, name, 10 * S, 20 * S)
    copy = postpone(story, name, 30 * S, 30 * S, TIMER_ORIGIN_OFFSET=origin, TIMER_ROLL_TIMES=0)
    bury(story, WHEEL, copy, "UNKNOWN_DESTINATION", 36 * S, UNIQ_KEY=name)


@tells(("orders", 0, "rejected"), ("orders", 0, "cancelled_too_late"))
def postponed_and_rejected_and_then_replaced(story: Story, name: str) -> None:
    origin = schedule(story, name, 10 * S)
    copy = postpone(story, name, 10 * S, 10 * S, TIMER_ORIGIN_OFFSET=origin, TIMER_ROLL_TIMES=0)
    bury(story, WHEEL, copy, "UNKNOWN_DESTINATION", 16 * S, UNIQ_KEY=name)
    replace(story, name, 20 * S, 20 * S)


@tells(("orders", 0, "rejected"), ("orders", 0, "cancelled_too_late"))
def postponed_from_a_level_and_rejected_and_then_replaced(story: Story, name: str) -> None:
    by_level_3(story, name)
    bury(story, WHEEL, postpone(story, name, 10 * S, 10 * S), "UNKNOWN_DESTINATION", 16 * S, UNIQ_KEY=name)
    replace(story, name, 20 * S, 20 * S)


@tells(("orders", 0, "on_time"))
def delivered_where_another_was_rejected_before_the_topic_was_made_anew(story: Story, name: str) -> None:
    bury(story, WHEEL, schedule(story, name), "UNKNOWN_DESTINATION", -DAY, UNIQ_KEY=name)
    deliver(story, name, 20 * S, 20 * S)


@tells(("orders", 0, "missing"))
def lost_where_another_was_rejected_before_the_topic_was_made_anew(story: Story, name: str) -> None:
    offset = story.write(WHEEL, 0, append_time=False, REAL_TOPIC="orders", UNIQ_KEY=name, TIMER_DELAY_MS=20 * S)
    bury(story, WHEEL, offset, "UNKNOWN_DESTINATION", -DAY, UNIQ_KEY="one that is gone")


@tells(("orders", 0, "rejected"))
def rejected_where_another_was_rejected_before_the_topic_was_made_anew(story: Story, name: str) -> None:
    offset = schedule(story, name)
    bury(story, WHEEL, offset, "NO_DELIVERY_TIME", -DAY, UNIQ_KEY=name)
    bury(story, WHEEL, offset, "UNKNOWN_DESTINATION", 20 * S, UNIQ_KEY=name)


@tells(("orders", 0, "cancelled"))
def cancelled_where_another_could_not_be_read_before_the_topic_was_made_anew(story: Story, name: str) -> None:
    schedule(story, name)
    bury(story, WHEEL, cancel(story, name, 5 * S), "UNREADABLE_HEADERS", -DAY, UNIQ_KEY=name)


@tells(("orders", 0, "rejected"))
def stamped_in_the_future_and_rejected(story: Story, name: str) -> None:
    offset = story.write(NAMES.level(3), 50 * S, append_time=False, REAL_TOPIC="orders", UNIQ_KEY=name)
    bury(story, NAMES.level(3), offset, "UNKNOWN_DESTINATION", -DAY, UNIQ_KEY=name)


@tells(("orders", 0, "rejected"))
def rejected_by_a_broker_whose_clock_is_behind(story: Story, name: str) -> None:
    bury(story, WHEEL, schedule(story, name, 1 * S), "UNKNOWN_DESTINATION", -59 * S, UNIQ_KEY=name)


# --- the tests --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def told() -> Story:
    """All of them, in an order in which nobody wrote them: verdicts must not depend on it."""
    story = Story()
    for name, (tell, _) in STORIES.items():
        tell(story, name)
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    random.Random(seed).shuffle(story.records)
    return story


@pytest.fixture(scope="module")
def judged(spark: SparkSession, told: Story) -> dict[str, list[dict[str, Any]]]:
    by_id: dict[str, list[dict[str, Any]]] = {}
    for row in rows_of(spark, told, 100 * S):
        by_id.setdefault(row["id"], []).append(row)
    return by_id


@pytest.mark.parametrize("name", STORIES)
def test_a_story_has_its_verdicts(judged: dict[str, list[dict[str, Any]]], name: str) -> None:
    found = [(row["destination"], row["retries"], row["verdict"]) for row in judged.get(name, [])]
    assert sorted(found, key=str) == STORIES[name][1]


def test_a_verdict_has_the_places_of_what_asked_and_of_what_came(
    judged: dict[str, list[dict[str, Any]]], told: Story
) -> None:
    (row,) = judged["delivered_late"]
    asked = next(one for one in told.records if one.topic == WHEEL and ("UNIQ_KEY", b"delivered_late") in one.headers)
    came = next(one for one in told.records if one.topic == "orders" and ("UNIQ_KEY", b"delivered_late") in one.headers)
    assert (row["topic"], row["partition"], row["offset"]) == (WHEEL, 0, asked.offset)
    assert (row["delivered_partition"], row["delivered_offset"]) == (0, came.offset)
    assert (row["lateness_ms"], row["due_ms"]) == (1_001, told.due(20 * S))
    (lost,) = judged["sent_back_and_lost"]
    assert (lost["topic"], lost["group"], lost["level"]) == (SEND_BACK, "billing", None)
    (rolled,) = judged["rolled_twice"]
    assert rolled["rolls"] == 2
    replaced, replacement = sorted(judged["replaced_by_what_rolled"], key=lambda one: one["offset"])
    assert (replaced["rolls"], replacement["rolls"]) == (0, 1)
    assert [one["rolls"] for one in judged["copied_from_another_cluster_and_rolled"]] == [2]
    (copied,) = judged["delivered_and_copied"]
    assert "one more at orders, partition 0, offset" in copied["why"]


def test_the_verdict_is_as_of_a_time_and_of_what_was_asked_for_in_a_range(spark: SparkSession) -> None:
    story = Story()
    for number in range(4):
        schedule(story, f"m{number}", 20 * S, number * 10 * S)
        deliver(story, f"m{number}", (number + 2) * 10 * S + 5, (number + 2) * 10 * S)
    begin = story.BEGIN_MS
    found = rows_of(spark, story, 31 * S, since_ms=begin + 10 * S, until_ms=begin + 30 * S)
    assert sorted((row["id"], row["verdict"]) for row in found) == [("m1", "on_time"), ("m2", "pending")]


def test_what_became_of_messages_for_other_destinations_may_not_have_been_read(spark: SparkSession) -> None:
    story = Story()
    for name in ("moved too late", "moved at the last moment", "moved and lost"):
        schedule(story, name, REAL_TOPIC="payments")
    replace(story, "moved too late", 21 * S, 40 * S)
    replace(story, "moved at the last moment", 19 * S, 40 * S)
    deliver(story, "moved at the last moment", 59 * S, 59 * S)
    replace(story, "moved and lost", 5 * S, 40 * S)
    schedule(story, "moved to and fro")
    schedule(story, "moved to and fro", 40 * S, 5 * S, TIMER_REPLACE_UNIQKEY="moved to and fro", REAL_TOPIC="payments")
    replace(story, "moved to and fro", 6 * S, 40 * S)
    deliver(story, "moved to and fro", 46 * S, 46 * S)
    found = verdicts_of(spark, story, 100 * S, destinations=("orders",))
    assert [(one.id, one.destination, one.verdict) for one in found] == [
        ("moved and lost", "orders", "missing"),
        ("moved at the last moment", "orders", "on_time"),
        ("moved to and fro", "orders", "cancelled"),
        ("moved to and fro", "orders", "on_time"),
        ("moved too late", "orders", "cancelled_too_late"),
    ]


@pytest.mark.parametrize("are_letters_whole", [True, False])
def test_what_was_redriven_may_be_of_letters_that_are_gone(spark: SparkSession, *, are_letters_whole: bool) -> None:
    story = Story()
    dies_and_is_redriven(story, "of two groups", "orders", "orders")
    moved = {"CONSUMER_GROUP": "mails", "RETRY_TOPIC": "orders", "REDRIVE_COUNT": 1}
    deliver(story, "of two groups", 31 * S, None, "orders", **moved)
    dies_and_is_redriven(story, "of one", "orders", "orders", times=2)
    found = verdicts_of(spark, story, 100 * S, are_letters_whole=are_letters_whole)
    assert {one.verdict for one in found} == {"duplicate"}
    assert [one.id for one in found] == ["of one", "of two groups"][: 1 + are_letters_whole]


@pytest.mark.parametrize("is_whole", [True, False])
def test_what_is_due_at_a_time_that_nobody_asked_for_may_be_of_before_what_was_read(
    spark: SparkSession, *, is_whole: bool
) -> None:
    story = Story()
    for name, delay_ms in (("overlapped", 60 * S), ("pending", 200 * S), ("lost", 60 * S)):
        schedule(story, name, delay_ms)
        deliver(story, name, 20 * S, 20 * S)
    deliver(story, "overlapped", 60 * S, 60 * S)
    by_level_3(story, "by level", 15 * S)
    deliver(story, "by level", 20 * S, 20 * S)
    deliver(story, "by level", 25 * S, 25 * S)
    # Stamped by their producer: when they came says nothing.
    story.write(WHEEL, 30 * S, append_time=False, REAL_TOPIC="orders", UNIQ_KEY="stamped", TIMER_DELAY_MS=10 * S)
    deliver(story, "stamped", 20 * S, 20 * S)
    deliver(story, "stamped", 40 * S, 40 * S)
    found = {one.id: one.verdict for one in verdicts_of(spark, story, 100 * S, is_whole=is_whole)}
    faulty = {"overlapped": "duplicate", "pending": "early", "lost": "early"}
    faulty |= {"by level": "duplicate", "stamped": "duplicate"}
    own = {"overlapped": "on_time", "pending": "pending", "lost": "missing", "by level": "on_time"}
    assert found == (faulty if is_whole else {**own, "stamped": "on_time"})


def test_a_dead_letter_that_was_not_read_excuses_its_redrive_and_not_that_of_another(spark: SparkSession) -> None:
    story = Story()
    dies_and_is_redriven(story, "twice", "orders", "orders", times=2)
    dies_and_is_redriven(story, "once each", "orders", "orders")
    deliver(story, "once each", 30 * S, None, CONSUMER_GROUP="mails", RETRY_TOPIC="orders", REDRIVE_COUNT=1)
    found = {is_whole: verdicts_of(spark, story, 100 * S, is_whole=is_whole) for is_whole in (False, True)}
    assert [one.id for one in found[False]] == ["twice"]
    assert [one.id for one in found[True]] == ["once each", "twice"]


def test_what_was_not_read_excuses_no_copies_and_nothing_else(spark: SparkSession) -> None:
    """Stories of which nothing was asked for before."""
    names = ("delivered_twice", "delivered_and_copied", "stamped_in_the_future", "retried_and_dead", "used_again")
    names += ("rolled_and_delivered_twice", "postponed_twice", "replaced_and_both_delivered")
    story = Story()
    for name in names:
        STORIES[name][0](story, name)
    found: dict[str, Expected] = {name: [] for name in names}
    for one in verdicts_of(spark, story, 100 * S, is_whole=False):
        found[one.id].append((one.destination, one.retries, one.verdict))
    assert {name: sorted(rows, key=str) for name, rows in found.items()} == {name: STORIES[name][1] for name in names}


def test_what_came_for_groups_was_sent_back_by_somebody(spark: SparkSession) -> None:
    story = Story()
    send_back(story, "retried", 20 * S)
    deliver(story, "retried", 30 * S, 30 * S, RETRY, RECONSUME_TIME=1)
    hop(story, "of before", 20 * S, 3)
    deliver(story, "of before", 30 * S, 30 * S, RETRY, RECONSUME_TIME=3)
    dies_and_is_redriven(story, "older than all", "orders", "orders")
    deliver(story, "retried", 31 * S, 30 * S, DLQ, RECONSUME_TIME=1)
    deliver(story, "counted on", 31 * S, 30 * S, RETRY, RECONSUME_TIME=2)
    deliver(story, "redriven", 31 * S, None, RETRY, RECONSUME_TIME=2, REDRIVE_COUNT=1)
    deliver(story, "parked", 31 * S, None, f"{DLQ}.parked", RECONSUME_TIME=2)
    deliver(story, "forwarded", 31 * S, 30 * S, "orders", RECONSUME_TIME=2)
    deliver(story, "within the grace", 95_001, 95 * S, DLQ, RECONSUME_TIME=1)

    def found(failures_ms: tuple[int, int] | None) -> list[tuple[str, str | None]]:
        rows = verdicts_of(spark, story, 100 * S, failures_ms=failures_ms)
        return [(one.id, one.destination) for one in rows if one.verdict == "duplicate"]

    assert found((0, story.due(DAY))) == [("counted on", RETRY), ("retried", DLQ)]
    assert found((story.due(31_001), story.due(DAY))) == []
    assert found((0, story.due(30_999))) == []
    assert found(None) == []
