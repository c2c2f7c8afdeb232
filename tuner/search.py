"""Which count to measure next, when to stop, and what to choose. Pure.

The method in one paragraph: the counts are first measured on the way up, each about twice the last, for as long as
throughput grows. From then on, `tuner.posterior` says after each sweep which curves are compatible with all trials so
far, as a thousand sampled curves. In each of them some counts are right: within the tolerance of the best, give or take
two fifths of it, with no smaller one so. The count that is right in most of the curves is the candidate to be chosen,
and the share of curves in which it is right is how sure that is. Once that reaches the confidence asked for, and still
does when sampled more thoroughly, the run stops; else the next sweep measures those counts that narrow down the most
whether the candidate is too small or too large. A sweep goes from its largest count downwards, since stopping workers
costs nothing and booting them does; upwards only where that costs no more. A trial that sensors call contaminated is
repeated at once, at most twice, and says nothing about throughput; one that is only low is never dropped: it is weighed
against the curve as what a hidden burst would do, and the more so beside contaminated ones. Since the confidence is a
probability given all that was measured, it holds whenever one stops; it rests on what `tuner.curve` and
`tuner.likelihood` assume, which is why its calibration is tested on simulated hosts, some of shapes that are not
assumed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
import numpy.typing as npt

from tuner.curve import Floats
from tuner.likelihood import Observation
from tuner.model import Verdict
from tuner.posterior import Posterior, fit
from tuner.wording import instances as in_words
from tuner.wording import listed, share

# How much of the tolerance may be missing or left over: a choice within 5 % of the best may be 7 % below it, and may
# not be larger than one that is within 3 %.
LEEWAY = 0.4
# By so much, as a log ratio, the highest of many sampled points lies above a top that is flat. Without this, smaller
# counts look worse than they are: 29 of 30 wrong choices were a count too many.
OVERSTATED = 0.004
# Probability of being right at which a run stops, by the number of counts: among many of them the last half per cent
# would double the trials. What is wrong in the end is fewer than this allows, since most runs stop at more.
CONFIDENCE, CONFIDENCE_OF_MANY = 0.995, 0.985
# What is enough when there will be no more trials.
CONFIDENCE_AT_THE_END = 0.98
CERTIFIED_CONFIDENCE = 0.95
# A thousand samples tell no probability above this.
HIGHEST_SAID = 0.999
MOST_REPEATS = 2
# Fewer than this tell nothing of how much the measurements vary; among many counts there is more to be mistaken about.
FEWEST_TRIALS = ((6, 8), (24, 12))
FEWEST_TRIALS_OF_MANY = 18
MANY = 25
# Of so few counts all are measured on the way up.
FEW = 4
# The way up ends after two steps that each gave less than this, and after so many counts at the earliest.
SMALLEST_GAIN = 0.02
FEWEST_CLIMBED = 4
# A count that is right in more of the curves than this may be the answer.
LIKELY_SHARE = 0.1
# How much the time of a trial counts against what it tells: 0 saves trials, 1 saves time.
COST_POWER = 0.35
# Two orders of the same trials take as long when they differ by less, in seconds.
SAME_S = 1e-6
# Sweeps of few trials stop sooner, sweeps of many boot less often; by the number of counts.
SWEEP_TRIALS = ((6, 2), (39, 4), (100, 6))
SWEEP_TRIALS_OF_MANY = 8
# The most trials: few counts, and so many more for each doubling of their number.
MOST_TRIALS_BASE, MOST_TRIALS_PER_DOUBLING = 24, 10
# Trials that a quiet host takes, by the number of counts; what a run expects before it has measured anything.
USUAL_TRIALS = ((6, 9), (10, 13), (20, 20), (40, 24), (80, 30))
USUAL_TRIALS_OF_MANY = 38


@dataclass(frozen=True)
class Costs:
    """What trials cost in time, in seconds.

    Attributes:
        boot_s: Boot of one worker; they boot one after the other.
        cold_s: Warm-up of a trial for which workers were booted.
        warm_s: Warm-up of another.
        measure_s: Measuring, with all that a trial costs besides.
    """

    boot_s: float = 3.0
    cold_s: float = 10.0
    warm_s: float = 2.0
    measure_s: float = 8.0

    def trial_s(self, running: int, instances: int) -> float:
        """What one trial takes when so many instances run before it."""
        booted = max(0, instances - running)
        return booted * self.boot_s + (self.cold_s if booted else self.warm_s) + self.measure_s


@dataclass(frozen=True)
class Effort:
    """How sure a run is to be, and how long it goes on for that.

    Attributes:
        confidence: Probability of being right at which it stops; None takes one that fits the number of counts.
        trials: Factor of the fewest and of the most trials.
    """

    confidence: float | None = None
    trials: float = 1.0


EFFORTS: Mapping[str, Effort] = {
    "quick": Effort(0.95, 0.7),
    "standard": Effort(),
    "thorough": Effort(0.998, 3.0),
}


@dataclass(frozen=True)
class SearchDecision:
    """What the trials say.

    Attributes:
        verdict: How sure it is; `certified` when the choice is right without leeway too.
        instances: The chosen count; None when unresolved.
        guess: The likeliest count, whatever the verdict; None before any trial.
        probability: Probability that the guess is right, 0 to 1.
        resolution: Half-width of the 95 % interval of its throughput relative to the best, 0 to 1.
        stop_reason: Why the run ended.
        sentence: The verdict with its reason, for a person.
        remedy: What would resolve it, or "".
        trial_sd: By how much trials of the same count vary, as the SD of log throughput; None before any trial.
    """

    verdict: Verdict
    instances: int | None
    guess: int | None
    probability: float
    resolution: float | None
    stop_reason: str
    sentence: str
    remedy: str = ""
    trial_sd: float | None = None


@dataclass(frozen=True)
class Gain:
    """A log ratio of throughputs: its median, its 95 % interval, and what it is above with 99.9 % probability."""

    median: float
    low: float
    high: float
    lowest: float


@dataclass(frozen=True)
class Judgement:
    """One posterior, judged: the index of the candidate to be chosen and what speaks for it."""

    place: int
    probability: float
    strict: float
    too_small: float
    too_large: float


class Search:
    """A run of trials, told one by one.

    Args:
        counts: Counts that may be chosen.
        cpu_budget: CPUs that the application may use.
        current: Instances that run now.
        tolerance: Throughput one is willing to give up for fewer instances, 0 to 1.
        seed: Seed of the sampling; the same trials then lead to the same decision.
        costs: What trials cost in time.
        effort: How sure the run is to be, and how long it goes on for that.
        most_trials: Trials after which to give up, contaminated ones not counted up to as many again; None takes a
            number that fits the number of counts.

    Attributes:
        costs: What trials cost in time; may be replaced as that becomes known better.
        sweep: Number of the sweep that is under way, from 1, which is the way up.
    """

    def __init__(  # noqa: PLR0913 each is a choice of the user or a fact of the host
        self,
        counts: Sequence[int],
        cpu_budget: float,
        *,
        current: int = 1,
        tolerance: float = 0.05,
        seed: int = 0,
        costs: Costs | None = None,
        effort: Effort = EFFORTS["standard"],
        most_trials: int | None = None,
    ) -> None:
        self._counts = tuple(sorted(set(counts)))
        if not self._counts:
            raise ValueError("a search needs at least one count")
        self._budget = max(1.0, cpu_budget)
        self._tolerance, self._seed = tolerance, seed
        number = len(self._counts)
        self._confidence = effort.confidence or (CONFIDENCE if number < MANY else CONFIDENCE_OF_MANY)
        fewest = next((n for most, n in FEWEST_TRIALS if number <= most), FEWEST_TRIALS_OF_MANY)
        self._fewest = round(fewest * min(1.0, effort.trials))
        self._sweep = next((n for most, n in SWEEP_TRIALS if number <= most), SWEEP_TRIALS_OF_MANY)
        self.costs = costs or Costs()
        most = MOST_TRIALS_BASE + MOST_TRIALS_PER_DOUBLING * math.log2(number)
        self._most_trials = most_trials or round(most * effort.trials)
        self.sweep = 1
        self._running, self._repeats, self._session = current, 0, 0
        self._trials: list[Observation] = []
        self._excluded: dict[int, str] = {}
        self._climb = list(first_counts(self._counts, self._budget))
        self._climbed: list[float] = []
        self._queue: list[int] = []
        self._posterior: Posterior | None = None
        self._stop_reason, self._stopped = "", False
        self._expected = min(
            self._most_trials, next((n for most, n in USUAL_TRIALS if number <= most), USUAL_TRIALS_OF_MANY)
        )

    def next(self) -> int | None:
        """Say which count to measure next; None when the run is over."""
        if len(self._left()) <= 1 and not self._stop_reason:
            self._stop_reason = "one candidate is left"
        while not self._stop_reason:
            queue = self._climb or self._queue
            if queue and queue[0] not in self._excluded:
                return queue[0]
            if queue:
                queue.pop(0)
            else:
                self._plan_sweep()
        return None

    def tell(self, instances: int, log_throughput: float, *, contaminated: bool = False) -> None:
        """Note what a trial measured.

        Args:
            instances: The count, normally the one that `next` gave.
            log_throughput: Natural logarithm of its steady throughput.
            contaminated: Whether sensors say that it was disturbed.

        Raises:
            ValueError: When the count cannot be chosen.
        """
        if instances not in self._counts:
            raise ValueError(f"{instances} is none of the counts of this search")
        self._trials.append(Observation(instances, log_throughput, contaminated, self._session))
        self._reconsider()
        self._running = instances
        queue = self._climb or self._queue
        if not queue or queue[0] != instances:
            return
        if contaminated and self._repeats < MOST_REPEATS:
            self._repeats += 1
            return
        self._repeats = 0
        queue.pop(0)
        if queue is self._climb and not contaminated:
            self._climbed.append(log_throughput)
            if _flat(self._climbed):
                self._climb.clear()

    def exclude(self, instances: int, reason: str) -> None:
        """Take a count out of the choice whatever its throughput: errors, memory, restarts."""
        self._excluded[instances] = reason
        self._reconsider()

    def stop(self, reason: str) -> None:
        """End the run for a reason that lies outside it; nothing is measured any more."""
        self._stop_reason, self._stopped = reason, True

    def resume(self) -> None:
        """Begin another session: the host may have changed as a whole, and there may be as many more trials."""
        self._session += 1
        self._most_trials += self._clean()
        self._stopped = False
        self._reconsider()

    def _reconsider(self) -> None:
        """What was concluded may not hold with what is known now."""
        self._posterior = None
        if not self._stopped:
            self._stop_reason = ""

    def _left(self) -> tuple[int, ...]:
        return tuple(count for count in self._counts if count not in self._excluded)

    def _informative(self) -> bool:
        """Whether any trial says something of the counts that are left."""
        left = self._left()
        return any(not trial.contaminated and trial.instances in left for trial in self._trials)

    def _fit(self, *, thorough: bool = False) -> Posterior:
        """The posterior over the counts that are left."""
        if self._posterior is None or thorough:
            left = self._left()
            usable = [trial for trial in self._trials if trial.instances in left]
            self._posterior = fit(left, self._budget, usable, seed=self._seed, thorough=thorough)
        return self._posterior

    def _plan_sweep(self) -> None:
        """Look at what is known, and either stop or fill the queue."""
        left = self._left()
        if not self._informative():
            if self._at_the_end():
                self._stop_reason = "every trial was contaminated"
            else:
                self._queue = [min(left, key=lambda count: abs(count - self._running))]
                self.sweep += 1
            return
        posterior = self._fit()
        judgement = judge(posterior, self._tolerance)
        if self._enough_trials() and judgement.probability >= self._confidence:
            # Sampled probabilities vary, and of many looks one is lucky: the last one is taken more thoroughly.
            posterior = self._fit(thorough=True)
            judgement = judge(posterior, self._tolerance)
        if self._enough_trials() and judgement.probability >= self._confidence:
            self._stop_reason = f"the choice is right with {_sure(judgement.probability)} probability"
        elif self._at_the_end():
            self._stop_reason = f"{len(self._trials)} trials were measured"
        else:
            room = max(1, min(self._sweep, self._most_trials - self._clean()))

            def cost_s(place: int, top: int) -> float:
                ready = max(self._running, left[top]) if top >= 0 else self._running
                return float(self.costs.trial_s(ready, left[place]) ** COST_POWER)

            places = plan_sweep(posterior, judgement, self._tolerance, room, cost_s)
            self._queue = quickest_order([left[place] for place in places], self._running, self.costs)
            self.sweep += 1
            missing = max(self._trials_missing(judgement), self._fewest - len(self._trials))
            self._expected = min(self._most_trials, len(self._trials) + missing)

    def _clean(self) -> int:
        return sum(not trial.contaminated for trial in self._trials)

    def _enough_trials(self) -> bool:
        return self._clean() >= self._fewest

    def _at_the_end(self) -> bool:
        return self._clean() >= self._most_trials or len(self._trials) >= 2 * self._most_trials

    def decision(self) -> SearchDecision:
        """Decide from all trials so far; may be called at any time."""
        left = self._left()
        reason = self._stop_reason or "the run was stopped"
        if not left:
            return SearchDecision(Verdict.UNFIT, None, None, 0.0, None, reason, "No candidate kept the limits.")
        if len(left) == 1:
            sentence = f"{in_words(left[0])}: the only candidate{' that kept the limits' if self._excluded else ''}."
            return SearchDecision(Verdict.CERTIFIED, left[0], left[0], 1.0, None, reason, sentence)
        if not self._informative():
            sentence = "Unresolved: no trial was free of disturbance."
            return SearchDecision(
                Verdict.UNRESOLVED, None, None, 0.0, None, reason, sentence, "measure when the host is quieter"
            )
        return self._decide(left, reason)

    def _decide(self, left: tuple[int, ...], reason: str) -> SearchDecision:
        posterior = self._fit()
        judgement = judge(posterior, self._tolerance)
        guess = left[judgement.place]
        relative = np.exp(posterior.curves[:, judgement.place] - posterior.curves.max(axis=1))
        low, middle, high = (float(q) for q in np.quantile(relative, [0.025, 0.5, 0.975]))
        half = (high - low) / 2
        best = self._best(left, posterior, guess)
        count = len(self._trials)
        common = (guess, judgement.probability, half, reason)
        trial_sd = math.hypot(posterior.noise_sd, posterior.drift_sd)
        # A run that took its course is over; one that was stopped could have gone on.
        ended = self._at_the_end() and not self._stopped
        enough = min(self._confidence, CONFIDENCE_AT_THE_END) if ended else self._confidence
        if not self._enough_trials() or judgement.probability < enough:
            others = _likely(posterior, left, self._tolerance)
            sentence = (
                f"Unresolved: {listed(others)} instances are all possible after {count} trials; "
                f"{guess} is the likeliest, with {judgement.probability:.0%}. "
                f"A trial varies by {trial_sd:.1%}."
            )
            return SearchDecision(Verdict.UNRESOLVED, None, *common, sentence, self._remedy(judgement), trial_sd)
        certified = judgement.strict >= CERTIFIED_CONFIDENCE
        allowed = share(self._tolerance)
        if not certified:
            allowed += f", give or take {share(LEEWAY * self._tolerance)},"
        lead = (
            f"the best, and no smaller count is within {allowed} of it"
            if guess == best
            else f"the smallest count within {allowed} of the best "
            f"({best}: {1 / middle - 1:+.1%} [{1 / high - 1:+.1%}, {1 / low - 1:+.1%}])"
        )
        sentence = f"{in_words(guess)}: {lead}, with {_sure(judgement.probability)} probability after {count} trials."
        verdict = Verdict.CERTIFIED if certified else Verdict.RESOLVED
        return SearchDecision(verdict, guess, *common, sentence, trial_sd=trial_sd)

    def _best(self, left: tuple[int, ...], posterior: Posterior, guess: int) -> int:
        """The count that a reader of the trials would call the best: the guess, unless a curve or a mean is higher."""
        likely = left[int(np.argmax(posterior.curves.mean(axis=0)))]
        if likely != guess:
            return likely
        measured: dict[int, list[float]] = {}
        for trial in self._trials:
            if not trial.contaminated and trial.instances in left:
                measured.setdefault(trial.instances, []).append(trial.log_throughput)
        return max(measured, key=lambda count: (fmean(measured[count]), count == guess))

    def trials_left(self) -> int:
        """About how many more trials it will take, 0 or more."""
        if self._stop_reason:
            return 0
        return max(len(self._climb), len(self._queue), self._expected - len(self._trials), 1)

    def _trials_missing(self, judgement: Judgement) -> int:
        """About how many more trials make it sure enough: what is not known yet shrinks with the root of the trials."""
        from scipy.special import ndtri  # noqa: PLC0415 a third of a second, which `tuner --help` must not pay

        have = float(ndtri(max(0.55, min(judgement.probability, self._confidence))))
        return math.ceil(len(self._trials) * ((float(ndtri(self._confidence)) / have) ** 2 - 1)) + 1

    def _remedy(self, judgement: Judgement) -> str:
        if not self._enough_trials():
            return f"measure at least {self._fewest} trials"
        more = self._trials_missing(judgement)
        if more > 2 * self._most_trials:
            return "measure when the host is quieter, or longer (--duration); more trials alone would take too many"
        minutes = more * (self.costs.warm_s + self.costs.measure_s) / 60
        return f"about {more} more trials, {minutes:.0f} min and what booting takes"

    def gain(self, instances: int, over: int) -> Gain | None:
        """How much more throughput one count has than another by all that is known; None when that is not known."""
        left = self._left()
        if not {instances, over} <= set(left) or not self._informative():
            return None
        curves = self._fit().curves
        difference = curves[:, left.index(instances)] - curves[:, left.index(over)]
        low, middle, high = (float(q) for q in np.quantile(difference, [0.025, 0.5, 0.975]))
        return Gain(middle, low, high, lowest=float(np.quantile(difference, 1 - HIGHEST_SAID)))


def first_counts(counts: Sequence[int], budget: float) -> tuple[int, ...]:
    """The counts of the way up: the smallest, then each about twice the last, and the CPU budget.

    Up to a few counts these are all; the largest is among them where it is cheap to boot.

    Args:
        counts: All counts, ascending.
        budget: CPU budget.
    """
    if len(counts) <= FEW:
        return tuple(counts)
    wanted = {1.0, budget}
    size = budget
    while size > 1:
        # Far below the budget coarser steps do: the answer is seldom there.
        size /= 2 if size > budget / 6 else 4
        wanted.add(size)
    chosen = {min(counts, key=lambda count: (abs(math.log(count / want)), count)) for want in wanted}
    return tuple(sorted(chosen | ({counts[-1]} if len(counts) < MANY else set())))


def _flat(climbed: Sequence[float]) -> bool:
    """Whether the last two steps of the way up gave nothing."""
    if len(climbed) < FEWEST_CLIMBED:
        return False
    return climbed[-1] < climbed[-2] + SMALLEST_GAIN and climbed[-2] < climbed[-3] + SMALLEST_GAIN


def log_share_left(missing: float) -> float:
    """The logarithm of what is left when such a share is missing; of next to nothing, where that is all or more."""
    return math.log(max(1e-9, 1 - missing))


def _best(curves: Floats) -> Floats:
    """The best throughput in each curve, shape (samples,)."""
    out: Floats = curves.max(axis=1) - OVERSTATED
    return out


def right_counts(curves: Floats, tolerance: float, leeway: float = LEEWAY) -> npt.NDArray[np.bool_]:
    """Which counts are right in which curve, shape (samples, counts).

    Args:
        curves: Log throughput, shape (samples, counts).
        tolerance: Throughput one is willing to give up, 0 to 1.
        leeway: Share of the tolerance by which a choice may miss it on either side.
    """
    below = curves - _best(curves)[:, np.newaxis]
    enough = below >= log_share_left((1 - leeway) * tolerance)
    first = np.argmax(enough, axis=1)
    places = np.arange(curves.shape[1])
    right: npt.NDArray[np.bool_] = (below >= log_share_left((1 + leeway) * tolerance)) & (
        places <= first[:, np.newaxis]
    )
    return right


def judge(posterior: Posterior, tolerance: float) -> Judgement:
    """Find the count that is right in most of the curves."""
    curves = posterior.curves
    shares = right_counts(curves, tolerance).mean(axis=0)
    place = int(np.argmax(shares))
    too_small = curves[:, place] - _best(curves) < log_share_left((1 + LEEWAY) * tolerance)
    return Judgement(
        place=place,
        probability=float(shares[place]),
        strict=float(right_counts(curves, tolerance, leeway=0.0)[:, place].mean()),
        too_small=float(too_small.mean()),
        too_large=float(1 - shares[place] - too_small.mean()),
    )


def plan_sweep(
    posterior: Posterior, judgement: Judgement, tolerance: float, size: int, cost_s: Callable[[int, int], float]
) -> list[int]:
    """Choose the trials that narrow down the most, for their time, whether the choice is too small or too large.

    Both are read off the curves as margins: how far the choice is below the best, and how far below the best the
    counts smaller than it are. Greedily the trial is taken that removes most of the variance of the margins for its
    time, as if all were Gaussian, weighted by how likely each error is (Krause and Guestrin, "Near-optimal nonmyopic
    value of information in graphical models", 2005).

    Args:
        posterior: What is known.
        judgement: The candidate to be chosen.
        tolerance: Throughput one is willing to give up, 0 to 1.
        size: Number of trials.
        cost_s: Seconds that a trial at one place adds to a sweep whose largest count is at the other place, or -1.

    Returns:
        Places of the counts, from the largest downwards.
    """
    curves = posterior.curves
    centred = curves - curves.mean(axis=0)
    margins, importance = _margins(curves, judgement, tolerance)
    noise = posterior.noise_sd**2 + 1e-6
    # All trials of a sweep share their drift, so that only their differences count.
    covariance = centred.T @ centred / len(curves) + posterior.drift_sd**2
    cross = margins @ centred / len(curves)
    chosen: list[int] = []
    for _ in range(min(size, curves.shape[1])):
        top = max(chosen, default=-1)
        cost = np.array([cost_s(place, top) for place in range(curves.shape[1])])
        gains = (importance[:, np.newaxis] * cross**2).sum(axis=0) / (np.diag(covariance) + noise) / cost
        # Each count once a sweep: a burst over consecutive trials must not hit the same count twice.
        gains[chosen] = -1.0
        place = int(np.argmax(gains))
        chosen.append(place)
        column = covariance[:, place] / (covariance[place, place] + noise)
        cross = cross - np.outer(cross[:, place], column)
        covariance = covariance - np.outer(covariance[:, place], column)
    return sorted(chosen, reverse=True)


def quickest_order(down: list[int], running: int, costs: Costs) -> list[int]:
    """The counts of a sweep in the order that takes the least time.

    Args:
        down: The counts from the largest downwards.
        running: Instances that run before the sweep.
        costs: What trials cost in time.
    """

    def total_s(order: Sequence[int]) -> float:
        return sum(costs.trial_s(*step) for step in zip((running, *order[:-1]), order, strict=True))

    up = down[::-1]
    # Where both take as long, the next sweep finds the workers that the way up has booted.
    return up if total_s(up) < total_s(down) + SAME_S else down


def _margins(curves: Floats, judgement: Judgement, tolerance: float) -> tuple[Floats, Floats]:
    """Margins of the choice in each curve, centred, shape (1 or 2, samples), and how much each matters."""
    best = _best(curves)
    margins = [curves[:, judgement.place] - best]
    errors = [judgement.too_small]
    if judgement.place:
        margins.append(curves[:, : judgement.place].max(axis=1) - best)
        errors.append(judgement.too_large)
    table = np.array(margins)
    limits = np.array([log_share_left((1 + sign * LEEWAY) * tolerance) for sign in (1, -1)])[: len(margins)]
    # Near its limit a margin matters most; far from it nothing about it has to be known.
    distance = (table.mean(axis=1) - limits) / (table.std(axis=1) + 0.02)
    importance = (np.array(errors) + 0.005) * (np.exp(-0.5 * distance**2) + 0.05)
    return table - table.mean(axis=1, keepdims=True), importance


def _likely(posterior: Posterior, counts: Sequence[int], tolerance: float) -> list[int]:
    """A few counts that between them are right in most curves, ascending."""
    shares = right_counts(posterior.curves, tolerance).mean(axis=0)
    likely = [count for count, share in zip(counts, shares, strict=True) if share > LIKELY_SHARE]
    top = sorted(zip(shares, counts, strict=True), reverse=True)[:2]
    return sorted({*likely, *(count for _, count in top)})


def _sure(probability: float) -> str:
    """A probability in words; that of a thousand samples is never called certain."""
    return f"{probability:.1%}" if probability < HIGHEST_SAID else f"more than {HIGHEST_SAID:.1%}"
