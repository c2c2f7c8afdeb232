"""Simulated hosts: their noise and their clock against theory."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tuner.simulated_host import CELLS, SHAPES, HostModel, Noise, SimulatedHost, is_right, random_host, usl

TRIALS = 20_000


def host(noise: Noise, **more: float) -> SimulatedHost:
    model = HostModel("h1", cpu_budget=2, current=2, throughput={1: 400.0, 2: 780.0}, noise=noise, seed=7, **more)
    return SimulatedHost(model)


def log_ratios(noise: Noise, trials: int = TRIALS) -> np.ndarray:
    simulated = host(noise)
    return np.array([math.log(simulated.trial(2).throughput_rps / 780.0) for _ in range(trials)])


def test_a_quiet_host_varies_by_its_cv_around_the_truth() -> None:
    found = log_ratios(Noise(cv=0.03))
    assert found.mean() == pytest.approx(0.0, abs=4 * 0.03 / math.sqrt(TRIALS))
    assert found.std() == pytest.approx(0.03, rel=4 / math.sqrt(2 * TRIALS))


def test_drift_is_a_stationary_autoregression() -> None:
    found = log_ratios(Noise(cv=0.0, drift_sd=0.01, drift_rho=0.9))
    assert found.std() == pytest.approx(0.01 / math.sqrt(1 - 0.9**2), rel=0.1)
    for lag in (1, 5):
        assert np.corrcoef(found[:-lag], found[lag:])[0, 1] == pytest.approx(0.9**lag, abs=0.05)
    innovations = found[1:] - 0.9 * found[:-1]
    assert innovations.std() == pytest.approx(0.01, rel=4 / math.sqrt(2 * TRIALS))


def test_drift_starts_as_it_goes_on() -> None:
    noise = Noise(cv=0.0, drift_sd=0.01, drift_rho=0.9)
    model = HostModel("h1", cpu_budget=1, current=1, throughput={1: 1.0}, noise=noise, seed=7)
    first = [math.log(SimulatedHost(model, run).trial(1).throughput_rps) for run in range(2000)]
    assert np.std(first) == pytest.approx(0.01 / math.sqrt(1 - 0.9**2), rel=0.08)


@pytest.mark.parametrize("burst_trials", [1, 2, 3])
def test_bursts_are_as_frequent_as_deep_and_as_visible_as_they_should_be(burst_trials: int) -> None:
    noise = Noise(cv=0.0, burst_rate=0.05, burst_depth=0.3, burst_trials=burst_trials, burst_visible=0.8)
    simulated = host(noise)
    found = [simulated.trial(2) for _ in range(TRIALS)]
    low = np.array([trial.throughput_rps < 779.0 for trial in found])
    # A trial is in a burst unless none started at it or at the trials before that it could still last from.
    expected = 1 - 0.95**burst_trials
    assert low.mean() == pytest.approx(expected, abs=0.015)
    assert {round(trial.throughput_rps, 6) for trial in found} == {780.0, 546.0}
    seen = np.array([trial.contaminated for trial in found])
    assert not seen[~low].any()
    assert seen[low].mean() == pytest.approx(0.8, abs=0.04)


def test_the_clock_counts_boots_one_by_one_and_warms_up_what_was_booted() -> None:
    simulated = host(Noise(), boot_s=3.0, warmup_s=10.0)
    assert [simulated.trial(n).elapsed_s for n in (1, 2, 2, 1)] == [10.0, 3 + 10 + 8, 10.0, 10.0]
    assert simulated.clock_s == 51.0
    assert simulated.trials == 4


def test_each_run_has_its_own_random_numbers_and_the_same_ones_again() -> None:
    model = random_host(1, 4, "bursty")
    runs = [[SimulatedHost(model, run).trial(2).throughput_rps for _ in range(3)] for run in (0, 0, 1)]
    assert runs[0] == runs[1] != runs[2]


def test_the_scalability_law_is_gunther_s() -> None:
    # Worked out by hand: 8 / (1 + 0.05 * 7 + 0.001 * 56).
    assert usl(np.array([1.0, 8.0]), 0.05, 0.001) == pytest.approx([1.0, 8 / 1.406])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("cell", CELLS)
def test_random_hosts_are_functions_of_their_seed_with_all_counts_up_to_beyond_the_cpus(cell: str, shape: str) -> None:
    for budget in (1, 2, 8, 128):
        model = random_host(3, budget, cell, shape)
        assert model == random_host(3, budget, cell, shape)
        assert model.counts == tuple(range(1, max(budget + 2, math.ceil(1.25 * budget)) + 1))
        assert min(model.throughput.values()) > 0
        assert any(is_right(model.throughput, count) for count in model.counts)


def test_what_is_right() -> None:
    rates = {1: 92.0, 2: 93.5, 3: 97.5, 4: 100.0}
    assert [is_right(rates, count) for count in (None, 1, 2, 3, 4)] == [False, False, True, True, False]
    # With twice the tolerance, 86 % are enough, and 94 % forbid anything larger.
    assert [is_right(rates, count, 0.1) for count in (1, 2, 3, 4)] == [True, True, True, False]
