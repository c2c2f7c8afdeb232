"""The verdict: its statistics against scipy and simulation, its choices against data where the answer is known."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from records import GIB, trial
from scipy import stats
from scipy.stats import mstats

from tuner import decide
from tuner.model import CandidateSummary, Decision, Trial, Verdict

Rates = Mapping[int, Sequence[float]]


def trials(rates: Rates, **more: object) -> list[Trial]:
    """One trial for each candidate and round, of which the n-th rate is that of round n."""
    return [trial(count, number, rate, **more) for count in rates for number, rate in enumerate(rates[count], start=1)]


def judge(found: Sequence[Trial], tolerance: float = 0.05, memory_bytes: int = 64 * GIB) -> Decision:
    decision = decide.decide(found, tolerance=tolerance, memory_bytes=memory_bytes)
    json.dumps(asdict(decision), allow_nan=False)
    return decision


def about(rate: float, *percents: float) -> list[float]:
    return [rate * (1 + percent / 100) for percent in percents]


def summary(decision: Decision, count: int) -> CandidateSummary:
    return next(found for found in decision.candidates if found.instances == count)


@pytest.mark.parametrize("count", [3, 4, 5, 7, 9, 10, 15, 16, 24, 35, 40])
def test_trimmed_means_and_errors_are_yuen_s(count: int) -> None:
    sample = np.random.default_rng(count).standard_t(2, size=count)
    means, squares = decide.trimmed(sample[np.newaxis, :])
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
    assert decide.trimmed(calm)[0][0] == pytest.approx(2.0)
    assert decide.trimmed(wild) == decide.trimmed(calm)


@pytest.mark.parametrize("rounds", [3, 4])
@pytest.mark.parametrize("candidates", [2, 3, 4, 6])
def test_without_trimming_the_critical_value_is_tukey_s(candidates: int, rounds: int) -> None:
    # The mean of the variances of all paired differences is twice the residual mean square of the two-way layout.
    tukey = stats.studentized_range.ppf(0.95, candidates, (candidates - 1) * (rounds - 1)) / math.sqrt(2)
    # With two degrees of freedom the tail is so long that 20,000 simulations have a standard error of 1.7 %.
    margin = 0.035 if (candidates, rounds) == (2, 3) else 0.03
    assert decide.critical_value(candidates, rounds) == pytest.approx(float(tukey), rel=margin)


def test_the_critical_value_does_not_depend_on_how_many_are_simulated_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = decide.critical_value.__wrapped__(4, 5)
    monkeypatch.setattr(decide, "SIMULATED_AT_ONCE", 77_777)
    assert decide.critical_value.__wrapped__(4, 5) == at_once


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
    assert decide.critical_value(candidates, rounds) == pytest.approx(expected, rel=0.03)


def noisy(random: np.random.Generator, levels: Mapping[int, float], rounds: int) -> Rates:
    """Rates of candidates with these true levels: 3 % of noise each, and up to a half less in whole rounds."""
    slow = random.uniform(0.5, 1.0, rounds)
    return {n: (level * slow * np.exp(0.03 * random.standard_normal(rounds))).tolist() for n, level in levels.items()}


@pytest.mark.parametrize("rounds", [5, 9])
def test_equal_candidates_are_seldom_told_apart(rounds: int) -> None:
    random = np.random.default_rng(2024)
    runs = [judge(trials(noisy(random, {1: 400, 2: 400, 3: 400}, rounds)), tolerance=1e-9) for _ in range(500)]
    wrong = sum(any(found.eliminated for found in run.candidates) for run in runs)
    # 5 % is promised; 7 % is two standard errors of 500 runs above it.
    assert 0.02 * len(runs) < wrong < 0.07 * len(runs)


def test_a_candidate_beyond_the_tolerance_is_seldom_certified() -> None:
    random = np.random.default_rng(2025)
    runs = [judge(trials(noisy(random, {1: 400, 2: 400 / 0.9499}, 5))) for _ in range(500)]
    wrong = sum(run.verdict is Verdict.CERTIFIED and run.instances == 1 for run in runs)
    assert wrong < 0.05 * len(runs)


def test_the_smallest_count_within_the_tolerance_is_certified() -> None:
    decision = judge(
        trials(
            {
                1: about(208, 0, 1, -1, 0.5, -0.5),
                2: about(400, 0.5, -0.5, 0, 1, -1),
                3: about(404, -1, 0, 1, -0.5, 0.5),
            }
        )
    )
    assert (decision.verdict, decision.instances) == (Verdict.CERTIFIED, 2)
    # 404 / 208 less a third of a percent, which is what the middle three rounds have less.
    assert summary(decision, 1).eliminated == "3 instances give 93.6% more"
    assert summary(decision, 3).eliminated == ""
    assert decision.remedy == ""
    assert decision.sentence.startswith("2 instances: the smallest count within 5% of the best (3: +1.0% [")


def test_more_is_not_better_when_it_is_slower() -> None:
    rates = {1: about(428, 0, 1, -1), 2: about(478, 1, -1, 0), 3: about(400, -1, 0, 1)}
    decision = judge(trials(rates))
    assert (decision.verdict, decision.instances) == (Verdict.CERTIFIED, 2)
    assert summary(decision, 1).eliminated == "2 instances give 11.7% more"


def test_one_instance_that_is_best_is_said_in_the_singular() -> None:
    decision = judge(trials({1: about(400, 0, 1, -1), 2: about(200, 1, -1, 0)}))
    assert (decision.verdict, decision.instances) == (Verdict.CERTIFIED, 1)
    assert summary(decision, 2).eliminated == "1 instance gives 100.0% more"
    assert decision.sentence.startswith("1 instance: within 5% of the best (2: -50.0% [")


def test_what_slows_a_whole_round_down_cancels_out() -> None:
    rounds = np.array([1.0, 0.3, 0.8, 0.5, 1.0])
    decision = judge(trials({1: (rounds * 200).tolist(), 2: (rounds * 400).tolist()}))
    assert (decision.verdict, decision.instances) == (Verdict.CERTIFIED, 2)
    assert decision.resolution == pytest.approx(0)


def test_one_disturbed_trial_of_five_does_not_decide() -> None:
    rates = {1: about(400, 0, 0.5, -0.5, 0.2, -0.2), 2: about(600, 0.2, -0.5, 0.5, -60, 0)}
    decision = judge(trials(rates))
    assert (decision.verdict, decision.instances) == (Verdict.CERTIFIED, 2)


def test_a_comparison_as_fine_as_the_tolerance_that_spans_it_is_resolved() -> None:
    # 2 has 3 % more, with a half-width of 4.303 standard errors of the mean: between 2 and 5.1 %.
    rates = {1: about(400, 0, 0, 0), 2: about(412, 0, 1.2, -1.2)}
    half = 4.303 * np.log([1, 1.012, 0.988]).std(ddof=1) / math.sqrt(3)
    decision = judge(trials(rates))
    assert (decision.verdict, decision.instances) == (Verdict.RESOLVED, 1)
    assert decision.resolution == pytest.approx(half, rel=0.035)


def test_a_resolved_choice_passes_over_what_is_further_from_the_best_than_the_tolerance() -> None:
    rates = {1: about(400, 0, 0, 0), 2: about(424, 0, 1.2, -1.2)}
    decision = judge(trials(rates))
    assert (decision.verdict, decision.instances) == (Verdict.RESOLVED, 2)


def test_noise_above_the_tolerance_is_unresolved_and_says_how_many_rounds_would_do() -> None:
    rates = {1: about(400, 0, 2, -2, 1, -1), 2: about(404, 2, -2, 0, -1, 1)}
    decision = judge(trials(rates))
    assert (decision.verdict, decision.instances) == (Verdict.UNRESOLVED, None)
    assert decision.resolution is not None
    assert decision.sentence.startswith("Unresolved: 1 and 2 instances cannot be told apart.")
    needed = math.ceil(5 * (decision.resolution / -math.log(0.95)) ** 2 * 1.1)
    assert 5 < needed <= 40
    assert decision.remedy == f"measure about {needed} rounds (--rounds {needed})"


def test_rounds_that_nobody_would_wait_for_are_not_asked_for() -> None:
    rates = {1: about(400, 0, 40, -40, 20, -20), 2: about(404, 40, -40, 0, -20, 20), 4: about(400, -9, 9, 5, 30, 0)}
    decision = judge(trials(rates))
    assert decision.verdict is Verdict.UNRESOLVED
    assert "1, 2 and 4 instances" in decision.sentence
    assert not re.search(r"\d", decision.remedy)
    assert "quieter" in decision.remedy


@pytest.mark.parametrize(("tolerance", "said"), [(0.05, "5%"), (0.025, "2.5%"), (0.005, "0.5%"), (0.3, "30%")])
def test_the_tolerance_is_said_as_it_was_given(tolerance: float, said: str) -> None:
    decision = judge(trials({1: about(208, 0, 0, 0), 2: about(400, 0, 0, 0)}), tolerance=tolerance)
    assert f"within {said} of the best" in decision.sentence


def test_a_smaller_tolerance_asks_for_more() -> None:
    rates = {1: about(400, 0, 0.1, -0.1), 2: about(412, 0.1, 0, -0.1)}
    assert judge(trials(rates), tolerance=0.05).instances == 1
    assert judge(trials(rates), tolerance=0.01).instances == 2


def test_a_single_candidate_is_chosen() -> None:
    decision = judge(trials({1: [400, 410, 390]}))
    assert (decision.verdict, decision.instances, decision.resolution) == (Verdict.CERTIFIED, 1, None)


@pytest.mark.parametrize("rounds", [1, 2])
def test_fewer_than_three_rounds_tell_nothing(rounds: int) -> None:
    decision = judge(trials({1: [200.0] * rounds, 2: [400.0] * rounds}))
    assert (decision.verdict, decision.instances) == (Verdict.UNRESOLVED, None)
    assert decision.remedy == "measure 3 rounds or more (--rounds)"
    assert (summary(decision, 1).interval_rps is None) == (rounds == 1)


def test_rounds_that_were_cut_off_are_left_out() -> None:
    # The whole rounds say that both are equal; taken into account, the fourth of 2 alone would shift its scores.
    found = trials({1: about(400, 0, 0.2, -0.2), 2: [*about(400, 0.2, -0.2, 0), 4000]})
    decision = judge(found)
    assert (decision.verdict, decision.instances) == (Verdict.CERTIFIED, 1)
    assert decision.stop_reason == "all 3 rounds were measured"
    assert judge(found[:-2]).verdict is Verdict.UNRESOLVED


def test_the_order_of_the_trials_does_not_matter() -> None:
    found = trials({1: about(208, 0, 4, -1), 2: about(400, 9, -3, 0), 3: about(404, -5, 0, 1)})
    assert judge(found[::-1]).sentence == judge(found).sentence


def test_no_trial_at_all_is_no_choice() -> None:
    decision = judge([])
    assert (decision.verdict, decision.instances, decision.candidates) == (Verdict.UNFIT, None, ())
    assert decision.stop_reason == "no round was complete"


# What makes a candidate unfit: fields of one of its trials, and the reason.
UNFIT: dict[str, tuple[dict[str, Any], str]] = {
    "errors": ({"errors": 13}, r"0\.11% of the requests failed"),
    "restarts": ({"restarts": 1}, "a worker died under load"),
    "memory": ({"rss_bytes": 6 * GIB}, "6,144 MiB are more than 85% of the memory"),
    "no throughput": ({"throughput_rps": 0.0, "latency_ms": {}}, "requests were not answered"),
    "no request": ({"throughput_rps": 0.0, "requests": 0}, "requests were not answered"),
}


@pytest.mark.parametrize(("fields", "reason"), UNFIT.values(), ids=UNFIT.keys())
def test_a_candidate_that_breaks_a_limit_is_not_chosen_however_fast(fields: dict[str, Any], reason: str) -> None:
    found = trials({1: [200.0] * 3, 2: [400.0] * 3, 3: [399.0] * 2})
    found.append(trial(3, 3, **{"throughput_rps": 399.0, **fields}))
    decision = judge(found, memory_bytes=7 * GIB)
    assert (decision.verdict, decision.instances) == (Verdict.CERTIFIED, 2)
    assert re.fullmatch(reason, summary(decision, 3).unfit)
    assert summary(decision, 2).unfit == ""


def test_limits_that_are_just_kept_are_kept() -> None:
    # 12 of 12,000 requests are 0.1 %, and 85 % of 10 GiB are 8.5 GiB.
    found = [*trials({1: [400.0] * 2}), trial(1, 3, 400.0, errors=12, rss_bytes=8 * GIB + GIB // 2)]
    assert judge(found, memory_bytes=10 * GIB).instances == 1
    assert summary(judge(found, memory_bytes=10 * GIB), 1).unfit == ""


def test_an_unfit_candidate_need_not_be_in_a_round_for_it_to_be_whole() -> None:
    found = [*trials({1: [200.0] * 3, 2: [400.0] * 3}), trial(3, 1, 500.0, restarts=2)]
    assert judge(found).instances == 2


def test_no_fit_candidate_is_no_choice() -> None:
    decision = judge(trials({1: [200.0] * 3, 2: [400.0] * 3}, errors=4000))
    assert (decision.verdict, decision.instances) == (Verdict.UNFIT, None)
    assert all(found.unfit == "100.00% of the requests failed" for found in decision.candidates)


def test_candidates_of_which_nothing_was_answered_have_no_figures() -> None:
    decision = judge(trials({1: [0.0] * 3, 2: [400.0] * 3}, latency_ms={}))
    dead, alive = decision.candidates
    assert (dead.throughput_rps, dead.interval_rps, dead.ratio) == (0.0, None, None)
    assert (decision.instances, alive.ratio) == (2, None)


def test_a_summary_holds_geometric_means_their_intervals_and_ratios_within_rounds() -> None:
    decision = judge(trials({1: [100.0, 200.0, 400.0], 2: [200.0, 400.0, 800.0]}))
    one, two = decision.candidates
    assert one.throughput_rps == pytest.approx(200.0)
    # The logs are ln 2 apart, so their standard deviation is ln 2; Student's t of 97.5 % with 2 degrees is 4.3027.
    half = 4.3027 * math.log(2) / math.sqrt(3)
    assert one.interval_rps == pytest.approx((200 / math.exp(half), 200 * math.exp(half)), rel=1e-4)
    assert one.ratio == pytest.approx(1.0)
    assert two.ratio == pytest.approx(2.0)
    assert (two.trials, two.requests, two.errors) == (3, 12_000, 0)


def test_a_ratio_takes_only_rounds_that_both_have() -> None:
    found = [*trials({1: [100.0, 200.0]}), trial(2, 2, 300.0), trial(2, 3, 9000.0)]
    assert summary(judge(found), 2).ratio == pytest.approx(1.5)


def test_latencies_are_medians_of_the_trials_that_have_them() -> None:
    seen: list[dict[str, float]] = [{}, {"p50": 10.0, "p99": 90.0}, {"p50": 30.0, "p99": 50.0}, {"p50": 11.0}]
    found = [trial(1, number, 400.0, latency_ms=latency) for number, latency in enumerate(seen, start=1)]
    assert summary(judge(found), 1).latency_ms == {"p50": 11.0, "p99": 70.0}


@pytest.mark.parametrize("tolerance", [0.0001, 0.09])
def test_candidates_that_beat_each_other_in_a_circle_are_unresolved(tolerance: float) -> None:
    # In each round one candidate lost 40 % to the one before it, and each other gained 10 %: trimmed, all gain.
    gains = [[0.1 if number % 5 != count else -0.4 for number in range(100)] for count in range(5)]
    logs = np.cumsum(gains, axis=0)
    rates = {count + 1: (400 * np.exp(logs[count])).tolist() for count in range(5)}
    decision = judge(trials(rates), tolerance=tolerance)
    assert (decision.verdict, decision.instances) == (Verdict.UNRESOLVED, None)


def test_a_disturbed_trial_that_was_repeated_does_not_count() -> None:
    quiet = [trial(count, number, rate + number) for count, rate in ((1, 200.0), (2, 400.0)) for number in (1, 2, 3)]
    disturbed = replace(quiet[4], throughput_rps=90.0, errors=400, disturbances=("somebody else",))
    decision = decide.decide([*quiet[:4], disturbed, *quiet[4:]], tolerance=0.05, memory_bytes=64 * GIB)
    assert (decision.verdict, decision.instances) == (Verdict.CERTIFIED, 2)
    assert summary(decision, 2).throughput_rps > 400.0
    assert (summary(decision, 2).trials, summary(decision, 2).disturbed) == (3, 1)


def test_a_worker_that_died_in_a_disturbed_trial_did_die() -> None:
    quiet = [trial(count, number, rate + number) for count, rate in ((1, 200.0), (2, 400.0)) for number in (1, 2, 3)]
    disturbed = replace(quiet[4], restarts=1, disturbances=("somebody else",))
    decision = decide.decide([*quiet[:4], disturbed, *quiet[4:]], tolerance=0.05, memory_bytes=64 * GIB)
    assert summary(decision, 2).unfit == "a worker died under load"


def test_a_run_in_which_most_stayed_disturbed_is_unresolved_however_clear_it_looks() -> None:
    trials = [
        trial(count, number, rate, disturbances=("somebody else",) if number < 3 else ())
        for count, rate in ((1, 200.0), (2, 400.0))
        for number in (1, 2, 3)
    ]
    decision = decide.decide(trials, tolerance=0.05, memory_bytes=64 * GIB)
    assert (decision.verdict, decision.instances) == (Verdict.UNRESOLVED, None)
    assert decision.sentence == "Unresolved: 4 of 6 trials were disturbed by something else, also when repeated."
    assert decision.remedy == "measure when the host is quieter, or count them too (--keep-disturbed)"
    kept = decide.decide(trials, tolerance=0.05, memory_bytes=64 * GIB, keep_disturbed=True)
    assert (kept.verdict, kept.instances) == (Verdict.CERTIFIED, 2)
