"""Others who use the application: counted from the tables of the kernel, refused, and left when they are harmed."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from records import capacity, deployment
from simulated import raw_report
from support import load_module

from tuner.errors import InputError
from tuner.leaving import require_quiet
from tuner.live import Live, describe
from tuner.model import Inspection
from tuner.slo import Slo

host_counters = load_module("capacity", "host_counters")
http_load = load_module("load", "http_load")

# As the kernel writes them: a listener, two connections from 10.213.37.1 to port 1337 (0539), one that is over (06),
# one of another port; and in tcp6 an IPv4 address and 2001:db8::1.
TCP = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:0539 00000000:0000 0A 00000000:00000000 00:00000000 00000000   900        0 39151 1 0 100 0 0 10 0
   1: 1F25D50A:0539 0125D50A:C1F2 01 00000000:00000000 00:00000000 00000000   900        0 39401 1 0 20 4 30 10 -1
   2: 1F25D50A:0539 0125D50A:C1F4 01 00000000:00000000 00:00000000 00000000   900        0 39402 1 0 20 4 30 10 -1
   3: 1F25D50A:0539 0125D50A:C1F6 06 00000000:00000000 00:00000000 00000000     0        0 0 3 0
   4: 1F25D50A:0016 0125D50A:C1F8 01 00000000:00000000 00:00000000 00000000     0        0 39403 1 0 20 4 30 10 -1
"""
TCP6 = """\
  sl  local_address                         remote_address                        st tx_queue rx_queue
   0: 00000000000000000000000000000000:0539 00000000000000000000000000000000:0000 0A 00000000:00000000
   1: 0000000000000000FFFF00001F25D50A:0539 0000000000000000FFFF00000725D50A:C1F2 01 00000000:00000000
   2: B80D0120000000000000000001000000:0539 B80D0120000000000000000001000000:C1F4 01 00000000:00000000
"""


def test_open_connections_are_counted_by_where_they_come_from() -> None:
    assert host_counters.parse_connections(TCP, 1337) == {"10.213.37.1": 2}
    assert host_counters.parse_connections(TCP, 22) == {"10.213.37.1": 1}
    assert host_counters.parse_connections(TCP6, 1337) == {"10.213.37.7": 1, "2001:db8::1": 1}
    assert host_counters.parse_connections("", 1337) == {}


@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_a_real_connection_is_seen_while_it_is_open(family: socket.AddressFamily, address: str) -> None:
    with socket.create_server((address, 0), family=family) as listener:
        port = listener.getsockname()[1]
        assert host_counters.count_connections(port) == {}
        with socket.create_connection((address, port)):
            assert host_counters.count_connections(port) == {address: 1}


def found(connections: dict[str, int]) -> Inspection:
    """A host on which so many connections are open."""
    return Inspection("prod1", capacity(), deployment(connections=connections))


def test_who_is_there_is_told_and_refused() -> None:
    require_quiet(found({}), live=False)
    require_quiet(found({"10.0.0.7": 3}), live=True)
    with pytest.raises(
        InputError, match=r"^3 connections from 10\.0\.0\.7 are open to 'strapi' on prod1: .* \(--live\)$"
    ):
        require_quiet(found({"10.0.0.7": 3}), live=False)
    assert describe({"10.0.0.7": 1}) == "1 connection from 10.0.0.7"
    assert describe({"a": 1, "b": 5, "c": 2}) == "8 connections from b and 2 more addresses"


def report(p99_ms: float | None, left: dict[str, int] | None) -> dict[str, Any]:
    """A trial after which so many connections of others are left."""
    made = raw_report(2, 100.0)
    made["load"]["latency_us"]["p99"] = None if p99_ms is None else p99_ms * 1000
    made["after"]["connections"] = left
    return made


@pytest.mark.parametrize(
    ("p99_ms", "left", "harm"),
    [
        (250.0, {"a": 4}, ""),
        (250.0, {"a": 3, "b": 1}, ""),
        (250.0, {"a": 3}, "of the 16 connections of others, 3 are left"),
        (250.0, {}, "of the 16 connections of others, 0 are left"),
        (250.1, {"a": 4}, "one request in a hundred took more than 250 ms (250 ms are allowed)"),
        (1900.0, {"a": 4}, "one request in a hundred took more than 1,900 ms (250 ms are allowed)"),
        (None, {"a": 4}, ""),
    ],
)
def test_harm_is_seen(p99_ms: float | None, left: dict[str, int], harm: str) -> None:
    assert Live(16, Slo(99.0, 250.0)).find_harm(report(p99_ms, left)) == harm


def test_few_connections_that_are_gone_tell_nothing() -> None:
    for connections in (0, 1, 4, 9):
        assert Live(connections).find_harm(report(100.0, {})) == ""
    assert Live(10).find_harm(report(100.0, {})) == "of the 10 connections of others, 0 are left"


def test_without_others_none_can_be_lost() -> None:
    assert Live(0).find_harm(report(100.0, None)) == ""


def test_harm_is_seen_at_the_percentile_of_the_objective() -> None:
    made = report(100.0, {"a": 4})
    # 90 requests of 10 ms and 10 of 2 s.
    made["load"]["latency_us"]["histogram"] = [
        [http_load.bucket_of(10_000_000), 90],
        [http_load.bucket_of(2 * 10**9), 10],
    ]
    assert Live(4, Slo(80.0, 250.0)).find_harm(made) == ""
    harm = Live(4, Slo(92.0, 250.0)).find_harm(made)
    assert harm.startswith("8 requests in a hundred took more than 2,0")
