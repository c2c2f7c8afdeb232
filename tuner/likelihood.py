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
from numpy.linalg import cholesky, eigh, inv, solve

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
LEFT_OUT = 1e4  # variance of a trial that says nothing, where it must be there


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
        coefficients: Coefficients of `_features`, shape (features, settings); prior weight and normalising constant
            are in that of the first feature.
    """

    settings: Floats
    left_out: Flags
    coefficients: Floats

    def __call__(self, mu: Floats) -> Floats:
        """Log likelihoods with prior weights, shape (particles, settings), of laws of shape (particles, distinct)."""
        out: Floats = _features(mu).T @ self.coefficients
        return out


def _features(mu: Floats) -> Floats:
    """1, the values and their products, shape (features, particles): in these a Gaussian log likelihood is linear."""
    particles, distinct = mu.shape
    values = np.ascontiguousarray(mu.T)
    out = np.empty((1 + distinct + distinct * (distinct + 1) // 2, particles))
    out[0] = 1.0
    end = 1 + distinct
    out[1:end] = values
    # A product of rows at a time is several times as quick as one over all pairs of indices.
    for first in range(distinct):
        begin, end = end, end + distinct - first
        np.multiply(values[first:], values[first], out=out[begin:end])
    return out


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
        sessions, session = np.unique([o.session for o in observations], return_inverse=True)
        together = session[:, np.newaxis] == session
        self.drift = DRIFT_RHO ** np.abs(order[:, np.newaxis] - order) * together
        # What all trials of a session have in common; with one session its height is that of the curve.
        self.heights = np.eye(len(sessions))[session] if len(sessions) > 1 else np.zeros((len(order), 0))

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
        distinct = len(self.distinct)
        coefficients = np.empty((1 + distinct + distinct * (distinct + 1) // 2, len(settings)))
        rows, columns = np.triu_indices(distinct)
        sets, which = np.unique(left_out, axis=0, return_inverse=True)
        for number, bursts in enumerate(sets):
            mine = np.flatnonzero(which.reshape(-1) == number)
            precision, log_det = self._collapsed(settings[mine], ~bursts)
            constant = -0.5 * log_det - 0.5 * (~bursts).sum() * math.log(2 * math.pi)
            # A hidden burst explains any loss up to the deepest equally well.
            constant -= (bursts & ~self.seen).sum() * math.log(DEEPEST_BURST)
            coefficients[0, mine] = log_prior[mine] + constant - 0.5 * precision[:, 0, 0]
            coefficients[1 : 1 + distinct, mine] = precision[:, 0, 1:].T
            products = np.where(rows == columns, -0.5, -1.0) * precision[:, 1 + rows, 1 + columns]
            coefficients[1 + distinct :, mine] = products.T
        return Likelihood(settings, left_out, coefficients)

    def _collapsed(self, settings: Floats, kept: Flags) -> tuple[Floats, Floats]:
        """The precision of the kept trials as a quadratic form of what they measured and of the law.

        Noise and drift of all settings have the eigenvectors of the drift in common, and curve, deviation and heights
        are of low rank (Rasmussen and Williams, "Gaussian Processes for Machine Learning", 2006, appendix A.3), so that
        no matrix of the trials is inverted for each setting.

        Returns:
            Precision, shape (settings, 1 + distinct, 1 + distinct), and the log determinant of the covariance of the
            kept trials, shape (settings,).
        """
        noise, drift, deviation = settings.T
        distinct = len(self.distinct)
        values, vectors = eigh(self.drift[np.ix_(kept, kept)])
        incidence = np.zeros((len(self.y), distinct))
        incidence[np.arange(len(self.y)), self.place] = 1.0
        rotated = vectors.T @ np.hstack([self.y[:, np.newaxis], incidence, self.heights])[kept]
        size = rotated.shape[1]
        weights = 1 / (noise[:, np.newaxis] ** 2 + drift[:, np.newaxis] ** 2 * np.maximum(values, 0.0))
        products = (rotated[:, :, np.newaxis] * rotated[:, np.newaxis, :]).reshape(len(rotated), size * size)
        gram = (weights @ products).reshape(len(settings), size, size)
        # Columns: the common height, the terms of the deviation, the heights of the sessions.
        terms = basis(self.counts)[self.distinct]
        spread = np.repeat(deviation[:, np.newaxis], terms.shape[1] + self.heights.shape[1], axis=1)
        spread[:, 0], spread[:, terms.shape[1] :] = SCALE_SD, SESSION_SD
        latent = np.zeros((distinct + self.heights.shape[1], spread.shape[1]))
        latent[:distinct, : terms.shape[1]] = terms
        latent[distinct:, terms.shape[1] :] = np.eye(self.heights.shape[1])
        loaded = (latent.T @ gram[:, 1:, :]) * spread[:, :, np.newaxis]
        inner = (loaded[:, :, 1:] @ latent) * spread[:, np.newaxis, :] + np.eye(spread.shape[1])
        factor = cholesky(inner)
        half = solve(factor, loaded[:, :, : 1 + distinct])
        precision = gram[:, : 1 + distinct, : 1 + distinct] - half.transpose(0, 2, 1) @ half
        diagonal = np.arange(spread.shape[1])
        log_det = 2 * np.log(factor[:, diagonal, diagonal]).sum(axis=1) - np.log(weights).sum(axis=1)
        return precision, log_det

    def precision(self, settings: Floats, left_out: Flags) -> Floats:
        """The inverse covariance of all trials, shape (settings, trials, trials); those left out vary by `LEFT_OUT`."""
        noise, drift, deviation = settings.T[:, :, np.newaxis, np.newaxis]
        smooth = self.design[:, 1:] @ self.design[:, 1:].T
        common = SCALE_SD**2 + SESSION_SD**2 * (self.heights @ self.heights.T)
        covariance = common + deviation**2 * smooth + drift**2 * self.drift
        diagonal = np.arange(len(self.y))
        covariance[:, diagonal, diagonal] += noise[:, 0] ** 2 + LEFT_OUT * left_out
        out: Floats = inv(covariance)
        return out


def burst_log_prior(bursts: Flags, seen: Flags) -> float:
    """Log probability of a set of trials in bursts, together with what the sensors saw of them."""
    # The more bursts the sensors have seen, the likelier are those that they have not.
    start = min(0.3, (0.5 + float(seen.sum())) / (0.5 / BURST_START + len(seen)))
    before = np.concatenate([[False], bursts[:-1]])
    inside = np.where(before, BURST_STAYS, start)
    chain = np.where(bursts, np.log(inside), np.log1p(-inside))
    seen_if = np.where(bursts, BURST_SEEN, BURST_SEEN_WRONGLY)
    return float((chain + np.where(seen, np.log(seen_if), np.log1p(-seen_if))).sum())
