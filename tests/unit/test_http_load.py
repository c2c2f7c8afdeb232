"""The load generator: its parser, its histogram, and runs against a server that counts what reaches it."""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
import resource
import socket
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, Self

import pytest
from ansible.module_utils.testing import patch_module_args
from support import ROOT, load_module

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from types import TracebackType

http_load = load_module("load", "http_load")

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
WAIT_S = 10.0
"""Bound of every wait for a condition; far above what any of them takes."""


# The parser


CLOSES = "close-delimited"
RESPONSES = {
    "content-length": (OK, 200, True),
    "empty body": (b"HTTP/1.1 201 Created\r\ncontent-length: 0\r\n\r\n", 201, True),
    "no reason phrase": (b"HTTP/1.1 200\r\nCONTENT-LENGTH:2  \r\n\r\nok", 200, True),
    "body with a blank line": (b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\na\r\n\r\nb", 200, True),
    "asked to close": (b"HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 2\r\n\r\nok", 200, False),
    "HTTP/1.0": (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, False),
    "HTTP/1.0 kept": (b"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 2\r\n\r\nok", 200, True),
    "chunked": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding:chunked\r\n\r\n3\r\nabc\r\n00A\r\n01\r\n\r\n6789\r\n0\r\n\r\n",
        200,
        True,
    ),
    "chunked, extensions and trailers": (
        (
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, Chunked\r\n\r\n"
            b'3;a="b;c"\r\nabc\r\n1 ; x\r\nd\r\n0;last\r\nDigest: 1\r\nOther: 2\r\n\r\n'
        ),
        200,
        True,
    ),
    "chunked wins over content-length": (
        b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        200,
        True,
    ),
    "after interim responses": (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n\r\n" + OK,
        200,
        True,
    ),
    "204": (b"HTTP/1.1 204 No Content\r\n\r\n", 204, True),
    "304 with a length": (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5000\r\n\r\n", 304, True),
    "the same length twice": (
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok",
        200,
        True,
    ),
    "error": (b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 3\r\n\r\nout", 503, True),
    CLOSES: (b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nhello", 200, False),
}


class Parser(Protocol):
    """What the tests use of the module's ResponseParser."""

    def feed(self, data: bytes) -> int:
        """Read what has arrived."""

    def finish(self) -> int:
        """Read the end of the connection."""


def feed_all(parser: Parser, pieces: list[bytes]) -> int:
    """Feed the pieces and the connection's end; only the last piece may complete the response."""
    for piece in pieces[:-1]:
        assert parser.feed(piece) == 0
    return parser.feed(pieces[-1]) or parser.finish()


@pytest.mark.parametrize("name", RESPONSES)
def test_a_response_is_read_in_whatever_pieces_it_arrives(name: str) -> None:
    wire, status, keep_alive = RESPONSES[name]
    splits = [[wire], [wire[i : i + 1] for i in range(len(wire))]]
    splits += [[wire[:at], wire[at:]] for at in range(1, len(wire))]
    parser = http_load.ResponseParser()
    for pieces in splits:
        if name == CLOSES:
            parser = http_load.ResponseParser()
        assert feed_all(parser, pieces) == status, pieces
        assert parser.keep_alive is keep_alive
        assert parser.size == len(wire)


def test_a_head_response_has_no_body_and_the_next_one_may() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"
    for at in range(1, len(head)):
        parser = http_load.ResponseParser()
        parser.bodiless = True
        assert feed_all(parser, [head[:at], head[at:]]) == 200
        assert not parser.started
        parser.bodiless = False
        assert parser.feed(OK) == 200


@pytest.mark.parametrize(
    ("wire", "reason"),
    [
        (b"SPAM\r\n\r\n", "status line"),
        (b"SPAM", "status line"),
        (b"HTTP/2 200\r\n\r\n", "status line"),
        (b"HTTP/1.1 99 Low\r\n\r\n", "status line"),
        (b"HTTP/1.1 20x OK\r\n\r\n", "status line"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\n", "content-length"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\n", "content-length"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok", "content-length"),
        (b"HTTP/1.1 204 No Content\r\n\r\nbody", "more than content-length"),
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", "101"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 17, "100"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1_0\r\n", "chunk size"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\n", "chunk size"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n", "longer than its size"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\n", "without CR"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nmore", "follow the last chunk"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;" + b"x" * 5000, "longer than 4096"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000, "longer than 65536"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000 + b"\r\n\r\n", "longer than 65536"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + b"X: y\r\n" * 20_000, "trailers"),
    ],
)
def test_what_is_no_response_is_refused_in_one_piece_and_in_many(wire: bytes, reason: str) -> None:
    with pytest.raises(http_load.MalformedResponseError, match=reason):
        http_load.ResponseParser().feed(wire)
    parser = http_load.ResponseParser()
    size = 1 if len(wire) < 1000 else 997
    with pytest.raises(http_load.MalformedResponseError):
        [parser.feed(wire[at : at + size]) for at in range(0, len(wire), size)]


def test_bytes_after_the_response_are_refused() -> None:
    with pytest.raises(http_load.MalformedResponseError, match="15 bytes more than content-length"):
        http_load.ResponseParser().feed(OK + b"HTTP/1.1 200 OK")


@pytest.mark.parametrize("name", sorted(set(RESPONSES) - {CLOSES}))
def test_a_cut_response_is_not_complete(name: str) -> None:
    wire, _, _ = RESPONSES[name]
    for end in range(1, len(wire)):
        parser = http_load.ResponseParser()
        assert parser.feed(wire[:end]) == 0
        assert parser.started
        assert parser.finish() == 0


# The histogram


def sparse(values: list[int]) -> list[list[int]]:
    return http_load.merge_histograms([[[http_load.bucket_of(value), 1]] for value in values])  # type: ignore[no-any-return]


def test_every_value_is_within_half_a_percent_of_its_bucket_and_buckets_keep_the_order() -> None:
    edges = [value for bit in range(45) for value in (2**bit - 1, 2**bit, 2**bit + 1)]
    values = sorted({*range(2000), *edges, *(int(1.0137**power) for power in range(2200))})
    indices = [http_load.bucket_of(value) for value in values]
    assert indices == sorted(indices)
    for value, index in zip(values, indices, strict=True):
        assert abs(http_load.bucket_middle(index) - value) <= value * 0.005
    assert sorted({http_load.bucket_of(value) for value in range(5000)}) == list(range(http_load.bucket_of(4999) + 1))


@pytest.mark.parametrize("spread", [0.1, 1.0, 2.5])
def test_percentiles_are_within_one_percent_of_the_exact_ones(spread: float) -> None:
    rng = random.Random(7)  # noqa: S311  # samples, not secrets
    values = [int(rng.lognormvariate(math.log(2e6), spread)) + 1 for _ in range(20_000)]
    histogram = sparse(values)
    ordered = sorted(values)
    for percent in (0.1, 1, 25, 50, 90, 95, 99, 99.9, 100):
        exact = ordered[math.ceil(round(len(ordered) * percent / 100, 6)) - 1] / 1000  # nearest rank
        assert http_load.percentile_us(histogram, percent) == pytest.approx(exact, rel=0.01)


def test_nearest_rank_of_small_samples() -> None:
    histogram = [[value, 1] for value in range(1, 101)]  # exact below 256 ns
    assert http_load.percentile_us(histogram, 50) == 0.05
    assert http_load.percentile_us(histogram, 99) == 0.099
    assert http_load.percentile_us(histogram, 99.9) == 0.1
    assert http_load.percentile_us([[5, 999], [6, 1]], 99.9) == 0.005
    assert http_load.percentile_us([], 50) is None


def test_merged_histograms_are_the_histogram_of_all_samples() -> None:
    rng = random.Random(3)  # noqa: S311  # samples, not secrets
    first, second = ([rng.randrange(1, 10**9) for _ in range(500)] for _ in range(2))
    assert http_load.merge_histograms([sparse(first), sparse(second)]) == sparse(first + second)
    assert http_load.merge_histograms([]) == []


# The recorder


def begun(warmup_s: float, duration_s: float) -> tuple[Any, Callable[[float], int]]:
    """Return a recorder that has begun, and a function from seconds of its run to its clock."""
    recorder = http_load.Recorder(warmup_s, duration_s)
    recorder.begin()
    start_ns = recorder.end_ns - round((warmup_s + duration_s) * 1e9)
    return recorder, lambda second: start_ns + round(second * 1e9)


def test_what_happens_goes_to_its_bin_and_phase_however_late_it_is_looked_at() -> None:
    recorder, at = begun(0.25, 0.3)
    for second in (0.05, 0.24, 0.26, 0.45, 0.549, 0.56, 7.0):
        recorder.success(at(second), 1000, 10, 200)
    recorder.failure(at(8), 1000, "reset", "")
    recorder.advance(at(9))
    assert recorder.bins_ok == [1, 0, 2, 0, 1, 1]
    assert recorder.bins_errors == [0] * 6
    assert [tally.requests for tally in (recorder.warmup, recorder.measured, recorder.after)] == [2, 3, 3]


def test_a_run_without_warm_up_measures_from_its_first_moment() -> None:
    recorder, at = begun(0.0, 0.2)
    recorder.success(at(0.0), 1000, 10, 200)
    recorder.bad_status(at(0.1), 1000, 10, 500, "a")
    recorder.advance(at(0.2))
    assert (recorder.bins_ok, recorder.bins_errors) == ([1, 0], [0, 1])
    assert recorder.measured.requests == 2
    assert recorder.warmup.requests == 0


def test_the_result_of_a_minute_stays_below_200_kilobytes() -> None:
    rng = random.Random(1)  # noqa: S311  # samples, not secrets
    recorder, at = begun(10, 60)
    for number in range(70_000):
        recorder.success(at(number / 1000), int(rng.lognormvariate(math.log(5e6), 2.5)) + 1, 300, 200)
    recorder.advance(at(70))
    plan = http_load.make_plan(params("http://h:1", warmup_s=10, duration_s=60, connections=100))
    assert len(json.dumps(http_load.make_report(plan, recorder, at(70)))) < 200_000


# A server that counts


@dataclass(frozen=True)
class Arrival:
    """A request as the server saw it, with its number in all and its number on its connection, from 0."""

    line: str
    headers: dict[str, str]
    connection: int
    number: int
    on_connection: int


@dataclass
class Server:
    """Serves on loopback; `answer` returns the bytes to send, and None or b"" in place of keeping on."""

    answer: Callable[[Server, Arrival], Awaitable[tuple[bytes, bool]]]
    arrivals: list[Arrival] = field(default_factory=list)
    connections: int = 0
    open: int = 0
    port: int = 0
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
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
        self.open += 1
        on_connection = 0
        keep = True
        try:
            while keep:
                lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                headers = {name.lower(): value for name, _, value in (item.partition(": ") for item in lines[1:])}
                arrival = Arrival(lines[0], headers, connection, len(self.arrivals), on_connection)
                on_connection += 1
                self.arrivals.append(arrival)
                self.arrived.set()
                wire, keep = await self.answer(self, arrival)
                writer.write(wire)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has closed
        finally:
            self.open -= 1
            writer.close()


async def answer_ok(_server: Server, _arrival: Arrival) -> tuple[bytes, bool]:
    return OK, True


def always(wire: bytes, *, keep: bool) -> Callable[[Server, Arrival], Coroutine[Any, Any, tuple[bytes, bool]]]:
    """Answer every request with the same bytes."""

    async def answer(_server: Server, _arrival: Arrival) -> tuple[bytes, bool]:
        return wire, keep

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


def run(
    answer: Callable[[Server, Arrival], Awaitable[tuple[bytes, bool]]] = answer_ok, **changes: object
) -> tuple[dict[str, Any], Server]:
    """Load such a server and return the result and the server."""

    async def scenario() -> tuple[dict[str, Any], Server]:
        async with Server(answer) as server:
            plan = http_load.make_plan(params(f"http://127.0.0.1:{server.port}", **changes))
            return await http_load.LoadRun(plan).run(), server

    return asyncio.run(scenario())


def errors_of(load: dict[str, Any]) -> dict[str, int]:
    """Return the kinds of error that occurred, over the whole run."""
    return {kind: count for kind, count in load["total"]["errors_by_kind"].items() if count}


# Runs


def test_every_request_is_counted_once() -> None:
    load, server = run()
    total, measured, bins = load["total"], load["measured"], load["bins"]
    assert total["requests"] == total["ok"] == len(server.arrivals) == total["status_counts"]["200"]
    assert total["bytes"] == len(server.arrivals) * len(OK)
    assert (total["errors"], total["retried"]) == (0, 0)
    assert server.connections == 3
    assert len(bins["ok"]) == len(bins["errors"]) == 4
    assert measured["requests"] == sum(bins["ok"][1:]) == load["latency_us"]["count"]
    # What was under way at the end is answered after it: at most one request for each connection.
    assert 0 <= total["ok"] - sum(bins["ok"]) <= 3
    assert sum(count for _, count in load["latency_us"]["histogram"]) == measured["ok"]
    assert measured["throughput_rps"] == pytest.approx(measured["ok"] / 0.3, abs=0.001)
    assert load["error_samples"] == {}


def test_a_delay_in_the_server_shows_up_in_the_percentiles() -> None:
    async def every_tenth_is_slow(_server: Server, arrival: Arrival) -> tuple[bytes, bool]:
        await asyncio.sleep(0.06 if arrival.number % 10 == 9 else 0.004)
        return OK, True

    load, _ = run(every_tenth_is_slow, warmup_s=0)
    latency = load["latency_us"]
    assert 3_900 <= latency["min"] <= latency["p50"] < 60_000
    assert 59_900 <= latency["p99"] <= latency["p99_9"] <= latency["max"]
    busy = load["measured"]["ok"] / 0.3 * latency["mean"] / 1e6
    assert load["generator"]["littles_law_residual"] == pytest.approx(abs(3 - busy) / 3, abs=0.001)


def test_requests_are_sent_as_typed_round_robin_each_connection_from_another_place() -> None:
    paths = ["/a?pagination[pageSize]=100&populate=*", "/b/../%2e/ü", "//c?d=e'f|{g}"]
    load, server = run(
        requests=[{"path": path, "headers": {"Accept": "text/plain", "X-Own": "1"}} for path in paths],
        connections=2,
    )
    # The server's view is decoded from UTF-8, as the paths were encoded.
    for connection in range(2):
        lines = [arrival.line for arrival in server.arrivals if arrival.connection == connection]
        first = paths.index(lines[0].split(" ")[1])
        assert lines == [f"GET {paths[(first + step) % 3]} HTTP/1.1" for step in range(len(lines))]
    assert len({arrival.line for arrival in server.arrivals if arrival.on_connection == 0}) == 2
    for arrival in server.arrivals:
        assert arrival.headers["host"] == f"127.0.0.1:{server.port}"
        assert (arrival.headers["accept"], arrival.headers["x-own"]) == ("text/plain", "1")
        assert "connection" not in arrival.headers
    assert errors_of(load) == {}


def test_head_and_get_share_a_connection() -> None:
    async def answer(_server: Server, arrival: Arrival) -> tuple[bytes, bool]:
        return (OK[:-2] if arrival.line.startswith("HEAD ") else OK), True

    load, server = run(answer, requests=[{"path": "/", "method": "HEAD"}, {"path": "/"}], connections=1)
    assert errors_of(load) == {}
    assert server.connections == 1
    assert [arrival.line.split(" ")[0] for arrival in server.arrivals[:4]] == ["HEAD", "GET", "HEAD", "GET"]


def test_without_keep_alive_each_request_has_its_own_connection() -> None:
    load, server = run(keep_alive=False)
    assert errors_of(load) == {}
    assert load["total"]["ok"] == len(server.arrivals)
    # A connection that was still being made when the run ended carries no request.
    assert len(server.arrivals) <= server.connections <= len(server.arrivals) + 3
    assert {arrival.on_connection for arrival in server.arrivals} == {0}
    assert {arrival.headers["connection"] for arrival in server.arrivals} == {"close"}


def test_a_body_that_ends_with_the_connection_is_a_success() -> None:
    load, server = run(always(b"HTTP/1.0 200 OK\r\n\r\nhello", keep=False))
    assert errors_of(load) == {}
    assert load["total"]["ok"] == len(server.arrivals) > 3


def test_a_kept_connection_that_the_server_closes_is_retried_once_and_is_no_error() -> None:
    async def answer(_server: Server, arrival: Arrival) -> tuple[bytes, bool]:
        return (b"", False) if arrival.on_connection == 3 else (OK, True)

    load, server = run(answer)
    assert errors_of(load) == {}
    assert load["total"]["retried"] == sum(arrival.on_connection == 3 for arrival in server.arrivals) > 0
    assert load["total"]["ok"] + load["total"]["retried"] == len(server.arrivals)


def test_a_retry_is_not_retried_again() -> None:
    async def answer(_server: Server, arrival: Arrival) -> tuple[bytes, bool]:
        return (OK, True) if arrival.number == 0 else (b"", False)

    load, server = run(answer, connections=1)
    assert (load["total"]["ok"], load["total"]["retried"]) == (1, 1)
    assert errors_of(load) == {"reset": len(server.arrivals) - 2}


async def refuse_after_the_first(server: Server, _arrival: Arrival) -> tuple[bytes, bool]:
    server.refuse()
    return OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), False


async def never(_server: Server, _arrival: Arrival) -> tuple[bytes, bool]:
    await asyncio.Event().wait()
    return b"", False


@pytest.mark.parametrize(
    ("kind", "answer", "sample"),
    [
        ("connect", refuse_after_the_first, "refused"),
        ("timeout", never, "/a: no complete response within 0.1 s"),
        ("reset", always(b"", keep=False), "/a: the server closed the connection"),
        ("short_body", always(OK[:-1], keep=False), "/a: the server closed the connection"),
        ("malformed", always(b"SPAM\r\n\r\n", keep=True), "/a: no HTTP/1.x status line: b'SPAM"),
        ("status", always(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", keep=True), "/a: 404"),
    ],
)
def test_each_kind_of_error_is_named(
    kind: str, answer: Callable[[Server, Arrival], Awaitable[tuple[bytes, bool]]], sample: str
) -> None:
    load, server = run(answer, requests=[{"path": "/a"}], connections=1, timeout_s=0.1)
    total = load["total"]
    assert errors_of(load) == {kind: total["errors"]}
    assert total["errors"] > 0
    assert sample in load["error_samples"][kind]
    assert total["ok"] == (kind == "connect")
    assert total["errors"] - sum(load["bins"]["errors"]) in {0, 1}
    if kind == "status":
        assert total["status_counts"] == {"404": len(server.arrivals)}
        assert server.connections == 1, "an error status does not cost the connection"
    else:
        # Each error is followed by a pause of 0.05, 0.1, 0.2 s: no more than five fit into this run.
        assert total["errors"] <= 5


def test_a_server_that_accepts_nothing_is_one_clear_line() -> None:
    with socket.socket() as bound:  # bound, not listening: nobody else can take the port meanwhile
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        plan = http_load.make_plan(params(f"http://{address}"))
        with pytest.raises(http_load.LoadError, match=f"nothing accepts connections at {address}: .*refused") as raised:
            http_load.run_load(plan, lambda: False)
    assert "\n" not in str(raised.value)


def test_localhost_is_found_where_it_listens() -> None:
    async def scenario() -> dict[str, int]:
        async with Server(answer_ok) as server:
            plan = http_load.make_plan(params(f"http://localhost:{server.port}"))
            return errors_of(await http_load.LoadRun(plan).run())

    assert asyncio.run(scenario()) == {}


# The end of whoever started it


CHILD = """
import sys
sys.path.insert(0, sys.argv[1])
from support import load_module
http_load = load_module("load", "http_load")
plan = http_load.make_plan({"base_url": sys.argv[2], "requests": [{"path": "/"}], "connections": 3,
    "warmup_s": 0.0, "duration_s": 60.0, "keep_alive": True, "timeout_s": 10.0})
try:
    http_load.run_load(plan, http_load.Lifeline().cut)
except http_load.AbandonedError as error:
    sys.exit(str(error))
"""
PARENT = """
import subprocess, sys
subprocess.Popen([sys.executable, "-c", *sys.argv[1:]], stdout=subprocess.DEVNULL)
sys.stdin.read()
"""


async def run_until_abandoned(command: list[str], *, parent_dies: bool) -> bytes:
    """Start a load of a minute, abandon it once it is under way, and return what it said at its end."""
    async with Server(answer_ok) as server:
        arguments = [CHILD, str(ROOT / "tests"), f"http://127.0.0.1:{server.port}"]
        reader, writer = os.pipe()
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            *command,
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=writer,
            stderr=asyncio.subprocess.PIPE,
        )
        os.close(writer)
        assert process.stdin is not None
        assert process.stderr is not None
        await asyncio.wait_for(server.arrived.wait(), WAIT_S)
        if parent_dies:
            process.stdin.close()
        else:
            os.close(reader)
        said = await asyncio.wait_for(process.stderr.read(), WAIT_S)  # ends when the last process has
        await asyncio.wait_for(process.wait(), WAIT_S)
        if parent_dies:
            os.close(reader)
        return said


def test_a_load_ends_when_its_parent_dies() -> None:
    said = asyncio.run(run_until_abandoned([PARENT], parent_dies=True))
    assert b"whoever started the load is gone" in said


def test_a_load_ends_when_nobody_reads_its_output_any_more() -> None:
    said = asyncio.run(run_until_abandoned([], parent_dies=False))
    assert b"whoever started the load is gone" in said


# The module


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"base_url": "https://h:1"}, "https is not supported yet"),
        ({"base_url": "h:1337"}, "write http://host:port"),
        ({"base_url": "http://h:1/api"}, "paths belong into requests"),
        ({"base_url": "http://h:99999"}, "out of range"),
        ({"requests": []}, "requests is empty"),
        ({"requests": [{"path": "a"}]}, "must begin with /"),
        ({"requests": [{"path": "/a b"}]}, "percent-encoded"),
        ({"requests": [{"path": "/a\r\nX: y"}]}, "percent-encoded"),
        ({"requests": [{"path": "/", "headers": {"A": "b\r\nX: y"}}]}, "line break"),
        ({"requests": [{"path": "/", "headers": {"A b": "c"}}]}, "not valid"),
        ({"requests": [{"path": "/", "headers": {"connection": "close"}}]}, "use keep_alive"),
        ({"connections": 0}, "connections is 0, must be between 1 and 10000"),
        ({"connections": 10_001}, "connections is 10001"),
        ({"duration_s": 0}, "duration_s is 0"),
        ({"duration_s": 601}, "duration_s is 601"),
        ({"warmup_s": -1}, "warmup_s is -1"),
        ({"timeout_s": math.nan}, "timeout_s is nan"),
    ],
)
def test_what_cannot_be_run_is_refused_with_a_reason(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(http_load.LoadError, match=message):
        http_load.make_plan({**params("http://h:1"), **changes})


def test_more_connections_than_open_files_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _what: (256, 1024))
    monkeypatch.setattr(resource, "setrlimit", lambda _what, limits: raised.append(limits))
    http_load.allow_files(100)
    assert raised == []
    http_load.allow_files(900)
    assert raised == [(964, 1024)]
    with pytest.raises(http_load.LoadError, match="1000 connections need 1064 open files, the hard limit is 1024"):
        http_load.allow_files(1000)


def test_check_mode_says_what_it_would_send_and_no_secret(capsys: pytest.CaptureFixture[str]) -> None:
    headers = {"Authorization": "Bearer t0ps3cret", "DNT": "1"}
    arguments = {"base_url": "http://127.0.0.1:1", "requests": [{"path": "/a", "headers": headers}]}
    with patch_module_args({**arguments, "_ansible_check_mode": True}), pytest.raises(SystemExit) as end:
        http_load.main()
    assert end.value.code == 0
    printed = capsys.readouterr().out
    result = json.loads(printed)
    assert result["changed"] is False
    assert result["would_send"] == [{"name": "/a", "method": "GET", "path": "/a", "headers": ["Authorization", "DNT"]}]
    assert "t0ps3cret" not in printed
    assert result["invocation"]["module_args"]["connections"] == 100, "a header of 1 hides no number"


def test_requests_do_not_show_their_headers() -> None:
    request = http_load.make_request({"path": "/", "headers": {"Cookie": "t0ps3cret"}}, "h", keep_alive=True)
    assert b"t0ps3cret" in request.wire
    assert "t0ps3cret" not in repr(request)
