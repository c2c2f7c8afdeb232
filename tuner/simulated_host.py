"""Simulated hosts: known true throughputs, measured through known noise, on a simulated clock. Pure.

A trial's steady throughput is the true mean of its count x exp(N(0, cv)) x exp(drift) x (1 - burst_depth in a burst).
The drift is a first-order autoregression over trials. A burst starts with some probability at each trial and lasts for
some trials; in each of these, sensors may show it. Booting is serial, stopping workers is free, and a trial with newly
booted workers is warmed up first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# Measured time of a simulated trial, and the load before it that warm workers get too.
MEASURE_S = 8.0
WARM_S = 2.0
# Beyond the CPUs so many more counts are worth a look.
TOP_PER_CPU = 1.25


@dataclass(frozen=True)
class Noise:
    """What disturbs the trials of a host; the defaults are those of a quiet one.

    Attributes:
        cv: SD of the logarithm of a trial's throughput.
        drift_sd: SD of the innovations of the drift.
        drift_rho: Its autoregression from one trial to the next, 0 to below 1.
        burst_rate: Probability that a burst starts at a trial.
        burst_depth: Share of throughput that is lost in a burst.
        burst_trials: Trials that a burst lasts.
        burst_visible: Probability that sensors show the burst, for each trial in it.
    """

    cv: float = 0.025
    drift_sd: float = 0.0
    drift_rho: float = 0.9
    burst_rate: float = 0.0
    burst_depth: float = 0.3
    burst_trials: int = 2
    burst_visible: float = 0.8


@dataclass(frozen=True)
class HostModel:
    """A simulated host.

    Attributes:
        name: What its result is called.
        cpu_budget: CPUs that the application may use.
        current: Instances that run at first, warm.
        throughput: True steady throughput in requests per second of each count that may be tried.
        noise: What disturbs its trials.
        warmup_s: Load before measuring when workers were booted for the trial.
        boot_s: Boot of one worker; they boot one after the other.
        seed: Seed of its random numbers.
    """

    name: str
    cpu_budget: float
    current: int
    throughput: Mapping[int, float]
    noise: Noise = field(default_factory=Noise)
    warmup_s: float = 10.0
    boot_s: float = 3.0
    seed: int = 0

    @property
    def counts(self) -> tuple[int, ...]:
        """The counts that may be tried, ascending."""
        return tuple(sorted(self.throughput))

    def to_json(self) -> dict[str, Any]:
        """The host as one line of a file of hosts says it."""
        return {**asdict(self), "throughput": {str(count): rate for count, rate in self.throughput.items()}}


@dataclass(frozen=True)
class SimulatedTrial:
    """What one simulated trial showed.

    Attributes:
        instances: Workers that ran.
        throughput_rps: Steady throughput.
        contaminated: Whether sensors showed a disturbance.
        elapsed_s: What the trial took on the simulated clock.
    """

    instances: int
    throughput_rps: float
    contaminated: bool
    elapsed_s: float
    errors: int = 0
    restarts: int = 0
    rss_bytes: int = 0

    @property
    def requests(self) -> int:
        """Requests that were answered while it was measured."""
        return round(self.throughput_rps * MEASURE_S)

    @property
    def disturbances(self) -> tuple[str, ...]:
        """What the sensors would say."""
        return ("a simulated burst",) if self.contaminated else ()


class SimulatedHost:
    """One host during one run.

    Args:
        model: The host.
        run: Number of the run: each has its own random numbers.
    """

    def __init__(self, model: HostModel, run: int = 0) -> None:
        self.model = model
        self.running = model.current
        self.clock_s = 0.0
        self.trials = 0
        self._random = np.random.default_rng([model.seed, run])
        self._burst_left = 0
        # The drift begins as it goes on: with its stationary distribution.
        noise = model.noise
        self._drift = self._random.standard_normal() * noise.drift_sd / math.sqrt(1 - noise.drift_rho**2)

    def trial(self, instances: int) -> SimulatedTrial:
        """Switch to a count and measure it once."""
        noise, began_s = self.model.noise, self.clock_s
        booted = max(0, instances - self.running)
        self.running = instances
        self.trials += 1
        self.clock_s += booted * self.model.boot_s + (self.model.warmup_s if booted else WARM_S) + MEASURE_S
        if self.trials > 1:
            self._drift = noise.drift_rho * self._drift + self._random.standard_normal() * noise.drift_sd
        if self._random.random() < noise.burst_rate:
            self._burst_left = noise.burst_trials
        in_burst, self._burst_left = self._burst_left > 0, max(0, self._burst_left - 1)
        shown = self._random.random() < noise.burst_visible
        log_rate = math.log(self.model.throughput[instances]) + self._drift + noise.cv * self._random.standard_normal()
        rate = math.exp(log_rate) * (1 - noise.burst_depth if in_burst else 1.0)
        return SimulatedTrial(instances, rate, in_burst and shown, self.clock_s - began_s)


def is_right(throughput: Mapping[int, float], instances: int | None, tolerance: float = 0.05) -> bool:
    """Whether a choice is good enough: within the tolerance, give or take two fifths of it, and the smallest so.

    At a tolerance of 5 % its true throughput is 93 % of the best or more, and no smaller count has 97 % or more.

    Args:
        throughput: True throughput of each count.
        instances: The choice; None is none.
        tolerance: Throughput one is willing to give up, 0 to 1.
    """
    if instances is None:
        return False
    best = max(throughput.values())
    enough = (1 - 0.6 * tolerance) * best
    smaller = any(rate >= enough for count, rate in throughput.items() if count < instances)
    return throughput[instances] >= (1 - 1.4 * tolerance) * best and not smaller


def _quiet(random: np.random.Generator) -> Noise:
    return Noise(cv=float(random.uniform(0.02, 0.03)))


def _moderate(_: np.random.Generator) -> Noise:
    return Noise(cv=0.06)


def _bursty(random: np.random.Generator) -> Noise:
    return Noise(
        cv=float(random.uniform(0.02, 0.03)),
        burst_rate=float(random.uniform(0.04, 0.12)),
        burst_depth=float(random.uniform(0.15, 0.5)),
        burst_trials=int(random.integers(1, 4)),
    )


def _drifting(random: np.random.Generator) -> Noise:
    return Noise(cv=float(random.uniform(0.02, 0.03)), drift_sd=float(random.uniform(0.01, 0.02)))


CELLS: Mapping[str, Callable[[np.random.Generator], Noise]] = {
    "quiet": _quiet,
    "moderate": _moderate,
    "bursty": _bursty,
    "drifting": _drifting,
}


def usl(counts: Floats, contention: float, coherency: float) -> Floats:
    """Speed-up by the Universal Scalability Law (Gunther, "Guerrilla Capacity Planning", 2007, equation 4.31).

    Args:
        counts: Workers at work, any shape.
        contention: Share of the work that is serial.
        coherency: Cost of keeping two workers consistent.
    """
    out: Floats = counts / (1 + contention * (counts - 1) + coherency * counts * (counts - 1))
    return out


def _usual(random: np.random.Generator, counts: Floats, cpus: int) -> Floats:
    """The Universal Scalability Law up to the CPUs, for every other host below the ceiling of a database."""
    contention = float(10 ** random.uniform(-3, -1))
    peak = cpus * float(10 ** random.uniform(-0.1, 1.0))
    coherency = (1 - contention) / max(1.5, peak) ** 2
    rates = usl(np.minimum(counts, cpus), contention, coherency)
    # Workers beyond the CPUs win nothing, and cost a little.
    rates = rates * np.maximum(1.0, counts / cpus) ** -float(random.uniform(0.0, 0.2))
    if random.random() < 0.5:  # noqa: PLR2004 every other one
        rates = np.minimum(rates, rates.max() * float(random.uniform(0.25, 0.95)))
    out: Floats = rates
    return out


def _falling(random: np.random.Generator, counts: Floats, cpus: int) -> Floats:
    """The law over all workers, those beyond the CPUs too: they cost, and win nothing."""
    contention, peak = float(10 ** random.uniform(-3, -1)), cpus * float(10 ** random.uniform(-0.2, 0.7))
    coherency = (1 - contention) / max(1.5, peak) ** 2
    out: Floats = np.minimum(counts, cpus) / (1 + contention * (counts - 1) + coherency * counts * (counts - 1))
    return out


def _soft(random: np.random.Generator, counts: Floats, cpus: int) -> Floats:
    """Two limits that are felt long before they are reached, as in a queue."""
    ceiling, sharpness = cpus * float(random.uniform(0.3, 1.5)), float(random.uniform(1.5, 6.0))
    busy = np.minimum(counts, cpus) ** float(random.uniform(0.85, 1.0))
    out: Floats = (busy**-sharpness + ceiling**-sharpness) ** (-1 / sharpness)
    return out


def _thrashing(random: np.random.Generator, counts: Floats, cpus: int) -> Floats:
    """Linear up to somewhere below or at the CPUs, then steeply down: a database on the same host."""
    knee = max(1.0, cpus * float(random.uniform(0.3, 1.0)))
    out: Floats = np.minimum(counts, knee) * np.maximum(1.0, counts / knee) ** -float(random.uniform(0.1, 0.8))
    return out


def _waiting(random: np.random.Generator, counts: Floats, cpus: int) -> Floats:
    """Workers that wait for something else part of the time: more of them than CPUs still win something."""
    busy = float(random.uniform(0.8, 1.0))
    used = np.minimum(counts * busy, cpus) / cpus
    out: Floats = used * (1 - float(random.uniform(0.0, 0.3)) * used) * np.exp(-0.02 * np.maximum(0, counts / cpus - 1))
    return out


SHAPES: Mapping[str, Callable[[np.random.Generator, Floats, int], Floats]] = {
    "usual": _usual,
    "falling": _falling,
    "soft": _soft,
    "thrashing": _thrashing,
    "waiting": _waiting,
}


def random_host(seed: int, cpu_budget: int, cell: str, shape: str = "usual") -> HostModel:
    """Draw a host.

    Args:
        seed: The host is a function of the arguments.
        cpu_budget: CPUs.
        cell: Name of the kind of noise, a key of `CELLS`.
        shape: Name of the kind of curve, a key of `SHAPES`; those but the first are none of the model's own.
    """
    random = np.random.default_rng([seed, cpu_budget, *cell.encode()])
    top = max(cpu_budget + 2, math.ceil(TOP_PER_CPU * cpu_budget))
    counts = np.arange(1, top + 1, dtype=np.float64)
    rates = SHAPES[shape](random, counts, cpu_budget)
    scale = float(random.uniform(150, 500))
    return HostModel(
        name=f"{cell}-{shape}-{cpu_budget}-{seed}",
        cpu_budget=float(cpu_budget),
        current=1,
        throughput={int(count): float(scale * rate) for count, rate in zip(counts, rates, strict=True)},
        noise=CELLS[cell](random),
        warmup_s=10.0,
        boot_s=3.0,
        seed=seed,
    )
