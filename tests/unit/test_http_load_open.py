"""The load generator in an open loop: the schedule, and latency from the planned time."""

from __future__ import annotations

import asyncio
import itertools
import statistics
from typing import Any

import pytest
from truth_server import OK, Answer, Arrival, Server, after, answer_ok, errors_of, http_load, params, run, stalls_once


def schedule(**changes: object) -> list[list[int]]:
    """Return the planned times of each worker, in nanoseconds from the start."""
    plan = http_load.make_plan(params("http://h:1", mode="open", connections=8, **changes))
    times = []
    for worker in range(plan.workers):
        arrivals = http_load.Arrivals(plan, worker, 0)
        times.append(list(itertools.takewhile(lambda due: due < http_load.NEVER_NS, iter(arrivals.take, None))))
        assert arrivals.planned == len(times[-1])
    return times


# The schedule


@pytest.mark.parametrize("workers", [1, 3])
def test_equally_spaced_requests_are_so_over_all_workers(workers: int) -> None:
    times = schedule(rate=1000.0, arrivals="uniform", workers=workers)
    assert sorted(itertools.chain(*times)) == [number * 1_000_000 for number in range(400)]


@pytest.mark.parametrize("workers", [1, 4])
def test_poisson_arrivals_have_the_rate_and_the_spread_of_a_poisson_process(workers: int) -> None:
    times = sorted(itertools.chain(*schedule(rate=1000.0, duration_s=20.0, warmup_s=0.0, workers=workers)))
    assert abs(len(times) - 20_000) < 4 * 20_000**0.5
    gaps = [late - early for early, late in itertools.pairwise(times)]
    assert statistics.mean(gaps) == pytest.approx(1e6, rel=0.05)
    assert statistics.stdev(gaps) == pytest.approx(1e6, rel=0.05), "the gaps are exponential"


def test_a_schedule_is_the_same_for_the_same_seed_only() -> None:
    assert schedule(rate=500.0, seed=3) == schedule(rate=500.0, seed=3)
    assert schedule(rate=500.0, seed=3) != schedule(rate=500.0, seed=4)
    first, second = schedule(rate=500.0, seed=3, workers=2)
    assert not set(first) & set(second)


def test_what_is_left_of_a_schedule_is_counted() -> None:
    plan = http_load.make_plan(params("http://h:1", mode="open", rate=100.0, arrivals="uniform", warmup_s=1.0))
    arrivals = http_load.Arrivals(plan, 0, 0)
    for _ in range(90):
        arrivals.take()
    assert arrivals.take_rest() == (40, 30)
    assert (arrivals.planned, arrivals.planned_measured, arrivals.due_ns) == (130, 30, http_load.NEVER_NS)


# Runs


def opened(answer: Answer = answer_ok, **changes: object) -> tuple[dict[str, Any], Server]:
    """Run an open loop of a few equally spaced requests."""
    given: dict[str, Any] = {"mode": "open", "rate": 200.0, "arrivals": "uniform", "connections": 10, **changes}
    return run(answer, **given)


@pytest.mark.parametrize("keep_alive", [True, False])
def test_every_planned_request_is_sent_once(*, keep_alive: bool) -> None:
    load, server = opened(keep_alive=keep_alive)
    assert load["planned"] == len(server.arrivals) == load["total"]["ok"] == 80
    assert load["unsent"] == 0
    assert (load["mode"], load["rate_rps"], load["arrivals"]) == ("open", 200.0, "uniform")
    assert load["generator"]["send_rate"] == 1.0
    # Where the machine is busy, some wait for a connection, which is no lag and no time of a connection.
    assert load["generator"]["littles_law_residual"] < 0.5
    assert load["generator"]["schedule_lag_us"]["count"] > 20
    assert errors_of(load) == {}
    if keep_alive:
        assert server.connections <= 10
        assert len({arrival.connection for arrival in server.arrivals}) == 10, "connections are used in turn"


