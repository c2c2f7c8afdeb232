"""The latency objective: its bound against the truth, its judgement, and the search for the smallest count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from records import GIB, trial
from simulated import NotedProgress, SimulatedTarget, raw_report

from tuner import objective, slo
from tuner.errors import InputError
from tuner.interruption import Interruption
from tuner.journal import Journal
from tuner.measuring import Measuring
from tuner.model import Decision, Load, Report, Verdict
from tuner.slo import Slo

SLO = Slo(99, 250)


def histogram_of(latencies_ms: np.ndarray[Any, np.dtype[np.float64]]) -> list[list[int]]:
    """A histogram as http_load makes it: 128 buckets for each doubling of nanoseconds."""
    counts: dict[int, int] = {}
    for value in (latencies_ms * 1e6).astype(np.int64).tolist():
        shift = max(0, value.bit_length() - 8)
        index = (shift << 7) + (value >> shift)
        counts[index] = counts.get(index, 0) + 1
    return [list(pair) for pair in sorted(counts.items())]


def load_of(latencies_ms: np.ndarray[Any, np.dtype[np.float64]]) -> dict[str, Any]:
    return {"latency_us": {"histogram": histogram_of(latencies_ms)}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [("p99=250ms", Slo(99, 250)), ("p99.9 < 1s", Slo(99.9, 1000)), ("P50=2.5ms", Slo(50, 2.5))],
)
def test_an_objective_is_read(text: str, expected: Slo) -> None:
    assert slo.parse_slo(text) == expected


@pytest.mark.parametrize("text", ["", "p99", "p99=250", "p0=1s", "p100=1s", "p99=0ms", "99=1s", "p99=-1s"])
def test_what_is_no_objective_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="write a percentile and a time, such as p99=250ms"):
        slo.parse_slo(text)


def test_the_bound_is_above_the_true_percentile_in_95_of_100_runs() -> None:
    random, true_ms, runs = np.random.default_rng(5), 100 * np.log(100), 400  # the 99th percentile of an exponential
    above = 0
    for _ in range(runs):
        bound = slo.upper_percentile_us(histogram_of(random.exponential(100.0, 2000)), 99)
        assert bound is not None
        above += bound / 1000 >= true_ms
    # Three standard errors of 400 runs at 95 % are 3.3 %.
    assert 0.917 <= above / runs <= 0.985


def test_too_few_requests_have_no_bound() -> None:
    assert slo.upper_percentile_us(histogram_of(np.full(200, 10.0)), 99) is None
    assert slo.upper_percentile_us([], 99) is None


@pytest.mark.parametrize("percent", [50.0, 95.0, 99.0, 99.9])
def test_so_many_requests_tell_a_bound_and_one_fewer_does_not(percent: float) -> None:
    needed = slo.requests_needed(percent)
    assert slo.upper_percentile_us(histogram_of(np.full(needed, 10.0)), percent) is not None
    assert slo.upper_percentile_us(histogram_of(np.full(needed - 1, 10.0)), percent) is None


def test_windows_are_pooled_and_judged_by_the_bound() -> None:
    random = np.random.default_rng(1)
    windows = [load_of(random.uniform(50, 240, 3000)) for _ in range(3)]
    trials = [trial(2, number, 200.0) for number in (1, 2, 3)]
    found = slo.judge(SLO, 200.0, trials, windows, 64 * GIB)
    assert found.met
    assert (found.reason, found.instances, found.requests) == ("", 2, 12_000)
    assert found.latency_ms == pytest.approx(238.1, rel=0.01)
    assert found.upper_ms is not None
    assert found.latency_ms is not None
    assert found.latency_ms <= found.upper_ms <= 240
    slow = [*windows[:2], load_of(random.uniform(50, 600, 3000))]
    missed = slo.judge(SLO, 200.0, trials, slow, 64 * GIB)
    assert not missed.met
    assert missed.reason.startswith("p99 is 5")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"throughput_rps": 150.0}, "150 of 200 requests/s were answered in time"),
        ({"errors": 400}, "10.00% of the requests failed"),
        ({"restarts": 1}, "a worker died under load"),
    ],
)
def test_a_rate_that_is_not_kept_or_errors_miss_the_objective(fields: dict[str, Any], reason: str) -> None:
    found = slo.judge(SLO, 200.0, [replace(trial(2, 1, 200.0), **fields)], [load_of(np.full(3000, 9.0))], 64 * GIB)
    assert (found.met, found.reason) == (False, reason)


class RatedTarget(SimulatedTarget):
    """A simulated host of which each count has a latency at any rate, in milliseconds."""

    latencies_ms: Mapping[int, float]

    def trial(self, candidate: Mapping[str, object], load: Load) -> Report:
        """Report that latency; see tuner.target.Target."""
        assert load.rate_rps > 0
        instances = candidate["strapi_instances"]
        assert isinstance(instances, int)
        self.calls.append(f"trial {instances} at {load.rate_rps:.0f}")
        report = raw_report(instances, load.rate_rps)
        latency = load_of(np.full(int(load.rate_rps * 8), self.latencies_ms[instances]))["latency_us"]
        return {**report, "load": {**report["load"], "latency_us": {**report["load"]["latency_us"], **latency}}}


def prepared(tmp_path: Path, latencies_ms: Mapping[int, float]) -> tuple[objective.Objective, RatedTarget]:
    target = RatedTarget("", {}, written=tmp_path / "none")
    target.latencies_ms = latencies_ms
    journal = Journal(tmp_path, "prod1")
    journal.open_run({})
    load = Load(paths=("/",), connections=100, duration_s=8.0)
    measured = Measuring(target, journal, Interruption(), NotedProgress(), load, 4.0, 2)
    return objective.Objective(SLO, measured, 64 * GIB, keep_disturbed=False), target


def decided(instances: int | None) -> Decision:
    return Decision(Verdict.CERTIFIED, instances, 0.05, 0.01, 0.99, 0, "", f"{instances} instances: the best.")


def test_a_choice_that_keeps_the_objective_stays(tmp_path: Path) -> None:
    kept, target = prepared(tmp_path, {2: 100.0})
    found = objective.hold(decided(2), kept, (1, 2, 3, 4), 500.0)
    assert (found.verdict, found.instances) == (Verdict.CERTIFIED, 2)
    assert target.calls == ["trial 2 at 500"] * 3
    assert "At 500 requests/s p99 is 100 ms" in found.sentence
    assert [result.met for result in found.slo] == [True]


def test_the_next_two_counts_are_tried_and_no_more(tmp_path: Path) -> None:
    kept, target = prepared(tmp_path, {2: 900.0, 3: 400.0, 4: 100.0, 5: 100.0})
    found = objective.hold(decided(2), kept, (1, 2, 3, 4, 5), 500.0)
    assert found.instances == 4
    assert found.sentence.startswith("4 instances: the smallest count from 2 on that keeps the objective.")
    worse, target = prepared(tmp_path / "again", {2: 900.0, 3: 400.0, 4: 400.0, 5: 100.0})
    found = objective.hold(decided(2), worse, (1, 2, 3, 4, 5), 500.0)
    assert (found.verdict, found.instances) == (Verdict.UNFIT, None)
    assert "trial 5 at 500" not in target.calls
    assert found.sentence.startswith("No candidate kept p99 of 250 ms: 2 instances: p99 is 9")


def test_nothing_is_measured_where_nothing_was_chosen(tmp_path: Path) -> None:
    kept, target = prepared(tmp_path, {})
    assert objective.hold(decided(None), kept, (1, 2), 500.0) == decided(None)
    assert target.calls == []


@pytest.mark.parametrize("smallest", [1, 2, 3, 4, 5, 7, 12, 16])
def test_the_smallest_count_that_keeps_the_objective_with_headroom_is_found(tmp_path: Path, smallest: int) -> None:
    counts = tuple(range(1, 17))
    latencies = {count: 100.0 if count >= smallest else 400.0 for count in counts}
    kept, target = prepared(tmp_path, latencies)
    kept.measured.cpu_budget = 14.0
    found = objective.find_smallest(decided(None), kept, counts, 500.0)
    assert (found.verdict, found.instances) == (Verdict.CERTIFIED, smallest)
    assert {call.rpartition(" ")[2] for call in target.calls} == {"600"}
    assert len(set(target.calls)) <= 9


def test_no_count_that_keeps_it_is_said(tmp_path: Path) -> None:
    kept, _ = prepared(tmp_path, dict.fromkeys((1, 2, 3), 400.0))
    found = objective.find_smallest(decided(None), kept, (1, 2, 3), 500.0)
    assert (found.verdict, found.instances) == (Verdict.UNFIT, None)


def test_a_time_that_is_over_leaves_it_unresolved(tmp_path: Path) -> None:
    kept, target = prepared(tmp_path, {2: 100.0})
    kept.measured.budget_s = 1.0
    found = objective.hold(decided(2), kept, (1, 2), 500.0)
    assert (found.verdict, found.instances, target.calls) == (Verdict.UNRESOLVED, None, [])
