"""The curve of throughput over instances: the law that it follows a priori, and how it may deviate from it. Pure.

Its logarithm is that of the Universal Scalability Law (Gunther, "Guerrilla Capacity Planning", 2007) up to the CPUs
that can be used, flat or falling beyond them, cut off by a ceiling such as a database's in half of all hosts, plus a
smooth deviation from all that (a Gaussian process over the logarithm of the count).
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from numpy.linalg import eigh

Floats = npt.NDArray[np.float64]

# Priors of the curve: medians and spreads of natural logarithms, wider than the hosts that were seen.
CONTENTION_MEDIAN, CONTENTION_SPREAD = 0.015, 1.6
# Where the law peaks, in CPU budgets.
PEAK_MEDIAN, PEAK_SPREAD = 3.0, 1.1
CEILING_PROBABILITY = 0.5
HIGHEST_CEILING = 1.2
# Ceilings near the budget are commoner than far below it, where the database would be far too small for the host.
CEILING_TILT = 0.6
# How sharply a ceiling cuts: exponent of a p-norm. Seven tenths of the prior are a hard minimum.
SHARPNESS_LOG_HIGHEST, HARD = 3.0, 400.0
HARD_ABOVE = -0.52
# A log throughput beyond all others: no ceiling, or an exponential that is as good as infinite.
FAR = 50.0
FALL_SCALE, FALL_SHIFT, FALL_TAIL = 0.1, 0.3, 0.6
# Where the CPUs are used up, as a log ratio to the budget.
CAP_LOWEST, CAP_HIGHEST = -0.1, 0.35
PARAMETERS = 7
DEVIATION_LENGTH = 0.7  # in log count: what is seen at n says something up to 2 n
DEVIATION_TERMS = 8


def law(parameters: Floats, counts: Floats, budget: float) -> Floats:
    """Log throughput by the law, with cap, fall and ceiling.

    Args:
        parameters: Shape (particles, 7), each standard normal a priori.
        counts: Instance counts, shape (counts,).
        budget: CPU budget.

    Returns:
        Shape (particles, counts), up to a constant.
    """
    contention = np.minimum(0.9, CONTENTION_MEDIAN * np.exp(CONTENTION_SPREAD * parameters[:, :1]))
    peak = PEAK_MEDIAN * budget * np.exp(PEAK_SPREAD * parameters[:, 1:2])
    coherency = (1 - contention) / np.maximum(1.0, peak) ** 2

    def usl(workers: Floats) -> Floats:
        below = 1 + contention * (workers - 1) + coherency * workers * (workers - 1)
        out: Floats = np.log(workers) - np.log(below)
        return out

    # Half of the prior has the cap at the budget; the rest has it elsewhere, mostly above: workers also wait.
    moved = np.maximum(0.0, 2 * _normal_cdf(parameters[:, 5:6]) - 1)
    cap = budget * np.exp(CAP_LOWEST + (CAP_HIGHEST - CAP_LOWEST) * moved)
    cap = np.where(moved > 0, cap, budget)
    curve = usl(np.minimum(counts[np.newaxis, :], cap)) - _fall(parameters[:, 4:5]) * np.log(
        np.maximum(1.0, counts / cap)
    )
    place = _normal_cdf(parameters[:, 2:3]) / CEILING_PROBABILITY
    knee = np.exp(np.minimum(place, 1.0) ** CEILING_TILT * math.log(HIGHEST_CEILING * budget + 1))
    ceiling = usl(np.minimum(cap, knee)) - _fall(parameters[:, 6:7]) * np.log(np.maximum(1.0, counts / knee))
    ceiling = np.where(place < 1.0, ceiling, FAR)
    softness = parameters[:, 3:4] - HARD_ABOVE
    sharpness = np.where(softness > 0, HARD, np.exp(SHARPNESS_LOG_HIGHEST + np.minimum(0.0, softness)))
    above = sharpness * (curve - ceiling)
    soft = curve - np.log1p(np.exp(np.clip(above, -FAR, FAR))) / sharpness
    out: Floats = np.where(above > FAR, ceiling, soft)
    return out


def _fall(parameter: Floats) -> Floats:
    """Slope by which throughput falls beyond a limit, in log-log: none in a third of the prior, steep in its tail."""
    out: Floats = FALL_SCALE * np.maximum(0.0, parameter + FALL_SHIFT) * np.exp(FALL_TAIL * np.maximum(0.0, parameter))
    return out


def _normal_cdf(values: Floats) -> Floats:
    """The normal distribution function by its logistic approximation, to 0.01: a prior needs no more."""
    out: Floats = 1 / (1 + np.exp(-1.702 * values))
    return out


@lru_cache(maxsize=8)
def basis(counts: tuple[int, ...]) -> Floats:
    """Terms of the deviation, shape (counts, 1 + terms); the first is the common height, a constant."""
    x = np.log(np.array(counts, dtype=np.float64))
    distance = math.sqrt(5) * np.abs(x[:, np.newaxis] - x) / DEVIATION_LENGTH
    matern = (1 + distance + distance**2 / 3) * np.exp(-distance)
    values, vectors = eigh(matern)
    kept = slice(max(0, len(counts) - DEVIATION_TERMS), None)
    terms = vectors[:, kept] * np.sqrt(np.maximum(values[kept], 0.0))
    return np.hstack([np.ones((len(counts), 1)), terms])
