"""How likely trials are, given a curve: drift, noise and bursts. Pure.

The logarithm of a trial's throughput is that of the curve, plus a drift over the order of the trials (an
Ornstein-Uhlenbeck process), plus Gaussian noise; in a hidden burst it is lower by an unknown loss. Bursts last for
consecutive trials and sensors see most of them, so a trial beside one that they saw is more likely to have been in one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from numpy.linalg import cholesky, inv

from tuner.curve import Floats, basis, law

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

# Grid of the noise: SD of a trial, of the drift (stationary), and of the deviation from the law, all in log throughput.
NOISES = (0.008, 0.012, 0.018, 0.025, 0.035, 0.05, 0.07, 0.10, 0.15, 0.25, 0.45)
NOISE_MEDIAN, NOISE_SPREAD = 0.03, 0.9
DRIFTS, DRIFT_WEIGHTS = (0.0, 0.012, 0.025, 0.05), (0.5, 0.2, 0.2, 0.1)
DRIFT_RHO = 0.9
DEVIATIONS, DEVIATION_WEIGHTS = (0.005, 0.02, 0.06), (0.55, 0.3, 0.15)
SCALE_SD = 1.5  # the height of the curve as a whole: known to a factor of e^1.5 before the first trial
SESSION_SD = 0.2  # by how much the whole curve may lie higher or lower in another session of the same run

# Bursts: a chain from trial to trial.
BURST_START, BURST_STAYS = 0.02, 0.5
BURST_SEEN = 0.8
BURST_SEEN_WRONGLY = 0.005
# Any loss of a burst, as a log ratio up to this, is as likely as any other.
DEEPEST_BURST = 1.0
LEFT_OUT = 1e4  # variance that takes a trial out of the likelihood


@dataclass(frozen=True)
class Observation:
    """One trial.

    Attributes:
        instances: Its candidate.
        log_throughput: Natural logarithm of its throughput.
        contaminated: Whether sensors say that it was disturbed.
        session: Number of the session in which it was measured; between two sessions the host may have changed.
    """

    instances: int
    log_throughput: float
    contaminated: bool = False
    session: int = 0


@lru_cache(maxsize=1)
def grid() -> tuple[Floats, Floats]:
    """All combinations of noise, drift and deviation, shape (combinations, 3), and their log weights."""
    noise = -0.5 * (np.log(np.array(NOISES) / NOISE_MEDIAN) / NOISE_SPREAD) ** 2
    noise -= np.log(np.exp(noise).sum())
    rows = [
        (s, d, a, ws + math.log(wd) + math.log(wa))
        for s, ws in zip(NOISES, noise, strict=True)
        for d, wd in zip(DRIFTS, DRIFT_WEIGHTS, strict=True)
        for a, wa in zip(DEVIATIONS, DEVIATION_WEIGHTS, strict=True)
    ]
    table = np.array(rows)
    return table[:, :3], table[:, 3]


@dataclass(frozen=True)
class Likelihood:
    """Gaussian likelihoods of several settings, as functions of the law at the distinct counts that were tried.

    Attributes:
        settings: Noise, drift and deviation of each, shape (settings, 3).
        left_out: Which trials each leaves out, shape (settings, trials).
        log_weights: Logarithms of prior weight and normalising constant, shape (settings,).
        precision: Inverse covariance of the trials, shape (settings, trials, trials).
        coefficients: Coefficients of `_features`, shape (features, settings).
        place: Index of each trial's count among the distinct ones, shape (trials,).
    """

    settings: Floats
    left_out: Flags
    log_weights: Floats
    precision: Floats
    coefficients: Floats
    place: Ints

    def __call__(self, mu: Floats) -> Floats:
        """Log likelihoods with prior weights, shape (particles, settings), of laws of shape (particles, distinct)."""
        out: Floats = _features(mu) @ self.coefficients + self.log_weights
        return out


@lru_cache(maxsize=128)
def _triangle(size: int) -> tuple[Ints, Ints]:
    rows, columns = np.triu_indices(size)
    return rows.astype(np.int64), columns.astype(np.int64)


def _features(mu: Floats) -> Floats:
    """1, the values and their products: in these a Gaussian log likelihood is linear."""
    rows, columns = _triangle(mu.shape[1])
    return np.hstack([np.ones((len(mu), 1)), mu, mu[:, rows] * mu[:, columns]])


class Data:
    """The trials of a run as arrays."""

    def __init__(self, counts: tuple[int, ...], budget: float, observations: Sequence[Observation]) -> None:
        self.counts, self.budget = counts, budget
        self.y = np.array([o.log_throughput for o in observations], dtype=np.float64)
        self.seen = np.array([o.contaminated for o in observations], dtype=np.bool_)
        index = {count: place for place, count in enumerate(counts)}
        at = np.array([index[o.instances] for o in observations], dtype=np.int64)
        self.distinct, place = np.unique(at, return_inverse=True)
        self.place: Ints = place.astype(np.int64)
        clean = ~self.seen
        self.y = self.y - (self.y[clean].max() if clean.any() else 0.0)
        self.design = basis(counts)[at]
        self.tried = np.array(counts, dtype=np.float64)[self.distinct]
        order = np.arange(len(self.y))
        self.drift = DRIFT_RHO ** np.abs(order[:, np.newaxis] - order)
        sessions = np.array([o.session for o in observations])
        self.together = sessions[:, np.newaxis] == sessions
        # With one session its height is that of the curve.
        self.heights = SESSION_SD**2 * self.together if not self.together.all() else np.zeros_like(self.drift)

    def law(self, parameters: Floats) -> Floats:
        """The law at the distinct counts that were tried."""
        return law(parameters, self.tried, self.budget)

    def likelihood(self, settings: Floats, log_prior: Floats, left_out: Flags) -> Likelihood:
        """Prepare the likelihood of each setting.

        Args:
            settings: Shape (settings, 3).
            log_prior: Shape (settings,), the weights of settings and bursts together.
            left_out: Shape (settings, trials).
        """
        trials, distinct = len(self.y), len(self.distinct)
        noise, drift, deviation = settings.T[:, :, np.newaxis, np.newaxis]
        smooth = self.design[:, 1:] @ self.design[:, 1:].T
        covariance = SCALE_SD**2 + deviation**2 * smooth + drift**2 * self.drift * self.together + self.heights
        diagonal = np.arange(trials)
        covariance[:, diagonal, diagonal] += noise[:, 0] ** 2 + LEFT_OUT * left_out
        factor = inv(cholesky(covariance))
        log_det = -2 * np.log(factor[:, diagonal, diagonal]).sum(axis=1)
        precision = factor.transpose(0, 2, 1) @ factor
        incidence = np.zeros((trials, distinct))
        incidence[diagonal, self.place] = 1.0
        py = precision @ self.y
        square = incidence.T @ precision @ incidence
        rows, columns = _triangle(distinct)
        products = np.where(rows == columns, -0.5, -1.0) * square[:, rows, columns]
        coefficients = np.hstack([-0.5 * (py @ self.y)[:, np.newaxis], py @ incidence, products]).T
        left = left_out.sum(axis=1)
        constant = -0.5 * log_det - 0.5 * (trials - left) * math.log(2 * math.pi) + 0.5 * left * math.log(LEFT_OUT)
        # A hidden burst explains any loss up to the deepest equally well.
        hidden = (left_out & ~self.seen).sum(axis=1)
        constant -= hidden * math.log(DEEPEST_BURST)
        return Likelihood(settings, left_out, log_prior + constant, precision, coefficients, self.place)


def burst_log_prior(bursts: Flags, seen: Flags) -> float:
    """Log probability of a set of trials in bursts, together with what the sensors saw of them."""
    # The more bursts the sensors have seen, the likelier are those that they have not.
    start = min(0.3, (0.5 + float(seen.sum())) / (0.5 / BURST_START + len(seen)))
    before = np.concatenate([[False], bursts[:-1]])
    inside = np.where(before, BURST_STAYS, start)
    chain = np.where(bursts, np.log(inside), np.log1p(-inside))
    seen_if = np.where(bursts, BURST_SEEN, BURST_SEEN_WRONGLY)
    return float((chain + np.where(seen, np.log(seen_if), np.log1p(-seen_if))).sum())
