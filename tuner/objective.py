"""Trials that show which candidate keeps a service-level objective at a rate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tuner.measuring import VARIABLE, Measuring
from tuner.model import Decision, Report, SloResult, Trial, Verdict
from tuner.search import first_counts
from tuner.slo import Slo, judge
from tuner.wording import instances as in_words

# Windows in which a candidate is measured, on end.
WINDOWS = 3
MOST_REPEATS = 2
# How many counts above the chosen one are tried where that does not keep the objective.
NEXT_COUNTS = 2
# Without a rate of the user's: share of what the candidate can do at most.
SHARE_OF_CAPACITY = 0.7
# What the smallest count must still bear above the stated rate.
HEADROOM = 1.2


@dataclass
class Objective:
    """The candidates' trials at a rate.

    Attributes:
        slo: The objective.
        measured: The trials of the run, to which these are added.
        memory_bytes: Memory that the application may use in all.
        keep_disturbed: Whether disturbed trials are as good as others.
    """

    slo: Slo
    measured: Measuring
    memory_bytes: int
    keep_disturbed: bool

    def measure(self, instances: int, rate_rps: float) -> SloResult | None:
        """Measure one candidate at a rate; None when the time is over."""
        trials: list[Trial] = []
        reports: list[Report] = []
        load = replace(self.measured.load, rate_rps=rate_rps)
        repeats = 0
        while len(trials) < WINDOWS:
            if self.measured.is_over(instances):
                return None
            trial = self.measured.measure(
                {VARIABLE: instances},
                instances,
                round_number=len(trials) + 1,
                left=WINDOWS - len(trials),
                phase="slo",
                load=load,
                what=f"{in_words(instances)} at {rate_rps:,.0f}/s",
            )
            if trial.disturbances and not self.keep_disturbed and repeats < MOST_REPEATS:
                repeats += 1
                continue
            trials.append(trial)
            reports.extend(self.measured.loads)
        return judge(self.slo, rate_rps, trials, reports, self.memory_bytes)


def hold(decision: Decision, objective: Objective, candidates: Sequence[int], rate_rps: float | None) -> Decision:
    """Keep a choice only if it keeps the objective, else take the next count or the one after it that does.

    Args:
        decision: The choice by throughput.
        objective: How to measure.
        candidates: All counts that may be chosen, ascending.
        rate_rps: The user's rate; None takes 70 % of what each candidate can do.
    """
    chosen = decision.instances
    if chosen is None:
        return decision
    unfit = {found.instances for found in decision.candidates if found.unfit}
    larger = [count for count in candidates if count > chosen and count not in unfit]
    capacity = {found.instances: found.throughput_rps for found in decision.candidates}
    results: list[SloResult] = []
    for count in [chosen, *larger[:NEXT_COUNTS]]:
        # What was not measured can do as much as the chosen one at least, or it would not be tried.
        rate = rate_rps or SHARE_OF_CAPACITY * capacity.get(count, capacity[chosen])
        result = objective.measure(count, rate)
        if result is None:
            return _out_of_time(decision, results)
        results.append(result)
        if result.met:
            sentence = f"{decision.sentence} {say(result, objective.slo)}"
            if count != chosen:
                sentence = (
                    f"{in_words(count)}: the smallest count from {chosen} on that keeps the objective. {sentence}"
                )
            return replace(decision, instances=count, sentence=sentence, slo=tuple(results))
    return _none(decision, objective.slo, results)


def find_smallest(decision: Decision, objective: Objective, candidates: Sequence[int], rate_rps: float) -> Decision:
    """Find the smallest count that keeps the objective with headroom above the rate.

    Upwards in steps that double, then by halves between the last count that failed and the first that did not: more
    instances serve a rate at least as well, until the CPUs are used up.

    Args:
        decision: What is to be said of the run otherwise; nothing is chosen in it yet.
        objective: How to measure.
        candidates: All counts that may be chosen, ascending.
        rate_rps: The user's rate.
    """
    results: dict[int, SloResult] = {}

    def met(count: int) -> bool | None:
        result = objective.measure(count, HEADROOM * rate_rps)
        if result is not None:
            results[count] = result
        return None if result is None else result.met

    smallest = _bracket(candidates, objective.measured.cpu_budget, met)
    ordered = [results[count] for count in sorted(results)]
    if smallest is None:
        return _out_of_time(decision, ordered)
    if not smallest:
        return _none(decision, objective.slo, ordered)
    below = f", and {smallest - 1} do not" if smallest - 1 in results else ""
    sentence = f"{in_words(smallest)}: the smallest count that keeps the objective with headroom{below}. "
    sentence += say(results[smallest], objective.slo)
    return replace(
        decision,
        verdict=Verdict.CERTIFIED,
        instances=smallest,
        stop_reason="the smallest count that keeps the objective was found",
        sentence=sentence,
        remedy="",
        slo=tuple(ordered),
    )


def _bracket(candidates: Sequence[int], budget: float, met: Callable[[int], bool | None]) -> int | None:
    """The smallest count that keeps it; 0 when none does, None when the time was over."""
    failed, kept = 0, 0
    for count in first_counts(candidates, budget):
        answer = met(count)
        if answer is None:
            return None
        if answer:
            kept = count
            break
        failed = count
    between = [count for count in candidates if failed < count < kept]
    while between:
        middle = between[len(between) // 2]
        answer = met(middle)
        if answer is None:
            return None
        if answer:
            kept = middle
            between = [count for count in between if count < middle]
        else:
            between = [count for count in between if count > middle]
    return kept


def say(result: SloResult, slo: Slo) -> str:
    """What a candidate gave, as a sentence."""
    return (
        f"At {result.rate_rps:,.0f} requests/s p{slo.percent:g} is {result.latency_ms or 0:,.0f} ms, surely at most "
        f"{result.upper_ms or 0:,.0f} ms; {slo.limit_ms:g} ms are allowed."
    )


def _out_of_time(decision: Decision, results: Sequence[SloResult]) -> Decision:
    return replace(
        decision,
        verdict=Verdict.UNRESOLVED,
        instances=None,
        stop_reason="the time was over before the objective was measured",
        sentence="Unresolved: the time was over before the objective was measured.",
        remedy="give it more time (--budget)",
        slo=tuple(results),
    )


def _none(decision: Decision, slo: Slo, results: Sequence[SloResult]) -> Decision:
    reasons = "; ".join(f"{in_words(result.instances)}: {result.reason}" for result in results)
    return replace(
        decision,
        verdict=Verdict.UNFIT,
        instances=None,
        stop_reason="no candidate kept the objective",
        sentence=f"No candidate kept {slo}: {reasons}.",
        remedy="",
        slo=tuple(results),
    )
