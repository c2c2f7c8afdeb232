"""The use case `compare`: which of several settings gives more throughput, by how much, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from tuner import answers, candidates, paired
from tuner.decide import summarise
from tuner.errors import LimitError, UnresolvedError
from tuner.leaving import (
    Actors,
    bring_back,
    left_as_found,
    require_application,
    require_quiet,
    require_unlocked,
    restore_what_was_left,
)
from tuner.limits import find_unfit
from tuner.live import Live
from tuner.measuring import VARIABLE, Measuring
from tuner.model import CandidateSummary, Inspection, Load, Trial
from tuner.settings import Variant
from tuner.wording import signed

# How often each setting is measured; even, so that each begins as many rounds as it ends.
ROUNDS: Mapping[str, int] = {"quick": 4, "standard": 8, "thorough": 16}
FEWEST_ROUNDS = 3
# Below this, as a share of throughput, a difference is none; where more is possible, too little is known to say so.
NO_DIFFERENCE = 0.05
MOST_ATTEMPTS = 3
# Tells trial.yml to apply more than a number of instances.
SETTINGS_TOO: Mapping[str, object] = {"trial_tasks": "try"}


@dataclass(frozen=True)
class CompareRequest:
    """What the user asked for.

    Attributes:
        host: Host of the inventory.
        load: The load that each setting gets.
        variants: The settings, at least two.
        rounds: How often each is measured.
        budget_s: The longest that the trials may take, in seconds; None is no limit.
        keep_disturbed: Whether a disturbed trial counts like any other.
        live: Whether the application may be used by others meanwhile.
    """

    host: str
    load: Load
    variants: tuple[Variant, ...]
    rounds: int
    budget_s: float | None
    keep_disturbed: bool
    live: bool


@dataclass(frozen=True)
class Difference:
    """How two settings compare.

    Attributes:
        first: Name of the one.
        second: Name of the other.
        ratio: Throughput of the second over the first, less 1.
        interval: Its interval, which holds together with those of all other pairs at 95 %.
        winner: Name of the better one, or "" where the interval contains no difference.
    """

    first: str
    second: str
    ratio: float
    interval: tuple[float, float]
    winner: str


@dataclass(frozen=True)
class Comparison:
    """What came of a comparison.

    Attributes:
        inspection: The host and the application as they were found.
        settings: One summary for each setting, by name.
        differences: One for each two settings; none with fewer than three whole rounds.
        rounds: Whole rounds that were measured.
        sentence: The answer for a person.
        directory: Where the records are.
    """

    inspection: Inspection
    settings: Mapping[str, CandidateSummary]
    differences: tuple[Difference, ...]
    rounds: int
    sentence: str
    directory: str


def compare(request: CompareRequest, actors: Actors) -> Comparison:
    """Measure settings in turns and compare them; the host runs afterwards what it ran before.

    Raises:
        InputError: Something is wrong with what was asked, or somebody else measures this host; nothing was touched.
        HostError: The host or Ansible failed; the host runs what it ran.
        InterruptedByUserError: The user stopped the run; the host runs what it ran.
        RestoreError: The host could not be brought back to what it ran.
    """
    with actors.journal.lock():
        actors.progress.step(f"Looking at {request.host}")
        restore_what_was_left(actors)
        inspection = actors.target.inspect()
        require_unlocked(inspection)
        require_application(inspection)
        _check_counts(request.variants, inspection)
        require_quiet(inspection, live=request.live)
        answers.check_answers(actors.target.check(request.load))
        actors.interruption.check()
        actors.journal.open_run({"request": asdict(request), "inspection": asdict(inspection)})
        found = _measure_and_restore(request, inspection, actors)
        actors.journal.close_run(to_summary(found))
        return found


def _check_counts(variants: Sequence[Variant], inspection: Inspection) -> None:
    bounds = candidates.find_bounds(inspection.capacity, inspection.deployment)
    for variant in variants:
        if VARIABLE in variant.variables:
            candidates.check_within(bounds, int(str(variant.variables[VARIABLE])))


def _measure_and_restore(request: CompareRequest, inspection: Inspection, actors: Actors) -> Comparison:
    running = inspection.deployment.instances
    # All settings get the same warm-up, also where nothing had to be started for a trial.
    load = replace(request.load, warmup_warm_s=request.load.warmup_cold_s)
    measured = Measuring(
        actors.target,
        actors.journal,
        actors.interruption,
        actors.progress,
        load,
        inspection.capacity.cpu_budget,
        running,
        request.budget_s,
        live=Live(sum(inspection.deployment.connections.values())) if request.live else None,
    )
    with left_as_found(inspection, "compare", actors):
        measured.choose_connections([running])
        places = _measure(request, running, measured)
        bring_back(running, actors)
    return evaluate(request, inspection, measured.trials, places, str(actors.journal.directory))


def _measure(request: CompareRequest, running: int, measured: Measuring) -> list[int]:
    """Measure each setting once a round, in turning order; returns the setting of each trial, as its place."""
    order = range(len(request.variants))
    rounds = range(1, request.rounds + 1)
    plan = [(number, place) for number in rounds for place in (order if number % 2 else order[::-1])]
    of_trial: list[int] = []
    for done, (number, place) in enumerate(plan):
        variant = request.variants[place]
        candidate = {VARIABLE: running, **SETTINGS_TOO, **variant.variables}
        instances = int(str(candidate[VARIABLE]))
        for _ in range(MOST_ATTEMPTS):
            if measured.is_over(instances):
                return of_trial
            trial = measured.measure(
                candidate, instances, round_number=number, left=len(plan) - done, phase="compare", what=variant.name
            )
            of_trial.append(place)
            if not trial.disturbances or request.keep_disturbed:
                break
    return of_trial


def evaluate(
    request: CompareRequest,
    inspection: Inspection,
    trials: Sequence[Trial],
    places: Sequence[int],
    directory: str,
) -> Comparison:
    """Compare the settings by their trials. Pure.

    Args:
        request: What was asked for.
        inspection: The host.
        trials: All trials in their order.
        places: For each trial the place of its setting among the variants.
        directory: Where the records are.
    """
    names = [variant.name for variant in request.variants]
    groups = {
        name: [trial for trial, place in zip(trials, places, strict=True) if place == number]
        for number, name in enumerate(names)
    }
    memory = inspection.capacity.memory_bytes
    unfit = {name: find_unfit(group, memory) for name, group in groups.items() if group}
    reference = next((group for group in groups.values() if group), [])
    settings = {
        name: summarise(group, reference, unfit=unfit[name], keep_disturbed=request.keep_disturbed)
        for name, group in groups.items()
        if group
    }
    # A disturbed trial that was repeated does not count, whatever its result.
    scores = [{trial.round: trial.throughput_rps for trial in group} for group in groups.values()]
    rounds = sorted(set.intersection(*(set(of_round) for of_round in scores)))
    whole = [number for number in rounds if all(of_round[number] > 0 for of_round in scores)]
    differences: tuple[Difference, ...] = ()
    if len(whole) >= FEWEST_ROUNDS:
        logs = {place: [math.log(of_round[number]) for number in whole] for place, of_round in enumerate(scores)}
        differences = tuple(
            _difference(names[one], names[two], found)
            for (one, two), found in paired.compare_all(logs).items()
            if one < two
        )
    return Comparison(
        inspection, settings, differences, len(whole), _say(differences, len(whole), len(names)), directory
    )


def _difference(first: str, second: str, found: paired.Comparison) -> Difference:
    low, high = found.mean - found.half_width, found.mean + found.half_width
    winner = second if low > 0 else first if high < 0 else ""
    return Difference(first, second, math.expm1(found.mean), (math.expm1(low), math.expm1(high)), winner)


def _say(differences: Sequence[Difference], rounds: int, settings: int) -> str:
    if not differences:
        return f"Unresolved: {rounds} whole rounds tell nothing of how much the measurements vary."
    together = "" if settings == 2 else " over all comparisons"  # noqa: PLR2004 one pair
    sentences = []
    for found in differences:
        low, high = (signed(math.log1p(end)) for end in found.interval)
        interval = f"{signed(math.log1p(found.ratio))} [{low}, {high}] at 95%{together}"
        if found.winner:
            loser = found.second if found.winner == found.first else found.first
            sentences.append(f"{found.winner} wins over {loser}: {found.second} {interval}")
        elif max(abs(end) for end in found.interval) <= NO_DIFFERENCE:
            sentences.append(f"no difference between {found.first} and {found.second}: {interval}")
        else:
            sentences.append(f"{found.first} and {found.second} cannot be told apart: {interval}")
    return f"{'; '.join(sentences)}; {rounds} rounds."


def to_summary(found: Comparison) -> dict[str, Any]:
    """A comparison as JSON."""
    return asdict(found)


def raise_for_outcome(found: Comparison) -> None:
    """End with the exit code of the outcome.

    Raises:
        UnresolvedError: When too little was measured to compare.
        LimitError: When no setting kept the limits.
    """
    if not found.differences:
        raise UnresolvedError("unresolved", remedy=f"measure {FEWEST_ROUNDS} rounds or more, or give it more time")
    if all(summary.unfit for summary in found.settings.values()):
        raise LimitError("no setting kept the limits", remedy="look at the table above")
