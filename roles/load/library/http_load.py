#!/usr/bin/python
"""Ansible module: load an HTTP server in a closed or open loop and report throughput, latency and errors."""

from __future__ import annotations

import base64
import errno
import gc
import heapq
import itertools
import json
import math
import os
import random
import re
import resource
import select
import signal
import socket
import ssl
import sys
import time
import traceback
import zlib
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
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
  - In a closed loop, a fixed number of connections each sends its next request when its last one is answered.
    That finds out how much a server can do.
  - In an open loop, requests are planned at a rate, whatever the server does, and latency is counted from the
    planned time. That finds out what users of a busy server see, stalls included.
  - Reports successful responses in bins of 0.1 s, the latency as percentiles and as histograms, errors by kind,
    what the generator itself cost, and whether it was itself the limit of what it measured.
  - Needs nothing but Python on the host that runs it. Only loads what it is told to; nothing is changed unless
    a request itself changes something.
  - The run ends on its own after O(warmup_s) + O(duration_s), plus at most O(timeout_s) for requests under
    way, and within a second when the process that started it is gone.
options:
  base_url:
    description: Scheme (V(http) or V(https)), host and port of the server, such as V(http://127.0.0.1:1337).
    type: str
    required: true
  requests:
    description:
      - What to send. Where all weights are equal the requests are sent in this order, round robin, and each
        connection of a closed loop begins at another place of the list. Otherwise each one is drawn at random.
      - Redirects are not followed; they are responses with a status like any other.
    type: list
    elements: dict
    required: true
    suboptions:
      path:
        description: Path and query, sent exactly as written. Begins with C(/).
        type: str
        required: true
      method:
        description:
          - The request's method. C(GET), C(HEAD), C(PUT), C(DELETE) and C(OPTIONS) are sent a second time where
            the server closes a kept connection before it answers; others are not, for that might do it twice.
        type: str
        default: GET
      name:
        description: What this request is reported under. The path by default. Requests may share a name.
        type: str
      headers:
        description:
          - Further headers. C(Host), C(User-Agent), C(Accept) and C(Content-Type) replace the module's own.
          - Values of 8 characters and more are hidden in everything Ansible prints.
        type: dict
        default: {}
      body:
        description:
          - What to send with it. Text is sent as it is, in UTF-8; anything else as JSON, with its C(Content-Type).
          - Never shown.
        type: raw
      expect:
        description: Statuses that count as success. Any 2xx by default.
        type: list
        elements: int
      weight:
        description: How often it is sent, in proportion to the weights of the others. V(0) sends it never.
        type: float
        default: 1
  mode:
    description: Whether answers pace the requests (V(closed)) or a schedule does (V(open)).
    type: str
    choices: [closed, open]
    default: closed
  rate:
    description: Requests per second in all. Needed for, and only for, O(mode=open).
    type: float
  arrivals:
    description:
      - How the requests of an open loop are spaced. V(poisson) is how many independent users arrive, V(uniform)
        is one after the other at the same distance.
    type: str
    choices: [poisson, uniform]
    default: poisson
  connections:
    description:
      - How many connections to hold, 1 to 10000. In an open loop the most that may be in use; what finds none
        free waits for one, and its latency has the wait in it.
    type: int
    default: 100
  count:
    description:
      - Requests to send in all, in place of O(warmup_s) and O(duration_s). Only for O(mode=closed). The run ends
        with the last response, at the latest after 600 s.
    type: int
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
  workers:
    description:
      - Processes to share connections, rate and count among, 1 to 64. One is enough for 20000 requests per second
        and more; it takes no more than one CPU.
    type: int
    default: 1
  seed:
    description: What the random draws begin with. The same seed draws the same requests at the same times.
    type: int
    default: 1
  start_at:
    description:
      - When to send the first request, in seconds since the epoch by this host's clock, so that several hosts begin
        together. At once by default. At most 600 s ahead; a moment that is over is refused.
    type: float
  ca_path:
    description: File or directory of the certificates to trust, in place of the system's.
    type: path
  validate_certs:
    description: Whether the server's certificate and its name must be valid.
    type: bool
    default: true
  server_name:
    description: Name to ask for and to check in the certificate (SNI). The host of O(base_url) by default.
    type: str
  stop_file:
    description: The load ends early once this file is there, and reports what it has measured until then.
    type: path
  max_error_share:
    description:
      - The load ends early once more than this share of its requests has failed, 0 to 1, of 100 at least. What it
        harms by then is not to be harmed further. Each of several O(workers) judges by its own requests.
    type: float
    default: 1.0
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

- name: See what users feel at 200 requests per second, one in ten of them a new review
  http_load:
    base_url: https://cms.example.org
    mode: open
    rate: 200
    requests:
      - {path: /api/restaurants, weight: 9}
      - path: /api/reviews
        method: POST
        body: {data: {text: Tasty}}
        expect: [201]
        weight: 1
    ca_path: /etc/ssl/private-ca.pem

- name: Send exactly 5000 requests
  http_load:
    base_url: http://127.0.0.1:1337
    requests: [{path: /}]
    count: 5000
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
      description: Length of the warm-up in seconds; 0 where the load ended within it, and all of it counts as measured.
      type: float
    duration_s:
      description: Length of the measured window in seconds.
      type: float
    connections:
      description: Number of connections held, at most.
      type: int
    mode:
      description: As O(mode). Beside it C(rate_rps) and C(arrivals), which are null in a closed loop.
      type: str
    seed:
      description: As O(seed).
      type: int
    workers:
      description: As O(workers).
      type: int
    planned:
      description: Requests that were to be sent, warm-up included; null where only time bounds them.
      type: int
    unsent:
      description: Those of C(planned) that were not sent before the run was over.
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
        - C(requests) = C(ok) + C(errors). C(ok) are responses with an expected status. C(retried) are requests
          sent once more because the server had closed the kept connection before the first byte of its
          response; they are no errors.
        - C(errors_by_kind) has connect, timeout, reset (closed before the first byte), short_body (closed
          after it), malformed and status (not expected). C(bytes) are headers and bodies of complete responses.
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
          responses in the measured window, in microseconds. In a closed loop from the moment a request is
          sent (without keep-alive, the time to connect is part of it), in an open loop from its planned time.
        - C(histogram) is a list of [index, count] over nanoseconds v. With e = max(0, bits(v) - 8) the
          index is 128 e + (v >> e), so a bucket is at most 1/128 of its value wide. Histograms of several
          runs are merged by adding the counts of equal indices.
      type: dict
    by_name:
      description:
        - For each name of a request C(measured), C(total) and C(latency_us) as above.
        - The histograms here are short texts; base64 of zlib of, for each bucket in order, the difference of its
          index to the one before and its count, as LEB128 (seven bits a byte, lowest first, the eighth bit set
          on all but a number's last byte).
      type: dict
    generator:
      description:
        - What the load itself cost in the measured window. C(cpu_s), C(cpu_us_per_request), and C(cpu_share)
          of one core, of the worker that had most.
        - C(littles_law_residual) is |c - X R| / c for c connections, X completed requests per second and
          their mean time R; in an open loop c is the mean number of connections in use. Above 0.05 connections
          stood idle, so the generator or the errors, not the server, set the pace.
        - C(send_rate) are the requests planned for the measured window that were sent, as a share; null in a
          closed loop.
        - C(schedule_lag_us) has C(count), C(p50), C(p99) and C(max) of how late the generator was. In an open
          loop, how long after its planned time a request was sent although a connection was free; in a closed
          loop, how late its timer of 0.1 s went off.
        - C(most_connections) are those that this host's limit of open files (and O(connections)) allows.
        - C(refused_reason) says why the result must not be believed, because the generator was its own limit;
          empty where it may be. That is when a worker took more than 90 % of a core, and in an open loop when
          less than 99 % was sent or the 99th percentile of the lag is above 1 ms and a tenth of the median latency.
      type: dict
    error_samples:
      description: For each kind of error the first one's own words.
      type: dict
would_send:
  description: Method, path, name and weight of each request, the names of its own headers and its body's length.
  returned: in check mode
  type: list
  elements: dict
"""

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000
NS_PER_US = 1000
BIN_S = 0.1
BIN_NS = NS_PER_S // 10
SWEEP_NS = NS_PER_S // 10
"""How often timeouts and the parent are looked at. One timer for all connections."""
FEWEST_TO_JUDGE = 100
"""Requests before their share of failures is judged."""
DRAIN_POLL_NS = NS_PER_S // 100
RAMP_BATCH = 128
RAMP_STEP_NS = NS_PER_S // 100
"""Connections open in batches: thousands at once overflow a listen backlog (Node's is 511) and wait 1 s."""
BACK_OFF_NS = NS_PER_S // 20
MAX_BACK_OFF_NS = NS_PER_S
WORKERS_HEAD_START_NS = NS_PER_S // 10
"""From now to the common start of several workers: time to fork them all."""
SPARE_FILES = 64
MIN_SECRET_LENGTH = 8
RECEIVE_BYTES = 1 << 16
"""Below the size (128 KiB) from which on glibc takes each block from the kernel and gives it back."""
MAX_EVENTS = 1024
READABLE = select.POLLIN
WRITABLE = select.POLLOUT

MAX_CONNECTIONS = 10_000
MAX_REQUESTS = 1_000
MAX_WORKERS = 64
MIN_RATE_RPS = 0.01
MAX_RATE_RPS = 1_000_000.0
MAX_COUNT = 10_000_000
"""Requests that may be planned: what was not sent is counted one by one."""
MIN_TIME_S = 0.001
MAX_TIME_S = 600.0
NEVER_NS = 1 << 62
MAX_SAMPLE_LENGTH = 200
DRAW = 1024
"""Requests that are drawn at a time."""

MAX_HEAD_BYTES = 64 * 1024
MAX_CHUNK_LINE_BYTES = 4 * 1024
STATUS_LINE_START = b"HTTP/1."
STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: |\r|$)")
CONNECTION_HEADER = re.compile(rb"\r\nconnection:([^\r\n]*)")
CODING_HEADER = re.compile(rb"\r\ntransfer-encoding:([^\r\n]*)")
LENGTH_HEADER = re.compile(rb"\r\ncontent-length:([^\r\n]*)")
INTERIM_END = 200
SUCCESS = frozenset(range(200, 300))
STATUSES = range(200, 600)
SWITCHING_PROTOCOLS = 101
MAX_INTERIM = 16
BODILESS_STATUS = frozenset({204, 304})
HEX_NUMBER = re.compile(rb"[0-9A-Fa-f]{1,15}")
MAX_LENGTH_DIGITS = 15
INTERIM = -1
CHUNKED = -2
UNTIL_CLOSE = -3
"""These three are what body_length() says where there is no number of bytes."""
TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
FRAMING_HEADERS = frozenset({"connection", "content-length", "transfer-encoding", "upgrade", "expect"})
REPEATABLE_METHODS = frozenset({"GET", "HEAD", "PUT", "DELETE", "OPTIONS"})
BODY_METHODS = frozenset({"POST", "PUT", "PATCH"})
"""Methods whose request says that its body is empty (RFC 9110, 8.6)."""

SUB_BUCKET_BITS = 7
PERCENTILES = (("p50", 50.0), ("p90", 90.0), ("p95", 95.0), ("p99", 99.0), ("p99_9", 99.9))

CLOSED = "closed"
OPEN = "open"
UNIFORM = "uniform"

CONNECT = "connect"
TIMEOUT = "timeout"
RESET = "reset"
SHORT_BODY = "short_body"
MALFORMED = "malformed"
STATUS = "status"
ERROR_KINDS = (CONNECT, TIMEOUT, RESET, SHORT_BODY, MALFORMED, STATUS)

MAX_CPU_SHARE = 0.9
MIN_SEND_RATE = 0.99
MAX_LAG_US = 1000.0
MAX_LAG_SHARE = 0.1
"""Limits from locust (CPU), Nighthawk (send rate) and of our own (lag against the median latency)."""


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
        name: What it is reported under.
        method: Any but CONNECT.
        path: Path and query as typed.
        header_names: Names of the user's own headers.
        body_bytes: Length of the body.
        weight: How often it is sent, in proportion to the others.
        accepts: Statuses that are a success.
        bodiless: Whether the response has no body whatever its headers say.
        repeatable: Whether sending it twice does no more than sending it once.
        wire: The bytes to send. Kept out of repr, for a header or the body may hold a secret.
        index: Number of its name among the names of the mix.
    """

    name: str
    method: str
    path: str
    header_names: tuple[str, ...]
    body_bytes: int
    weight: float
    accepts: frozenset[int]
    bodiless: bool
    repeatable: bool
    wire: bytes = field(repr=False)
    index: int = 0


@dataclass(frozen=True)
class Plan:
    """A load, checked and ready to run.

    Attributes:
        host: Name or address of the server.
        port: Its TCP port.
        tls: How to encrypt, None where nothing is.
        server_name: Name that the certificate must have.
        requests: At least one request.
        names: What they are reported under, each once.
        mode: CLOSED or OPEN.
        rate_rps: Requests per second in an open loop.
        uniform: Whether they are equally spaced.
        count: Requests in all of a closed loop, None where time alone ends it.
        connections: How many connections to hold.
        warmup_s: Seconds before the measured window.
        duration_s: Seconds of the measured window; with a count, the most it may take.
        keep_alive: Whether a connection serves more than one request.
        timeout_s: Seconds a request may take.
        workers: Processes that share the load.
        seed: Where random draws begin.
        start_at: When to begin, in seconds since the epoch; None for at once.
        stop_file: File whose appearance ends the load early, None for none.
        max_error_share: Share of failed requests beyond which the load ends early, 0 to 1.
    """

    host: str
    port: int
    tls: ssl.SSLContext | None
    server_name: str
    requests: tuple[Request, ...]
    names: tuple[str, ...]
    mode: str
    rate_rps: float
    uniform: bool
    count: int | None
    connections: int
    warmup_s: float
    duration_s: float
    keep_alive: bool
    timeout_s: float
    workers: int
    seed: int
    stop_file: str | None = None
    start_at: float | None = None
    max_error_share: float = 1.0

    def start_ns(self) -> int | None:
        """Return when to begin, by the clock of perf_counter_ns(); None for at once.

        Raises:
            LoadError: That moment is over.
        """
        if self.start_at is None:
            return None
        left_s = self.start_at - time.time()
        if not 0 <= left_s <= MAX_TIME_S:
            when = f"was {-left_s:.1f} s ago" if left_s < 0 else f"is {left_s:.0f} s ahead"
            raise LoadError(f"start_at {when} by this host's clock; set the clocks of all load hosts, or start later")
        return perf_counter_ns() + round(left_s * NS_PER_S)


@dataclass(frozen=True)
class Share:
    """What one of several workers does of a plan.

    Attributes:
        worker: Number of the worker, from 0.
        connections: Its connections.
        first_connection: How many connections the workers before it have.
        count: Its requests, None where time alone ends the run.
    """

    worker: int
    connections: int
    first_connection: int
    count: int | None

    @classmethod
    def of(cls, plan: Plan, worker: int) -> Share:
        """Return the part of a worker; the parts add up to the plan."""
        before = [part_of(plan.connections, plan.workers, number) for number in range(worker)]
        return cls(
            worker=worker,
            connections=part_of(plan.connections, plan.workers, worker),
            first_connection=sum(before),
            count=None if plan.count is None else part_of(plan.count, plan.workers, worker),
        )


def part_of(total: int, parts: int, number: int) -> int:
    """Return how many of `total` things fall to one of several equal parts."""
    return total // parts + (number < total % parts)


def make_plan(params: dict[str, Any]) -> Plan:
    """Check the module's parameters and prepare every request's bytes.

    Args:
        params: The module's parameters; those with a default may be missing.

    Raises:
        LoadError: A parameter is out of its range or cannot be sent.
    """
    given = {name: value for name, value in params.items() if value is not None}
    params = {name: spec.get("default") for name, spec in ARGUMENT_SPEC.items()} | given
    _check_numbers(params)
    _check_mode(params)
    scheme, host, port = _parse_base_url(params["base_url"])
    requests = make_requests(params, urlsplit(params["base_url"]).netloc)
    counted = params["count"] is not None
    return Plan(
        host=host,
        port=port,
        tls=make_tls(params) if scheme == "https" else None,
        server_name=params["server_name"] or host,
        requests=requests,
        names=tuple(dict.fromkeys(request.name for request in requests)),
        mode=params["mode"],
        rate_rps=params["rate"] or 0.0,
        uniform=params["arrivals"] == UNIFORM,
        count=params["count"],
        connections=params["connections"],
        warmup_s=0.0 if counted else params["warmup_s"],
        duration_s=MAX_TIME_S if counted else params["duration_s"],
        keep_alive=params["keep_alive"],
        timeout_s=params["timeout_s"],
        workers=params["workers"],
        seed=params["seed"],
        start_at=params["start_at"],
        stop_file=params["stop_file"],
        max_error_share=params["max_error_share"],
    )


def _check_numbers(params: dict[str, Any]) -> None:
    _check_range("connections", params["connections"], 1, MAX_CONNECTIONS)
    _check_range("warmup_s", params["warmup_s"], 0, MAX_TIME_S)
    _check_range("duration_s", params["duration_s"], MIN_TIME_S, MAX_TIME_S)
    _check_range("timeout_s", params["timeout_s"], MIN_TIME_S, MAX_TIME_S)
    _check_range("workers", params["workers"], 1, min(MAX_WORKERS, params["connections"]))
    _check_range("max_error_share", params["max_error_share"], 0, 1)
    if params["rate"] is not None:
        _check_range("rate", params["rate"], MIN_RATE_RPS, MAX_RATE_RPS)
    if params["count"] is not None:
        _check_range("count", params["count"], 1, MAX_COUNT)


def _check_mode(params: dict[str, Any]) -> None:
    if params["mode"] == CLOSED:
        if params["rate"] is not None:
            raise LoadError("rate is for the open loop; set mode to open, or leave rate away")
        return
    if params["rate"] is None:
        raise LoadError("mode is open, so rate is needed: how many requests to send a second")
    if params["count"] is not None:
        raise LoadError("count is for the closed loop; an open loop sends rate times seconds")
    planned = params["rate"] * (params["warmup_s"] + params["duration_s"])
    if planned > MAX_COUNT:
        raise LoadError(f"rate plans {planned:.0f} requests, {MAX_COUNT} are the most; lower it, or duration_s")


def _parse_base_url(base_url: str) -> tuple[str, str, int]:
    try:
        url = urlsplit(base_url)
        port = url.port
    except ValueError as error:
        raise LoadError(f"base_url {base_url!r} cannot be read: {error}; write http://host:port") from error
    if url.scheme not in {"http", "https"} or not url.hostname:
        raise LoadError(f"base_url {base_url!r} is no http:// or https:// address; write http://host:port")
    if url.path not in {"", "/"} or url.query or url.fragment or url.username is not None:
        raise LoadError(f"base_url {base_url!r} has more than host and port; paths belong into requests")
    if port == 0:
        raise LoadError(f"base_url {base_url!r}: port 0 cannot be connected to")
    return url.scheme, url.hostname, port or (443 if url.scheme == "https" else 80)


def make_tls(params: dict[str, Any]) -> ssl.SSLContext:
    """Return how to encrypt, by `ca_path` and `validate_certs`.

    Raises:
        LoadError: There are no certificates at ca_path.
    """
    ca_path = params["ca_path"]
    try:
        if ca_path and os.path.isdir(ca_path):  # noqa: PTH112  # one question is no reason to import pathlib
            context = ssl.create_default_context(capath=ca_path)
        else:
            context = ssl.create_default_context(cafile=ca_path)
    except (OSError, ssl.SSLError) as error:
        raise LoadError(
            f"ca_path {ca_path!r} cannot be used: {reason_of(error)}; name a file of certificates"
        ) from error
    if not params["validate_certs"]:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    return context


def _check_range(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise LoadError(f"{name} is {value:g}, must be between {low:g} and {high:g}")


def make_requests(params: dict[str, Any], authority: str) -> tuple[Request, ...]:
    """Prepare all requests of the mix.

    Raises:
        LoadError: There is none, or one of them cannot be sent.
    """
    items = params["requests"]
    if not items:
        raise LoadError("requests is empty; name at least one path, such as requests=[{path: /}]")
    _check_range("the number of requests", len(items), 1, MAX_REQUESTS)
    indices: dict[str, int] = {}
    requests = []
    for item in items:
        index = indices.setdefault(item.get("name") or item["path"], len(indices))
        requests.append(make_request(item, authority, keep_alive=params["keep_alive"], index=index))
    if not sum(request.weight for request in requests):
        raise LoadError("every request has weight 0; give at least one of them more")
    return tuple(requests)


def make_request(item: dict[str, Any], authority: str, *, keep_alive: bool, index: int = 0) -> Request:
    """Prepare one request.

    Args:
        item: `path` and, optionally, the other suboptions of `requests`.
        authority: Host and port for the Host header.
        keep_alive: Whether to let the server keep the connection.
        index: Number of its name among the names of the mix.

    Raises:
        LoadError: The path, the method or a header cannot be sent as it is.
    """
    path: str = item["path"]
    method: str = item.get("method") or "GET"
    own: dict[str, Any] = item.get("headers") or {}
    weight = item.get("weight")
    weight = 1.0 if weight is None else float(weight)
    _check_line(method, path)
    _check_range(f"the weight of {path!r}", weight, 0, sys.maxsize)
    body, content_type = encode_body(item.get("body"))
    headers = {"Host": authority, "User-Agent": "http_load", "Accept": "*/*", **content_type}
    replaceable = {name.lower(): name for name in headers}
    for name, value in own.items():
        _check_header(name, str(value))
        headers.pop(replaceable.get(name.lower(), ""), None)
        headers[name] = str(value)
    if not keep_alive:
        headers["Connection"] = "close"
    if body or method in BODY_METHODS:
        headers["Content-Length"] = str(len(body))
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return Request(
        name=item.get("name") or path,
        method=method,
        path=path,
        header_names=tuple(own),
        body_bytes=len(body),
        weight=weight,
        accepts=_parse_expect(path, item.get("expect")),
        bodiless=method == "HEAD",
        repeatable=method in REPEATABLE_METHODS,
        wire="\r\n".join(lines).encode() + body,
        index=index,
    )


def encode_body(body: object) -> tuple[bytes, dict[str, str]]:
    """Return a body's bytes and, where they are JSON, the header that says so."""
    if body is None:
        return b"", {}
    if isinstance(body, str):
        return body.encode(), {}
    return json.dumps(body, ensure_ascii=False).encode(), {"Content-Type": "application/json"}


def _parse_expect(path: str, expect: list[int] | None) -> frozenset[int]:
    if not expect:
        return SUCCESS
    for status in expect:
        if status not in STATUSES:
            raise LoadError(f"expect of {path!r} has {status}; a status is between 200 and 599")
    return frozenset(expect)


def _check_line(method: str, path: str) -> None:
    if not TOKEN.fullmatch(method) or method.upper() == "CONNECT":
        raise LoadError(f"method {method!r} of {path!r} cannot be sent; use one such as GET or POST")
    if not path.startswith("/"):
        raise LoadError(f"path {path!r} must begin with /")
    if any(character <= " " or character == "\x7f" for character in path):
        raise LoadError(f"path {path!r} has a space or a control character; write it percent-encoded (%20)")


def _check_header(name: str, value: str) -> None:
    # The value stays out of the message: it may be a token.
    if not TOKEN.fullmatch(name):
        raise LoadError(f"header name {name!r} is not valid")
    if name.lower() in FRAMING_HEADERS:
        raise LoadError(f"header {name!r} is the module's own business; use keep_alive for connections")
    if any(character in value for character in "\r\n\0"):
        raise LoadError(f"the value of header {name!r} has a line break; write it on one line")


# When and what: the schedule and the mix


def draw(plan: Plan, worker: int, offset: int) -> Iterator[Request]:
    """Return what to send, without an end; always the same for the same seed.

    Args:
        plan: What to send.
        worker: Who sends it.
        offset: With which request to begin where they are sent in order.
    """
    requests = plan.requests
    if in_turn(plan):
        offset %= len(requests)
        return itertools.cycle(requests[offset:] + requests[:offset])
    rng = random.Random(f"requests {plan.seed} {worker}")  # noqa: S311  # a mix, no secret
    bounds = list(itertools.accumulate(request.weight for request in requests))
    drawn = (rng.choices(requests, cum_weights=bounds, k=DRAW) for _ in itertools.repeat(None))
    return itertools.chain.from_iterable(drawn)


def in_turn(plan: Plan) -> bool:
    """Return whether requests are sent one after the other, for none has more weight than another."""
    return len({request.weight for request in plan.requests}) == 1


class Arrivals:
    """The schedule of an open loop: when each request is planned, one after the other.

    Args:
        plan: What to send.
        worker: Whose part of the schedule it is. Parts of a Poisson process are Poisson processes again; equally
            spaced requests fall to the workers in turn.
        start_ns: When the run begins.

    Attributes:
        due_ns: When the next request is planned; NEVER_NS once none is left.
        planned: Requests that were planned, up to the one at due_ns.
        planned_measured: Those of them in the measured window.
    """

    def __init__(self, plan: Plan, worker: int, start_ns: int) -> None:
        self._measured_ns = start_ns + round(plan.warmup_s * NS_PER_S)
        self._end_ns = self._measured_ns + round(plan.duration_s * NS_PER_S)
        self._times = self._equal(plan, worker, start_ns) if plan.uniform else self._poisson(plan, worker, start_ns)
        self.planned = 0
        self.planned_measured = 0
        self.due_ns = 0
        self._plan_next()

    def take(self) -> int:
        """Return when the next request is planned, and go on to the one after it."""
        due_ns = self.due_ns
        self._plan_next()
        return due_ns

    def take_rest(self) -> tuple[int, int]:
        """Return how many requests are left, and how many of them were planned for the measured window."""
        left = left_measured = 0
        while self.due_ns < NEVER_NS:
            left += 1
            left_measured += self.take() >= self._measured_ns
        return left, left_measured

    def _plan_next(self) -> None:
        due_ns = next(self._times)
        if due_ns >= self._end_ns:
            self.due_ns = NEVER_NS
            return
        self.due_ns = due_ns
        self.planned += 1
        self.planned_measured += due_ns >= self._measured_ns

    @staticmethod
    def _equal(plan: Plan, worker: int, start_ns: int) -> Iterator[int]:
        gap_ns = NS_PER_S / plan.rate_rps
        return (start_ns + round(number * gap_ns) for number in itertools.count(worker, plan.workers))

    @staticmethod
    def _poisson(plan: Plan, worker: int, start_ns: int) -> Iterator[int]:
        rng = random.Random(f"arrivals {plan.seed} {worker}")  # noqa: S311  # a schedule, no secret
        per_ns = plan.rate_rps / plan.workers / NS_PER_S
        now_ns = float(start_ns)
        while True:
            now_ns += rng.expovariate(per_ns)
            yield int(now_ns)


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


def encode_histogram(histogram: Sequence[Sequence[int]]) -> str:
    """Return a sparse histogram as a short text; RETURN says how it is made."""
    packed = bytearray()
    before = 0
    for index, count in histogram:
        for number in (index - before, count):
            while number > 0x7F:  # noqa: PLR2004  # LEB128
                packed.append(number & 0x7F | 0x80)
                number >>= 7  # noqa: PLW2901  # as above
            packed.append(number)
        before = index
    return base64.b64encode(zlib.compress(bytes(packed), 9)).decode()


def decode_histogram(text: str) -> list[list[int]]:
    """Return the sparse histogram that encode_histogram() made a text of."""
    numbers: list[int] = []
    number = shift = 0
    for byte in zlib.decompress(base64.b64decode(text)):
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:  # noqa: PLR2004  # LEB128
            numbers.append(number)
            number = shift = 0
    indices = itertools.accumulate(numbers[::2])
    return [[index, count] for index, count in zip(indices, numbers[1::2])]  # noqa: B905  # Python 3.9 has no strict


# What is counted


class Tally:
    """Counts of one phase of the run (the warm-up, the measured window, what is answered after it) and one name."""

    __slots__ = (
        "bytes",
        "counts",
        "errors_by_kind",
        "failed_ns",
        "latency_ns",
        "max_ns",
        "min_ns",
        "ok",
        "retried",
        "statuses",
        "waited_ns",
    )

    def __init__(self) -> None:
        self.ok = 0
        self.bytes = 0
        self.retried = 0
        self.latency_ns = 0
        self.failed_ns = 0
        self.waited_ns = 0
        self.min_ns = NEVER_NS
        self.max_ns = 0
        self.errors_by_kind: dict[str, int] = dict.fromkeys(ERROR_KINDS, 0)
        self.statuses: dict[int, int] = {}
        self.counts: dict[int, int] = {}

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
        return [[index, self.counts[index]] for index in sorted(self.counts)]

    @classmethod
    def sum(cls, tallies: Iterable[Tally]) -> Tally:
        """Add up what was counted apart."""
        total = cls()
        for tally in tallies:
            total.ok += tally.ok
            total.bytes += tally.bytes
            total.retried += tally.retried
            total.latency_ns += tally.latency_ns
            total.failed_ns += tally.failed_ns
            total.waited_ns += tally.waited_ns
            total.min_ns = min(total.min_ns, tally.min_ns)
            total.max_ns = max(total.max_ns, tally.max_ns)
            add_counts(total.errors_by_kind, tally.errors_by_kind)
            add_counts(total.statuses, tally.statuses)
            add_counts(total.counts, tally.counts)
        return total

    def pack(self) -> dict[str, Any]:
        """Return what JSON can carry."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def unpack(cls, packed: dict[str, Any]) -> Tally:
        """Return what was packed; JSON has made texts of the numbers that are keys."""
        tally = cls()
        for name, value in packed.items():
            setattr(tally, name, value)
        tally.statuses = {int(status): count for status, count in tally.statuses.items()}
        tally.counts = {int(index): count for index, count in tally.counts.items()}
        return tally


def add_counts(total: dict[Any, int], more: dict[Any, int]) -> None:
    """Add the counts of equal keys."""
    for key, count in more.items():
        total[key] = total.get(key, 0) + count


@dataclass
class Outcome:
    """What one worker counted, or several together.

    Attributes:
        started_at: When the run began, in seconds since the epoch.
        measured_ns: Length of the measured window.
        total_ns: From the beginning to the last response.
        phases: Warm-up, measured window and what came after it: each a tally for each name.
        bins_ok: Successful responses in each BIN_S.
        bins_errors: Errors in each.
        cpu_s: CPU time in the measured window, of each worker.
        lags: Histogram of the schedule lag in nanoseconds, as index and count, and the longest of them.
        max_lag_ns: Its longest.
        busy_ns: Time that connections were in use in the measured window, added up.
        planned: Requests of the schedule or the count; 0 where there is none.
        planned_measured: Those planned for the measured window.
        unsent: Those of `planned` that were not sent.
        unsent_measured: Those of `planned_measured`.
        error_samples: The first words of each kind of error.
        connected: Whether there was any connection at all.
    """

    started_at: float
    measured_ns: int
    total_ns: int
    phases: list[list[Tally]]
    bins_ok: list[int]
    bins_errors: list[int]
    cpu_s: list[float]
    lags: dict[int, int]
    max_lag_ns: int
    busy_ns: int
    planned: int
    planned_measured: int
    unsent: int
    unsent_measured: int
    error_samples: dict[str, str]
    connected: bool

    def pack(self) -> bytes:
        """Return the bytes in which a worker hands its outcome over."""
        phases = [[tally.pack() for tally in phase] for phase in self.phases]
        return json.dumps({**vars(self), "phases": phases}).encode()

    @classmethod
    def unpack(cls, packed: dict[str, Any]) -> Outcome:
        """Return what was packed."""
        packed["phases"] = [[Tally.unpack(tally) for tally in phase] for phase in packed["phases"]]
        packed["lags"] = {int(index): count for index, count in packed["lags"].items()}
        return cls(**packed)

    @classmethod
    def sum(cls, outcomes: Sequence[Outcome]) -> Outcome:
        """Add up what workers counted side by side."""
        lags: dict[int, int] = {}
        samples: dict[str, str] = {}
        for outcome in outcomes:
            add_counts(lags, outcome.lags)
            samples = {**outcome.error_samples, **samples}
        columns = zip(*(outcome.phases for outcome in outcomes))  # noqa: B905  # Python 3.9 has no strict
        return cls(
            started_at=min(outcome.started_at for outcome in outcomes),
            measured_ns=max(outcome.measured_ns for outcome in outcomes),
            total_ns=max(outcome.total_ns for outcome in outcomes),
            phases=[[Tally.sum(same) for same in zip(*column)] for column in columns],  # noqa: B905  # as above
            bins_ok=add_bins([outcome.bins_ok for outcome in outcomes]),
            bins_errors=add_bins([outcome.bins_errors for outcome in outcomes]),
            cpu_s=[cpu_s for outcome in outcomes for cpu_s in outcome.cpu_s],
            lags=lags,
            max_lag_ns=max(outcome.max_lag_ns for outcome in outcomes),
            busy_ns=sum(outcome.busy_ns for outcome in outcomes),
            planned=sum(outcome.planned for outcome in outcomes),
            planned_measured=sum(outcome.planned_measured for outcome in outcomes),
            unsent=sum(outcome.unsent for outcome in outcomes),
            unsent_measured=sum(outcome.unsent_measured for outcome in outcomes),
            error_samples=samples,
            connected=any(outcome.connected for outcome in outcomes),
        )


def add_bins(series: Sequence[Sequence[int]]) -> list[int]:
    """Add series up that begin at the same time; one may be longer than another."""
    return [sum(column) for column in itertools.zip_longest(*series, fillvalue=0)]


class Recorder:
    """Sorts what happens into phases and bins by the time it happened, however late the event loop got to it.

    Args:
        warmup_s: Length of the warm-up.
        duration_s: Length of the measured window after it.
        names: How many names the requests have.
    """

    def __init__(self, warmup_s: float, duration_s: float, names: int = 1) -> None:
        self._warmup_ns = round(warmup_s * NS_PER_S)
        self._duration_ns = round(duration_s * NS_PER_S)
        self.warmup, self.measured, self.after = ([Tally() for _ in range(names)] for _ in range(3))
        self.bins_ok: list[int] = []
        self.bins_errors: list[int] = []
        self.error_samples: dict[str, str] = {}
        self.started_at = 0.0
        self.cpu_s = 0.0
        self.lags: dict[int, int] = {}
        self.max_lag_ns = 0
        self.busy_ns = 0
        self._tallies = self.warmup
        self._bin_ok = 0
        self._bin_errors = 0
        self._edge_ns = 0
        self._bin_end_ns = 0
        self._phase_end_ns = 0
        self._cpu_mark_s = 0.0
        self._busy_mark_ns = 0
        self.start_ns = 0
        self.end_ns = 0

    def begin(self, start_ns: int) -> None:
        """Start the clock, which said `start_ns` a moment ago."""
        self.started_at = time.time() - (perf_counter_ns() - start_ns) / NS_PER_S
        self._cpu_mark_s = time.process_time()
        self.start_ns = start_ns
        self.end_ns = start_ns + self._warmup_ns + self._duration_ns
        self._phase_end_ns = start_ns + self._warmup_ns
        self._bin_end_ns = start_ns + BIN_NS
        self._edge_ns = min(self._bin_end_ns, self._phase_end_ns)
        self.advance(start_ns)

    def success(self, index: int, now_ns: int, elapsed_ns: int, size: int, status: int) -> None:
        """Count an expected response. This is the hot path: every line costs all requests."""
        if now_ns >= self._edge_ns:
            self.advance(now_ns)
        self._bin_ok += 1
        tally = self._tallies[index]
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
        bucket = elapsed_ns if shift <= 0 else (shift << 7) + (elapsed_ns >> shift)
        counts = tally.counts
        counts[bucket] = counts.get(bucket, 0) + 1

    def failure(self, index: int, now_ns: int, elapsed_ns: int, kind: str, sample: str) -> None:
        """Count a request that did not succeed, and keep the first sample of each kind."""
        self.advance(now_ns)
        self._bin_errors += 1
        self._tallies[index].errors_by_kind[kind] += 1
        self._tallies[index].failed_ns += elapsed_ns
        self.keep_sample(kind, sample)

    def keep_sample(self, kind: str, sample: str) -> None:
        """Keep the first words of each kind of error."""
        self.error_samples.setdefault(kind, sample[:MAX_SAMPLE_LENGTH])

    def bad_status(self, request: Request, now_ns: int, elapsed_ns: int, size: int, status: int) -> None:
        """Count a complete response whose status is not expected."""
        self.failure(request.index, now_ns, elapsed_ns, STATUS, f"{request.name}: {status}")
        tally = self._tallies[request.index]
        tally.statuses[status] = tally.statuses.get(status, 0) + 1
        tally.bytes += size

    def retry(self, index: int, now_ns: int) -> None:
        """Count a request that is sent once more on a new connection."""
        self.advance(now_ns)
        self._tallies[index].retried += 1

    def waited(self, index: int, waited_ns: int) -> None:
        """Note how long the request that was counted last had waited for a connection."""
        self._tallies[index].waited_ns += waited_ns

    def lag(self, now_ns: int, lag_ns: int) -> None:
        """Note how late the generator was, if it was in the measured window."""
        if self._is_measured(now_ns):
            bucket = bucket_of(lag_ns)
            self.lags[bucket] = self.lags.get(bucket, 0) + 1
            self.max_lag_ns = max(self.max_lag_ns, lag_ns)

    def busy(self, connections: int, now_ns: int) -> None:
        """Note that so many connections were in use since this was last said."""
        begin_ns = max(self._busy_mark_ns, self.start_ns + self._warmup_ns)
        self._busy_mark_ns = now_ns
        self.busy_ns += connections * max(0, min(now_ns, self.end_ns) - begin_ns)

    def fails_beyond(self, share: float) -> bool:
        """Whether more than this share of all requests so far has failed, once there are enough to tell."""
        tallies = [tally for phase in (self.warmup, self.measured, self.after) for tally in phase]
        requests = sum(tally.requests for tally in tallies)
        return requests >= FEWEST_TO_JUDGE and sum(tally.errors for tally in tallies) > share * requests

    def advance(self, now_ns: int) -> None:
        """Close every bin and phase that ended by now."""
        while now_ns >= self._edge_ns:
            edge = self._edge_ns
            if edge in (self._bin_end_ns, self.end_ns):
                self._close_bin()
            if edge == self._phase_end_ns:
                self._close_phase()
            self._edge_ns = min(self._bin_end_ns, self._phase_end_ns)

    def stop(self, now_ns: int) -> None:
        """End the measured window now, if it is not over."""
        self.advance(now_ns)
        if self._tallies is not self.after:
            self.end_ns = self._edge_ns = self._phase_end_ns = now_ns
            self.advance(now_ns)

    @property
    def measured_ns(self) -> int:
        """Length of the measured window."""
        return self.end_ns - self.start_ns - self._warmup_ns

    def _is_measured(self, now_ns: int) -> bool:
        return self.start_ns + self._warmup_ns <= now_ns < self.end_ns

    def _close_bin(self) -> None:
        self.bins_ok.append(self._bin_ok)
        self.bins_errors.append(self._bin_errors)
        self._bin_ok = self._bin_errors = 0
        self._bin_end_ns += BIN_NS

    def _close_phase(self) -> None:
        cpu_s = time.process_time()
        if self._tallies is self.warmup:
            self._tallies = self.measured
            self._phase_end_ns = self.end_ns
        else:
            self.cpu_s = cpu_s - self._cpu_mark_s
            self._tallies = self.after
            self._bin_end_ns = self._phase_end_ns = NEVER_NS
        self._cpu_mark_s = cpu_s


# What comes over the wire


@lru_cache(maxsize=256)
def parse_head(head: bytes) -> tuple[int, bool, int]:
    """Read the status line and the headers, without the empty line at their end.

    Cached, for a server says the same a hundred times over before the second in its Date header ends.

    Returns:
        The status, whether the connection may be used again unless it ends the body, and the length of the body,
        which may be INTERIM, CHUNKED or UNTIL_CLOSE instead of a number of bytes.

    Raises:
        MalformedResponseError: They are none.
    """
    if len(head) > MAX_HEAD_BYTES:
        raise MalformedResponseError(f"headers are longer than {MAX_HEAD_BYTES} bytes")
    line = STATUS_LINE.match(head)
    if line is None:
        raise MalformedResponseError(f"no HTTP/1.x status line: {head[:40]!r}")
    if head.count(b"\n") != head.count(b"\r\n"):
        raise MalformedResponseError("a header ends without CR")  # readers differ in what it is then
    status = int(line[2])
    lower = head.lower()
    options = {option.strip() for value in CONNECTION_HEADER.findall(lower) for option in value.split(b",")}
    kept = b"close" not in options and (line[1] == b"1" or b"keep-alive" in options)
    return status, kept, body_length(status, lower)


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
            self.keep_alive = False
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


class Poller:
    """Waits for sockets: with epoll, or with poll, which has the same flags, where there is no epoll."""

    def __init__(self) -> None:
        self._epoll = select.epoll() if hasattr(select, "epoll") else None
        self._sockets: Any = self._epoll or select.poll()
        self.register = self._sockets.register
        self.modify = self._sockets.modify
        self.unregister = self._sockets.unregister

    def wait(self, timeout_ns: int) -> list[tuple[int, int]]:
        """Return the descriptors that are ready, and for what, after `timeout_ns` at the latest."""
        if timeout_ns >= NS_PER_MS:
            whole_ms = timeout_ns // NS_PER_MS
            if self._epoll is None:
                return self._sockets.poll(whole_ms)  # type: ignore[no-any-return]  # pairs, as those of epoll
            return self._epoll.poll((whole_ms - 0.5) / 1000, MAX_EVENTS)  # which it rounds up
        if timeout_ns > 0 and self._epoll is not None:
            select.select((self._epoll,), (), (), timeout_ns / NS_PER_S)  # epoll itself knows no less than 1 ms
        return self._sockets.poll(0)  # type: ignore[no-any-return]  # as above

    def close(self) -> None:
        """Give the descriptor back."""
        if self._epoll is not None:
            self._epoll.close()


NOT_YET = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Connection:
    """One place of the closed loop: a connection, and the one after it when it is lost.

    Args:
        run: The run it belongs to.
        requests: What it sends.
    """

    __slots__ = (
        "_failures",
        "_fd",
        "_parser",
        "_pending",
        "_receive",
        "_recorder",
        "_request",
        "_requests",
        "_rest",
        "_retrying",
        "_reused",
        "_run",
        "_send",
        "_sock",
        "_started_ns",
        "_up",
        "_waited_ns",
    )

    def __init__(self, run: LoadRun, requests: Iterator[Request]) -> None:
        self._run = run
        self._recorder = run.recorder
        self._requests = requests
        self._request = run.plan.requests[0]
        self._parser = ResponseParser()
        self._sock: socket.socket | None = None
        self._fd = -1
        self._send: Callable[[bytes], int] = len
        self._receive: Callable[[int], bytes] = bytes
        self._rest = b""  # what of the request is not sent yet
        self._up = False  # there is a connection, and it is encrypted if it is to be
        self._pending = False  # a request is under way, or a connection for one
        self._reused = False  # a response has come over this very connection
        self._retrying = False  # the request is already on its second connection
        self._failures = 0  # in a row, for the back-off
        self._started_ns = 0
        self._waited_ns = 0  # from the planned time to the start

    def start(self, now_ns: int) -> None:
        """Begin, or go on after a pause."""
        if self._take(now_ns):
            self._dial()

    def expire(self, now_ns: int, timeout_ns: int) -> None:
        """Give a request up that takes longer than it may."""
        if now_ns - self._started_ns <= timeout_ns or not (self._pending or self._dialing):
            return
        allowed = f"within {timeout_ns / NS_PER_S:g} s"
        if self._up:
            self._fail(TIMEOUT, f"{self._request.name}: no complete response {allowed}")
        else:
            self._fail(CONNECT, f"no connection {allowed}")

    def stop(self) -> None:
        """Begin nothing more; a request that was sent may still be answered."""
        if self._dialing and not self._retrying:
            self._drop()
            self._idle(perf_counter_ns())

    def close(self) -> None:
        """Drop everything at once."""
        self._drop()
        self._pending = False

    @property
    def _dialing(self) -> bool:
        return self._sock is not None and not self._up

    def _take(self, now_ns: int) -> bool:
        """Take the next request, if one is to be sent now."""
        request = None
        if now_ns < self._run.end_ns:
            request = next(self._requests, None)
        if request is None:
            self._run.exhausted |= now_ns < self._run.end_ns
            self._idle(now_ns)
            return False
        self._request = request
        self._parser.bodiless = request.bodiless
        self._started_ns = now_ns
        if not self._pending:
            self._pending = True
            self._run.change(1, now_ns)
        return True

    def _idle(self, now_ns: int) -> None:
        if self._pending:
            self._pending = False
            self._run.change(-1, now_ns)

    def _dial(self) -> None:
        try:
            sock, connected = self._run.dial()
        except OSError as error:
            self._fail(CONNECT, reason_of(error))
            return
        self._sock = sock
        self._fd = sock.fileno()
        self._run.poller.register(self._fd, WRITABLE)
        self._run.handlers[self._fd] = self._on_connected
        if connected:
            self._on_connected(WRITABLE)

    def _on_connected(self, _flags: int) -> None:
        sock, plan = self._sock, self._run.plan
        if sock is None:
            return
        try:
            check_connected(sock)
            if plan.tls is not None and not isinstance(sock, ssl.SSLSocket):
                sock = self._sock = encrypt(sock, plan)
        except OSError as error:
            self._fail(CONNECT, reason_of(error))
            return
        if isinstance(sock, ssl.SSLSocket):
            self._run.handlers[self._fd] = self._on_handshake
            self._on_handshake(WRITABLE)
        else:
            self._begin(sock)

    def _on_handshake(self, _flags: int) -> None:
        sock = self._sock
        if not isinstance(sock, ssl.SSLSocket):
            return
        try:
            sock.do_handshake()
        except ssl.SSLWantReadError:
            self._run.poller.modify(self._fd, READABLE)
        except ssl.SSLWantWriteError:
            self._run.poller.modify(self._fd, WRITABLE)
        except OSError as error:
            self._fail(CONNECT, reason_of(error))
        else:
            self._begin(sock)

    def _begin(self, sock: socket.socket) -> None:
        """Send the request that the connection was opened for."""
        self._send, self._receive = sock.send, sock.recv
        self._run.poller.modify(self._fd, READABLE)
        self._run.handlers[self._fd] = self._on_answer
        self._run.connected = True
        self._up = True
        self._reused = False
        self._parser = ResponseParser()
        self._parser.bodiless = self._request.bodiless
        self._opened(perf_counter_ns())

    def _opened(self, now_ns: int) -> None:
        if self._run.plan.keep_alive and not self._retrying:
            self._started_ns = now_ns
        self._write(self._request.wire)

    def _write(self, wire: bytes) -> None:
        try:
            sent = self._send(wire)
        except NOT_YET:
            sent = 0
        except OSError as error:
            self._lost(error)
            return
        if sent < len(wire):
            self._rest = wire[sent:]
            self._run.poller.modify(self._fd, READABLE | WRITABLE)
        elif self._rest:
            self._rest = b""
            self._run.poller.modify(self._fd, READABLE)

    def _on_answer(self, flags: int) -> None:
        """Take what has arrived; when that completes the response, send the next request at once."""
        if self._rest and flags & WRITABLE:
            self._write(self._rest)
            if not flags & ~WRITABLE or not self._up:
                return
        try:
            data = self._receive(RECEIVE_BYTES)
            status = self._parser.feed(data) if data else 0
        except NOT_YET:
            return
        except MalformedResponseError as error:
            self._fail(MALFORMED, f"{self._request.name}: {error}")
            return
        except OSError as error:
            self._lost(error)
            return
        if status:
            self._complete(status)
        elif not data:
            self._lost(None)

    def _complete(self, status: int) -> None:
        now = perf_counter_ns()
        request, parser = self._request, self._parser
        elapsed_ns = now - self._started_ns + self._waited_ns
        if status in request.accepts:
            self._recorder.success(request.index, now, elapsed_ns, parser.size, status)
        else:
            self._recorder.bad_status(request, now, elapsed_ns, parser.size, status)
        if self._waited_ns:
            self._recorder.waited(request.index, self._waited_ns)
        if parser.keep_alive and self._run.plan.keep_alive and not self._rest:
            if not self._reused:
                self._reused = True
                self._retrying = False
                self._failures = 0
            if self._take(now):
                self._write(self._request.wire)
            return
        self._drop()
        self._retrying = False
        self._failures = 0
        if self._take(now):
            self._dial()

    def _lost(self, error: OSError | None) -> None:
        """See what the end of the connection means for the request, and go on with another connection."""
        status = 0 if error else self._parser.finish()
        if status:
            self._complete(status)
        elif self._reused and self._request.repeatable and not self._parser.started:
            self._retrying = True  # and not a second time: the connection is a new one
            self._recorder.retry(self._request.index, perf_counter_ns())
            self._drop()
            self._dial()
        else:
            kind = SHORT_BODY if self._parser.started else RESET
            reason = reason_of(error) if error else "the server closed the connection"
            self._fail(kind, f"{self._request.name}: {reason}")

    def _fail(self, kind: str, sample: str) -> None:
        now = perf_counter_ns()
        if self._pending:
            elapsed_ns = now - self._started_ns + self._waited_ns
            self._recorder.failure(self._request.index, now, elapsed_ns, kind, sample)
            self._recorder.waited(self._request.index, self._waited_ns)
        self._drop()
        self._idle(now)
        self._retrying = False
        self._failures += 1
        # A dead server refuses at once: without a pause this would be a busy loop.
        pause_ns = min(MAX_BACK_OFF_NS, BACK_OFF_NS * 2 ** min(self._failures - 1, 10))
        self._run.start_later(self, now + pause_ns)

    def _drop(self) -> None:
        if self._sock is not None:
            self._run.poller.unregister(self._fd)
            del self._run.handlers[self._fd]
            self._sock.close()
        self._sock = None
        self._up = False
        self._rest = b""


class PacedConnection(Connection):
    """One place of an open loop: a connection that waits for a request to be due, and the one after it."""

    __slots__ = ("freed_ns",)

    def __init__(self, run: LoadRun, requests: Iterator[Request]) -> None:
        super().__init__(run, requests)
        self.freed_ns = 0

    def send_planned(self, planned_ns: int, now_ns: int) -> None:
        """Send the request that was planned for `planned_ns`, over a connection or with a new one."""
        self._accept(planned_ns, now_ns)
        if self._up:
            self._run.handlers[self._fd] = self._on_answer
            self._write(self._request.wire)
        else:
            self._dial()

    def stop(self) -> None:
        """Begin nothing more; a request whose time has come is still sent and answered."""
        if self._dialing and not self._pending:
            self._drop()

    def _accept(self, planned_ns: int, now_ns: int) -> None:
        self._request = next(self._requests)
        self._parser.bodiless = self._request.bodiless
        self._started_ns = now_ns
        self._waited_ns = now_ns - planned_ns
        if not self._pending:
            self._pending = True
            self._run.change(1, now_ns)

    def _take(self, now_ns: int) -> bool:
        planned_ns = self._run.claim(now_ns)
        if planned_ns is not None:
            self._accept(planned_ns, now_ns)
            return True
        self._idle(now_ns)
        self.freed_ns = now_ns
        if self._up:
            self._run.handlers[self._fd] = self._on_idle
            self._run.offer(self, warm=True)
        elif self._run.plan.keep_alive and not self._failures and not self._run.over:
            self._started_ns = now_ns
            self._dial()
        else:
            self._run.offer(self, warm=False)
        return False

    def _opened(self, now_ns: int) -> None:
        if self._pending or self._take(now_ns):
            self._write(self._request.wire)

    def _on_idle(self, _flags: int) -> None:
        """See why a connection that nobody uses has something to say: mostly the server closes it."""
        try:
            data = self._receive(RECEIVE_BYTES)
        except NOT_YET:
            return
        except OSError:
            data = b""
        if data:
            self._recorder.keep_sample(MALFORMED, f"bytes without a request: {data[:40]!r}")
        self._run.withdraw(self)
        self._drop()
        if self._take(perf_counter_ns()):
            self._dial()


class LoadRun:
    """A load of one worker from the first connection to the last response.

    Args:
        plan: What to send, how and how long.
        share: What of it falls to this worker.
        address: Where the server is.
        abandoned: Whether nobody waits for the result any more; asked ten times a second.
        spare: A connection to begin with, if there is one.

    Attributes:
        plan: As given.
        recorder: What happened so far.
        poller: What waits for the sockets.
        handlers: For each descriptor what to call when it is ready.
        connected: Whether there was any connection at all.
        exhausted: Whether the count of requests is used up.
        end_ns: Until when requests are sent.
    """

    def __init__(
        self,
        plan: Plan,
        share: Share,
        address: Address,
        abandoned: Callable[[], bool],
        spare: socket.socket | None = None,
    ) -> None:
        self.plan = plan
        self.recorder = Recorder(plan.warmup_s, plan.duration_s, len(plan.names))
        self.poller = Poller()
        self.handlers: dict[int, Callable[[int], None]] = {}
        self.connected = False
        self.exhausted = False
        self.over = False
        self.end_ns = 0
        self._share = share
        self._address = address
        self._abandoned = abandoned
        self._spare = spare
        self._active = 0
        self._due_ns = 0
        self._sweep_ns = 0
        self._timers: list[tuple[int, int, Connection]] = []
        self._timer_numbers = itertools.count()
        self._arrivals: Arrivals | None = None
        self._warm: deque[PacedConnection] = deque()
        self._cold: deque[PacedConnection] = deque()
        self._unsent = (0, 0)
        self._connections = self._make_connections()

    def _make_connections(self) -> list[Connection]:
        plan, share = self.plan, self._share
        mix = draw(plan, share.worker, share.worker)
        if plan.mode == OPEN:
            return [PacedConnection(self, mix) for _ in range(share.connections)]
        if share.count is not None:
            some = itertools.islice(mix, share.count)
            return [Connection(self, some) for _ in range(share.connections)]
        if in_turn(plan):
            places = range(share.first_connection, share.first_connection + share.connections)
            return [Connection(self, draw(plan, share.worker, place)) for place in places]
        return [Connection(self, mix) for _ in range(share.connections)]

    def run(self, start_ns: int | None = None) -> Outcome:
        """Run the load and return what it came to.

        Args:
            start_ns: When to begin, for several workers or hosts at once; None for at once.

        Raises:
            AbandonedError: Nobody waits for the result any more.
        """
        try:
            if start_ns is not None:
                time.sleep(max(0, start_ns - perf_counter_ns()) / NS_PER_S)
            self._begin(perf_counter_ns() if start_ns is None else start_ns)
            self._serve()
            return self._finish(perf_counter_ns())
        finally:
            self._close()

    def dial(self) -> tuple[socket.socket, bool]:
        """Return a socket, and whether it is already connected to the server.

        Raises:
            OSError: There is no connection to be had.
        """
        sock, self._spare = self._spare, None
        return (sock, True) if sock is not None else open_socket(self._address)

    def start_later(self, connection: Connection, due_ns: int) -> None:
        """Let a connection start when it is time, unless the run is over by then."""
        heapq.heappush(self._timers, (due_ns, next(self._timer_numbers), connection))
        self._due_ns = min(self._due_ns, due_ns)

    def change(self, step: int, now_ns: int) -> None:
        """Note that a connection is in use, or no longer."""
        self.recorder.busy(self._active, now_ns)
        self._active += step

    def claim(self, now_ns: int) -> int | None:
        """Return the planned time of a request that is due, None where none is."""
        arrivals = self._arrivals
        return arrivals.take() if arrivals is not None and arrivals.due_ns <= now_ns else None

    def offer(self, connection: PacedConnection, *, warm: bool) -> None:
        """Note that a connection is free; one that is open is taken first, and in turn."""
        (self._warm if warm else self._cold).append(connection)
        if self._arrivals is not None:
            self._due_ns = min(self._due_ns, self._arrivals.due_ns)

    def withdraw(self, connection: PacedConnection) -> None:
        """Note that a free connection is none any more."""
        self._warm.remove(connection)

    def _begin(self, start_ns: int) -> None:
        self.recorder.begin(start_ns)
        self.end_ns = self.recorder.end_ns
        self._sweep_ns = start_ns + SWEEP_NS
        if self.plan.mode == OPEN:
            self._arrivals = Arrivals(self.plan, self._share.worker, start_ns)
        for number, connection in enumerate(self._connections):
            self.start_later(connection, start_ns + RAMP_STEP_NS * (number // RAMP_BATCH))

    def _serve(self) -> None:
        wait, handlers = self.poller.wait, self.handlers
        self._due_ns = 0
        while self._active or not (self.over or self.exhausted):
            now = perf_counter_ns()
            if now >= self._due_ns:
                self._tend(now)
                now = perf_counter_ns()
            for descriptor, flags in wait(self._due_ns - now):
                handlers[descriptor](flags)

    def _tend(self, now_ns: int) -> None:
        """Do what is due, and find out when to look again."""
        if not self.over:
            while self._timers and self._timers[0][0] <= now_ns:
                heapq.heappop(self._timers)[2].start(now_ns)
            self._send_due(now_ns)
        if now_ns >= self.end_ns and not self.over:
            self._stop()
        if now_ns >= self._sweep_ns:
            self._sweep(now_ns)
        self._due_ns = self._sweep_ns if self.over else min(self._sweep_ns, self.end_ns)
        if self._timers:
            self._due_ns = min(self._due_ns, self._timers[0][0])
        if self._arrivals is not None and (self._warm or self._cold):
            self._due_ns = min(self._due_ns, self._arrivals.due_ns)

    def _send_due(self, now_ns: int) -> None:
        while self._warm or self._cold:
            planned_ns = self.claim(now_ns)
            if planned_ns is None:
                return
            connection = (self._warm or self._cold).popleft()
            now = perf_counter_ns()
            if planned_ns >= connection.freed_ns:
                self.recorder.lag(now, now - planned_ns)
            connection.send_planned(planned_ns, now)

    def _stop(self) -> None:
        self.over = True
        self._timers.clear()
        if self._arrivals is not None:
            self._unsent = self._arrivals.take_rest()
        for connection in self._connections:
            connection.stop()

    def _sweep(self, now_ns: int) -> None:
        if self._abandoned():
            raise AbandonedError("whoever started the load is gone")
        if self.plan.stop_file and os.path.exists(self.plan.stop_file):  # noqa: PTH110 ten times a second, so the quick one
            self.end_ns = min(self.end_ns, now_ns)
        if self.recorder.fails_beyond(self.plan.max_error_share):
            self.end_ns = min(self.end_ns, now_ns)
        if self._arrivals is None:
            self.recorder.lag(now_ns, now_ns - self._sweep_ns)
        self.recorder.advance(now_ns)
        timeout_ns = round(self.plan.timeout_s * NS_PER_S)
        for connection in self._connections:
            connection.expire(now_ns, timeout_ns)
        self._sweep_ns = now_ns + (DRAIN_POLL_NS if self.over else SWEEP_NS)

    def _finish(self, now_ns: int) -> Outcome:
        recorder, arrivals, count = self.recorder, self._arrivals, self._share.count
        recorder.busy(self._active, now_ns)
        recorder.stop(now_ns)
        if count is not None:
            sent = sum(tally.requests for phase in (recorder.measured, recorder.after) for tally in phase)
            self._unsent = (count - sent, count - sent)
        return Outcome(
            started_at=recorder.started_at,
            measured_ns=recorder.measured_ns,
            total_ns=now_ns - recorder.start_ns,
            phases=[recorder.warmup, recorder.measured, recorder.after],
            bins_ok=recorder.bins_ok,
            bins_errors=recorder.bins_errors,
            cpu_s=[recorder.cpu_s],
            lags=recorder.lags,
            max_lag_ns=recorder.max_lag_ns,
            busy_ns=recorder.busy_ns,
            planned=arrivals.planned if arrivals is not None else count or 0,
            planned_measured=arrivals.planned_measured if arrivals is not None else count or 0,
            unsent=self._unsent[0],
            unsent_measured=self._unsent[1],
            error_samples=recorder.error_samples,
            connected=self.connected,
        )

    def _close(self) -> None:
        for connection in self._connections:
            connection.close()
        if self._spare is not None:
            self._spare.close()
        self.poller.close()


def first_connection(plan: Plan, abandoned: Callable[[], bool]) -> tuple[Address, socket.socket]:
    """Find the address of the server that accepts a connection: localhost may be two of them.

    Raises:
        LoadError: None does.
        AbandonedError: Nobody waits for the result any more.
    """
    where = f"{plan.host}:{plan.port}"
    reason = "it has no address"
    try:
        found = socket.getaddrinfo(plan.host, plan.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise LoadError(f"{where} cannot be looked up: {error}; check base_url") from error
    for family, _, _, _, sockaddr in found:
        deadline_ns = perf_counter_ns() + round(plan.timeout_s * NS_PER_S)
        try:
            return (family, sockaddr), _connect_now((family, sockaddr), plan, deadline_ns, abandoned)
        except ssl.SSLError as error:
            raise LoadError(f"no encrypted connection to {where}: {reason_of(error)}; {_tls_remedy(error)}") from error
        except TimeoutError:
            reason = f"no answer within {plan.timeout_s:g} s"
        except OSError as error:
            reason = reason_of(error)
    raise LoadError(f"nothing accepts connections at {where}: {reason}; is the application up, and base_url right?")


def _tls_remedy(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return "set ca_path to the certificate of its authority, server_name to a name in it"
    return "does it speak TLS there? If not, base_url begins with http://"


def _connect_now(address: Address, plan: Plan, deadline_ns: int, abandoned: Callable[[], bool]) -> socket.socket:
    """Return a connection, encrypted where it is to be.

    Raises:
        OSError: There is none to be had; TimeoutError: none by the deadline.
    """
    sock, connected = open_socket(address)
    try:
        if not connected:
            _wait_for(sock, WRITABLE, deadline_ns, abandoned)
        check_connected(sock)
        if plan.tls is None:
            return sock
        sock = encrypted = encrypt(sock, plan)
        while True:
            try:
                encrypted.do_handshake()
            except ssl.SSLWantReadError:
                _wait_for(sock, READABLE, deadline_ns, abandoned)
            except ssl.SSLWantWriteError:
                _wait_for(sock, WRITABLE, deadline_ns, abandoned)
            else:
                return sock
    except BaseException:
        sock.close()
        raise


def _wait_for(sock: socket.socket, flags: int, deadline_ns: int, abandoned: Callable[[], bool]) -> None:
    poll = select.poll()
    poll.register(sock, flags)
    while not poll.poll(SWEEP_NS // NS_PER_MS):
        if abandoned():
            raise AbandonedError("whoever started the load is gone")
        if perf_counter_ns() >= deadline_ns:
            raise TimeoutError


def open_socket(address: Address) -> tuple[socket.socket, bool]:
    """Return a socket that does not block, and whether it is connected already or will be.

    Raises:
        OSError: There is no connection to be had.
    """
    family, sockaddr = address
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)  # noqa: FBT003  # the function knows no keyword
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.connect(sockaddr)
    except BlockingIOError:
        return sock, False
    except BaseException:
        sock.close()
        raise
    return sock, True


def check_connected(sock: socket.socket) -> None:
    """See whether a socket that is ready has got its connection.

    Raises:
        OSError: It has not.
    """
    code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if code:
        raise OSError(code, os.strerror(code))
    # A port that nobody listens at, in the range of clients' ports, now and then connects to itself.
    if sock.getsockname() == sock.getpeername():
        raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))


def encrypt(sock: socket.socket, plan: Plan) -> ssl.SSLSocket:
    """Return the socket with TLS on it, whose handshake is still to be done."""
    if plan.tls is None:
        raise LoadError("there is nothing to encrypt with")
    try:
        return plan.tls.wrap_socket(sock, server_hostname=plan.server_name, do_handshake_on_connect=False)
    except ValueError as error:
        raise LoadError(f"server_name {plan.server_name!r} cannot be asked for: {error}") from error


def reason_of(error: OSError) -> str:
    """Return the system's words for an error, without what only programmers need."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message or str(error)
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).replace("_", " ").lower()
    return os.strerror(error.errno) if error.errno else str(error)


# Several workers


class Worker:
    """A process that does its share of a load and hands its outcome over through a pipe.

    Args:
        number: Number of the worker, from 0.
        work: What it does; returns the outcome's bytes, and may raise LoadError.
    """

    def __init__(self, number: int, work: Callable[[], bytes]) -> None:
        self.number = number
        self._received = bytearray()
        self.pipe, writer = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            _work_and_exit(work, writer)
        os.close(writer)

    def read(self) -> bool:
        """Take what it has handed over so far, and return whether that was the last."""
        data = os.read(self.pipe, RECEIVE_BYTES)
        self._received += data
        return not data

    def outcome(self) -> Outcome:
        """Return what the worker handed over.

        Raises:
            LoadError: It could not do its share.
        """
        try:
            packed = json.loads(self._received)
        except ValueError as error:
            raise LoadError(f"worker {self.number} died; is there memory enough? Try fewer workers") from error
        if "error" in packed:
            raise LoadError(packed["error"])
        return Outcome.unpack(packed)

    def end(self) -> None:
        """End the process if it has not ended."""
        os.close(self.pipe)
        os.kill(self.pid, signal.SIGKILL)  # nothing happens to one that has ended, until it is waited for
        os.waitpid(self.pid, 0)


def _work_and_exit(work: Callable[[], bytes], pipe: int) -> None:
    # Never returns: what comes after the fork, and what is to be done at exit, belongs to the parent.
    status = 1
    try:
        try:
            said = work()
        except AbandonedError:
            said = b""
        except LoadError as error:
            said = json.dumps({"error": str(error)}).encode()
        with os.fdopen(pipe, "wb") as stream:
            stream.write(said)
        status = 0
    except BaseException:  # noqa: BLE001  # it must not get into the parent's code
        traceback.print_exc()
    finally:
        os._exit(status)


def run_workers(
    plan: Plan, address: Address, spare: socket.socket, abandoned: Callable[[], bool], start_ns: int | None
) -> Outcome:
    """Run a load in as many processes as it asks for; see LoadRun for what is raised."""
    start_ns = max(start_ns or 0, perf_counter_ns() + WORKERS_HEAD_START_NS)
    parent = os.getpid()

    def work(number: int) -> bytes:
        if number:
            spare.close()
        first = None if number else spare
        run = LoadRun(plan, Share.of(plan, number), address, lambda: os.getppid() != parent, first)
        return run.run(start_ns).pack()

    workers: list[Worker] = []
    try:
        for number in range(plan.workers):
            workers.append(Worker(number, partial(work, number)))  # noqa: PERF401  # the first ones are to be ended, too
        spare.close()
        _read_all(workers, abandoned)
        return Outcome.sum([worker.outcome() for worker in workers])
    finally:
        for worker in workers:
            worker.end()


def _read_all(workers: Sequence[Worker], abandoned: Callable[[], bool]) -> None:
    by_pipe = {worker.pipe: worker for worker in workers}
    poll = select.poll()
    for pipe in by_pipe:
        poll.register(pipe, READABLE)
    while by_pipe:
        for pipe, _ in poll.poll(SWEEP_NS // NS_PER_MS):
            if by_pipe[pipe].read():
                poll.unregister(pipe)
                del by_pipe[pipe]
        if abandoned():
            raise AbandonedError("whoever started the load is gone")


# What is reported


def make_report(plan: Plan, outcome: Outcome) -> dict[str, Any]:
    """Return the module's `load` (see RETURN)."""
    if outcome.measured_ns <= 0:
        plan, outcome = count_warmup(plan, outcome)
    duration_s = outcome.measured_ns / NS_PER_S
    total_s = outcome.total_ns / NS_PER_S
    measured = Tally.sum(outcome.phases[1])
    total = Tally.sum(tally for phase in outcome.phases for tally in phase)
    latency = summarize_latency(measured)
    opened = plan.mode == OPEN
    return {
        "started_at": round(outcome.started_at, 3),
        "warmup_s": plan.warmup_s,
        "duration_s": duration_s,
        "connections": plan.connections,
        "mode": plan.mode,
        "rate_rps": plan.rate_rps if opened else None,
        "arrivals": ("uniform" if plan.uniform else "poisson") if opened else None,
        "seed": plan.seed,
        "workers": plan.workers,
        "planned": outcome.planned or None,
        "unsent": outcome.unsent,
        "bins": {"width_s": BIN_S, "ok": outcome.bins_ok, "errors": outcome.bins_errors},
        "measured": summarize(measured, duration_s),
        "total": summarize(total, total_s),
        "latency_us": latency,
        "by_name": {name: summarize_name(outcome, index) for index, name in enumerate(plan.names)},
        "generator": summarize_generator(plan, outcome, measured, latency["p50"]),
        "error_samples": outcome.error_samples,
    }


def count_warmup(plan: Plan, outcome: Outcome) -> tuple[Plan, Outcome]:
    """Return a load that ended within its warm-up as one without: what made it end there must count."""
    warmup, measured, after = outcome.phases
    counted = [Tally.sum((early, measured[index])) for index, early in enumerate(warmup)]
    measured_ns = max(1, outcome.measured_ns + round(plan.warmup_s * NS_PER_S))
    phases = [[Tally() for _ in counted], counted, after]
    return replace(plan, warmup_s=0.0), replace(outcome, measured_ns=measured_ns, phases=phases)


def summarize(tally: Tally, elapsed_s: float) -> dict[str, Any]:
    """Return the counts of what took so many seconds."""
    return {
        "requests": tally.requests,
        "ok": tally.ok,
        "errors": tally.errors,
        "retried": tally.retried,
        "errors_by_kind": tally.errors_by_kind,
        "status_counts": {str(status): tally.statuses[status] for status in sorted(tally.statuses)},
        "bytes": tally.bytes,
        "throughput_rps": round(tally.ok / elapsed_s, 3),
    }


def summarize_name(outcome: Outcome, index: int) -> dict[str, Any]:
    """Return the counts and latencies of the requests of one name."""
    measured = outcome.phases[1][index]
    total = Tally.sum(phase[index] for phase in outcome.phases)
    latency = summarize_latency(measured)
    return {
        "measured": summarize(measured, outcome.measured_ns / NS_PER_S),
        "total": summarize(total, outcome.total_ns / NS_PER_S),
        "latency_us": {**latency, "histogram": encode_histogram(latency["histogram"])},
    }


def summarize_latency(tally: Tally) -> dict[str, Any]:
    """Return the latencies of a phase in microseconds; None where nothing was answered."""
    histogram = tally.histogram()
    summary: dict[str, Any] = dict.fromkeys(("min", "max", "mean", *(name for name, _ in PERCENTILES)))
    if tally.ok:
        low, high = tally.min_ns / NS_PER_US, tally.max_ns / NS_PER_US
        summary.update(min=low, max=high, mean=round(tally.latency_ns / tally.ok / NS_PER_US, 3))
        for name, percent in PERCENTILES:
            # The middle of the outermost buckets may lie outside what was seen.
            summary[name] = min(max(percentile_us(histogram, percent) or low, low), high)
    return {"count": tally.ok, **summary, "histogram": histogram}


def summarize_generator(plan: Plan, outcome: Outcome, measured: Tally, p50_us: float | None) -> dict[str, Any]:
    """Return what the load itself cost, and whether its result may be believed."""
    duration_s = outcome.measured_ns / NS_PER_S
    cpu_s = sum(outcome.cpu_s)
    cpu_share = round(max(outcome.cpu_s) / duration_s, 4)
    in_use = outcome.busy_ns / outcome.measured_ns if plan.mode == OPEN else float(plan.connections)
    answering = (measured.latency_ns + measured.failed_ns - measured.waited_ns) / outcome.measured_ns  # X R
    lag = summarize_lag(outcome)
    send_rate = None
    if plan.mode == OPEN and outcome.planned_measured:
        send_rate = round(1 - outcome.unsent_measured / outcome.planned_measured, 4)
    return {
        "cpu_s": round(cpu_s, 4),
        "cpu_share": cpu_share,
        "cpu_us_per_request": round(cpu_s * 1e6 / measured.requests, 2) if measured.requests else None,
        "littles_law_residual": round(abs(in_use - answering) / in_use, 4) if in_use else None,
        "send_rate": send_rate,
        "schedule_lag_us": lag,
        "most_connections": most_connections(),
        "refused_reason": refused_reason(plan, cpu_share, send_rate, lag["p99"], p50_us),
    }


def summarize_lag(outcome: Outcome) -> dict[str, Any]:
    """Return how late the generator was, in microseconds."""
    histogram = [[index, outcome.lags[index]] for index in sorted(outcome.lags)]
    high = outcome.max_lag_ns / NS_PER_US
    p50, p99 = (percentile_us(histogram, percent) for percent in (50, 99))
    return {
        "count": sum(outcome.lags.values()),
        "p50": None if p50 is None else round(min(p50, high), 3),
        "p99": None if p99 is None else round(min(p99, high), 3),
        "max": high if histogram else None,
    }


def refused_reason(
    plan: Plan, cpu_share: float, send_rate: float | None, lag_us: float | None, p50_us: float | None
) -> str:
    """Return why a result must not be believed, because the generator was its own limit; empty where it may be."""
    if cpu_share > MAX_CPU_SHARE:
        return (
            f"the generator used {cpu_share:.0%} of a core, {MAX_CPU_SHARE:.0%} are the most; "
            f"give it more workers than {plan.workers}, or a host of its own"
        )
    if send_rate is not None and send_rate < MIN_SEND_RATE:
        return (
            f"only {send_rate:.1%} of the planned requests could be sent with {plan.connections} connections, "
            f"{MIN_SEND_RATE:.0%} are the least; lower the rate, or allow more connections"
        )
    limit_us = max(MAX_LAG_US, MAX_LAG_SHARE * (p50_us or 0))
    if plan.mode == OPEN and lag_us is not None and lag_us > limit_us:
        return (
            f"one request in a hundred was sent {lag_us / 1000:.2g} ms or more after its time although a connection "
            f"was free, {limit_us / 1000:.2g} ms are the most; give the generator more CPU, or a host of its own"
        )
    return ""


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


def most_connections() -> int:
    """Return how many connections the hard limit of open files allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_CONNECTIONS if hard == resource.RLIM_INFINITY else max(1, min(MAX_CONNECTIONS, hard - SPARE_FILES))


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
    """Keep the garbage collector out of the way, for the time of a run."""
    thresholds = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)  # seldom, not never: a connection per request does make cycles
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


def run_load(plan: Plan, abandoned: Callable[[], bool]) -> dict[str, Any]:
    """Run a load to its end and return the module's `load`.

    Args:
        plan: What to send, how and how long.
        abandoned: Whether nobody waits for the result any more; asked ten times a second.

    Raises:
        LoadError: Not one connection could be made.
        AbandonedError: Nobody waits for the result any more.
    """
    allow_files(plan.connections)
    start_ns = plan.start_ns()
    address, spare = first_connection(plan, abandoned)
    with tuned_memory():
        if plan.workers > 1:
            outcome = run_workers(plan, address, spare, abandoned, start_ns)
        else:
            outcome = LoadRun(plan, Share.of(plan, 0), address, abandoned, spare).run(start_ns)
    if not outcome.connected:
        raise LoadError(f"no connection to {plan.host}:{plan.port} lasted: {outcome.error_samples}")
    return make_report(plan, outcome)


ARGUMENT_SPEC: dict[str, dict[str, Any]] = {
    "base_url": {"type": "str", "required": True},
    "requests": {
        "type": "list",
        "elements": "dict",
        "required": True,
        "options": {
            "path": {"type": "str", "required": True},
            "method": {"type": "str", "default": "GET"},
            "name": {"type": "str"},
            "headers": {"type": "dict", "default": {}, "no_log": True},
            "body": {"type": "raw", "no_log": True},
            "expect": {"type": "list", "elements": "int"},
            "weight": {"type": "float", "default": 1},
        },
    },
    "mode": {"type": "str", "choices": [CLOSED, OPEN], "default": CLOSED},
    "rate": {"type": "float"},
    "arrivals": {"type": "str", "choices": ["poisson", UNIFORM], "default": "poisson"},
    "connections": {"type": "int", "default": 100},
    "count": {"type": "int"},
    "warmup_s": {"type": "float", "default": 2},
    "duration_s": {"type": "float", "default": 8},
    "keep_alive": {"type": "bool", "default": True},
    "timeout_s": {"type": "float", "default": 10},
    "workers": {"type": "int", "default": 1},
    "seed": {"type": "int", "default": 1},
    "start_at": {"type": "float"},
    "ca_path": {"type": "path"},
    "validate_certs": {"type": "bool", "default": True},
    "server_name": {"type": "str"},
    "stop_file": {"type": "path"},
    "max_error_share": {"type": "float", "default": 1.0},
}


def main() -> None:
    """Read the parameters, run the load and print the result."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    try:
        plan = make_plan(module.params)
        hide_secrets(module)
        if module.check_mode:
            module.exit_json(changed=False, would_send=[describe(request) for request in plan.requests])
        load = run_load(plan, Lifeline().cut)
    except AbandonedError as error:
        sys.exit(str(error))
    except LoadError as error:
        hide_secrets(module)
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, load=load)


def hide_secrets(module: AnsibleModule) -> None:
    """Keep headers and bodies out of what Ansible prints, and everything else in it.

    Ansible blanks hidden values out wherever they occur, in numbers too: a header "1" would take the result with
    it, and every word of a body the names that contain it. So only long values of headers are blanked out, and
    bodies are taken out of the parameters that Ansible repeats.
    """
    requests = module.params["requests"]
    values = {str(value) for request in requests for value in (request["headers"] or {}).values()}
    module.no_log_values = {value for value in values if len(value) >= MIN_SECRET_LENGTH}
    for request in requests:
        if request["body"] is not None:
            request["body"] = "not shown"


def describe(request: Request) -> dict[str, Any]:
    """Return what would be sent, without the values of headers and without the body."""
    return {
        "name": request.name,
        "method": request.method,
        "path": request.path,
        "weight": request.weight,
        "headers": list(request.header_names),
        "body_bytes": request.body_bytes,
    }


if __name__ == "__main__":
    main()
