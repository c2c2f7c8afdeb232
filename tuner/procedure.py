"""The course of a run: search, proof of the limits, confirmation. Pure; the same for real and simulated hosts.

The search (`tuner.search`) says which count is right. Before it is chosen, its error rate must be known to be within
the limit, for which it is measured again if too few requests were seen. Where it differs from what the host runs now,
both are then measured in turns, next to each other in time, unless their difference is beyond doubt already: the
incumbent is kept where the chosen count is not better, or varies far more than the trials do otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from tuner import limits
from tuner.limits import Measured
from tuner.model import Verdict
from tuner.search import LEEWAY, Search, SearchDecision, log_share_left
from tuner.wording import instances as in_words
from tuner.wording import signed

# With more disturbed trials than these, also when repeated, what was measured is the disturbance.
MOST_DISTURBED_SHARE = 1 / 3
# How often the choice is measured beyond the search, to know its error rate.
MOST_PROOFS = 8
# Pairs of neighbouring trials, those of the search included, that the incumbent and the choice are compared by.
PAIRS = 3
MOST_REPEATS = 2
# The choice is unstable when its trials vary by more than this times what trials vary otherwise, or than this at least.
UNSTABLE_RATIO, SMALLEST_NOISE = 2.5, 0.02
FEWEST_TO_BE_UNSTABLE = 4
# Of a normal distribution, the SD over the median absolute deviation.
SD_OVER_MAD = 1.4826


@dataclass(frozen=True)
class _Noted:
    """A trial, with the round in which it was measured."""

    round: int
    trial: Measured
    disturbed: bool


class Procedure:
    """One run, told trial by trial.

    Args:
        search: The search, over all candidates.
        candidates: What may be chosen.
        incumbent: What the host runs; need not be a candidate.
        tolerance: Throughput one is willing to give up for fewer instances, 0 to 1.
        memory_bytes: Memory that the application may use in all.
        keep_disturbed: Whether disturbed trials are as good as others.

    Attributes:
        phase: What the next trial is for: `search`, `limits` or `confirm`.
        keep_disturbed: As given.
        round: Trials of the same round are near each other in time, each count once.
    """

    def __init__(  # noqa: PLR0913 each is a choice of the user or a fact of the host
        self,
        search: Search,
        candidates: Sequence[int],
        incumbent: int,
        *,
        tolerance: float,
        memory_bytes: int,
        keep_disturbed: bool = False,
    ) -> None:
        self.search = search
        self.phase = "search"
        self.round = 1
        self.unfit: dict[int, str] = {}
        self._candidates, self._incumbent, self._tolerance = tuple(candidates), incumbent, tolerance
        self._memory_bytes = memory_bytes
        self.keep_disturbed = keep_disturbed
        self._noted: list[_Noted] = []
        self._pair: list[int] = []
        self._pair_of: int | None = None
        self._repeats = self._proofs = self._last_sweep = 0
        self._stopped = ""

    def next(self) -> int | None:
        """Say which count to measure next; None when the run is over."""
        while not self._stopped:
            instances = self.search.next()
            if instances is not None:
                self.phase = "search"
                if self.search.sweep != self._last_sweep:
                    self._last_sweep = self.search.sweep
                    self.round += bool(self._noted)
                return instances
            choice = self.search.decision().instances
            if choice is None:
                return None
            if self._unproven(choice):
                if self._proofs < MOST_PROOFS:
                    self.phase = "limits"
                    return choice
                if not any(noted.trial.errors for noted in self._of(choice)):
                    return None
                self._exclude(choice, self._unproven(choice))
                continue
            return self._next_to_confirm(choice)
        return None

    def note(self, trial: Measured) -> None:
        """Note what a trial measured; normally the one that `next` asked for."""
        disturbed = bool(trial.disturbances) and not self.keep_disturbed
        if self.phase == "limits":
            self._proofs += 1
            self.round += 1
        self._noted.append(_Noted(self.round, trial, disturbed))
        if self.phase == "confirm" and self._pair and trial.instances == self._pair[0]:
            if disturbed and self._repeats < MOST_REPEATS:
                self._repeats += 1
            else:
                self._repeats = 0
                self._pair.pop(0)
        if trial.instances not in self._candidates:
            return
        mine = [noted.trial for noted in self._of(trial.instances)]
        undisturbed = any(not measured.disturbances for measured in mine)
        reason = limits.find_unfit(mine, self._memory_bytes)
        # What was disturbed each time so far may still turn out to be well.
        if reason and (undisturbed or trial.restarts or len(mine) > MOST_REPEATS):
            self._exclude(trial.instances, reason)
        if trial.throughput_rps > 0:
            self.search.tell(trial.instances, math.log(trial.throughput_rps), contaminated=disturbed)

    def resume(self) -> None:
        """Begin another session, some time after the trials so far."""
        self.search.resume()
        self._pair.clear()
        self._proofs, self._stopped = 0, ""

    def stop(self, reason: str) -> None:
        """End the run for a reason that lies outside it."""
        self._stopped = reason
        self.search.stop(reason)

    def trials_left(self) -> int:
        """About how many more trials it will take."""
        return max(self.search.trials_left(), len(self._pair), 1)

    def decision(self) -> SearchDecision:
        """Decide from all trials so far; may be called at any time."""
        found = self.search.decision()
        if not self.keep_disturbed and (share := self._disturbed_share()) > MOST_DISTURBED_SHARE:
            sentence = f"Unresolved: {share:.0%} of the trials were disturbed by something else, also when repeated."
            remedy = "measure when the host is quieter, or count them too (--keep-disturbed)"
            return replace(found, verdict=Verdict.UNRESOLVED, instances=None, sentence=sentence, remedy=remedy)
        choice = found.instances
        if choice is None:
            return found
        if unproven := self._unproven(choice):
            sentence = f"Unresolved: {in_words(choice)} would be right, but {unproven}."
            remedy = f"measure about {limits.requests_needed():,} requests of each candidate (--duration)"
            return replace(found, verdict=Verdict.UNRESOLVED, instances=None, sentence=sentence, remedy=remedy)
        return self._confirmed(found, choice)

    def _of(self, instances: int) -> list[_Noted]:
        return [noted for noted in self._noted if noted.trial.instances == instances]

    def _exclude(self, instances: int, reason: str) -> None:
        self.unfit[instances] = reason
        self.search.exclude(instances, reason)
        self._proofs = 0
        self._pair.clear()

    def _unproven(self, choice: int) -> str:
        return limits.find_unproven([noted.trial for noted in self._of(choice)])

    def _disturbed_share(self) -> float:
        """Share of the trials that stayed disturbed when they were repeated, 0 to 1."""
        last = list({(noted.round, noted.trial.instances): noted.disturbed for noted in self._noted}.values())
        return sum(last) / len(last) if last else 0.0

    def _next_to_confirm(self, choice: int) -> int | None:
        """The next trial of an alternation; whichever runs already is the first of each pair."""
        if self._pair_of != choice:
            self._pair, self._pair_of = [], choice
        if not self._pair and self._needs_pairs(choice):
            running = self._noted[-1].trial.instances
            self._pair = [choice, self._incumbent] if running == choice else [self._incumbent, choice]
            self.round += 1
        self.phase = "confirm"
        return self._pair[0] if self._pair else None

    def _needs_pairs(self, choice: int) -> bool:
        if choice == self._incumbent or not self._incumbent or self._incumbent in self.unfit:
            return False
        if (gain := self.search.gain(choice, self._incumbent)) and gain.lowest > -log_share_left(self._tolerance):
            return False
        begun = len({noted.round for noted in self._of(choice)} & {noted.round for noted in self._of(self._incumbent)})
        # Pairs that stay disturbed are not made up for without end.
        return len(self._ratios(choice)) < PAIRS and begun < PAIRS + MOST_REPEATS

    def _ratios(self, choice: int) -> list[float]:
        """Log ratios of the choice over the incumbent, of each round in which both were measured undisturbed."""
        mine, others = self._by_round(choice), self._by_round(self._incumbent)
        return [mine[number] - others[number] for number in mine.keys() & others.keys()]

    def _by_round(self, instances: int) -> dict[int, float]:
        return {
            noted.round: math.log(noted.trial.throughput_rps)
            for noted in self._of(instances)
            if not noted.disturbed and noted.trial.throughput_rps > 0
        }

    def _confirmed(self, found: SearchDecision, choice: int) -> SearchDecision:
        """The decision, if the alternation of incumbent and choice bears it out."""
        if self._needs_pairs(choice):
            sentence = (
                f"Unresolved: {in_words(choice)} would be right, but could not be compared in turns with "
                f"{self._incumbent}, which run now."
            )
            return self._kept(found, sentence, "measure longer, or when the host is quieter")
        if choice == self._incumbent:
            return found
        ratios = self._ratios(choice)
        # More instances must give more, fewer may give less by no more than a right choice may.
        least = 0.0 if choice > self._incumbent else log_share_left((1 + LEEWAY) * self._tolerance)
        if len(ratios) >= PAIRS and median(ratios) <= least:
            sentence = (
                f"Unresolved: {in_words(choice)} seemed right, but the throughput beside that of {self._incumbent}, "
                f"which run now, was {signed(median(ratios))}: {self._incumbent} will stay."
            )
            return self._kept(found, sentence, "measure again")
        mine, others = self._spreads(choice)
        if mine > UNSTABLE_RATIO * max(others, SMALLEST_NOISE):
            sentence = (
                f"Unresolved: {in_words(choice)} seemed right, but the throughput varies by {mine:.1%} from trial to "
                f"trial, where {others:.1%} is usual here: {self._incumbent} will stay."
            )
            return self._kept(found, sentence, "find what disturbs that many, or measure again")
        return found

    def _spreads(self, choice: int) -> tuple[float, float]:
        """SD of log throughput of the choice, and of the others, robustly: one hidden disturbance is no instability."""
        mine: list[float] = []
        others: list[float] = []
        for instances in {noted.trial.instances for noted in self._noted}:
            scores = list(self._by_round(instances).values())
            if len(scores) > 1:
                distances = [abs(score - median(scores)) for score in scores]
                (mine if instances == choice else others).extend(distances)
        if min(len(mine), len(others)) < FEWEST_TO_BE_UNSTABLE:
            return 0.0, 0.0
        return SD_OVER_MAD * median(mine), SD_OVER_MAD * median(others)

    @staticmethod
    def _kept(found: SearchDecision, sentence: str, remedy: str) -> SearchDecision:
        return replace(found, verdict=Verdict.UNRESOLVED, instances=None, sentence=sentence, remedy=remedy)
