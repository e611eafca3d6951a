"""Clients that mean no good, and some that do, all at once: ``python -m tests.support.flood ADDRESS TOKEN TOPIC``.

Each client asks again as soon as it has its answer, until standard input ends; then how many answers of which status
each kind has had is printed as JSON. A process of its own, of low priority: it stands for other machines.
"""

import asyncio
import json
import os
import sys
from collections import Counter
from contextlib import suppress

CLIENTS = {"wrong_token": 200, "oversized": 50, "slow_head": 75, "slow_body": 75, "pending": 40, "send": 60}
"""Five hundred in all."""

_TIMEOUT_S = 60.0

Counts = dict[str, Counter[str]]


def _request(method: str, path: str, token: str, body: bytes = b"", *, length: int | None = None) -> bytes:
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body) if length is None else length}\r\n\r\n"
    )
    return head.encode() + body


class Flood:
    """All the clients of one address."""

    def __init__(self, address: str, token: str, topic: str) -> None:
        host, _, port = address.rpartition(":")
        self._place = host, int(port)
        self._counts: Counts = {kind: Counter() for kind in CLIENTS}
        message = json.dumps({"topic": topic, "value": "v" * 100, "delay": "1h"}).encode()
        self._requests = {
            "wrong_token": _request("GET", "/api/v1/pending", "wrong"),
            "oversized": _request("POST", "/api/v1/messages", token, b"[" * 65_536, length=10**9),
            "pending": _request("GET", "/api/v1/pending?limit=100", token),
            "send": _request("POST", "/api/v1/messages", token, message),
            "slow_head": b"GET /api/v1/pending HTTP/1.1\r\nX-Slow: ",
            "slow_body": _request("POST", "/api/v1/messages", token, length=1_000),
        }

    async def run(self) -> Counts:
        """Until standard input ends."""
        clients = [asyncio.create_task(self._client(kind)) for kind, count in CLIENTS.items() for _ in range(count)]
        await asyncio.to_thread(sys.stdin.buffer.read)
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
        return self._counts

    async def _client(self, kind: str) -> None:
        while True:
            try:
                reader, writer = await asyncio.open_connection(*self._place)
            except OSError:
                self._counts[kind]["refused"] += 1
                await asyncio.sleep(0.05)
                continue
            try:
                async with asyncio.timeout(_TIMEOUT_S):
                    await self._use(kind, reader, writer)
            except TimeoutError:
                self._counts[kind]["hangs"] += 1
            except (OSError, asyncio.IncompleteReadError):
                self._counts[kind]["closed"] += 1
            finally:
                writer.close()

    async def _use(self, kind: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Requests on one connection, until it is closed."""
        while True:
            writer.write(self._requests[kind])
            dripping = asyncio.create_task(_drip(writer)) if kind.startswith("slow") else None
            try:
                self._counts[kind][await _status(reader)] += 1
            finally:
                if dripping is not None:
                    dripping.cancel()
            if kind in ("oversized", "slow_head", "slow_body"):
                return


async def _drip(writer: asyncio.StreamWriter) -> None:
    """A byte now and then."""
    with suppress(OSError):
        while True:
            await asyncio.sleep(0.2)
            writer.write(b" ")
            await writer.drain()


async def _status(reader: asyncio.StreamReader) -> str:
    """Of the next answer, which is read to its end."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    length = next(
        (int(line.split(":")[1]) for line in head.split("\r\n") if line.lower().startswith("content-length:")), 0
    )
    await reader.readexactly(length)
    return head.split(" ", 2)[1]


if __name__ == "__main__":
    os.nice(10)
    print(json.dumps(asyncio.run(Flood(*sys.argv[1:]).run())))
