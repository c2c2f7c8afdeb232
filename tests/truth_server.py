"""An HTTP server that counts what reaches it and answers as told, and runs of the load generator against it."""

from __future__ import annotations

import asyncio
import random
import ssl
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from support import load_module

http_load = load_module("load", "http_load")

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
WAIT_S = 10.0
"""Bound of every wait for a condition; far above what any of them takes."""


@dataclass(frozen=True)
class Arrival:
    """A request as the server saw it, with its number in all and its number on its connection, from 0."""

    line: str
    headers: dict[str, str]
    body: bytes
    connection: int
    number: int
    on_connection: int


@dataclass
class Server:
    """Serves on loopback; `answer` returns the bytes to send, and whether to keep the connection.

    Attributes:
        answer: Is asked for every request.
        tls: How to encrypt, None where nothing is.
        arrivals: Every request that came, in order.
        connections: How many connections there were.
        open: How many there are.
        changed: Notified when a connection came or went.
    """

    answer: Callable[[Server, Arrival], Awaitable[tuple[bytes, bool]]]
    tls: ssl.SSLContext | None = None
    arrivals: list[Arrival] = field(default_factory=list)
    connections: int = 0
    open: int = 0
    port: int = 0
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    writers: dict[int, asyncio.StreamWriter] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.refuse()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def refuse(self) -> None:
        """Accept no further connection."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
        connection = self.connections
        self.connections += 1
        await self._count(1)
        self.writers[connection] = writer
        on_connection = 0
        keep = True
        try:
            while keep:
                arrival = await self._read(reader, connection, on_connection)
                on_connection += 1
                self.arrivals.append(arrival)
                self.arrived.set()
                wire, keep = await self.answer(self, arrival)
                writer.write(wire)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the client has closed, or the test is over
        finally:
            writer.close()
            await self._count(-1)

    async def _count(self, step: int) -> None:
        self.open += step
        async with self.changed:
            self.changed.notify_all()

    async def until_open(self, count: int) -> None:
        """Wait until there are so many connections."""
        async with asyncio.timeout(WAIT_S), self.changed:
            await self.changed.wait_for(lambda: self.open == count)

    async def _read(self, reader: asyncio.StreamReader, connection: int, on_connection: int) -> Arrival:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (item.partition(": ") for item in lines[1:])}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        return Arrival(lines[0], headers, body, connection, len(self.arrivals), on_connection)


Answer = Callable[[Server, Arrival], Awaitable[tuple[bytes, bool]]]


async def answer_ok(_server: Server, _arrival: Arrival) -> tuple[bytes, bool]:
    """Answer at once."""
    return OK, True


async def never(_server: Server, _arrival: Arrival) -> tuple[bytes, bool]:
    """Answer nothing, and keep the connection."""
    await asyncio.Event().wait()
    return b"", False


def always(wire: bytes, *, keep: bool) -> Callable[[Server, Arrival], Coroutine[Any, Any, tuple[bytes, bool]]]:
    """Answer every request with the same bytes."""

    async def answer(_server: Server, _arrival: Arrival) -> tuple[bytes, bool]:
        return wire, keep

    return answer


async def hold(delay_s: float) -> None:
    """Delay an answer: what a test measures, and no wait for anything."""
    await asyncio.sleep(delay_s)


def stalls_once(after_s: float, stall_s: float) -> Answer:
    """Return an answer that comes at once, but for one time when the whole server stands still."""
    begun: list[float] = []

    async def answer(_server: Server, _arrival: Arrival) -> tuple[bytes, bool]:
        now = asyncio.get_running_loop().time()
        begun.append(now)
        at = begun[0] + after_s
        if at <= now < at + stall_s:
            await hold(at + stall_s - now)
        return OK, True

    return answer


def unevenly(took_s: list[float]) -> Answer:
    """Return an answer that takes 5 to 50 ms, every twentieth time 150 ms, and notes what it took."""
    source = random.Random(11)

    async def answer(_server: Server, _arrival: Arrival) -> tuple[bytes, bool]:
        began = time.perf_counter()
        await hold(0.15 if source.random() < 0.05 else source.uniform(0.005, 0.05))
        took_s.append(time.perf_counter() - began)
        return OK, True

    return answer


def after(delay_s: float) -> Callable[[Server, Arrival], Coroutine[Any, Any, tuple[bytes, bool]]]:
    """Answer every request after a while."""

    async def answer(_server: Server, _arrival: Arrival) -> tuple[bytes, bool]:
        await hold(delay_s)
        return OK, True

    return answer


def params(base_url: str, **changes: object) -> dict[str, object]:
    """Return parameters of a short run."""
    defaults = {
        "requests": [{"path": "/"}],
        "connections": 3,
        "warmup_s": 0.1,
        "duration_s": 0.3,
        "keep_alive": True,
        "timeout_s": WAIT_S,
    }
    return {"base_url": base_url, **defaults, **changes}


def run(  # what a test may change of the server, each by its name
    answer: Answer = answer_ok,
    *,
    tls: ssl.SSLContext | None = None,
    scheme: str = "",
    host: str = "127.0.0.1",
    server_class: type[Server] = Server,
    **changes: object,
) -> tuple[dict[str, Any], Server]:
    """Load such a server and return the result and the server."""
    scheme = scheme or ("http" if tls is None else "https")

    async def scenario() -> tuple[dict[str, Any], Server]:
        async with server_class(answer, tls) as server:
            plan = http_load.make_plan(params(f"{scheme}://{host}:{server.port}", **changes))
            load = await asyncio.to_thread(http_load.run_load, plan, lambda: False)
            return load, server

    return asyncio.run(scenario())


def errors_of(load: dict[str, Any]) -> dict[str, int]:
    """Return the kinds of error that occurred, over the whole run."""
    return {kind: count for kind, count in load["total"]["errors_by_kind"].items() if count}
