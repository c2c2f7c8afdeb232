"""The load generator in a closed loop, against a server that counts what reaches it."""

from __future__ import annotations

import asyncio
import math
import socket
from typing import Any

import pytest
from truth_server import (
    OK,
    Answer,
    Arrival,
    Server,
    always,
    answer_ok,
    errors_of,
    hold,
    http_load,
    never,
    params,
    run,
    unevenly,
)

SLACK_US = 30_000
"""What a busy machine may add to a response on its way, between the server's clock and the generator's."""


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
        await hold(0.06 if arrival.number % 10 == 9 else 0.004)
        return OK, True

    load, _ = run(every_tenth_is_slow, warmup_s=0)
    latency = load["latency_us"]
    assert 3_900 <= latency["min"] <= latency["p50"] < 60_000
    assert 59_900 <= latency["p99"] <= latency["p99_9"] <= latency["max"]
    busy = load["measured"]["ok"] / 0.3 * latency["mean"] / 1e6
    assert load["generator"]["littles_law_residual"] == pytest.approx(abs(3 - busy) / 3, abs=0.001)


@pytest.mark.parametrize("loop", [{"count": 200}, {"mode": "open", "rate": 200.0, "warmup_s": 0, "duration_s": 1.0}])
def test_percentiles_are_those_of_the_delays_that_the_server_made(loop: dict[str, Any]) -> None:
    took_s: list[float] = []
    load, _ = run(unevenly(took_s), connections=40, **loop)
    took_us = sorted(took * 1e6 for took in took_s)
    latency = load["latency_us"]
    late = load["total"]["ok"] - latency["count"]  # answered after the window; the server counted them, too
    assert load["total"]["ok"] == len(took_us) > 150
    for name, percent in (("p50", 50), ("p90", 90), ("p99", 99)):
        rank = math.ceil(latency["count"] * percent / 100)
        assert latency[name] >= 0.99 * took_us[max(0, rank - 1 - late)]
        assert latency[name] <= 1.01 * took_us[rank - 1 + late] + SLACK_US


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
def test_each_kind_of_error_is_named(kind: str, answer: Answer, sample: str) -> None:
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
            return errors_of(await asyncio.to_thread(http_load.run_load, plan, lambda: False))

    assert asyncio.run(scenario()) == {}
