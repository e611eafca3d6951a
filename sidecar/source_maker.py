"""The source of an assigned partition, by the kind of its topic."""

from collections.abc import Mapping

from connectors.contract import TopicKind
from sidecar.accounts import Accounts
from sidecar.cancel_outcomes import CancelOutcome, CancelOutcomes
from sidecar.clock import Clock
from sidecar.dispatch.destinations import Destinations
from sidecar.dispatch.levels import LevelPartition, LevelProgress
from sidecar.dispatch.outages import Outages
from sidecar.dispatch.send_back import SendBackPartition
from sidecar.dispatch.wheel.partition import WheelPartition, WheelSettings
from sidecar.intake.copies import Copies
from sidecar.intake.parse import PARSER_VERSION, Parser
from sidecar.intake.parse_send_back import SendBackParser
from sidecar.intake.parse_wheel import WheelParser
from sidecar.intake.progress import ProgressError, Start
from sidecar.kafka.topic_admin import TopicAdmin
from sidecar.settings import Settings
from sidecar.source import Source
from sidecar.store.errors import SlotConflict, is_unreadable
from sidecar.store.files import FileSystem
from sidecar.store.recovery import Owner

LAPS_MAX = 64
"""How much larger than the settings say a wheel is made at most: by default over two years, 2.5 GB."""


class SourceMaker:
    """Makes the sources of one loop; what they share, they have from here."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        topics: TopicAdmin,
        destinations: Destinations,
        accounts: Accounts,
        outcomes: CancelOutcomes,
        file_system: FileSystem,
    ) -> None:
        self._settings = settings
        self._names = settings.topic_names
        self._clock = clock
        self._topics = topics
        self._destinations = destinations
        self._accounts = accounts
        self._outcomes = outcomes
        self._file_system = file_system
        self._parser = Parser(self._names)
        self._send_back_parser = SendBackParser(self._names, settings.levels, settings.group_id)
        self.outages = Outages(self._names, topics.replicas, self._copies, clock.monotonic_ms)
        """Destinations that take nothing just now: the one among the sources, for the loop looks at it, too."""
        self._laps: dict[int, int] = {}
        """By wheel partition: how many times its wheel is larger than the settings say."""

    def make(self, topic: str, partition: int, start: Start, failed_of: Exception | None) -> Source:
        """The source of a partition.

        Args:
            failed_of: what the one before failed of, if it did.

        Raises:
            ProgressError: what is committed is not to be gone on from.
            KafkaException: Kafka does not answer.
            OSError, StoreError: the local files cannot be used.
        """
        self._accounts.opened((topic, partition), start.offset)
        kind = self._names.kind(topic)
        if kind is TopicKind.WHEEL:
            return self._wheel(topic, partition, start, failed_of)
        return (self._send_back if kind is TopicKind.SEND_BACK else self._level)(topic, partition, start)

    def _level(self, topic: str, partition: int, start: Start) -> Source:
        level = self._names.level_of(topic)
        if level is None:
            raise ValueError(f"{topic} is not a schedule topic")
        _check_is_ours(start, "whether the records before it are delivered")
        return LevelPartition(
            topic,
            partition,
            self._settings.levels.delay_ms(level),
            start_offset=start.offset,
            progress=LevelProgress.decode(start.metadata),
            is_committed=not start.is_offset_alone,
            parser=self._parser,
            outages=self.outages,
            max_delay_ms=self._settings.max_delay,
            max_clock_skew_ms=self._settings.max_clock_skew,
            max_records=self._settings.read_ahead_records,
            max_bytes=self._settings.read_ahead_bytes,
            trace=self._settings.trace_headers,
        )

    def _send_back(self, topic: str, partition: int, start: Start) -> Source:
        return SendBackPartition(
            topic,
            partition,
            start_offset=start.offset,
            parser=self._send_back_parser,
            judge_all=self._destinations.judge_all,
            max_records=self._settings.read_ahead_records,
            max_bytes=self._settings.read_ahead_bytes,
            trace=self._settings.trace_headers,
        )

    def _wheel(self, topic: str, partition: int, start: Start, failed_of: Exception | None) -> Source:
        settings = self._settings
        _check_is_ours(start, "which messages before it wait, and which are delivered,")
        if isinstance(failed_of, SlotConflict):
            # What waits spans more than a lap, of a backlog or of settings before: a wheel of twice the slots holds it.
            self._laps[partition] = min(LAPS_MAX, 2 * self._laps.get(partition, 1))
        slots_total = settings.slots_total * self._laps.get(partition, 1)
        cluster_id, topic_id = self._topics.identify(topic)
        copies = Copies.of(topic_id, settings.group_id)
        self._outcomes.opened(partition, start.offset)

        def tell_outcomes(outcomes: Mapping[int, CancelOutcome], committed: int) -> None:
            self._outcomes.told(partition, outcomes, committed)
            self._accounts.cancels_decided(outcomes)

        layout = f"{slots_total}x{settings.precision_ms}ms,parser{PARSER_VERSION}"
        return WheelPartition(
            topic,
            partition,
            start=start,
            settings=WheelSettings(
                settings.plan,
                slots_total,
                settings.disk_quota_bytes or None,
                5 * settings.read_ahead_records,
                4 * settings.read_ahead_bytes,
                settings.data_dir,
                settings.trace_headers,
            ),
            parser=WheelParser(self._parser, topic, partition, copies),
            copies=copies,
            outages=self.outages,
            owner=Owner(cluster_id, topic_id, settings.group_id, partition, layout),
            fs=self._file_system,
            now_ms=self._clock.now_ms(),
            tell_outcomes=tell_outcomes,
            monotonic_ms=self._clock.monotonic_ms,
            was_unreadable=is_unreadable(failed_of),
        )

    def _copies(self) -> Copies:
        _, topic_id = self._topics.identify(self._names.wheel)
        return Copies.of(topic_id, self._settings.group_id)


def _check_is_ours(start: Start, what: str) -> None:
    """Raises ProgressError where neither a sidecar nor an operator has committed, who would know."""
    if start.is_set_unawares:
        raise ProgressError(
            f"the committed offset {start.offset} stands alone, as consumers and tools other than 'timewheel progress "
            f"set' leave it: {what} is not known any more"
        )
