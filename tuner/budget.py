"""Where the time of a whole run went. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tuner.model import Spent, Trial


@dataclass(frozen=True)
class TimeBudget:
    """The time of a run by what it was spent on, in seconds.

    Attributes:
        measuring_s: Load that counts.
        settling_s: Load that was cut off as warm-up.
        booting_s: Switching to candidates with workers that were not running.
        ansible_s: The rest of the trials: Ansible, switching without a boot, reading the counters.
        connections_s: Choosing the number of connections.
        around_s: What came before and after: looking, checking the paths, rolling out.
    """

    measuring_s: float
    settling_s: float
    booting_s: float
    ansible_s: float
    connections_s: float
    around_s: float

    @property
    def total_s(self) -> float:
        """All of it."""
        in_trials_s = self.measuring_s + self.settling_s + self.booting_s + self.ansible_s
        return in_trials_s + self.connections_s + self.around_s

    @property
    def measuring_share(self) -> float:
        """What part of it was measuring, 0 to 1."""
        return self.measuring_s / self.total_s if self.total_s else 0.0


def add_up(trials: Sequence[Trial], connections_s: float) -> TimeBudget:
    """Add up where the time of the trials went.

    Args:
        trials: All trials of a run, those that do not count too.
        connections_s: What choosing the number of connections took.
    """
    spent = [trial.spent for trial in trials]
    return TimeBudget(
        measuring_s=sum(s.measuring_s for s in spent),
        settling_s=sum(s.settling_s for s in spent),
        booting_s=sum(s.booting_s for s in spent),
        ansible_s=sum(s.rest_s for s in spent),
        connections_s=connections_s,
        around_s=0.0,
    )


def complete(trials: TimeBudget, wall_s: float) -> TimeBudget:
    """Add what came before and after the trials of a run that took so long in all."""
    return replace(trials, around_s=max(0.0, wall_s - trials.total_s))


def extend(first: Spent, second: Spent, measuring_s: float) -> Spent:
    """What a trial took that was extended, of whose load so much was measured in the end."""
    load_s = first.measuring_s + first.settling_s + second.measuring_s + second.settling_s
    return Spent(
        measuring_s=measuring_s,
        settling_s=load_s - measuring_s,
        booting_s=first.booting_s + second.booting_s,
        rest_s=first.rest_s + second.rest_s,
    )
