"""What people read of a run: summaries of the candidates, and the decision of the procedure."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict

import pytest
from records import GIB, trial

from tuner import decide
from tuner.model import CandidateSummary, Decision, Trial, Verdict
from tuner.procedure import Procedure
from tuner.search import Search


def measured(rates: Mapping[int, Sequence[float]], **more: object) -> list[Trial]:
    """Trials in rounds, of which the n-th has the n-th rate of each candidate."""
    rounds = len(next(iter(rates.values())))
    return [trial(count, number + 1, rates[count][number], **more) for number in range(rounds) for count in rates]


def decision_of(trials: Sequence[Trial], *, incumbent: int = 1) -> Decision:
    counts = sorted({found.instances for found in trials})
    search = Search(counts, 2.0, current=incumbent)
    procedure = Procedure(search, counts, incumbent, tolerance=0.05, memory_bytes=64 * GIB)
    for found in trials:
        procedure.next()
        procedure.note(found)
    decision = decide.decide(procedure, trials, tolerance=0.05, seed=0)
    json.dumps(asdict(decision), allow_nan=False)
    return decision


def summaries(trials: Sequence[Trial]) -> list[CandidateSummary]:
    groups = [[found for found in trials if found.instances == count] for count in (1, 2)]
    groups = [group for group in groups if group]
    return [decide.summarise(group, groups[0]) for group in groups]


def test_a_clear_case_is_told_with_what_is_out_and_why() -> None:
    steady = {1: [208.0, 207.0, 209.0, 208.0], 2: [400.0, 402.0, 398.0, 401.0], 3: [401.0, 399.0, 402.0, 400.0]}
    decision = decision_of(measured(steady))
    assert decision.verdict in (Verdict.CERTIFIED, Verdict.RESOLVED)
    assert decision.instances == 2
    one, two, three = decision.candidates
    # 400 / 208 is 1.92.
    assert one.eliminated.startswith("2 instances give 92.")
    assert (two.eliminated, three.eliminated) == ("", "")
    assert two.ratio == pytest.approx(400.25 / 208, rel=1e-3)
    assert decision.sentence.startswith("2 instances: ")


def test_what_breaks_a_limit_is_told_and_not_chosen() -> None:
    rates = {1: [208.0, 207.0, 209.0, 208.0], 2: [400.0, 402.0, 398.0, 401.0]}
    dead = [trial(3, number, 600.0, restarts=1) for number in (1, 2)]
    decision = decision_of([*measured(rates), *dead])
    assert decision.instances == 2
    assert [found.unfit for found in decision.candidates] == ["", "", "a worker died under load"]


def test_no_fit_candidate_is_no_choice() -> None:
    decision = decision_of(measured({1: [200.0] * 3, 2: [400.0] * 3}, errors=4000))
    assert (decision.verdict, decision.instances) == (Verdict.UNFIT, None)
    assert all(found.unfit == "100.00% of the requests failed" for found in decision.candidates)


def test_a_summary_holds_geometric_means_their_intervals_and_ratios() -> None:
    trials = measured({1: [100.0, 200.0, 400.0], 2: [200.0, 400.0, 800.0]})
    one, two = summaries(trials)
    assert one.throughput_rps == pytest.approx(200.0)
    # The logs are ln 2 apart, so their standard deviation is ln 2; Student's t of 97.5 % with 2 degrees is 4.3027.
    half = 4.3027 * math.log(2) / math.sqrt(3)
    assert one.interval_rps == pytest.approx((200 / math.exp(half), 200 * math.exp(half)), rel=1e-4)
    assert one.ratio == pytest.approx(1.0)
    assert two.ratio == pytest.approx(2.0)
    assert (two.trials, two.requests, two.errors) == (3, 12_000, 0)


def test_a_candidate_of_which_nothing_was_answered_has_no_figures() -> None:
    trials = measured({1: [0.0] * 3, 2: [400.0] * 3}, latency_ms={})
    dead, alive = summaries(trials)
    assert (dead.throughput_rps, dead.interval_rps, dead.ratio) == (0.0, None, None)
    assert alive.throughput_rps == pytest.approx(400.0)
    assert alive.ratio is None


def test_one_trial_has_no_interval() -> None:
    assert summaries([trial(1, 1, 400.0)])[0].interval_rps is None


def test_latencies_are_medians_of_the_trials_that_have_them() -> None:
    seen: list[dict[str, float]] = [{}, {"p50": 10.0, "p99": 90.0}, {"p50": 30.0, "p99": 50.0}, {"p50": 11.0}]
    found = [trial(1, number, 400.0, latency_ms=latency) for number, latency in enumerate(seen, start=1)]
    assert summaries(found)[0].latency_ms == {"p50": 11.0, "p99": 70.0}


def test_disturbed_trials_are_counted_apart() -> None:
    disturbed = trial(2, 2, 90.0, disturbances=("somebody else",))
    (found,) = summaries([trial(2, 1, 400.0), disturbed, trial(2, 2, 400.0)])
    assert found.throughput_rps == pytest.approx(400.0)
    assert (found.trials, found.disturbed) == (2, 1)
    kept = decide.summarise([trial(2, 1, 400.0), disturbed], [trial(1, 1, 200.0)], keep_disturbed=True)
    assert (kept.trials, kept.disturbed) == (2, 1)
    assert kept.throughput_rps == pytest.approx(math.sqrt(400.0 * 90.0))
