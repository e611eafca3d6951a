"""What Kafka has against a transaction that it did not take, and what becomes of the records it refuses.

A record that is refused takes its whole transaction with it, and the others of that transaction bear errors, too. So
the first question is whose errors count, the second whether repeating mends them. Where it does not, `Suspects` parts
the transaction until one record stands alone; that one becomes a dead letter.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from confluent_kafka import KafkaError

from connectors.contract import ErrorCode
from connectors.kafka_errors import CLOSED, MISSING, PASSING, REFUSALS, remedy
from sidecar.dispatch.dead_letters import TOO_LARGE_REMEDY
from sidecar.dispatch.dequeue_put import DequeuePut
from sidecar.dispatch.destinations import Destinations
from sidecar.dispatch.transactions import Refusal
from sidecar.records import KEY, OFFSET, Rejection
from sidecar.source import Draft, Source

WHATEVER_ITS_SIZE = CLOSED | {KafkaError.INVALID_RECORD}
"""What Kafka says of a dead letter, and would of a smaller one, too: a compacted topic takes none without a key."""

_PURGED = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
"""What the client says of records that had to go with another's transaction."""

_REFUSED_AS_ONE = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError._STATE)
"""What the calls of a transaction fail with that may not write to one of its topics: the first, and the others."""


_OF_PROGRESS = "Failed to commit offsets to transaction"
"""Librdkafka's words where it is the schedule topic that the login may not read: no record is at fault."""


class Findings(NamedTuple):
    """What a failed transaction tells."""

    final: dict[str, Refusal]
    """By topic: what repeating does not mend."""
    guilty: list[Refusal]
    """Of records that were refused for what they are themselves."""
    is_of_records: bool
    """Whether it failed because of its records, one of which may yet go through without the others."""

    def in_words(self, error: KafkaError) -> str:
        """What was wrong, by the record that has met it where it was a record."""
        if not self.guilty:
            return error.str()
        topic, partition, refused = self.guilty[0]
        return f"'{topic}-{partition}': {refused.str()}"


def find(
    error: KafkaError, refusals: Sequence[Refusal], topics: Collection[str], *, skip_unknown_error: bool
) -> Findings:
    """What a transaction has failed for.

    Args:
        error: of the call that has failed.
        refusals: what Kafka has said of single records.
        topics: that the transaction was to write to.
        skip_unknown_error: whether an error that nobody knows is final.
    """
    # Of a topic that may not be written to hears the transaction, and none of its records, for none was sent; and with
    # it hears only the call that was under way just then.
    is_of_all = (
        error.code() in _REFUSED_AS_ONE
        and not error.str().startswith(_OF_PROGRESS)
        and all(refused.code() in _PURGED for _, _, refused in refusals)
    )
    if is_of_all and error.code() in REFUSALS:
        refusals = [(topic, 0, KafkaError(error.code())) for topic in sorted(topics)]
    guilty = [refusal for refusal in refusals if refusal[2].code() not in _PURGED]
    return Findings(
        {refusal[0]: refusal for refusal in refusals if _is_final(refusal[2], skip_unknown_error)},
        guilty,
        bool(guilty) or is_of_all,
    )


def stand_alone(drafts: Sequence[Draft]) -> bool:
    """Whether no smaller transaction can be made of them: one record, or what one record brings."""
    return len({(draft.source, record[OFFSET]) for draft in drafts for record in draft.records}) == 1


class Refusals:
    """Makes dead letters of records that Kafka refuses.

    Args:
        put: turns them into dead letters the next time they are taken.
        destinations: learns of topics that take nothing.
        skip_unknown_error: whether an error that nobody knows is final.
    """

    def __init__(
        self, put: DequeuePut, destinations: Destinations, dead_letter_topic: str, *, skip_unknown_error: bool
    ) -> None:
        self._put = put
        self._destinations = destinations
        self._dead_letter_topic = dead_letter_topic
        self._skip_unknown_error = skip_unknown_error

    def find(self, error: KafkaError, refusals: Sequence[Refusal], drafts: Sequence[Draft]) -> Findings:
        """See the function of that name; has to be asked before anything else is put."""
        topics = {self._put.topic_of(source, record) for source, records in drafts for record in records}
        return find(error, refusals, topics, skip_unknown_error=self._skip_unknown_error)

    def bury(self, drafts: Sequence[Draft], final: dict[str, Refusal]) -> list[tuple[Source, Refusal]]:
        """These records cannot be parted further: those for topics that refuse them are dead letters from now on.

        Returns:
            Where even the dead letter is refused, whatever its size: whose, and why. It has to be tried again.
        """
        records = [(source, record) for source, records in drafts for record in records]
        refused = [each for each in records if self._put.topic_of(*each) in final] or records
        waiting = []
        for source, record in refused:
            refusal = final.get(self._put.topic_of(source, record), next(iter(final.values())))
            topic, _, error = refusal
            is_in_vain = error.code() in WHATEVER_ITS_SIZE or self._put.is_smallest(source, record)
            if topic == self._dead_letter_topic and is_in_vain:
                waiting.append((source, refusal))
                continue
            self._put.refuse(source, record, rejection_of(refusal))
            if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                self._destinations.refuses(topic, rejection_of(refusal))
            elif error.code() == KafkaError.INVALID_RECORD and record[KEY] is None:  # a compacted topic
                self._destinations.refuses_keyless(topic, rejection_of(refusal))
        return waiting


def rejection_of(refusal: Refusal) -> Rejection:
    """What the dead letter of a refused record says."""
    topic, _, error = refusal
    is_size = error.code() == KafkaError.MSG_SIZE_TOO_LARGE
    code = ErrorCode.RECORD_TOO_LARGE if is_size else ErrorCode.DESTINATION_REFUSED
    if is_size:
        what_to_do = TOO_LARGE_REMEDY
    elif error.code() in MISSING:
        what_to_do = f"create {topic}"
    else:
        what_to_do = remedy(error, topic)
    return Rejection(code, f"'{topic}' refuses the record: {error.str()}; {what_to_do}")


def _is_final(error: KafkaError, skip_unknown_error: bool) -> bool:
    """Whether repeating does not help; with `skip_unknown_error` also where the error is none that is known."""
    return error.code() in REFUSALS or (skip_unknown_error and error.code() not in PASSING)
