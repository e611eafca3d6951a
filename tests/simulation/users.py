"""Those who write to the wheel topic: they schedule, cancel, replace, and make mistakes."""

import random
from typing import TYPE_CHECKING, Any

from tests.simulation.ledger import BIG_BYTES, TOPICS, WHEEL, Headers, due_times

if TYPE_CHECKING:
    from tests.simulation.world import World

PARTITIONS = 2

EXTRAS: tuple[Headers, ...] = (
    [("TAGS", b"a")],
    [("x", b"1"), ("KEYS", b""), ("x", None), ("x", b"1")],
    # A record that was delivered before is scheduled again, with all that stood on it.
    [("TIMER_OUT_MS", b"1"), ("TIMER_ROLL_TIMES", b"7"), ("TIMER_ENQUEUE_MS", b"1"), ("TIMER_DEQUEUE_MS", b"1")],
    # Somebody plays the sidecar.
    [("TIMER_ORIGIN_OFFSET", b"0"), ("TIMER_ROLL_TIMES", b"1"), ("TIMER_ROLL_PROOF", b"0123456789abcdef")],
    [("TIMER_NOT_BEFORE_MS", b"99999999999999"), ("TIMER_ROLL_PROOF", b"0123456789abcdef")],
)

MISTAKES: tuple[Headers, ...] = (
    [("TIMER_DELAY_MS", b"5")],
    [("REAL_TOPIC", b"orders")],
    [("REAL_TOPIC", b"orders"), ("TIMER_DELAY_MS", b"soon")],
    [("REAL_TOPIC", b"orders"), ("TIMER_DELAY_SEC", b"100000")],
    [("REAL_TOPIC", b"orders"), ("DELAY", b"0"), ("TIMER_DELAY_MS", b"1000")],
    [("TIMER_DEL_UNIQKEY", b"")],
    [("REAL_TOPIC", b"orders"), ("TIMER_REPLACE_UNIQKEY", b""), ("TIMER_DELAY_MS", b"1000")],
    [],
)


