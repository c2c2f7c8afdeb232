"""The load generator's parser: responses in any pieces, what is none, and a reference parser beside it."""

from __future__ import annotations

import itertools
from typing import Protocol

import h11
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from truth_server import OK, http_load

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


def test_a_head_response_without_a_length_keeps_its_connection() -> None:
    parser = http_load.ResponseParser()
    parser.bodiless = True
    assert parser.feed(b"HTTP/1.1 200 OK\r\n\r\n") == 200
    assert parser.keep_alive


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
        (b"HTTP/1.1 200 OK\r\nX: y\nContent-Length: 2\r\n\r\nok", "without CR"),
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


# Beside a reference parser


EXAMPLES = settings(max_examples=300, deadline=None, derandomize=True)
WORDS = st.text("abcdefgh-", min_size=1, max_size=8)
BYTES = st.binary(max_size=40)


@st.composite
def responses(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """Head and body of a response as the standard allows it, sometimes after others that are only interim."""
    interim = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * draw(st.integers(0, 2))
    status = draw(st.sampled_from([200, 201, 204, 301, 304, 404, 503]))
    version = draw(st.sampled_from([b"HTTP/1.1", b"HTTP/1.0"]))
    headers = [b"X-%s: %s" % (draw(WORDS).encode(), draw(WORDS).encode()) for _ in range(draw(st.integers(0, 3)))]
    headers += draw(st.sampled_from([[], [b"Connection: close"], [b"connection: keep-alive"]]))
    body = b""
    if status not in {204, 304}:
        framing = draw(st.sampled_from(["length", "chunked", "close"]))
        body = draw(BYTES)
        if framing == "length":
            headers.append(b"Content-Length: %d" % len(body))
        elif framing == "chunked" and version == b"HTTP/1.1":
            headers.append(b"Transfer-Encoding: chunked")
            chunks = [chunk for chunk in (body, *draw(st.lists(BYTES, max_size=3))) if chunk]
            extension = draw(st.sampled_from([b"", b";a=b"]))
            body = b"".join(b"%x%s\r\n%s\r\n" % (len(chunk), extension, chunk) for chunk in chunks)
            body += b"0\r\n" + draw(st.sampled_from([b"", b"Digest: 1\r\n"])) + b"\r\n"
    draw(st.randoms(use_true_random=False)).shuffle(headers)
    return interim + b"\r\n".join([b"%s %d Reason" % (version, status), *headers, b"", b""]), body


def cut(wire: bytes, places: list[int]) -> list[bytes]:
    """Cut bytes into pieces at some places of them."""
    edges = sorted({0, len(wire), *(place % (len(wire) + 1) for place in places)})
    return [wire[start:end] for start, end in itertools.pairwise(edges)]


def reference(wire: bytes, method: str) -> tuple[int, bool] | None:
    """What h11 makes of bytes and the end of the connection after them.

    Returns:
        Status, and whether the connection may be used again; None where it is no complete response or more than one.
    """
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method=method, target="/", headers=[("Host", "h")]))
    client.send(h11.EndOfMessage())
    status = 0
    try:
        client.receive_data(wire)
        while True:
            event = client.next_event()
            if event is h11.NEED_DATA:
                client.receive_data(b"")
            elif isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.EndOfMessage):
                more, closed = client.trailing_data
                kept = client.their_state is h11.DONE and client.our_state is h11.DONE and not closed
                return None if more else (status, kept and b"HTTP/1.0" not in wire)
            elif isinstance(event, h11.ConnectionClosed) or event is h11.PAUSED:
                return None
    except h11.RemoteProtocolError:
        return None


def ours(pieces: list[bytes], *, bodiless: bool) -> tuple[int, bool] | None:
    """What our parser makes of the same."""
    parser = http_load.ResponseParser()
    parser.bodiless = bodiless
    status = 0
    try:
        for piece in pieces:
            if status:
                return None
            status = parser.feed(piece)
    except http_load.MalformedResponseError:
        return None
    status = status or parser.finish()
    # To h11 no connection of HTTP/1.0 can be kept, to servers it can.
    return (status, parser.keep_alive and b"HTTP/1.0" not in b"".join(pieces)) if status else None


@EXAMPLES
@given(responses(), st.lists(st.integers(0, 500), max_size=6))
def test_whatever_the_standard_allows_is_read_as_h11_reads_it(response: tuple[bytes, bytes], places: list[int]) -> None:
    wire = b"".join(response)
    assert ours(cut(wire, places), bodiless=False) == reference(wire, "GET") is not None


@EXAMPLES
@given(responses(), st.lists(st.integers(0, 500), max_size=6))
def test_the_answer_to_a_head_request_is_read_as_h11_reads_it(response: tuple[bytes, bytes], places: list[int]) -> None:
    head, _ = response
    assert ours(cut(head, places), bodiless=True) == reference(head, "HEAD") is not None


@settings(EXAMPLES, max_examples=2000)
@given(
    responses(), st.lists(st.tuples(st.integers(0, 500), st.integers(0, 3), BYTES), min_size=1, max_size=3), st.data()
)
def test_damaged_bytes_are_refused_or_read_as_h11_reads_them(
    response: tuple[bytes, bytes], damages: list[tuple[int, int, bytes]], data: st.DataObject
) -> None:
    wire = b"".join(response)
    for place, gone, new in damages:
        at = place % len(wire)
        wire = wire[:at] + new + wire[at + gone :]
    pieces = cut(wire, data.draw(st.lists(st.integers(0, 500), max_size=4)))
    mine, theirs = ours(pieces, bodiless=False), reference(wire, "GET")
    # One may be more lenient than the other; where both read a response, it is the same one.
    assert mine is None or theirs is None or mine == theirs


@EXAMPLES
@given(st.lists(st.binary(max_size=200), max_size=5))
def test_no_bytes_make_it_fail_in_another_way(pieces: list[bytes]) -> None:
    parser = http_load.ResponseParser()
    try:
        for piece in pieces:
            parser.feed(piece)
        parser.finish()
    except http_load.MalformedResponseError:
        pass
