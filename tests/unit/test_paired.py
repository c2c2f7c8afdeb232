"""Paired comparisons: their statistics against scipy and another simulation, their error rate on equal settings."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from scipy import stats
from scipy.stats import mstats

from tuner import paired


@pytest.mark.parametrize("count", [3, 4, 5, 7, 9, 10, 15, 16, 24, 35, 40])
def test_trimmed_means_and_errors_are_yuen_s(count: int) -> None:
    sample = np.random.default_rng(count).standard_t(2, size=count)
    means, squares = paired.trimmed(sample[np.newaxis, :])
    assert means[0] == pytest.approx(float(mstats.trimmed_mean(sample, (0.2, 0.2))))
    cut = count // 5
    left = count - 2 * cut
    winsorised = mstats.winsorize(sample, (0.2, 0.2))
    by_hand = float(np.sum((winsorised - winsorised.mean()) ** 2)) / (left * (left - 1))
    assert squares[0] == pytest.approx(by_hand)
    # scipy's interval has the same standard error, and Student's t with as many degrees of freedom as are left.
    low, high = mstats.trimmed_mean_ci(sample, (0.2, 0.2), alpha=0.05)
    half = float(stats.t.ppf(0.975, left - 1)) * math.sqrt(by_hand)
    if cut:
        assert (high - low) / 2 / half == pytest.approx(1.0, rel=0.35)


def test_the_highest_and_the_lowest_fifth_do_not_count() -> None:
    calm, wild = np.array([[-9.0, 1.0, 2.0, 3.0, 9.0]]), np.array([[-900.0, 1.0, 2.0, 3.0, 70.0]])
    assert paired.trimmed(calm)[0][0] == pytest.approx(2.0)
    assert paired.trimmed(wild) == paired.trimmed(calm)


@pytest.mark.parametrize("rounds", [3, 4])
@pytest.mark.parametrize("candidates", [2, 3, 4, 6])
def test_without_trimming_the_critical_value_is_tukey_s(candidates: int, rounds: int) -> None:
    # The mean of the variances of all paired differences is twice the residual mean square of the two-way layout.
    tukey = stats.studentized_range.ppf(0.95, candidates, (candidates - 1) * (rounds - 1)) / math.sqrt(2)
    # With two degrees of freedom the tail is so long that 20,000 simulations have a standard error of 1.7 %.
    margin = 0.035 if (candidates, rounds) == (2, 3) else 0.03
    assert paired.critical_value(candidates, rounds) == pytest.approx(float(tukey), rel=margin)


def test_the_critical_value_does_not_depend_on_how_many_are_simulated_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = paired.critical_value.__wrapped__(4, 5)
    monkeypatch.setattr(paired, "SIMULATED_AT_ONCE", 77_777)
    assert paired.critical_value.__wrapped__(4, 5) == at_once


@pytest.mark.parametrize(("candidates", "rounds"), [(2, 5), (3, 5), (3, 9), (5, 12), (7, 5)])
def test_with_trimming_the_critical_value_is_that_of_another_simulation(candidates: int, rounds: int) -> None:
    scores = np.random.default_rng(99).standard_normal((candidates, rounds, 40_000))
    cut = rounds // 5
    left = rounds - 2 * cut
    means, squares = [], []
    for a, b in combinations(range(candidates), 2):
        rows = np.sort(scores[a] - scores[b], axis=0)
        means.append(np.abs(rows[cut : rounds - cut].mean(axis=0)))
        rows[:cut], rows[rounds - cut :] = rows[cut], rows[rounds - cut - 1]
        squares.append(((rows - rows.mean(axis=0)) ** 2).sum(axis=0) / (left * (left - 1)))
    largest = np.max(means, axis=0) / np.sqrt(np.mean(squares, axis=0))
    expected = float(np.quantile(largest, 0.95))
    assert paired.critical_value(candidates, rounds) == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize("rounds", [5, 9])
def test_equal_settings_are_seldom_told_apart(rounds: int) -> None:
    random, runs, wrong = np.random.default_rng(2024), 500, 0
    for _ in range(runs):
        # 3 % of noise each, and up to a half less in whole rounds.
        slow = np.log(random.uniform(0.5, 1.0, rounds))
        scores = {n: (slow + 0.03 * random.standard_normal(rounds)).tolist() for n in (1, 2, 3)}
        wrong += any(abs(found.mean) > found.half_width for found in paired.compare_all(scores).values())
    # 5 % is promised; 7 % is two standard errors of 500 runs above it.
    assert 0.02 * runs < wrong < 0.07 * runs


def test_what_slows_a_whole_round_down_cancels_out() -> None:
    slow = np.log([1.0, 0.3, 0.8, 0.5, 1.0])
    found = paired.compare_all({1: slow.tolist(), 2: (slow + 0.1).tolist()})
    assert found[1, 2].mean == pytest.approx(0.1)
    assert found[2, 1].mean == pytest.approx(-0.1)
    assert found[1, 2].half_width == pytest.approx(0, abs=1e-12)


def test_one_setting_alone_is_compared_with_nothing() -> None:
    assert paired.compare_all({1: [0.0, 0.1, 0.2]}) == {}
