"""``timewheel cancel`` and ``reschedule``: what is done with receipts."""

import json
import time
from collections.abc import Mapping
from typing import Annotated, NamedTuple

import typer
from confluent_kafka import KafkaError

from connectors.producer import ScheduleError, check_cancellable
from connectors.receipt import Receipt
from sidecar.cancel_outcomes import CancelOutcome, NoOutcome
from sidecar.cli import sidecar_api
from sidecar.cli.options import with_settings
from sidecar.cli.scheduling import (
    ACKNOWLEDGED_WITHIN_S,
    KAFKA_SETTINGS,
    SETTINGS,
    AlwaysJson,
    At,
    Delay,
    delivery_time,
    not_taken,
    print_receipt,
    receipts,
    scheduled_producer,
)
from sidecar.cli.sidecar_api import NoAnswerError, SidecarApi
from sidecar.cli.times import duration_ms
from sidecar.errors import TimewheelError, UsageError
from sidecar.kafka.failure import failure
from sidecar.settings import Settings

_POLL_S = 0.2
_REASONS_MAX = 3

CancelId = tuple[int, int]
"""Partition and offset of a cancel on the wheel topic: what its outcome is asked for by."""


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: timewheel cancel --wait - < receipt.json")(cancel)
    app.command(epilog="Example: timewheel reschedule - --delay 2h < receipt.json")(reschedule)


@with_settings(only=(*KAFKA_SETTINGS, *sidecar_api.SETTINGS))
def cancel(
    settings: Settings,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="RECEIPT", help="The receipts that send printed, or its lines; - takes them from stdin."
        ),
    ],
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until a sidecar has decided, and print the outcome.")
    ] = False,
    timeout: Annotated[str, typer.Option(help="How long to wait for that, such as 30s.")] = "30s",
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object for each receipt.")] = False,
) -> None:
    """Take scheduled messages back; done once Kafka has the cancels.

    With --wait, it prints an outcome for each receipt, in their order: cancelled (it will not come); too_late (nothing
    waits, and its time is over: delivered, rejected, or cancelled before); unknown (nothing waits, and its time is to
    come: cancelled before, delivered earlier after a reschedule, or never scheduled); or undecided if --timeout was too
    short. The exit code is 0 if all are cancelled, otherwise 1. Only the sidecar that works on the message's wheel
    partition knows the outcome: --http-address names it.

    A message on a level topic cannot be cancelled. Its receipt is reported on stderr by its number and has no line of
    output; the others are cancelled all the same, and the exit code is 1. Where there are no others, it is 2. A cancel
    that Kafka has not acknowledged is reported on stderr by the message's id, and has no line of output either; the
    exit code is 3 if Kafka does not answer, otherwise 1.
    """
    timeout_ms = duration_ms("--timeout", timeout)
    all_given = receipts(words)
    if not all_given:
        raise UsageError("there is no receipt on stdin")
    given = _cancellable(all_given)
    written, failures = _cancel_all(settings, given)
    outcomes, reasons = _wait_for_outcomes(settings, written, timeout_ms / 1000) if wait else ({}, {})
    for cancel_id, receipt in written.items():
        outcome = outcomes.get(cancel_id)
        if wait and not as_json:
            typer.echo(outcome or "undecided")
            continue
        told = {"id": receipt.id, "partition": cancel_id[0], "offset": cancel_id[1]}
        typer.echo(json.dumps({**told, "outcome": outcome} if wait else told))
    if failures:
        *first, (last, error) = failures
        for receipt, other in first:
            typer.echo(f"timewheel: {receipt.id}: {not_taken(other, 'cancel')}", err=True)
        raise failure(error, f"{last.id}: {not_taken(error, 'cancel')}")
    if reasons:
        told_once = "; ".join(sorted(set(reasons.values()))[:_REASONS_MAX])
        raise TimewheelError(f"no sidecar has decided yet on {len(reasons)} of {len(written)} cancels: {told_once}")
    if set(outcomes.values()) - {CancelOutcome.CANCELLED} or len(given) < len(all_given):
        raise typer.Exit(1)


