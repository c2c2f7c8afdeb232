"""From trials to a verdict: eliminate, choose, and say how sure that is. Pure.

The method in one paragraph: candidates are compared by the logarithm of the ratio of their throughputs *within* each
round, so that whatever slows a whole round down cancels out. Each comparison takes the mean of those ratios without the
highest and the lowest fifth, so that one disturbed trial does not decide. Their spread is pooled over all comparisons.
All comparisons hold together with 95 % confidence: the critical value is that of the largest of them all, found by
simulating this very statistic for as many candidates and rounds. The smallest candidate that is not provably worse than
the tolerance is chosen, if nothing can be better than it by more than the tolerance (certified) or if the comparisons
are at least as fine as the tolerance (resolved); otherwise the verdict is unresolved.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from statistics import median

import numpy as np
import numpy.typing as npt

from tuner.model import BYTES_PER_MIB, CandidateSummary, Decision, Trial, Verdict

Floats = npt.NDArray[np.float64]

CONFIDENCE = 0.95
# Share left out at either end (Yuen, "The two-sample trimmed t for unequal population variances", Biometrika 1974).
TRIM = 0.2
SIMULATIONS = 20_000
SIMULATION_SEED = 20_260_101
# So many numbers are simulated at once: all of a large run would not fit into memory.
SIMULATED_AT_ONCE = 5_000_000
FEWEST_ROUNDS = 3
LARGEST_ERROR_RATE = 0.001
LARGEST_MEMORY_SHARE = 0.85
# With more disturbed trials than these, what was measured is the disturbance.
MOST_DISTURBED_SHARE = 0.2
# How many rounds would resolve it: a tenth more than the estimate, and no number that nobody would wait for.
ROUNDS_MARGIN = 1.1
MOST_ROUNDS = 40


@dataclass(frozen=True)
class Comparison:
    """How much more throughput one candidate has than another, as a log ratio with its half-width."""

    mean: float
    half_width: float


def trimmed(values: Floats) -> tuple[Floats, Floats]:
    """Trimmed means and squared standard errors along the last axis.

    Args:
        values: Any shape, with the observations of one sample along the last axis.

    Returns:
        The means without the outer fifths, and the squared standard errors from the winsorised variance (Yuen 1974).
    """
    count = values.shape[-1]
    cut = int(TRIM * count)
    ordered = np.sort(values, axis=-1)
    kept = ordered[..., cut : count - cut]
    left = kept.shape[-1]
    winsorised = np.clip(ordered, kept[..., :1], kept[..., -1:])
    variances = winsorised.var(axis=-1, ddof=1)
    return kept.mean(axis=-1), (count - 1) * variances / (left * max(1, left - 1))


@lru_cache(maxsize=64)
def critical_value(candidates: int, rounds: int) -> float:
    """The value that the largest standardised comparison exceeds in 5 % of runs in which all candidates are equal.

    Args:
        candidates: Number of candidates, 2 or more.
        rounds: Number of rounds, 3 or more.

    Returns:
        Multiplier of the pooled standard error that makes all comparisons hold together.
    """
    random = np.random.default_rng(SIMULATION_SEED)
    left, right = (list(side) for side in zip(*combinations(range(candidates), 2), strict=True))
    at_once = max(1, SIMULATED_AT_ONCE // (len(left) * rounds))
    largest: list[Floats] = []
    for begin in range(0, SIMULATIONS, at_once):
        scores = random.standard_normal((min(at_once, SIMULATIONS - begin), candidates, rounds))
        means, squares = trimmed(scores[:, right] - scores[:, left])
        largest.append(np.abs(means).max(axis=1) / np.sqrt(squares.mean(axis=1)))
    return float(np.quantile(np.concatenate(largest), CONFIDENCE))


def compare_all(scores: Mapping[int, Sequence[float]]) -> dict[tuple[int, int], Comparison]:
    """Compare each two candidates.

    Args:
        scores: Log throughputs by candidate, one for each round, in the same rounds for all.

    Returns:
        For (a, b) how much b has more than a, both ways round.
    """
    counts = sorted(scores)
    pairs = list(combinations(counts, 2))
    if not pairs:
        return {}
    rounds = len(scores[counts[0]])
    differences = np.array([np.subtract(scores[b], scores[a]) for a, b in pairs], dtype=np.float64)
    means, squares = trimmed(differences)
    half = critical_value(len(counts), rounds) * math.sqrt(float(squares.mean()))
    forward = {pair: Comparison(float(mean), half) for pair, mean in zip(pairs, means, strict=True)}
    backward = {(b, a): Comparison(-c.mean, c.half_width) for (a, b), c in forward.items()}
    return forward | backward


def find_unfit(trials: Sequence[Trial], memory_bytes: int) -> str:
    """Say why a candidate cannot be chosen whatever its throughput, or "" when it can.

    Args:
        trials: All its trials. Whatever disturbs the host may let requests fail; only undisturbed ones tell of errors,
            where there are any.
        memory_bytes: Memory that the application may use in all.
    """
    if sum(t.restarts for t in trials):
        return "a worker died under load"
    trials = [t for t in trials if not t.disturbances] or trials
    requests, errors = sum(t.requests for t in trials), sum(t.errors for t in trials)
    if not requests or not all(t.throughput_rps > 0 for t in trials):
        return "requests were not answered"
    if errors / requests > LARGEST_ERROR_RATE:
        return f"{errors / requests:.2%} of the requests failed"
    peak = max(t.rss_bytes for t in trials)
    if peak > LARGEST_MEMORY_SHARE * memory_bytes:
        return f"{peak / BYTES_PER_MIB:,.0f} MiB are more than {LARGEST_MEMORY_SHARE:.0%} of the memory"
    return ""


def last_attempts(trials: Sequence[Trial]) -> list[Trial]:
    """The trials that count: a disturbed one that was repeated does not, whatever its result."""
    return list({(trial.round, trial.instances): trial for trial in trials}.values())


def whole_rounds(trials: Sequence[Trial], counts: Sequence[int]) -> list[int]:
    """Rounds in which each of these candidates was measured."""
    seen: dict[int, set[int]] = {}
    for trial in trials:
        seen.setdefault(trial.round, set()).add(trial.instances)
    return [number for number, measured in sorted(seen.items()) if measured.issuperset(counts)]


def decide(trials: Sequence[Trial], *, tolerance: float, memory_bytes: int, keep_disturbed: bool = False) -> Decision:
    """Decide from the trials of one run.

    Args:
        trials: All trials, in any order.
        tolerance: Throughput one is willing to give up for fewer instances, between 0 and 1.
        memory_bytes: Memory that the application may use in all.
        keep_disturbed: Whether disturbed trials are as good as others.

    Returns:
        The decision. Its verdict is `unfit` when no candidate keeps the limits, and `unresolved` with fewer than three
        whole rounds.
    """
    by_count = _by_count(last_attempts(trials))
    attempts = _by_count(trials)
    # A worker that died did so in a disturbed trial too.
    unfit = {count: find_unfit(group, memory_bytes) for count, group in attempts.items()}
    fit = sorted(count for count, reason in unfit.items() if not reason)
    rounds = whole_rounds(trials, fit)
    scores = {
        count: [math.log(t.throughput_rps) for t in sorted(by_count[count], key=lambda t: t.round) if t.round in rounds]
        for count in fit
    }
    comparisons = compare_all(scores) if len(rounds) >= FEWEST_ROUNDS else {}
    too_disturbed = None if keep_disturbed else _too_disturbed(by_count)
    choice = too_disturbed or _choose(fit, comparisons, len(rounds), tolerance)
    eliminated = _eliminated(fit, comparisons, tolerance)
    summaries = tuple(
        _summarise(count, by_count, attempts, unfit=unfit[count], eliminated=eliminated.get(count, ""))
        for count in sorted(by_count)
    )
    return Decision(
        verdict=choice.verdict,
        instances=choice.instances,
        tolerance=tolerance,
        resolution=choice.resolution,
        stop_reason=f"all {len(rounds)} rounds were measured" if rounds else "no round was complete",
        sentence=choice.sentence,
        remedy=choice.remedy,
        candidates=summaries,
    )


@dataclass(frozen=True)
class _Choice:
    verdict: Verdict
    instances: int | None
    resolution: float | None
    sentence: str
    remedy: str = ""


def _too_disturbed(by_count: Mapping[int, Sequence[Trial]]) -> _Choice | None:
    """The verdict where too many trials that count were disturbed, also when repeated; None where it was quiet."""
    counting = [trial for group in by_count.values() for trial in group]
    disturbed = sum(bool(trial.disturbances) for trial in counting)
    if disturbed <= MOST_DISTURBED_SHARE * len(counting):
        return None
    sentence = (
        f"Unresolved: {disturbed} of {len(counting)} trials were disturbed by something else, also when repeated."
    )
    remedy = "measure when the host is quieter, or count them too (--keep-disturbed)"
    return _Choice(Verdict.UNRESOLVED, None, None, sentence, remedy)


def _eliminated(
    fit: Sequence[int], comparisons: Mapping[tuple[int, int], Comparison], tolerance: float
) -> dict[int, str]:
    """Candidates that are provably worse than the tolerance, each with what is better."""
    allowed = _allowed(tolerance)
    out: dict[int, str] = {}
    for count in fit:
        better = [(b, c) for (a, b), c in comparisons.items() if a == count and c.mean - c.half_width > allowed]
        if better:
            best, comparison = max(better, key=lambda item: item[1].mean)
            verb = "gives" if best == 1 else "give"
            out[count] = f"{_instances(best)} {verb} {_percent(comparison.mean)} more"
    return out


def _choose(
    fit: Sequence[int], comparisons: Mapping[tuple[int, int], Comparison], rounds: int, tolerance: float
) -> _Choice:
    if not fit:
        return _Choice(Verdict.UNFIT, None, None, "No candidate kept the limits for errors, memory and restarts.")
    if len(fit) == 1:
        sentence = f"{_instances(fit[0])}: the only candidate that kept the limits."
        return _Choice(Verdict.CERTIFIED, fit[0], None, sentence)
    if rounds < FEWEST_ROUNDS:
        sentence = f"Unresolved: {rounds} whole rounds tell nothing of how much the measurements vary."
        return _Choice(Verdict.UNRESOLVED, None, None, sentence, f"measure {FEWEST_ROUNDS} rounds or more (--rounds)")
    out = _eliminated(fit, comparisons, tolerance)
    left = [count for count in fit if count not in out]
    allowed = _allowed(tolerance)
    half = next(iter(comparisons.values())).half_width
    for count in left:
        worst = max(comparisons[count, other].mean for other in fit if other != count)
        if count == left[0] and worst + half <= allowed:
            return _Choice(Verdict.CERTIFIED, count, half, _say(count, fit, comparisons, tolerance, rounds))
        if half <= allowed and worst <= allowed:
            return _Choice(Verdict.RESOLVED, count, half, _say(count, fit, comparisons, tolerance, rounds))
    # Trimmed means can go round in a circle, each candidate worse than the next: then none is left, or none chosen.
    return _unresolved(left or fit, half, tolerance, rounds)


def _unresolved(left: Sequence[int], half: float, tolerance: float, rounds: int) -> _Choice:
    """The noise is larger than the tolerance; more rounds help, since the half-width falls with their root."""
    needed = max(rounds + 1, math.ceil(rounds * (half / _allowed(tolerance)) ** 2 * ROUNDS_MARGIN))
    sentence = (
        f"Unresolved: {_list(left)} instances cannot be told apart. The measurements vary so much that differences "
        f"below {_percent(half)} cannot be seen, and the tolerance is {_share(tolerance)}."
    )
    if needed <= MOST_ROUNDS:
        return _Choice(Verdict.UNRESOLVED, None, half, sentence, f"measure about {needed} rounds (--rounds {needed})")
    remedy = "measure when the host is quieter, or longer (--duration); more rounds alone would take too many"
    return _Choice(Verdict.UNRESOLVED, None, half, sentence, remedy)


def _say(
    chosen: int,
    fit: Sequence[int],
    comparisons: Mapping[tuple[int, int], Comparison],
    tolerance: float,
    rounds: int,
) -> str:
    """The verdict in one sentence: against the best other candidate, with the interval."""
    rival = max((count for count in fit if count != chosen), key=lambda count: comparisons[chosen, count].mean)
    c = comparisons[chosen, rival]
    interval = f"[{_signed(c.mean - c.half_width)}, {_signed(c.mean + c.half_width)}]"
    lead = "the smallest count within" if chosen != fit[0] else "within"
    return (
        f"{_instances(chosen)}: {lead} {_share(tolerance)} of the best "
        f"({rival}: {_signed(c.mean)} {interval}), 95% confidence over all comparisons, {rounds} rounds."
    )


def _by_count(trials: Sequence[Trial]) -> dict[int, list[Trial]]:
    groups: dict[int, list[Trial]] = {}
    for trial in trials:
        groups.setdefault(trial.instances, []).append(trial)
    return groups


def _summarise(
    count: int,
    by_count: Mapping[int, Sequence[Trial]],
    attempts: Mapping[int, Sequence[Trial]],
    *,
    unfit: str,
    eliminated: str,
) -> CandidateSummary:
    trials = by_count[count]
    reference = {t.round: t.throughput_rps for t in by_count[min(by_count)] if t.throughput_rps > 0}
    scores = [math.log(t.throughput_rps) for t in trials if t.throughput_rps > 0]
    ratios = [t.throughput_rps / reference[t.round] for t in trials if t.throughput_rps > 0 and t.round in reference]
    middle, interval = _interval(scores)
    return CandidateSummary(
        instances=count,
        trials=len(trials),
        throughput_rps=middle,
        interval_rps=interval,
        ratio=math.exp(float(np.mean(np.log(ratios)))) if ratios else None,
        latency_ms={
            name: median(t.latency_ms[name] for t in trials if name in t.latency_ms)
            for name in sorted({name for t in trials for name in t.latency_ms})
        },
        rss_bytes=max(t.rss_bytes for t in trials),
        requests=sum(t.requests for t in trials),
        errors=sum(t.errors for t in trials),
        limited_by=Counter(t.limited_by for t in trials).most_common(1)[0][0],
        disturbed=sum(bool(t.disturbances) for t in attempts[count]),
        unfit=unfit,
        eliminated=eliminated,
    )


def _interval(scores: Sequence[float]) -> tuple[float, tuple[float, float] | None]:
    """Geometric mean and its 95 % interval by Student's t, which also holds what varies from round to round."""
    if not scores:
        return 0.0, None
    mean = float(np.mean(scores))
    if len(scores) < 2:  # noqa: PLR2004 one value has no spread
        return math.exp(mean), None
    from scipy.stats import t  # noqa: PLC0415 half a second, which `tuner --help` must not pay

    spread = float(np.std(scores, ddof=1)) / math.sqrt(len(scores))
    half = float(t.ppf((1 + CONFIDENCE) / 2, len(scores) - 1)) * spread
    return math.exp(mean), (math.exp(mean - half), math.exp(mean + half))


def _allowed(tolerance: float) -> float:
    """The tolerance as a log ratio: how much better another may be."""
    return -math.log(1 - tolerance)


def _share(tolerance: float) -> str:
    return f"{100 * tolerance:.12g}%"


def _percent(log_ratio: float) -> str:
    return f"{math.expm1(abs(log_ratio)):.1%}"


def _signed(log_ratio: float) -> str:
    return f"{math.expm1(log_ratio):+.1%}"


def _instances(count: int) -> str:
    return "1 instance" if count == 1 else f"{count} instances"


def _list(counts: Sequence[int]) -> str:
    return " and ".join([", ".join(map(str, counts[:-1])), str(counts[-1])]) if len(counts) > 1 else str(counts[0])
