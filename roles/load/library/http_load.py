#!/usr/bin/python
"""Ansible module: load an HTTP server in a closed loop and report throughput, latency and errors."""

from __future__ import annotations

import asyncio
import errno
import gc
import itertools
import math
import os
import re
import resource
import select
import socket
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ansible.module_utils.basic import AnsibleModule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

DOCUMENTATION = r"""
module: http_load
short_description: Load an HTTP server and measure what it answers
description:
  - Holds a fixed number of connections to one server; each sends its next request when its last one is
    answered (a closed loop).
  - Reports successful responses in bins of 0.1 s, the latency as percentiles and as a histogram, errors by
    kind, and what the generator itself cost.
  - Needs nothing but Python on the host that runs it. Only loads what it is told to; nothing is changed.
  - The run ends on its own after O(warmup_s) + O(duration_s), plus at most O(timeout_s) for requests under
    way, and within a second when the process that started it is gone.
options:
  base_url:
    description: Scheme, host and port of the server, such as V(http://127.0.0.1:1337). Only C(http) so far.
    type: str
    required: true
  requests:
    description:
      - What to send, in this order, round robin. Each connection begins at another place of the list.
    type: list
    elements: dict
    required: true
    suboptions:
      path:
        description: Path and query, sent exactly as written. Begins with C(/).
        type: str
        required: true
      method:
        description: The request's method.
        type: str
        choices: [GET, HEAD]
        default: GET
      name:
        description: What errors of this request are reported under. The path by default.
        type: str
      headers:
        description:
          - Further headers. C(Host), C(User-Agent) and C(Accept) replace the module's own.
          - Values of 8 characters and more are hidden in everything Ansible prints.
        type: dict
        default: {}
  connections:
    description: How many connections to hold, 1 to 10000.
    type: int
    default: 100
  warmup_s:
    description:
      - Seconds of load before the measured window. They appear in RV(load.bins) and RV(load.total) only.
    type: float
    default: 2
  duration_s:
    description: Seconds of the measured window, at most 600.
    type: float
    default: 8
  keep_alive:
    description: Whether connections are used again. If V(false), each request has a connection of its own.
    type: bool
    default: true
  timeout_s:
    description:
      - Seconds that a request may take, from the connection on where one is needed. Looked at every 0.1 s.
    type: float
    default: 10
attributes:
  check_mode:
    description: Reports what would be sent and sends nothing.
    support: full
  diff_mode:
    description: Changes nothing, so there is no difference to show.
    support: none
author:
  - The strapi-tuner authors
"""

EXAMPLES = r"""
- name: Measure the restaurants' list for 8 seconds with 100 connections
  http_load:
    base_url: http://127.0.0.1:1337
    requests:
      - path: /api/restaurants?pagination[pageSize]=100&populate=*
  register: measured

- name: Measure two pages without keep-alive, as `ab` does by default
  http_load:
    base_url: http://127.0.0.1:1337
    requests:
      - {path: /api/restaurants, name: list}
      - {path: /api/restaurants/1, name: one}
    keep_alive: false
"""

RETURN = r"""
load:
  description: What was measured.
  returned: when requests were sent
  type: dict
  contains:
    started_at:
      description: When the first request was sent, in seconds since the epoch.
      type: float
    warmup_s:
      description: Length of the warm-up in seconds.
      type: float
    duration_s:
      description: Length of the measured window in seconds.
      type: float
    connections:
      description: Number of connections held.
      type: int
    bins:
      description:
        - Successful responses (C(ok)) and errors (C(errors)) in each C(width_s) seconds of warm-up and
          measured window.
        - The last bin is shorter where the sum of the two is no multiple of C(width_s).
      type: dict
    measured:
      description:
        - Counts of what was completed inside the measured window.
        - C(requests) = C(ok) + C(errors). C(ok) are responses with a 2xx status. C(retried) are requests
          sent once more because the server had closed the kept connection before the first byte of its
          response; they are no errors.
        - C(errors_by_kind) has connect, timeout, reset (closed before the first byte), short_body (closed
          after it), malformed and status (no 2xx). C(bytes) are headers and bodies of complete responses.
          C(throughput_rps) is C(ok) per second.
      type: dict
    total:
      description:
        - The same counts from the first request to the last response, which may come after the measured
          window.
      type: dict
    latency_us:
      description:
        - C(count), C(min), C(max), C(mean), C(p50), C(p90), C(p95), C(p99) and C(p99_9) of the successful
          responses in the measured window, in microseconds; without keep-alive the time to connect is part
          of it.
        - C(histogram) is a list of [index, count] over nanoseconds v. With e = max(0, bits(v) - 8) the
          index is 128 e + (v >> e), so a bucket is at most 1/128 of its value wide. Histograms of several
          runs are merged by adding the counts of equal indices.
      type: dict
    generator:
      description:
        - What the load itself cost in the measured window. C(cpu_s) and C(cpu_share) (of one core),
          C(cpu_us_per_request).
        - C(littles_law_residual) is |c - X R| / c for c connections, X completed requests per second and
          their mean time R. Above 0.05 connections stood idle, so the generator or the errors, not the
          server, set the pace.
      type: dict
    error_samples:
      description: For each kind of error the first one's own words.
      type: dict
would_send:
  description: Method, path and name of each request, and the names of its own headers.
  returned: in check mode
  type: list
  elements: dict
"""

NS_PER_S = 1_000_000_000
BIN_S = 0.1
BIN_NS = NS_PER_S // 10
SWEEP_S = 0.1
"""How often timeouts, the end of the run and the parent are looked at. One timer for all connections."""
DRAIN_POLL_S = 0.01
RAMP_BATCH = 128
RAMP_STEP_S = 0.01
"""Connections open in batches: thousands at once overflow a listen backlog (Node's is 511) and wait 1 s."""
BACK_OFF_S = 0.05
MAX_BACK_OFF_S = 1.0
SPARE_FILES = 64
MIN_SECRET_LENGTH = 8
RECV_ARENA_BYTES = 1 << 20

