"""Trials on a host, one after the other: each on disk, told to who watches, within the time that there is."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from tuner import concurrency
from tuner.concurrency import Choice, Step
from tuner.errors import HostError
from tuner.interruption import Interruption
from tuner.journal import Journal
from tuner.live import FEWEST, MOST_DOUBLINGS, Live
from tuner.model import Inspection, Load, Plan, Report, Trial
from tuner.procedure import Procedure
from tuner.search import Costs
from tuner.target import Target
from tuner.trials import CHOOSING, EXTENDED, Setting, extend, to_trial
from tuner.wording import duration
from tuner.wording import instances as in_words

VARIABLE = "strapi_instances"
# What a trial costs beside its load, until the first ones have shown it: Ansible, and the boot of one worker.
TRIAL_OVERHEAD_S = 4.0
BOOT_S = 4.0
# Measured time of each load while the number of connections is chosen.
PROBE_S = 4.0


class Progress(Protocol):
    """Who is told how a run goes on."""

    def step(self, what: str) -> None:
        """Something that takes seconds begins."""

    def planned(self, inspection: Inspection, plan: Plan, trials: int, estimate_s: float) -> None:
        """The plan is made, and will take about so many trials and so long."""

    def note(self, message: str) -> None:
        """Something that was found out."""

    def warn(self, message: str) -> None:
        """Something the user should know."""

    def trial_begins(self, number: int, total: int, what: str, left_s: float) -> None:
        """A trial begins, of about so many, and the whole run will take about this much longer."""

    def trial_ended(self, trial: Trial, what: str) -> None:
        """A trial has ended."""


@dataclass
class Measuring:
    """The trials of one run.

    Attributes:
        target: The host.
        journal: Where each trial is written as it ends.
        interruption: Says whether the user asked to stop.
        progress: Who is told.
        load: The load of each trial.
        cpu_budget: CPUs that the application may use.
        running: Instances that run now.
        budget_s: The longest that all trials may take together, in seconds; None is no limit.
        trials: Those measured so far, in their order.
        at_rate: Numbers of those at a stated rate.
        loads: What http_load reported of the last one, in each of its parts.
        choice: How the number of connections was chosen; None where the user has said it.
        choosing_s: What that took.
        began_s: When the first one began.
        live: What the load must not do to others who use the application; None where nobody does.
    """

    target: Target
    journal: Journal
    interruption: Interruption
    progress: Progress
    load: Load
    cpu_budget: float
    running: int
    budget_s: float | None = None
    trials: list[Trial] = field(default_factory=list)
    at_rate: set[int] = field(default_factory=set)
    loads: list[Report] = field(default_factory=list)
    choice: Choice | None = None
    choosing_s: float = 0.0
    live: Live | None = None
    began_s: float = field(init=False)

    def __post_init__(self) -> None:
        """Begin to count the time."""
        self.began_s = time.monotonic()

    def run(self, procedure: Procedure) -> None:
        """Measure what the procedure asks for, to its end or to the end of the time."""
        while (instances := procedure.next()) is not None:
            procedure.search.costs = self.costs()
            if self.is_over(instances):
                procedure.stop(f"the time of {duration(self.budget_s or 0)} is over")
                return
            left = procedure.trials_left()
            trial = self.measure(
                {VARIABLE: instances}, instances, round_number=procedure.round, left=left, phase=procedure.phase
            )
            procedure.note(trial)

    def choose_connections(self, candidates: Sequence[int]) -> None:
        """Choose how many connections all trials get, on the candidate that has a worker for each CPU, if there is one.

        Args:
            candidates: Instance counts, ascending.
        """
        if self.load.connections:
            return
        began = time.monotonic()
        instances = max((count for count in candidates if count <= self.cpu_budget), default=candidates[0])
        probe = partial(self._probe, instances)
        if self.live:
            self.choice = concurrency.choose(probe, FEWEST, MOST_DOUBLINGS)
        else:
            self.choice = concurrency.choose(probe, concurrency.fewest(self.cpu_budget))
        self.load = replace(self.load, connections=self.choice.connections)
        self.choosing_s = time.monotonic() - began
        self.progress.note(f"Every trial gets {self.choice.connections} connections: {self.choice.reason}.")

    def _probe(self, instances: int, connections: int) -> Step:
        """Load one candidate with so many connections, and have it on disk."""
        self.interruption.check()
        self.progress.step(f"Choosing how many connections it takes: {connections}")
        began = time.monotonic()
        load = replace(self.load, connections=connections, duration_s=PROBE_S)
        with self.journal.step(f"load with {connections} connections on {in_words(instances)}"):
            raw = self.target.trial({VARIABLE: instances}, load)
        setting = Setting(0, 0, instances, 1, self.cpu_budget)
        trial = to_trial(raw, setting, [], wall_s=time.monotonic() - began)
        self.journal.append(trial, raw, CHOOSING)
        self.running = instances
        generator = raw["load"]["generator"]
        return Step(
            connections,
            trial.throughput_rps,
            most=generator["most_connections"],
            error_rate=trial.error_rate,
            refused=generator["refused_reason"],
            harm=self.live.find_harm(raw) if self.live else "",
        )

    def measure(  # noqa: PLR0913 each is a fact of the trial
        self,
        candidate: Mapping[str, object],
        instances: int,
        *,
        round_number: int,
        left: int,
        phase: str,
        what: str = "",
        load: Load | None = None,
    ) -> Trial:
        """Measure one candidate once, and have it on disk.

        Args:
            candidate: Role variables.
            instances: Workers that it has.
            round_number: See tuner.model.Trial.
            left: About how many trials are left, this one included.
            phase: What it is for.
            what: The candidate in words; the number of instances if empty.
            load: Another load than that of the run.
        """
        self.interruption.check()
        number = len(self.trials) + 1
        shown = what or in_words(instances)
        left_s = self._trial_s(instances) + (left - 1) * self._mean_s()
        self.progress.trial_begins(number, number + left - 1, shown, left_s)
        setting = Setting(number, round_number, instances, self._attempt(instances, round_number), self.cpu_budget)
        load = load or self.load
        self.loads = []
        if load.rate_rps:
            self.at_rate.add(number)
        trial, report = self._try(candidate, setting, load, phase)
        # What was disturbed is repeated in any case; and what was broken off for its failures has said enough.
        broken_off = report["load"]["duration_s"] < load.duration_s
        if not trial.settled and not trial.disturbances and not broken_off:
            # Once, whatever comes of it: the workers are warm by now, and a longer series tells more.
            trial, _ = self._try(candidate, setting, load, phase + EXTENDED, (trial, report))
        self.trials.append(trial)
        self.progress.trial_ended(trial, shown)
        return trial

    def _try(
        self,
        candidate: Mapping[str, object],
        setting: Setting,
        load: Load,
        phase: str,
        first: tuple[Trial, Report] | None = None,
    ) -> tuple[Trial, Report]:
        """Measure a candidate, or what came first on, and have it on disk."""
        began = time.monotonic()
        with self.journal.step(f"trial {setting.number} with {in_words(setting.instances)}"):
            raw = self.target.trial(candidate, load)
        earlier = [trial.usage for trial in self.trials]
        trial = to_trial(raw, setting, earlier, wall_s=time.monotonic() - began)
        if first:
            trial = extend(*first, trial, raw)
        self.journal.append(trial, raw, phase)
        if self.live and (harm := self.live.find_harm(raw)):
            raise HostError(f"the load harmed those who use the application: {harm}", remedy="measure at another time")
        self.loads.append(raw["load"])
        self.running = setting.instances
        return trial, raw

    def trials_at_full_load(self) -> list[Trial]:
        """The trials of which the connections set the pace, and not a rate: their throughput is what there can be."""
        return [trial for trial in self.trials if trial.number not in self.at_rate]

    def is_over(self, instances: int) -> bool:
        """Whether the next trial would not end within the time."""
        if self.budget_s is None:
            return False
        return time.monotonic() - self.began_s + self._trial_s(instances) > self.budget_s

    def costs(self) -> Costs:
        """What trials cost, from those measured so far."""
        return costs_of(self.load, self._overhead_s())

    def _attempt(self, instances: int, round_number: int) -> int:
        last = self.trials[-1] if self.trials else None
        if last and last.disturbances and (last.instances, last.round) == (instances, round_number):
            return last.attempt + 1
        return 1

    def _overhead_s(self) -> float:
        """What a trial took beside its load, warm-up and boots, in the mean."""
        seen = [t.wall_s - costs_of(self.load, 0).trial_s(t.instances - t.booted, t.instances) for t in self.trials]
        return max(0.0, sum(seen) / len(seen)) if seen else TRIAL_OVERHEAD_S

    def _trial_s(self, instances: int) -> float:
        return self.costs().trial_s(self.running, instances)

    def _mean_s(self) -> float:
        """What a trial takes in the mean; before the first ones, that of one that boots nothing."""
        if not self.trials:
            return self.costs().trial_s(1, 1)
        return sum(trial.wall_s for trial in self.trials) / len(self.trials)


def costs_of(load: Load, overhead_s: float) -> Costs:
    """What a trial with this load costs, in seconds."""
    return Costs(
        boot_s=BOOT_S, cold_s=load.warmup_cold_s, warm_s=load.warmup_warm_s, measure_s=load.duration_s + overhead_s
    )


def estimate_s(trials: int, candidates: tuple[int, ...], load: Load, running: int) -> float:
    """About how long a run of so many trials will take, in seconds, before anything was measured.

    The largest candidate is booted once on the way up, and every other trial boots or warms up something.
    """
    costs = costs_of(load, TRIAL_OVERHEAD_S)
    boots = max(0, max(candidates) - running) * costs.boot_s
    return boots + trials * (costs.measure_s + (costs.cold_s + costs.warm_s) / 2)
