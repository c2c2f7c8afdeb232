"""How many connections a load needs, so that the application and not the load is the limit. Pure.

In a closed loop, too few connections leave workers idle, and too many only make requests wait. The number is doubled
until that wins no more, once for a run, and is then the same for every candidate: otherwise they could not be compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

# Connections go to the workers in turn: with 16 for each CPU, one worker has at most a sixteenth more than another.
FOR_EACH_CPU = 16
FEWEST = 64
# A gain below this is not worth twice the waiting (and below the noise of a short trial).
SMALLEST_GAIN = 0.03
MOST_DOUBLINGS = 4


@dataclass(frozen=True)
class Step:
    """What a load with so many connections gave.

    Attributes:
        connections: How many.
        throughput_rps: Successful responses per second in steady state.
        most: How many the load hosts could open.
        error_rate: Failed requests over all requests, 0 to 1.
        refused: Why the load generator does not believe its own result, or "".
        harm: What it did to others who use the application, or "".
    """

    connections: int
    throughput_rps: float
    most: int
    error_rate: float = 0.0
    refused: str = ""
    harm: str = ""

    @property
    def is_sound(self) -> bool:
        """Whether every request was answered, the generator was not its own limit, and nobody was harmed."""
        return not self.error_rate and not self.refused and not self.harm


@dataclass(frozen=True)
class Choice:
    """The number of connections of a run.

    Attributes:
        connections: How many.
        reason: Why no more, in words.
        steps: What was tried, ascending.
    """

    connections: int
    reason: str
    steps: tuple[Step, ...] = ()


def fewest(cpu_budget: float) -> int:
    """With how many connections to begin.

    Args:
        cpu_budget: CPUs that the application may use.
    """
    return max(FEWEST, math.ceil(FOR_EACH_CPU * cpu_budget))


def choose(measure: Callable[[int], Step], first: int, doublings: int = MOST_DOUBLINGS) -> Choice:
    """Find the number of connections beyond which throughput rises no more.

    Args:
        measure: Loads the application with so many connections.
        first: With how many to begin.
        doublings: How often that is doubled at most.

    Returns:
        The largest number that still won 3 %, and gave no error.
    """
    steps = [measure(first)]
    for _ in range(doublings):
        last = steps[-1]
        if not last.is_sound:
            return Choice(last.connections, f"{_unsound(last)}; no more were tried", tuple(steps))
        if 2 * last.connections > last.most:
            return Choice(last.connections, f"{last.most} are the most that the load hosts can open", tuple(steps))
        steps.append(measure(2 * last.connections))
        if not steps[-1].is_sound:
            return Choice(last.connections, f"with {steps[-1].connections}, {_unsound(steps[-1])}", tuple(steps))
        gain = _gain(last.throughput_rps, steps[-1].throughput_rps)
        if gain < SMALLEST_GAIN:
            return Choice(last.connections, f"{steps[-1].connections} give {gain:+.1%}", tuple(steps))
    return Choice(steps[-1].connections, f"doubled {doublings} times, and no more are tried", tuple(steps))


def _gain(before_rps: float, after_rps: float) -> float:
    return after_rps / before_rps - 1 if before_rps > 0 else 0.0


def _unsound(step: Step) -> str:
    return step.refused or step.harm or f"{step.error_rate:.1%} of the requests failed"
