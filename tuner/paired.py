"""Several settings compared within rounds: which has more throughput, by how much, and how sure that is. Pure.

Each two are compared by the logarithm of the ratio of their throughputs *within* each round, so that whatever slows a
whole round down cancels out. Each comparison takes the mean of those ratios without the highest and the lowest fifth,
so that one disturbed trial does not decide. Their spread is pooled over all comparisons. All comparisons hold together
with 95 % confidence: the critical value is that of the largest of them all, found by simulating this very statistic for
as many settings and rounds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

CONFIDENCE = 0.95
# Share left out at either end (Yuen, "The two-sample trimmed t for unequal population variances", Biometrika 1974).
TRIM = 0.2
SIMULATIONS = 20_000
SIMULATION_SEED = 20_260_101
# So many numbers are simulated at once: all of a large run would not fit into memory.
SIMULATED_AT_ONCE = 5_000_000


@dataclass(frozen=True)
class Comparison:
    """How much more throughput one setting has than another, as a log ratio with its half-width."""

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
def critical_value(settings: int, rounds: int) -> float:
    """The value that the largest standardised comparison exceeds in 5 % of runs in which all settings are equal.

    Args:
        settings: Number of settings, 2 or more.
        rounds: Number of rounds, 3 or more.

    Returns:
        Multiplier of the pooled standard error that makes all comparisons hold together.
    """
    random = np.random.default_rng(SIMULATION_SEED)
    left, right = (list(side) for side in zip(*combinations(range(settings), 2), strict=True))
    at_once = max(1, SIMULATED_AT_ONCE // (len(left) * rounds))
    largest: list[Floats] = []
    for begin in range(0, SIMULATIONS, at_once):
        scores = random.standard_normal((min(at_once, SIMULATIONS - begin), settings, rounds))
        means, squares = trimmed(scores[:, right] - scores[:, left])
        largest.append(np.abs(means).max(axis=1) / np.sqrt(squares.mean(axis=1)))
    return float(np.quantile(np.concatenate(largest), CONFIDENCE))


def compare_all(scores: Mapping[int, Sequence[float]]) -> dict[tuple[int, int], Comparison]:
    """Compare each two settings.

    Args:
        scores: Log throughputs by setting, one for each round, in the same rounds for all.

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
