"""A way between a client and its broker that fails: it loses requests, answers, or whatever comes along it.

Of Kafka's protocol it knows the frames (a length; a request's API key and correlation id, which the answer repeats) and
the address that a broker tells its clients, in whose place it puts its own.
"""

import asyncio
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from enum import Enum
from types import TracebackType
from typing import Self

from connectors.embedded.ports import HOST, any_free

PRODUCE, METADATA, OFFSET_COMMIT, FIND_COORDINATOR = 0, 3, 8, 10
ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN, END_TXN, TXN_OFFSET_COMMIT = 24, 25, 26, 28

_TELL_ADDRESSES = (METADATA, FIND_COORDINATOR)
_REQUEST_HEAD = struct.Struct(">hhi")
_INT32 = struct.Struct(">i")


class Fate(Enum):
    """What becomes of a request; where it is not answered, its connection ends."""

    ANSWERED = "answered"
    REQUEST_LOST = "request lost"
    """The broker never sees it."""
    ANSWER_LOST = "answer lost"
    """The broker has done what it was asked for, and the client does not learn of it."""


class KafkaProxy:
    """Passes everything on to one broker, until the end of the ``with``.

    `decide` gives a request's fate by its API key; it may be set at any time.
    """

    def __init__(self, broker: str) -> None:
        host, _, port = broker.rpartition(":")
        self._broker = host, int(port)
        self._port = any_free()
        self.bootstrap_servers = f"{HOST}:{self._port}"
        self.decide: Callable[[int], Fate] = lambda api: Fate.ANSWERED
        self.met: Counter[tuple[int, Fate]] = Counter()
        """How many requests of an API key have met which fate."""
        self.answered: Counter[int] = Counter()
        """How many answers of the broker have come this far."""
        self.took_s: dict[int, float] = {}
        """How long the broker took for its last answer, by API key."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="kafka proxy")
        self._is_open = asyncio.Event()
        self._is_open.set()
        self._connections: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut(self) -> None:
        """Nothing passes any more, either way, and no connection ends: as where every packet is dropped.

        `decide` may do it, too; then the request that it is asked about waits as well.
        """
        self._is_open.clear()

    def mend(self) -> None:
        """Undo `cut`; what was under way arrives now."""
        self._loop.call_soon_threadsafe(self._is_open.set)

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._accept, HOST, self._port)

    async def _end(self) -> None:
        self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = self._loop.create_task(self._pass_on(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _pass_on(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        """One connection. When either side ends it, or a fate does, both ends are gone at once."""
        writers = [to_client]
        try:
            await self._is_open.wait()
            broker, to_broker = await asyncio.open_connection(*self._broker)
            writers.append(to_broker)
            asked: dict[int, tuple[int, Fate, float]] = {}
            async with asyncio.TaskGroup() as group:
                group.create_task(self._requests(client, to_broker, asked))
                group.create_task(self._answers(broker, to_client, asked))
        except* (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            for writer in writers:
                writer.transport.abort()

    async def _requests(
        self, client: asyncio.StreamReader, to_broker: asyncio.StreamWriter, asked: dict[int, tuple[int, Fate, float]]
    ) -> None:
        while True:
            frame = await _frame(client)
            api, _, correlation_id = _REQUEST_HEAD.unpack_from(frame)
            fate = self.decide(api)
            self.met[api, fate] += 1
            if fate is Fate.REQUEST_LOST:
                raise ConnectionResetError
            asked[correlation_id] = api, fate, time.monotonic()
            await self._send(to_broker, frame)

    async def _answers(
        self, broker: asyncio.StreamReader, to_client: asyncio.StreamWriter, asked: dict[int, tuple[int, Fate, float]]
    ) -> None:
        theirs, ours = (_host_port(*address) for address in (self._broker, (HOST, self._port)))
        while True:
            frame = await _frame(broker)
            api, fate, asked_s = asked.pop(*_INT32.unpack_from(frame))
            self.answered[api] += 1
            self.took_s[api] = time.monotonic() - asked_s
            if fate is Fate.ANSWER_LOST:
                raise ConnectionResetError
            await self._send(to_client, frame.replace(theirs, ours) if api in _TELL_ADDRESSES else frame)

    async def _send(self, writer: asyncio.StreamWriter, frame: bytes) -> None:
        await self._is_open.wait()
        writer.write(_INT32.pack(len(frame)) + frame)
        await writer.drain()


def _host_port(host: str, port: int) -> bytes:
    """As answers hold it, after the host's length; ours takes as many bytes as the broker's, so lengths stay."""
    return host.encode() + _INT32.pack(port)


async def _frame(reader: asyncio.StreamReader) -> bytes:
    (size,) = _INT32.unpack(await reader.readexactly(4))
    return await reader.readexactly(size)