class Users:
    """Every record has a value of its own, by which the judge knows it again."""

    def __init__(self, world: "World") -> None:
        self.written = 0
        self.writes_big = True
        self._world = world
        self._chance: random.Random = world.chance
        self._ids: list[tuple[bytes, int, str]] = []
        self._rolling: list[tuple[bytes, int, int]] = []
        """Id and partition of what lies beyond the roll window, and when it is going to roll, in ms."""
        self._producer = world.kafka.producer({})
        self._transactional = world.kafka.producer({"transactional.id": "users", "transaction.timeout.ms": 60_000})
        self._transactional.init_transactions(1)

    # --- what they do -------------------------------------------------------------------------------------------------

    def schedule_some(self) -> None:
        for _ in range(self._chance.choice([1, 1, 2, 8])):
            self.schedule()

    def schedule_overdue(self) -> None:
        """More than a batch to one partition, all due already."""
        partition = self._chance.randrange(PARTITIONS)
        for _ in range(2 * self._world.settings.batch_records + 1):
            topic = self._chance.choice(TOPICS)
            delay = self._chance.choice([0, 1_000, 50_000])
            headers = [("REAL_TOPIC", topic.encode()), ("TIMER_DELIVER_MS", b"%d" % (self._now_ms - delay))]
            self._write([*headers, ("UNIQ_KEY", self._new_id(partition, topic))], partition)

    def schedule(self) -> None:
        chance = self._chance
        topic = chance.choice(TOPICS) if chance.random() < 0.97 else "nowhere"
        headers = [("REAL_TOPIC", topic.encode()), *self._when()]
        partition = chance.randrange(PARTITIONS)
        if chance.random() < 0.9:
            if self._ids and chance.random() < 0.15:
                uniq_key, partition, _ = chance.choice(self._ids[-10:])
                self._ids.append((uniq_key, partition, topic))
            else:
                uniq_key = self._new_id(partition, topic)
            headers.append(("UNIQ_KEY", uniq_key))
            window = self._world.settings.roll_window
            if self._due_in(headers) > 2 * window:
                self._rolling.append((uniq_key, partition, self._now_ms + window))
        self._write(self._with_extras(headers), partition)

    def cancel_while_it_rolls(self) -> None:
        """Or replace: the sidecar reads of it when the message has left the wheel and its copy is not back yet."""
        chance = self._chance
        self._rolling = [rolling for rolling in self._rolling if rolling[2] > self._now_ms]
        if not self._rolling:
            return
        uniq_key, partition, roll_ms = self._rolling.pop(chance.randrange(len(self._rolling)))
        self._world.clock.advance(roll_ms - self._now_ms)
        if chance.random() < 0.7:
            self._write([("TIMER_DEL_UNIQKEY", uniq_key)], partition)
        else:
            headers = [("TIMER_REPLACE_UNIQKEY", uniq_key), ("UNIQ_KEY", self._new_id(partition, "bills"))]
            self._write([*headers, ("REAL_TOPIC", b"bills"), *self._when()], partition)

    def cancel(self) -> None:
        chance = self._chance
        if not self._ids:
            return
        uniq_key, partition, topic = chance.choice(self._ids[-chance.choice([3, 15, 60]) :])
        if chance.random() < 0.1:
            uniq_key = b"nobody"
        headers: Headers = [("TIMER_DEL_UNIQKEY", uniq_key)]
        if chance.random() < 0.3:
            hint = self._now_ms + chance.randrange(-1_000, self._world.settings.roll_window)
            due = self._world.judge.due_of(uniq_key)
            headers.append(("TIMER_DELIVER_MS", b"%d" % (due if due is not None and chance.random() < 0.7 else hint)))
        if chance.random() < 0.3:
            headers.append(("REAL_TOPIC", (topic if chance.random() < 0.7 else chance.choice(TOPICS)).encode()))
        self._write(headers, partition)

    def replace(self) -> None:
        """Now and then what was put in something's place before, or several times in a row."""
        chance = self._chance
        for _ in range(chance.choice([1, 1, 1, 2, 3])):
            if not self._ids:
                return
            replaced, partition, _ = chance.choice(self._ids[-chance.choice([1, 3, 15]) :])
            topic = chance.choice(TOPICS)
            if chance.random() < 0.4:
                uniq_key = replaced
                self._ids.append((uniq_key, partition, topic))
            else:
                uniq_key = self._new_id(partition, topic)
            headers = [("TIMER_REPLACE_UNIQKEY", replaced), ("UNIQ_KEY", uniq_key), ("REAL_TOPIC", topic.encode())]
            self._write(self._with_extras([*headers, *self._when()]), partition)

    def err(self) -> None:
        """A record that has to be rejected."""
        self._write(list(self._chance.choice(MISTAKES)), self._chance.randrange(PARTITIONS))

    # ------------------------------------------------------------------------------------------------------------------

    @property
    def _now_ms(self) -> int:
        return self._world.clock.now_ms()

    def _due_in(self, headers: Headers) -> int:
        times = due_times(dict(headers), self._now_ms, self._world.level_tables)
        return min(times, default=0) - self._now_ms

    def _new_id(self, partition: int, topic: str) -> bytes:
        uniq_key = b"id%d" % self.written
        self._ids.append((uniq_key, partition, topic))
        return uniq_key

    def _when(self) -> Headers:
        """A time in one of its forms: past, now, soon, within the roll window, beyond it."""
        chance, window = self._chance, self._world.settings.roll_window
        delay = chance.choice(
            [0, 1, chance.randrange(3_000), chance.randrange(window), chance.randrange(window), 5 * window // 2]
        )
        delay += chance.randrange(100)
        form = chance.randrange(9)
        if form < 2:
            return [("TIMER_DELAY_MS", b"%d" % delay)]
        if form < 4:
            return [("TIMER_DELAY_SEC", b"%d" % (delay // 1000)), ("TIMER_DELAY_MS", b"7")]
        if form < 5:
            return [("DELAY", b"%d" % chance.randrange(1, 5)), ("TIMER_DELIVER_MS", b"0")]
        if form < 7 and chance.random() < 0.1:
            delay = -chance.choice([5, 5_000, 10**9])
        return [("TIMER_DELIVER_MS", b"%d" % (self._now_ms + delay))]

    def _with_extras(self, headers: Headers) -> Headers:
        """What else may stand on a record, anywhere between the rest."""
        chance = self._chance
        if chance.random() < 0.2:
            headers.append(("REAL_QID", b"%d" % chance.randrange(2)))
        if chance.random() < 0.1:
            headers.insert(0, ("UNIQ_KEY", b"not this one"))
            headers.append(("UNIQ_KEY", next((v for n, v in reversed(headers[1:]) if n == "UNIQ_KEY"), b"")))
        if chance.random() < 0.3:
            for extra in chance.choice(EXTRAS):
                headers.insert(chance.randrange(len(headers) + 1), extra)
        return headers

    def _write(self, headers: Headers, partition: int) -> None:
        """One record with a value of its own; now and then in a transaction, which may be aborted."""
        chance = self._chance
        value = b"%d" % self.written
        if self.writes_big and chance.random() < 0.05:
            value += b" is big" + bytes(BIG_BYTES)
        self.written += 1
        key = chance.choice([None, b"", b"a", b"key", b"another key"])
        x = chance.random()
        producer: Any = self._transactional if x < 0.15 else self._producer
        if x < 0.15:
            producer.begin_transaction()
        producer.produce(WHEEL, value, key, partition, headers=headers)
        while producer.flush(1):
            pass
        if x < 0.07:
            producer.abort_transaction(1)
        elif x < 0.15:
            producer.commit_transaction(1)
        shown = " ".join(f"{name}={(text or b'').decode(errors='replace')}" for name, text in headers)
        log = self._world.kafka.log(WHEEL, partition)
        assert log is not None
        aborted = " aborted" if x < 0.07 else ""
        self._world.tell(f"produce {value[:9].decode()} to {partition}, end {log.end}{aborted}: {shown}")