MAX_CONNECTIONS = 10_000
MIN_TIME_S = 0.001
MAX_TIME_S = 600.0
NEVER_NS = 1 << 62
MAX_SAMPLE_LENGTH = 200

MAX_HEAD_BYTES = 64 * 1024
MAX_CHUNK_LINE_BYTES = 4 * 1024
STATUS_LINE_START = b"HTTP/1."
STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: |\r|$)")
CONNECTION_HEADER = re.compile(rb"\r\nconnection:([^\r\n]*)")
CODING_HEADER = re.compile(rb"\r\ntransfer-encoding:([^\r\n]*)")
LENGTH_HEADER = re.compile(rb"\r\ncontent-length:([^\r\n]*)")
INTERIM_END = 200
SUCCESS_END = 300
SWITCHING_PROTOCOLS = 101
MAX_INTERIM = 16
BODILESS_STATUS = frozenset({204, 304})
HEX_NUMBER = re.compile(rb"[0-9A-Fa-f]{1,15}")
MAX_LENGTH_DIGITS = 15
INTERIM = -1
CHUNKED = -2
UNTIL_CLOSE = -3
"""These three are what body_length() says where there is no number of bytes."""
HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
FRAMING_HEADERS = frozenset({"connection", "content-length", "transfer-encoding", "upgrade", "expect"})

SUB_BUCKET_BITS = 7
HISTOGRAM_BUCKETS = (64 - SUB_BUCKET_BITS) << SUB_BUCKET_BITS
PERCENTILES = (("p50", 50.0), ("p90", 90.0), ("p95", 95.0), ("p99", 99.0), ("p99_9", 99.9))

CONNECT = "connect"
TIMEOUT = "timeout"
RESET = "reset"
SHORT_BODY = "short_body"
MALFORMED = "malformed"
STATUS = "status"
ERROR_KINDS = (CONNECT, TIMEOUT, RESET, SHORT_BODY, MALFORMED, STATUS)


class LoadError(Exception):
    """The load cannot be run as asked; the message is one line for the user."""


class AbandonedError(LoadError):
    """Whoever started the load is gone, so nobody waits for its result."""


class MalformedResponseError(Exception):
    """The server's bytes are no HTTP/1.x response to the request."""


# What is asked for

Address = tuple[int, Any]
"""Family and socket address. Any: its shape depends on the family."""


@dataclass(frozen=True)
class Request:
    """One request of the mix.

    Attributes:
        name: What its errors are reported under.
        method: GET or HEAD.
        path: Path and query as typed.
        header_names: Names of the user's own headers.
        wire: The bytes to send. Kept out of repr, for a header may hold a secret.
    """

    name: str
    method: str
    path: str
    header_names: tuple[str, ...]
    wire: bytes = field(repr=False)

    @property
    def bodiless(self) -> bool:
        """Whether the response has no body whatever its headers say."""
        return self.method == "HEAD"


@dataclass(frozen=True)
class Plan:
    """A load, checked and ready to run.

    Attributes:
        host: Name or address of the server.
        port: Its TCP port.
        requests: At least one request.
        connections: How many connections to hold.
        warmup_s: Seconds before the measured window.
        duration_s: Seconds of the measured window.
        keep_alive: Whether a connection serves more than one request.
        timeout_s: Seconds a request may take.
    """

    host: str
    port: int
    requests: tuple[Request, ...]
    connections: int
    warmup_s: float
    duration_s: float
    keep_alive: bool
    timeout_s: float


def make_plan(params: dict[str, Any]) -> Plan:
    """Check the module's parameters and prepare every request's bytes.

    Raises:
        LoadError: A parameter is out of its range or cannot be sent.
    """
    host, port = _parse_base_url(params["base_url"])
    if not params["requests"]:
        raise LoadError("requests is empty; name at least one path, such as requests=[{path: /}]")
    _check_range("connections", params["connections"], 1, MAX_CONNECTIONS)
    _check_range("warmup_s", params["warmup_s"], 0, MAX_TIME_S)
    _check_range("duration_s", params["duration_s"], MIN_TIME_S, MAX_TIME_S)
    _check_range("timeout_s", params["timeout_s"], MIN_TIME_S, MAX_TIME_S)
    authority = urlsplit(params["base_url"]).netloc
    return Plan(
        host=host,
        port=port,
        requests=tuple(make_request(item, authority, keep_alive=params["keep_alive"]) for item in params["requests"]),
        connections=params["connections"],
        warmup_s=params["warmup_s"],
        duration_s=params["duration_s"],
        keep_alive=params["keep_alive"],
        timeout_s=params["timeout_s"],
    )


def _parse_base_url(base_url: str) -> tuple[str, int]:
    try:
        url = urlsplit(base_url)
        port = url.port
    except ValueError as error:
        raise LoadError(f"base_url {base_url!r} cannot be read: {error}; write http://host:port") from error
    if url.scheme == "https":
        raise LoadError(f"base_url {base_url!r}: https is not supported yet; give the http:// address behind the proxy")
    if url.scheme != "http" or not url.hostname:
        raise LoadError(f"base_url {base_url!r} is no http:// address; write http://host:port")
    if url.path not in {"", "/"} or url.query or url.fragment or url.username is not None:
        raise LoadError(f"base_url {base_url!r} has more than host and port; paths belong into requests")
    if port == 0:
        raise LoadError(f"base_url {base_url!r}: port 0 cannot be connected to")
    return url.hostname, port or 80