def test_slow_answers_do_not_slow_the_schedule_down() -> None:
    load, server = opened(after(0.05), connections=50)
    assert load["planned"] == len(server.arrivals) == 80
    assert load["latency_us"]["min"] >= 50_000
    in_use = load["measured"]["ok"] / 0.3 * load["latency_us"]["mean"] / 1e6
    assert in_use == pytest.approx(200 * 0.05, rel=0.5)


def test_what_finds_no_free_connection_waits_and_what_is_never_sent_is_counted() -> None:
    # One connection at 50 ms a request can send 20 of 200 requests a second.
    load, server = opened(after(0.05), connections=1, warmup_s=0, duration_s=0.5)
    total = load["total"]
    assert load["planned"] == 100
    assert load["unsent"] == 100 - len(server.arrivals) == 100 - total["ok"]
    assert 85 <= load["unsent"] <= 95
    assert load["generator"]["send_rate"] == pytest.approx(1 - load["unsent"] / 100)
    assert "planned requests could be sent with 1 connections" in load["generator"]["refused_reason"]
    # The n-th is planned at 5 n ms and answered at 50 (n + 1) ms or later.
    assert load["latency_us"]["max"] >= 50_000 + 45_000 * (load["measured"]["ok"] - 1)


def test_a_connection_that_the_server_closes_while_it_is_free_is_no_error() -> None:
    async def close_later(server: Server, arrival: Arrival) -> tuple[bytes, bool]:
        asyncio.get_running_loop().call_later(0.002, server.writers[arrival.connection].close)
        return OK, True

    load, server = opened(close_later, rate=100.0, connections=2)
    assert errors_of(load) == {}
    assert load["total"]["ok"] == load["planned"] == 40
    assert len(server.arrivals) == 40 + load["total"]["retried"]
    assert server.connections >= 30


def test_bytes_without_a_request_cost_the_connection_and_are_shown() -> None:
    async def more_later(server: Server, arrival: Arrival) -> tuple[bytes, bool]:
        asyncio.get_running_loop().call_later(0.002, server.writers[arrival.connection].write, b"HTTP/1.1 408 Late")
        return OK, True

    load, server = opened(more_later, rate=20.0, connections=1)
    assert load["total"]["requests"] == load["planned"] == 8
    assert server.connections >= 8
    # On a busy machine the bytes may come so late that they meet the next request, which they spoil.
    assert set(errors_of(load)) <= {"malformed"}
    assert load["total"]["ok"] >= 4
    assert "bytes without a request: b'HTTP/1.1 408" in load["error_samples"]["malformed"]


def test_a_server_that_dies_is_shown_as_errors_and_unsent_requests() -> None:
    async def tenth_is_the_last(server: Server, arrival: Arrival) -> tuple[bytes, bool]:
        if arrival.number < 9:
            return OK, True
        server.refuse()
        return OK, False

    load, server = opened(tenth_is_the_last, connections=2)
    assert load["total"]["ok"] == len(server.arrivals) - load["total"]["retried"] <= 11
    assert set(errors_of(load)) == {"connect"}
    assert load["total"]["requests"] + load["unsent"] == load["planned"] == 80
    assert load["unsent"] > 40, "a connection that failed has a pause"


# Coordinated omission


STALL_S = 0.25


def test_a_stall_shows_in_an_open_loop_and_hides_in_a_closed_one() -> None:
    window: dict[str, Any] = {"warmup_s": 0.0, "duration_s": 1.0, "connections": 2}
    hidden, _ = run(stalls_once(0.3, STALL_S), **window)
    shown, _ = run(stalls_once(0.3, STALL_S), mode="open", rate=400.0, arrivals="uniform", **window)
    # Two of some thousand requests were under way when the server stood still; a quarter of a second's was planned.
    assert hidden["latency_us"]["max"] > 0.9 * STALL_S * 1e6
    assert hidden["latency_us"]["p99"] < 0.2 * STALL_S * 1e6
    assert shown["latency_us"]["max"] > 0.9 * STALL_S * 1e6
    assert shown["latency_us"]["p99"] > 0.8 * STALL_S * 1e6
    assert shown["latency_us"]["p90"] > 0.4 * STALL_S * 1e6
    assert shown["latency_us"]["p50"] < 0.2 * STALL_S * 1e6
