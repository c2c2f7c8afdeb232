"""The load generator against servers that mean harm: it stays within its time and its memory."""

from __future__ import annotations

import collections
import itertools
import time
import tracemalloc
from collections.abc import Iterator

import pytest
from truth_server import OK, WAIT_S, Arrival, Server, always, errors_of, hold, http_load, run

TIMEOUT_S = 0.3
MAX_GROWTH_BYTES = 4_000_000
"""What a run may need at its peak: tallies, buffers of its connection and of the server in the same process."""

HEAD = b"HTTP/1.1 200 OK\r\n"


def endless_headers() -> Iterator[bytes]:
    return itertools.chain([HEAD], itertools.repeat(b"X-More: " + b"x" * 1000 + b"\r\n"))


def one_endless_header() -> Iterator[bytes]:
    return itertools.chain([HEAD + b"X: "], itertools.repeat(b"x" * 1000))


def endless_interim() -> Iterator[bytes]:
    return itertools.repeat(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")


def endless_body() -> Iterator[bytes]:
    return itertools.chain([HEAD + b"\r\n"], itertools.repeat(b"x" * 1000))


def endless_chunks() -> Iterator[bytes]:
    return itertools.chain(
        [HEAD + b"Transfer-Encoding: chunked\r\n\r\n"], itertools.repeat(b"3e8\r\n" + b"x" * 1000 + b"\r\n")
    )


def endless_chunk_extension() -> Iterator[bytes]:
    return itertools.chain([HEAD + b"Transfer-Encoding: chunked\r\n\r\n1;"], itertools.repeat(b"x" * 1000))


def endless_trailers() -> Iterator[bytes]:
    return itertools.chain(
        [HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n"], itertools.repeat(b"X: yyyyyyyyyyyy\r\n")
    )


def huge_length() -> Iterator[bytes]:
    return itertools.chain([HEAD + b"Content-Length: 999999999999999\r\n\r\n"], itertools.repeat(b"x" * 1000))


def dribble() -> Iterator[bytes]:
    wire = HEAD + b"X-Long: " + b"x" * 100_000
    return (wire[at : at + 1] for at in range(len(wire)))


@pytest.mark.parametrize(
    ("stream", "pause_s", "kind"),
    [
        (endless_headers, 0.0, "malformed"),
        (one_endless_header, 0.0, "malformed"),
        (endless_interim, 0.0, "malformed"),
        (endless_chunk_extension, 0.0, "malformed"),
        (endless_trailers, 0.0, "malformed"),
        (endless_body, 0.0, "timeout"),
        (endless_chunks, 0.0, "timeout"),
        (huge_length, 0.0, "timeout"),
        (dribble, 0.0, "timeout"),
        (dribble, 0.01, "timeout"),
    ],
)
def test_a_response_without_an_end_is_given_up_in_time_and_kept_nowhere(
    stream: type[Iterator[bytes]], pause_s: float, kind: str
) -> None:
    async def answer(server: Server, arrival: Arrival) -> tuple[bytes, bool]:
        writer = server.writers[arrival.connection]
        for piece in stream():
            writer.write(piece)
            await writer.drain()
            await hold(pause_s)
        return b"", False

    tracemalloc.start()
    began = time.monotonic()
    try:
        load, _ = run(answer, count=1, connections=1, timeout_s=TIMEOUT_S if kind == "timeout" else WAIT_S)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert errors_of(load) == {kind: 1}
    assert time.monotonic() - began < WAIT_S
    assert peak < MAX_GROWTH_BYTES


def test_a_good_response_one_byte_at_a_time_is_a_good_response() -> None:
    async def answer(server: Server, arrival: Arrival) -> tuple[bytes, bool]:
        for at in range(len(OK)):
            server.writers[arrival.connection].write(OK[at : at + 1])
            await hold(0)  # each byte on its own
        return b"", True

    load, _ = run(answer, count=5, connections=1)
    assert errors_of(load) == {}
    assert load["total"]["bytes"] == 5 * len(OK)


@pytest.mark.parametrize(
    ("wire", "keep", "kind"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nok", True, "malformed"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok", False, "short_body"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok", True, "timeout"),
        (OK + OK, True, "malformed"),
        (b"HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\nok", True, "malformed"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n", False, "short_body"),
        (b"HTTP/1.1 200 OK\r\nContent-Le", False, "short_body"),
        (b"\x00" * 100, True, "malformed"),
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n", True, "malformed"),
    ],
)
def test_a_wrong_length_is_an_error_of_its_kind(wire: bytes, kind: str, *, keep: bool) -> None:
    load, _ = run(always(wire, keep=keep), count=2, connections=1, timeout_s=TIMEOUT_S)
    assert errors_of(load) == {kind: 2}


def test_one_hostile_connection_does_not_hold_the_others_up() -> None:
    async def answer(server: Server, arrival: Arrival) -> tuple[bytes, bool]:
        if arrival.connection:
            return OK, True
        for piece in endless_body():
            server.writers[0].write(piece)
            await server.writers[0].drain()
            await hold(0)  # the server has other connections to serve
        return b"", False

    load, server = run(answer, timeout_s=1.0)
    assert errors_of(load) == {"timeout": 1}
    assert load["total"]["ok"] == len(server.arrivals) - 1 > 50


def test_the_parser_keeps_no_more_than_a_head() -> None:
    parser = http_load.ResponseParser()
    pieces = itertools.islice(one_endless_header(), 1000)
    with pytest.raises(http_load.MalformedResponseError, match="longer than 65536"):
        collections.deque(map(parser.feed, pieces), maxlen=0)
    assert parser.size < 70_000