def _check_range(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise LoadError(f"{name} is {value:g}, must be between {low:g} and {high:g}")


def make_request(item: dict[str, Any], authority: str, *, keep_alive: bool) -> Request:
    """Prepare one request.

    Args:
        item: `path` and, optionally, `method`, `name` and `headers`.
        authority: Host and port for the Host header.
        keep_alive: Whether to let the server keep the connection.

    Raises:
        LoadError: The path or a header cannot be sent as it is.
    """
    path: str = item["path"]
    method: str = item.get("method") or "GET"
    own: dict[str, Any] = item.get("headers") or {}
    if not path.startswith("/"):
        raise LoadError(f"path {path!r} must begin with /")
    if any(character <= " " or character == "\x7f" for character in path):
        raise LoadError(f"path {path!r} has a space or a control character; write it percent-encoded (%20)")
    headers = {"Host": authority, "User-Agent": "http_load", "Accept": "*/*"}
    replaceable = {name.lower(): name for name in headers}
    for name, value in own.items():
        _check_header(name, str(value))
        headers.pop(replaceable.get(name.lower(), ""), None)
        headers[name] = str(value)
    if not keep_alive:
        headers["Connection"] = "close"
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return Request(
        name=item.get("name") or path,
        method=method,
        path=path,
        header_names=tuple(own),
        wire="\r\n".join(lines).encode(),
    )


def _check_header(name: str, value: str) -> None:
    # The value stays out of the message: it may be a token.
    if not HEADER_NAME.fullmatch(name):
        raise LoadError(f"header name {name!r} is not valid")
    if name.lower() in FRAMING_HEADERS:
        raise LoadError(f"header {name!r} is the module's own business; use keep_alive for connections")
    if any(character in value for character in "\r\n\0"):
        raise LoadError(f"the value of header {name!r} has a line break; write it on one line")


# The histogram: pure functions over sparse lists of [index, count]


def bucket_of(value_ns: int) -> int:
    """Return the index of the bucket that holds a value.

    Log-linear: exact below 256, then 128 buckets of equal width for each doubling, as HdrHistogram
    (Gil Tene) does it.
    """
    shift = value_ns.bit_length() - SUB_BUCKET_BITS - 1
    if shift <= 0:
        return value_ns
    return (shift << SUB_BUCKET_BITS) + (value_ns >> shift)


def bucket_middle(index: int) -> float:
    """Return the middle of a bucket in nanoseconds, at most 1/256 (0.4 %) away from any value in it."""
    shift = max(0, (index >> SUB_BUCKET_BITS) - 1)
    low = (index - (shift << SUB_BUCKET_BITS)) << shift
    return low + ((1 << shift) - 1) / 2


def merge_histograms(histograms: Iterable[Sequence[Sequence[int]]]) -> list[list[int]]:
    """Add sparse histograms up, such as those of several load hosts."""
    counts: dict[int, int] = {}
    for histogram in histograms:
        for index, count in histogram:
            counts[index] = counts.get(index, 0) + count
    return [[index, counts[index]] for index in sorted(counts)]


def percentile_us(histogram: Sequence[Sequence[int]], percent: float) -> float | None:
    """Return a percentile (nearest rank) of a sparse histogram in microseconds, None if it is empty."""
    count = sum(pair[1] for pair in histogram)
    rank = max(1, math.ceil(round(count * percent / 100, 6)))  # 99.9 % of 1000 is 999, not a hair more
    seen = 0
    for index, bucket_count in histogram:
        seen += bucket_count
        if seen >= rank:
            return bucket_middle(index) / 1000
    return None


# What is counted


class Tally:
    """Counts of one phase of the run: the warm-up, the measured window, or what is answered after it."""

    __slots__ = (
        "bytes",
        "counts",
        "cpu_s",
        "errors_by_kind",
        "failed_ns",
        "latency_ns",
        "max_ns",
        "min_ns",
        "ok",
        "retried",
        "statuses",
    )

    def __init__(self) -> None:
        self.ok = 0
        self.bytes = 0
        self.retried = 0
        self.latency_ns = 0
        self.failed_ns = 0
        self.min_ns = NEVER_NS
        self.max_ns = 0
        self.cpu_s = 0.0
        self.errors_by_kind: dict[str, int] = dict.fromkeys(ERROR_KINDS, 0)
        self.statuses: dict[int, int] = {}
        self.counts = [0] * HISTOGRAM_BUCKETS

    @property
    def errors(self) -> int:
        """Requests that did not succeed."""
        return sum(self.errors_by_kind.values())

    @property
    def requests(self) -> int:
        """Requests that came to an end."""
        return self.ok + self.errors

    def histogram(self) -> list[list[int]]:
        """Return the latencies of successful responses, sparse."""
        return [[index, count] for index, count in enumerate(self.counts) if count]


class Recorder:
    """Sorts what happens into phases and bins by the time it happened, however late the event loop got to it.

    Args:
        warmup_s: Length of the warm-up.
        duration_s: Length of the measured window after it.
    """

    def __init__(self, warmup_s: float, duration_s: float) -> None:
        self._warmup_ns = round(warmup_s * NS_PER_S)
        self._duration_ns = round(duration_s * NS_PER_S)
        self.warmup = Tally()
        self.measured = Tally()
        self.after = Tally()
        self.bins_ok: list[int] = []
        self.bins_errors: list[int] = []
        self.error_samples: dict[str, str] = {}
        self.started_at = 0.0
        self._tally = self.warmup
        self._bin_ok = 0
        self._bin_errors = 0
        self._start_ns = 0
        self._edge_ns = 0
        self._bin_end_ns = 0
        self._phase_end_ns = 0
        self._cpu_mark_s = 0.0
        self.end_ns = 0

    def begin(self) -> None:
        """Start the clock."""
        now = perf_counter_ns()
        self.started_at = time.time()
        self._cpu_mark_s = time.process_time()
        self._start_ns = now
        self.end_ns = now + self._warmup_ns + self._duration_ns
        self._phase_end_ns = now + self._warmup_ns
        self._bin_end_ns = now + BIN_NS
        self._edge_ns = min(self._bin_end_ns, self._phase_end_ns)
        self.advance(now)

    def success(self, now_ns: int, elapsed_ns: int, size: int, status: int) -> None:
        """Count a 2xx response. This is the hot path: every line costs all requests."""
        if now_ns >= self._edge_ns:
            self.advance(now_ns)
        self._bin_ok += 1
        tally = self._tally
        tally.ok += 1
        tally.bytes += size
        tally.latency_ns += elapsed_ns
        if elapsed_ns < tally.min_ns:  # noqa: PLR1730  # min() costs a call
            tally.min_ns = elapsed_ns
        if elapsed_ns > tally.max_ns:  # noqa: PLR1730  # as above
            tally.max_ns = elapsed_ns
        statuses = tally.statuses
        statuses[status] = statuses.get(status, 0) + 1
        shift = elapsed_ns.bit_length() - 8  # bucket_of(), written out
        tally.counts[elapsed_ns if shift <= 0 else (shift << 7) + (elapsed_ns >> shift)] += 1

    def failure(self, now_ns: int, elapsed_ns: int, kind: str, sample: str) -> None:
        """Count a request that did not succeed, and keep the first sample of each kind."""
        self.advance(now_ns)
        self._bin_errors += 1
        self._tally.errors_by_kind[kind] += 1
        self._tally.failed_ns += elapsed_ns
        self.error_samples.setdefault(kind, sample[:MAX_SAMPLE_LENGTH])

    def bad_status(self, now_ns: int, elapsed_ns: int, size: int, status: int, name: str) -> None:
        """Count a complete response whose status is no 2xx."""
        self.failure(now_ns, elapsed_ns, STATUS, f"{name}: {status}")
        statuses = self._tally.statuses
        statuses[status] = statuses.get(status, 0) + 1
        self._tally.bytes += size

    def retry(self, now_ns: int) -> None:
        """Count a request that is sent once more on a new connection."""
        self.advance(now_ns)
        self._tally.retried += 1

    def advance(self, now_ns: int) -> None:
        """Close every bin and phase that ended by now."""
        while now_ns >= self._edge_ns:
            edge = self._edge_ns
            if edge in (self._bin_end_ns, self.end_ns):
                self._close_bin()
            if edge == self._phase_end_ns:
                self._close_phase()
            self._edge_ns = min(self._bin_end_ns, self._phase_end_ns)

    def _close_bin(self) -> None:
        self.bins_ok.append(self._bin_ok)
        self.bins_errors.append(self._bin_errors)
        self._bin_ok = self._bin_errors = 0
        self._bin_end_ns += BIN_NS

    def _close_phase(self) -> None:
        cpu_s = time.process_time()
        self._tally.cpu_s = cpu_s - self._cpu_mark_s
        self._cpu_mark_s = cpu_s
        if self._tally is self.warmup:
            self._tally = self.measured
            self._phase_end_ns = self.end_ns
        else:
            self._tally = self.after
            self._bin_end_ns = self._phase_end_ns = NEVER_NS


# What comes over the wire


@lru_cache(maxsize=256)
def parse_head(head: bytes) -> tuple[int, bool, int]:
    """Read the status line and the headers, without the empty line at their end.

    Cached, for a server says the same a hundred times over before the second in its Date header ends.

    Returns:
        The status, whether the connection may be used again, and the length of the body, which may be
        INTERIM, CHUNKED or UNTIL_CLOSE instead of a number of bytes.

    Raises:
        MalformedResponseError: They are none.
    """
    if len(head) > MAX_HEAD_BYTES:
        raise MalformedResponseError(f"headers are longer than {MAX_HEAD_BYTES} bytes")
    line = STATUS_LINE.match(head)
    if line is None:
        raise MalformedResponseError(f"no HTTP/1.x status line: {head[:40]!r}")
    status = int(line[2])
    lower = head.lower()
    connection = b",".join(CONNECTION_HEADER.findall(lower))
    length = body_length(status, lower)
    kept = b"close" not in connection and (line[1] == b"1" or b"keep-alive" in connection)
    return status, kept and length != UNTIL_CLOSE, length


def body_length(status: int, lower: bytes) -> int:
    """Return the bytes that follow lower-cased headers, or INTERIM, CHUNKED or UNTIL_CLOSE (RFC 9112, 6.3).

    Raises:
        MalformedResponseError: The length is no number.
    """
    if status < INTERIM_END:
        return INTERIM
    if status in BODILESS_STATUS:
        return 0
    codings = CODING_HEADER.findall(lower)
    if codings:
        return CHUNKED if codings[-1].rstrip().endswith(b"chunked") else UNTIL_CLOSE
    lengths = {length.strip() for length in LENGTH_HEADER.findall(lower)}
    if not lengths:
        return UNTIL_CLOSE
    length = lengths.pop()
    if lengths or not length.isdigit() or len(length) > MAX_LENGTH_DIGITS:
        raise MalformedResponseError(f"{length[:40]!r} is not the only content-length, or no number")
    return int(length)


class ChunkedBody:
    """Walks over a chunked body (RFC 9112, section 7.1), extensions and trailers included."""

    __slots__ = ("_left", "_line", "_trailer_bytes", "_want")

    def __init__(self) -> None:
        self._want = self._size
        self._line = b""
        self._left = 0
        self._trailer_bytes = 0

    def feed(self, data: bytes) -> bool:
        """Return whether the body is complete.

        Raises:
            MalformedResponseError: The bytes are no chunked body, or go on after it.
        """
        at = 0
        while at < len(data):
            if self._left:
                step = min(self._left, len(data) - at)
                self._left -= step
                at += step
                continue
            newline = data.find(b"\n", at)
            self._line += data[at : newline + 1 or None]
            if len(self._line) > MAX_CHUNK_LINE_BYTES:
                raise MalformedResponseError(f"a chunk's line is longer than {MAX_CHUNK_LINE_BYTES} bytes")
            if newline < 0:
                return False
            at = newline + 1
            if not self._line.endswith(b"\r\n"):
                raise MalformedResponseError(f"a chunk's line ends without CR: {self._line[:40]!r}")
            line, self._line = self._line[:-2], b""
            if self._want(line):
                if at < len(data):
                    raise MalformedResponseError("bytes follow the last chunk")
                return True
        return False

    def _size(self, line: bytes) -> bool:
        digits = line.partition(b";")[0].strip()
        if not HEX_NUMBER.fullmatch(digits):
            raise MalformedResponseError(f"{line[:40]!r} is no chunk size")
        self._left = int(digits, 16)
        self._want = self._end if self._left else self._trailer
        return False

    def _end(self, line: bytes) -> bool:
        if line:
            raise MalformedResponseError(f"a chunk is longer than its size: {line[:40]!r}")
        self._want = self._size
        return False

    def _trailer(self, line: bytes) -> bool:
        self._trailer_bytes += len(line)
        if self._trailer_bytes > MAX_HEAD_BYTES:
            raise MalformedResponseError(f"trailers are longer than {MAX_HEAD_BYTES} bytes")
        return not line


class ResponseParser:
    """Reads HTTP/1.x responses one at a time, in whatever pieces they arrive; keeps no body.

    Attributes:
        bodiless: Set by the caller before each response: whether it answers a HEAD.
        keep_alive: Whether the connection may be used again after this response.
        size: Bytes of this response so far, headers and body.
    """

    __slots__ = (
        "_buffer",
        "_chunks",
        "_interim",
        "_left",
        "_read",
        "_status",
        "bodiless",
        "keep_alive",
        "size",
    )

    def __init__(self) -> None:
        self.bodiless = False
        self.keep_alive = True
        self.size = 0
        self._status = 0
        self._left = 0
        self._interim = 0
        self._buffer = b""
        self._chunks = ChunkedBody()
        # What reads the next bytes; None while not one byte of the response has arrived.
        self._read: Callable[[bytes], int] | None = None

    @property
    def started(self) -> bool:
        """Whether a response has begun and is not complete."""
        return self._read is not None

    def feed(self, data: bytes) -> int:
        """Read what has arrived. Most responses arrive whole, and then `_read` is never set.

        Returns:
            The status once the response is complete, 0 before.

        Raises:
            MalformedResponseError: The bytes are no response, or more than one.
        """
        if self._read is None:
            self.size = len(data)
            return self._head(data)
        self.size += len(data)
        return self._read(data)

    def finish(self) -> int:
        """Return the status of a response that the connection's end completes, 0 where it cuts one off."""
        return self._status if self._read == self._until_close else 0

    def _head(self, data: bytes) -> int:
        end = data.find(b"\r\n\r\n")
        if end < 0:
            return self._incomplete_head(data)
        status, self.keep_alive, length = parse_head(data[:end])
        if self.bodiless and length != INTERIM:
            length = 0
        if length == len(data) - end - 4:
            self._read = None
            return status
        return self._body_follows(status, length, data[end + 4 :])

    def _incomplete_head(self, data: bytes) -> int:
        if len(data) > MAX_HEAD_BYTES:
            raise MalformedResponseError(f"headers are longer than {MAX_HEAD_BYTES} bytes")
        if not STATUS_LINE_START.startswith(data[: len(STATUS_LINE_START)]):
            raise MalformedResponseError(f"no HTTP/1.x status line: {data[:40]!r}")
        if self._read is None:
            self._interim = 0
        self._buffer = data
        self._read = self._more_head
        return 0

    def _more_head(self, data: bytes) -> int:
        return self._head(self._buffer + data)

    def _body_follows(self, status: int, length: int, rest: bytes) -> int:
        if length == INTERIM:
            return self._after_interim(status, rest)
        self._status = status
        if length == CHUNKED:
            self._chunks = ChunkedBody()
            self._read = self._chunked
        elif length == UNTIL_CLOSE:
            self._read = self._until_close
        else:
            self._left = length
            self._read = self._counted
        return self._read(rest)

    def _after_interim(self, status: int, rest: bytes) -> int:
        self._interim = 1 if self._read is None else self._interim + 1
        if status == SWITCHING_PROTOCOLS or self._interim > MAX_INTERIM:
            raise MalformedResponseError(f"status {status} instead of a response")
        self._buffer = b""
        self._read = self._more_head
        return self._more_head(rest) if rest else 0

    def _counted(self, data: bytes) -> int:
        self._left -= len(data)
        if self._left < 0:
            raise MalformedResponseError(f"{-self._left} bytes more than content-length says")
        return 0 if self._left else self._complete()

    def _chunked(self, data: bytes) -> int:
        return self._complete() if self._chunks.feed(data) else 0

    def _until_close(self, _data: bytes) -> int:
        return 0

    def _complete(self) -> int:
        self._read = None
        return self._status


# What sends


class Connection(asyncio.Protocol):
    """One place of the closed loop: a connection, and the one after it when it is lost.

    Args:
        run: The run it belongs to.
        offset: With which request of the mix it begins.
    """

    __slots__ = (
        "_backing_off",
        "_dialing",
        "_failures",
        "_parser",
        "_pending",
        "_recorder",
        "_request",
        "_requests",
        "_retrying",
        "_reused",
        "_run",
        "_send",
        "_started_ns",
        "_transport",
    )

    def __init__(self, run: LoadRun, offset: int) -> None:
        requests = run.plan.requests
        offset %= len(requests)
        self._run = run
        self._recorder = run.recorder
        self._requests = itertools.cycle(requests[offset:] + requests[:offset])
        self._request = next(self._requests)
        self._parser = ResponseParser()
        self._transport: asyncio.Transport | None = None
        self._send: Callable[[bytes], None] = _discard
        self._dialing: asyncio.Task[None] | None = None
        self._backing_off: asyncio.TimerHandle | None = None
        self._pending = False  # a request is under way, or a connection for one
        self._reused = False  # a response has come over this very connection
        self._retrying = False  # the request is already on its second connection
        self._failures = 0  # in a row, for the back-off
        self._started_ns = 0

    @property
    def pending(self) -> bool:
        """Whether a request is under way."""
        return self._pending

    def open_in(self, delay_s: float) -> None:
        """Connect after a while, and send a request when that is done."""
        self._backing_off = asyncio.get_running_loop().call_later(delay_s, self._open)

    def expire(self, now_ns: int, timeout_ns: int) -> None:
        """Give a request up that takes longer than it may."""
        if not self._pending or now_ns - self._started_ns <= timeout_ns:
            return
        allowed = f"within {timeout_ns / NS_PER_S:g} s"
        if self._dialing is None:
            self._fail(TIMEOUT, f"{self._request.name}: no complete response {allowed}")
        else:
            self._dialing.cancel()
            self._fail(CONNECT, f"no connection {allowed}")

    def stop(self) -> None:
        """Send nothing more; a request that was sent may still be answered."""
        if self._backing_off is not None:
            self._backing_off.cancel()
        if self._dialing is not None and not self._retrying:
            self._dialing.cancel()
            self._pending = False

    def close(self) -> None:
        """Drop everything at once."""
        self._pending = False
        self._retrying = False
        self.stop()
        if self._transport is not None:
            self._transport.abort()

    def _open(self) -> None:
        self._backing_off = None
        self._pending = True
        if not self._retrying:
            self._started_ns = perf_counter_ns()
        self._dialing = asyncio.ensure_future(self._connect())

    async def _connect(self) -> None:
        try:
            sock = await self._run.dial()
            await asyncio.get_running_loop().create_connection(lambda: self, sock=sock)
        except OSError as error:
            self._dialing = None
            self._fail(CONNECT, reason_of(error))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the request that the connection was opened for, unless the run has ended meanwhile."""
        self._transport = transport  # type: ignore[assignment]  # create_connection() makes no other kind
        self._send = transport.write  # type: ignore[attr-defined]  # as above
        self._dialing = None
        self._parser = ResponseParser()
        self._reused = False
        self._run.connected = True
        if self._run.over and not self._retrying:
            self._retire()
            return
        if self._run.plan.keep_alive and not self._retrying:
            self._started_ns = perf_counter_ns()
        self._parser.bodiless = self._request.bodiless
        self._send(self._request.wire)

    def data_received(self, data: bytes) -> None:
        """Take what has arrived; when that completes the response, send the next request at once."""
        parser = self._parser
        try:
            status = parser.feed(data)
        except MalformedResponseError as error:
            self._fail(MALFORMED, f"{self._request.name}: {error}")
            return
        if not status:
            return
        now = perf_counter_ns()
        self._answered(now, status)
        if parser.keep_alive and now < self._run.keep_until_ns:
            request = self._request
            self._started_ns = now
            parser.bodiless = request.bodiless
            self._send(request.wire)
        else:
            self._retire()

    def connection_lost(self, exc: Exception | None) -> None:
        """See what the end of the connection means for the request, and go on with another connection."""
        self._transport = None
        self._send = _discard
        parser = self._parser
        if not self._pending:
            self._go_on()
        elif exc is None and parser.finish():
            self._answered(perf_counter_ns(), parser.finish())
            self._pending = False
            self._go_on()
        elif self._reused and not parser.started:  # so never for a retry: its connection is new
            self._retrying = True
            self._recorder.retry(perf_counter_ns())
            self._open()
        else:
            kind = SHORT_BODY if parser.started else RESET
            self._fail(kind, f"{self._request.name}: {exc or 'the server closed the connection'}")

    def _answered(self, now_ns: int, status: int) -> None:
        elapsed_ns = now_ns - self._started_ns
        if INTERIM_END <= status < SUCCESS_END:
            self._recorder.success(now_ns, elapsed_ns, self._parser.size, status)
        else:
            self._recorder.bad_status(now_ns, elapsed_ns, self._parser.size, status, self._request.name)
        self._request = next(self._requests)
        if not self._reused:
            self._reused = True
            self._retrying = False
            self._failures = 0

    def _fail(self, kind: str, sample: str) -> None:
        now = perf_counter_ns()
        self._recorder.failure(now, now - self._started_ns, kind, sample)
        self._request = next(self._requests)
        self._pending = False
        self._retrying = False
        self._failures += 1
        if self._transport is None:
            self._dialing = None
            self._go_on()
        else:
            self._transport.abort()

    def _retire(self) -> None:
        self._pending = False
        if self._transport is not None:
            self._transport.close()

    def _go_on(self) -> None:
        if self._run.over:
            return
        if self._failures:
            # A dead server refuses at once: without a pause this would be a busy loop.
            self.open_in(min(MAX_BACK_OFF_S, BACK_OFF_S * 2 ** min(self._failures - 1, 10)))
        else:
            self._open()


def _discard(_data: bytes) -> None:
    """Stand in for a transport's write() while there is none."""


class LoadRun:
    """A closed loop from the first connection to the last response.

    Args:
        plan: What to send, how and how long.
        abandoned: Whether nobody waits for the result any more; asked ten times a second.

    Attributes:
        plan: As given.
        recorder: What happened so far.
        connected: Whether there was any connection at all.
        keep_until_ns: Until when a connection sends one request after the other.
    """

    def __init__(self, plan: Plan, abandoned: Callable[[], bool] = lambda: False) -> None:
        self.plan = plan
        self.recorder = Recorder(plan.warmup_s, plan.duration_s)
        self.connected = False
        self.keep_until_ns = 0
        self._abandoned = abandoned
        self._stopped = False
        self._connections = [Connection(self, offset) for offset in range(plan.connections)]
        self._address: Address = (socket.AF_INET, ("", 0))
        self._spare: socket.socket | None = None

    @property
    def over(self) -> bool:
        """Whether no new request may be sent."""
        return self._stopped or perf_counter_ns() >= self.recorder.end_ns

    async def dial(self) -> socket.socket:
        """Return a socket that is connected to the server.

        Raises:
            OSError: There is no connection to be had.
        """
        sock, self._spare = self._spare, None
        return sock or await open_socket(self._address)

    async def run(self) -> dict[str, Any]:
        """Run the load and return the module's `load`.

        Raises:
            LoadError: Not one connection could be made.
            AbandonedError: Nobody waits for the result any more.
        """
        work = asyncio.ensure_future(self._work())
        try:
            while not (work.done() or self._abandoned()):
                await asyncio.wait({work}, timeout=SWEEP_S)
        finally:
            self._stopped = True
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            await self._close()
        if work.cancelled():
            raise AbandonedError("whoever started the load is gone")
        return work.result()

    async def _work(self) -> dict[str, Any]:
        self._address, self._spare = await first_connection(self.plan)
        recorder = self.recorder
        recorder.begin()
        self.keep_until_ns = recorder.end_ns if self.plan.keep_alive else 0
        for number, connection in enumerate(self._connections):
            connection.open_in(RAMP_STEP_S * (number // RAMP_BATCH))
        while not self.over:
            self._sweep()
            await asyncio.sleep(min(SWEEP_S, (recorder.end_ns - perf_counter_ns()) / NS_PER_S))
        for connection in self._connections:
            connection.stop()
        while any(connection.pending for connection in self._connections):
            self._sweep()  # also ends this loop: every request has its timeout
            await asyncio.sleep(DRAIN_POLL_S)
        recorder.advance(perf_counter_ns())
        if not self.connected:
            raise LoadError(f"no connection to {self.plan.host}:{self.plan.port} lasted: {recorder.error_samples}")
        return make_report(self.plan, recorder, perf_counter_ns())

    def _sweep(self) -> None:
        now = perf_counter_ns()
        self.recorder.advance(now)
        timeout_ns = round(self.plan.timeout_s * NS_PER_S)
        for connection in self._connections:
            connection.expire(now, timeout_ns)

    async def _close(self) -> None:
        for connection in self._connections:
            connection.close()
        if self._spare is not None:
            self._spare.close()
        for _ in range(3):  # transports close their sockets in the loop's next turns
            await asyncio.sleep(0)


async def first_connection(plan: Plan) -> tuple[Address, socket.socket]:
    """Find the address of the server that accepts a connection: localhost may be two of them.

    Raises:
        LoadError: None does.
    """
    where = f"{plan.host}:{plan.port}"
    reason = "it has no address"
    try:
        found = await asyncio.get_running_loop().getaddrinfo(plan.host, plan.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise LoadError(f"{where} cannot be looked up: {error}; check base_url") from error
    for family, _, _, _, sockaddr in found:
        try:
            return (family, sockaddr), await asyncio.wait_for(open_socket((family, sockaddr)), plan.timeout_s)
        except asyncio.TimeoutError:  # noqa: UP041  # TimeoutError itself only since Python 3.11
            reason = f"no answer within {plan.timeout_s:g} s"
        except OSError as error:
            reason = reason_of(error)
    raise LoadError(f"nothing accepts connections at {where}: {reason}; is the application up, and base_url right?")


async def open_socket(address: Address) -> socket.socket:
    """Return a connected socket.

    Raises:
        OSError: There is no connection to be had.
    """
    family, sockaddr = address
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.settimeout(0)
        await asyncio.get_running_loop().sock_connect(sock, sockaddr)
        _refuse_itself(sock)
    except BaseException:
        sock.close()
        raise
    return sock


def reason_of(error: OSError) -> str:
    """Return the system's words for an error; asyncio's own say only that a call failed."""
    return os.strerror(error.errno) if error.errno else str(error)


def _refuse_itself(sock: socket.socket) -> None:
    # A port that nobody listens at, in the range of clients' ports, now and then connects to itself.
    if sock.getsockname() == sock.getpeername():
        raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")


# What is reported


def make_report(plan: Plan, recorder: Recorder, finished_ns: int) -> dict[str, Any]:
    """Return the module's `load` (see RETURN) of a run that ended at `finished_ns`."""
    measured = recorder.measured
    warmup_ns = round(plan.warmup_s * NS_PER_S)
    start_ns = recorder.end_ns - round(plan.duration_s * NS_PER_S) - warmup_ns
    duration_s = (recorder.end_ns - start_ns - warmup_ns) / NS_PER_S
    mean_busy = (measured.latency_ns + measured.failed_ns) / NS_PER_S / duration_s  # X R
    phases = (recorder.warmup, measured, recorder.after)
    return {
        "started_at": round(recorder.started_at, 3),
        "warmup_s": plan.warmup_s,
        "duration_s": duration_s,
        "connections": plan.connections,
        "bins": {"width_s": BIN_S, "ok": recorder.bins_ok, "errors": recorder.bins_errors},
        "measured": summarize([measured], duration_s),
        "total": summarize(phases, (finished_ns - start_ns) / NS_PER_S),
        "latency_us": summarize_latency(measured),
        "generator": {
            "cpu_s": round(measured.cpu_s, 4),
            "cpu_share": round(measured.cpu_s / duration_s, 4),
            "cpu_us_per_request": round(measured.cpu_s * 1e6 / measured.requests, 2) if measured.requests else None,
            "littles_law_residual": round(abs(plan.connections - mean_busy) / plan.connections, 4),
        },
        "error_samples": recorder.error_samples,
    }


def summarize(tallies: Sequence[Tally], elapsed_s: float) -> dict[str, Any]:
    """Add phases up that took so many seconds together."""
    ok = sum(tally.ok for tally in tallies)
    statuses: dict[str, int] = {}
    for tally in tallies:
        for status, count in tally.statuses.items():
            statuses[str(status)] = statuses.get(str(status), 0) + count
    return {
        "requests": sum(tally.requests for tally in tallies),
        "ok": ok,
        "errors": sum(tally.errors for tally in tallies),
        "retried": sum(tally.retried for tally in tallies),
        "errors_by_kind": {kind: sum(tally.errors_by_kind[kind] for tally in tallies) for kind in ERROR_KINDS},
        "status_counts": statuses,
        "bytes": sum(tally.bytes for tally in tallies),
        "throughput_rps": round(ok / elapsed_s, 3),
    }


def summarize_latency(tally: Tally) -> dict[str, Any]:
    """Return the latencies of a phase in microseconds; None where nothing was answered."""
    histogram = tally.histogram()
    summary: dict[str, Any] = dict.fromkeys(("min", "max", "mean", *(name for name, _ in PERCENTILES)))
    if tally.ok:
        low, high = tally.min_ns / 1000, tally.max_ns / 1000
        summary.update(min=low, max=high, mean=round(tally.latency_ns / tally.ok / 1000, 3))
        for name, percent in PERCENTILES:
            # The middle of the outermost buckets may lie outside what was seen.
            summary[name] = min(max(percentile_us(histogram, percent) or low, low), high)
    return {"count": tally.ok, **summary, "histogram": histogram}


# The module


class Lifeline:
    """Tells whether whoever started this process still waits for it.

    A local parent that dies leaves the process to another one. Behind SSH a shell stays the parent,
    but the standard output has nobody at its other end any more.

    Args:
        output_fd: File descriptor of the standard output.
    """

    def __init__(self, output_fd: int = 1) -> None:
        self._parent = os.getppid()
        self._poll = select.poll()
        self._poll.register(output_fd, 0)  # errors and hang-ups are reported unasked

    def cut(self) -> bool:
        """Return whether nobody waits any more."""
        gone = any(event & (select.POLLERR | select.POLLHUP) for _, event in self._poll.poll(0))
        return gone or os.getppid() != self._parent


def allow_files(connections: int) -> None:
    """Raise the soft limit of open files to what the connections need.

    Raises:
        LoadError: The hard limit is too low.
    """
    needed = connections + SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise LoadError(
            f"{connections} connections need {needed} open files, the hard limit is {hard}; "
            "raise it (ulimit -Hn) or use fewer connections"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


@contextmanager
def tuned_memory() -> Iterator[None]:
    """Keep the garbage collector and the allocator out of the way, for the time of a run."""
    # asyncio receives into a fresh block of 256 KiB each time, which glibc takes from the kernel and
    # gives back (mmap, munmap) until a larger block was once freed.
    bytearray(RECV_ARENA_BYTES)
    thresholds = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)  # seldom, not never: a connection per request does make cycles
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


def run_load(plan: Plan, abandoned: Callable[[], bool]) -> dict[str, Any]:
    """Run a load to its end; see LoadRun for arguments, result and errors."""
    allow_files(plan.connections)
    with tuned_memory():
        return asyncio.run(LoadRun(plan, abandoned).run())


ARGUMENT_SPEC = {
    "base_url": {"type": "str", "required": True},
    "requests": {
        "type": "list",
        "elements": "dict",
        "required": True,
        "options": {
            "path": {"type": "str", "required": True},
            "method": {"type": "str", "choices": ["GET", "HEAD"], "default": "GET"},
            "name": {"type": "str"},
            "headers": {"type": "dict", "default": {}, "no_log": True},
        },
    },
    "connections": {"type": "int", "default": 100},
    "warmup_s": {"type": "float", "default": 2},
    "duration_s": {"type": "float", "default": 8},
    "keep_alive": {"type": "bool", "default": True},
    "timeout_s": {"type": "float", "default": 10},
}


def main() -> None:
    """Read the parameters, run the load and print the result."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    # Ansible blanks hidden values out wherever they occur, in numbers too: a header "1" would take the
    # result with it.
    module.no_log_values = {value for value in module.no_log_values if len(value) >= MIN_SECRET_LENGTH}
    try:
        plan = make_plan(module.params)
        if module.check_mode:
            module.exit_json(changed=False, would_send=[describe(request) for request in plan.requests])
        load = run_load(plan, Lifeline().cut)
    except AbandonedError as error:
        sys.exit(str(error))
    except LoadError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, load=load)


def describe(request: Request) -> dict[str, Any]:
    """Return what would be sent, without the values of headers."""
    return {
        "name": request.name,
        "method": request.method,
        "path": request.path,
        "headers": list(request.header_names),
    }


if __name__ == "__main__":
    main()
