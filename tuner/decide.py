"""From a run's procedure and its trials to the decision that people and machines read. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from statistics import median

import numpy as np

from tuner.limits import undisturbed
from tuner.model import CandidateSummary, Decision, Trial
from tuner.procedure import Procedure
from tuner.wording import instances as in_words
from tuner.wording import percent

CONFIDENCE = 0.95


def decide(procedure: Procedure, trials: Sequence[Trial], *, tolerance: float, seed: int) -> Decision:
    """Decide from the trials of one run.

    Args:
        procedure: The procedure, which was told all of them.
        trials: All trials in their order.
        tolerance: Throughput one is willing to give up for fewer instances, between 0 and 1.
        seed: Seed of the procedure's search.

    Returns:
        The decision. Its `instances` is None unless the verdict is `certified` or `resolved`.
    """
    found = procedure.decision()
    by_count: dict[int, list[Trial]] = {}
    for trial in trials:
        by_count.setdefault(trial.instances, []).append(trial)
    likeliest = found.instances or found.guess
    summaries = [
        summarise(
            by_count[count],
            by_count[min(by_count)],
            unfit=procedure.unfit.get(count, ""),
            eliminated=_eliminated(procedure, count, likeliest, tolerance),
            keep_disturbed=procedure.keep_disturbed,
        )
        for count in sorted(by_count)
    ]
    return Decision(
        verdict=found.verdict,
        instances=found.instances,
        tolerance=tolerance,
        resolution=found.resolution,
        probability=found.probability,
        seed=seed,
        stop_reason=found.stop_reason,
        sentence=found.sentence,
        remedy=found.remedy,
        candidates=tuple(summaries),
    )


def _eliminated(procedure: Procedure, count: int, likeliest: int | None, tolerance: float) -> str:
    """Say what is better than a count by more than the tolerance, with 97.5 % probability; "" where nothing is."""
    if likeliest is None or count == likeliest or (gain := procedure.search.gain(likeliest, count)) is None:
        return ""
    if gain.low <= -math.log(1 - tolerance):
        return ""
    verb = "gives" if likeliest == 1 else "give"
    return f"{in_words(likeliest)} {verb} {percent(gain.median)} more"


def summarise(
    mine: Sequence[Trial],
    reference: Sequence[Trial],
    *,
    unfit: str = "",
    eliminated: str = "",
    keep_disturbed: bool = False,
) -> CandidateSummary:
    """All trials of one candidate together.

    Args:
        mine: Its trials, at least one; a disturbed one counts only where no undisturbed one is, or all are kept.
        reference: Those of the candidate whose throughput is 1.
        unfit: Why it cannot be chosen, or "".
        eliminated: Why it is out of the race, or "".
        keep_disturbed: Whether disturbed trials are as good as others.
    """
    counting = mine if keep_disturbed else undisturbed(mine)
    scores, others = _scores(counting), _scores(reference if keep_disturbed else undisturbed(reference))
    middle, interval = _interval(scores)
    return CandidateSummary(
        instances=mine[0].instances,
        trials=len(counting),
        throughput_rps=middle,
        interval_rps=interval,
        ratio=math.exp(float(np.mean(scores) - np.mean(others))) if scores and others else None,
        latency_ms={
            name: median(t.latency_ms[name] for t in counting if name in t.latency_ms)
            for name in sorted({name for t in counting for name in t.latency_ms})
        },
        rss_bytes=max(t.rss_bytes for t in counting),
        requests=sum(t.requests for t in counting),
        errors=sum(t.errors for t in counting),
        limited_by=Counter(t.limited_by for t in counting).most_common(1)[0][0],
        disturbed=sum(bool(t.disturbances) for t in mine),
        unfit=unfit,
        eliminated=eliminated,
    )


def _scores(trials: Sequence[Trial]) -> list[float]:
    return [math.log(trial.throughput_rps) for trial in trials if trial.throughput_rps > 0]


def _interval(scores: Sequence[float]) -> tuple[float, tuple[float, float] | None]:
    """Geometric mean and its 95 % interval by Student's t."""
    if not scores:
        return 0.0, None
    mean = float(np.mean(scores))
    if len(scores) < 2:  # noqa: PLR2004 one value has no spread
        return math.exp(mean), None
    from scipy.special import stdtrit  # noqa: PLC0415 a third of a second, which `tuner --help` must not pay

    spread = float(np.std(scores, ddof=1)) / math.sqrt(len(scores))
    half = float(stdtrit(len(scores) - 1, (1 + CONFIDENCE) / 2)) * spread
    return math.exp(mean), (math.exp(mean - half), math.exp(mean + half))
