"""The number of connections is doubled until it wins no more, within what the load generator can open."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from tuner.concurrency import Step, choose, fewest

MOST = 10_000


def closed_loop(service_s: float, wait_s: float, workers: float) -> Callable[[int], Step]:
    """A station of some workers whose customers also wait elsewhere; throughput by the asymptotic bounds.

    Denning and Buzen, "The Operational Analysis of Queueing Network Models", Computing Surveys 10 (1978): at most
    N / (service + wait), and at most workers / service.
    """

    def measure(connections: int) -> Step:
        return Step(connections, min(connections / (service_s + wait_s), workers / service_s), MOST)

    return measure


@pytest.mark.parametrize(("cpu_budget", "expected"), [(0.5, 64), (2, 64), (4, 64), (4.1, 66), (16, 256), (64, 1024)])
def test_the_beginning_is_64_or_16_for_each_cpu(cpu_budget: float, expected: int) -> None:
    assert fewest(cpu_budget) == expected


def test_an_application_that_is_saturated_at_once_needs_no_more() -> None:
    found = choose(closed_loop(0.005, 0.01, 2), fewest(2))
    assert found.connections == 64
    assert [step.connections for step in found.steps] == [64, 128]
    assert found.reason == "128 give +0.0%"


def test_an_application_that_waits_elsewhere_gets_as_many_as_keep_it_busy() -> None:
    # Two workers at 5 ms each with 995 ms of waiting: busy from 2 / 0.005 * 1 = 400 connections on.
    found = choose(closed_loop(0.005, 0.995, 2), fewest(2))
    assert found.connections == 512
    assert [step.connections for step in found.steps] == [64, 128, 256, 512, 1024]


def test_what_never_ends_to_win_is_bounded() -> None:
    found = choose(lambda connections: Step(connections, float(connections), MOST), fewest(2))
    assert found.connections == 1024
    assert found.reason == "doubled 4 times, and no more are tried"


@pytest.mark.parametrize(("gain", "connections"), [(0.029, 64), (0.031, 128)])
def test_a_gain_of_three_percent_is_worth_it(gain: float, connections: int) -> None:
    rates = {64: 100.0, 128: 100.0 * (1 + gain), 256: 100.0 * (1 + gain)}
    assert choose(lambda n: Step(n, rates[n], MOST), fewest(1)).connections == connections


def test_what_the_load_hosts_can_open_bounds_the_doubling() -> None:
    found = choose(lambda n: Step(n, float(n), 200), fewest(2))
    assert (found.connections, found.reason) == (128, "200 are the most that the load hosts can open")


@pytest.mark.parametrize(
    ("broken", "said"),
    [({"error_rate": 0.02}, "with 256, 2.0% of the requests failed"), ({"refused": "one CPU"}, "with 256, one CPU")],
)
def test_a_number_that_breaks_something_is_not_taken(broken: dict[str, Any], said: str) -> None:
    found = choose(lambda n: Step(n, float(n), MOST, **broken) if n == 256 else Step(n, float(n), MOST), fewest(2))
    assert (found.connections, found.reason) == (128, said)


def test_errors_at_the_beginning_are_said_and_not_doubled() -> None:
    found = choose(lambda n: Step(n, 10.0, MOST, error_rate=0.5), fewest(2))
    assert (found.connections, found.reason) == (64, "50.0% of the requests failed; no more were tried")
    assert len(found.steps) == 1


def test_an_application_that_answers_nothing_is_not_doubled_for_ever() -> None:
    found = choose(lambda n: Step(n, 0.0, MOST), fewest(2))
    assert (found.connections, len(found.steps)) == (64, 2)
    assert math.isfinite(found.connections)