@with_settings(only=SETTINGS)
def reschedule(
    settings: Settings,
    word: Annotated[
        str,
        typer.Argument(metavar="RECEIPT", help="The receipt that send printed, or its line; - takes it from stdin."),
    ],
    delay: Delay = None,
    at: At = None,
    _as_json: AlwaysJson = False,
) -> None:
    """Give a scheduled message another time; prints the new receipt.

    The message is read from Kafka, which keeps it for roll_window and 7 days. If it has waited for longer, take the
    newer receipt that 'timewheel pending --id' shows with --json.
    """
    if (delay is None) == (at is None):
        raise UsageError("say when with exactly one of --delay and --at")
    when = delivery_time(settings, delay, at)
    given = receipts([word])
    if len(given) != 1:
        raise UsageError(f"one receipt at a time; stdin has {len(given)}")
    (receipt,) = _cancellable(given)
    with scheduled_producer(settings) as producer:
        again = producer.reschedule(receipt, **when)
    print_receipt(again)


def _cancellable(given: list[Receipt]) -> list[Receipt]:
    """Those whose message can be cancelled; the others are told of.

    Raises:
        UsageError: there are none.
    """
    cancellable = []
    for number, receipt in enumerate(given, 1):
        try:
            check_cancellable(receipt)
        except ScheduleError as error:
            if len(given) == 1:
                raise UsageError(str(error)) from error
            typer.echo(f"timewheel: receipt {number}: {error}", err=True)
        else:
            cancellable.append(receipt)
    if not cancellable:
        raise UsageError("none of the messages can be cancelled")
    return cancellable


def _cancel_all(
    settings: Settings, given: list[Receipt]
) -> tuple[dict[CancelId, Receipt], list[tuple[Receipt, KafkaError]]]:
    """Write all the cancels, and wait for Kafka once: those that it has, and the others with what it says of them."""
    silence = KafkaError(KafkaError._TIMED_OUT, "no acknowledgement")
    answers: list[CancelId | KafkaError] = [silence] * len(given)
    with scheduled_producer(settings) as producer:
        for number, receipt in enumerate(given):

            def on_written(answer: CancelId | KafkaError, number: int = number) -> None:
                answers[number] = answer

            producer.begin_cancel(receipt, on_written)
            producer.poll()
        producer.flush(ACKNOWLEDGED_WITHIN_S + 1)
    told = list(zip(given, answers, strict=True))
    written = {answer: receipt for receipt, answer in told if isinstance(answer, tuple)}
    return written, [(receipt, answer) for receipt, answer in told if isinstance(answer, KafkaError)]


def _wait_for_outcomes(
    settings: Settings, written: Mapping[CancelId, Receipt], timeout_s: float
) -> tuple[dict[CancelId, str], dict[CancelId, str]]:
    """What has been decided within the time, and for the rest, why it has not."""
    deadline_s = time.monotonic() + timeout_s
    outcomes: dict[CancelId, str] = {}
    reasons = dict.fromkeys(written, "not asked yet")
    asked = list(written)
    with SidecarApi(settings) as api:
        while asked and time.monotonic() < deadline_s:
            waiting = []
            for cancel_id in asked:
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    break
                told = _ask(api, cancel_id, written[cancel_id].schedule_topic, left_s)
                if told.outcome is not None:
                    outcomes[cancel_id] = told.outcome
                    del reasons[cancel_id]
                    continue
                reasons[cancel_id] = told.reason
                if told.may_come:
                    waiting.append(cancel_id)
            if waiting:
                time.sleep(_POLL_S)
            asked = waiting
    return outcomes, reasons


class _Told(NamedTuple):
    """What a sidecar says of a cancel."""

    outcome: str | None
    reason: str = ""
    may_come: bool = True
    """Whether it may still tell the outcome."""


def _ask(api: SidecarApi, cancel_id: CancelId, topic: str, within_s: float) -> _Told:
    try:
        answer = api.get(f"/api/v1/cancels/{cancel_id[0]}/{cancel_id[1]}", within_s)
        if answer.status in (503, 504):  # a worker is starting, or has just ended
            return _Told(None, answer.json(but_for=answer.status)["detail"])
        told = answer.json(but_for=404)
    except NoAnswerError as error:  # it may be starting
        return _Told(None, str(error))
    except TimewheelError as error:  # a token is missing, or that is no sidecar
        return _Told(None, str(error), may_come=False)
    if "topic" not in told:
        return _Told(None, f"the sidecar answers {answer.status}: {told}", may_come=False)
    if told["topic"] != topic:
        reason = (
            f"the message waits on {topic}, and this sidecar reads {told['topic']}; name another with --http-address"
        )
        return _Told(None, reason, may_come=False)
    if answer.status != 404:
        return _Told(told["outcome"])
    # Without any partition it is starting; with some, this one is another's.
    if told["reason"] == NoOutcome.NOT_ASSIGNED and told["partitions"]:
        return _Told(None, f"{told['detail']}; name the sidecar that reads it with --http-address", may_come=False)
    return _Told(None, told["detail"])
