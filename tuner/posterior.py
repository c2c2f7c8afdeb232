"""What the trials say about the whole curve: a posterior, as sampled curves. Pure.

Nothing is picked: the sizes of deviation, drift and noise are averaged over a grid, the parameters of the law over
particles that are moved from the prior to the posterior (Del Moral, Doucet, Jasra, "Sequential Monte Carlo samplers",
2006, with the moves of ter Braak, "A Markov chain Monte Carlo version of differential evolution", 2006), and hidden
bursts over the sets of trials that could have been in one, each by the probability that it gives to what was measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.linalg import eigh

from tuner.curve import PARAMETERS, Floats, basis, law
from tuner.likelihood import (
    DEEPEST_BURST,
    DEVIATION_WEIGHTS,
    DEVIATIONS,
    DRIFT_WEIGHTS,
    DRIFTS,
    LEFT_OUT,
    NOISE_MEDIAN,
    NOISE_SPREAD,
    SCALE_SD,
    Data,
    Flags,
    Ints,
    Likelihood,
    Observation,
    burst_log_prior,
    grid,
)

# At most one trial in so many is taken for one in a hidden burst: more of them are noise.
TRIALS_PER_BURST = 6
MOST_DOUBTS = 4

CURVES = 1000
NEGLIGIBLE, NEGLIGIBLE_PAIR = 0.01, 0.005
# Noises tried around the likeliest, as log ratios: with n trials the noise is known to 1 in the root of 2 n.
FINE_NOISES = np.arange(-5, 6) * 0.11
WHOLE_STEPS, FEW_DIRECTIONS = 0.15, 0.5
LOWEST_EFFECTIVE_SHARE = 0.5
MOST_TEMPERATURES = 12


@dataclass(frozen=True)
class Effort:
    """How well the particles sample: their number before and after the first temperature, and moves at each."""

    pool: int
    particles: int
    moves: int


USUAL, THOROUGH = Effort(1500, 300, 3), Effort(4000, 800, 8)


@dataclass(frozen=True)
class Posterior:
    """What is known after some trials.

    Attributes:
        curves: Sampled curves, shape (samples, counts): log throughput of each count, up to a common constant.
        noise_sd: Posterior mean SD of one trial's log throughput around curve and drift.
        drift_sd: Posterior mean of the stationary SD of the drift.
        bursts: Probability of a hidden burst by trial, shape (trials,).
    """

    curves: Floats
    noise_sd: float
    drift_sd: float
    bursts: Floats


def fit(
    counts: tuple[int, ...],
    budget: float,
    observations: Sequence[Observation],
    *,
    seed: int = 0,
    thorough: bool = False,
) -> Posterior:
    """Work out what the trials say about the curve.

    Args:
        counts: All counts that may be chosen, ascending.
        budget: CPU budget.
        observations: All trials in their order, contaminated ones too; at least one that is not.
        seed: Seed of the sampling; the same arguments give the same curves.
        thorough: Whether to take several times as long, and sample better.
    """
    random = np.random.default_rng(seed)
    data = Data(counts, budget, observations)
    pool = _pool(THOROUGH.pool if thorough else USUAL.pool)
    sets, marginal = _find_bursts(data, pool)
    settings, weights = _refine(data, pool, sets[0][0], marginal)
    base = data.likelihood(
        np.tile(settings, (len(sets), 1)),
        np.concatenate([weights + prior for _, prior in sets]),
        np.repeat(np.array([found for found, _ in sets]), len(settings), axis=0),
    )
    particles = _temper(data, base, pool, random, THOROUGH if thorough else USUAL)
    return _sample(data, base, particles, random)


@lru_cache(maxsize=2)
def _pool(size: int) -> Floats:
    out: Floats = np.random.default_rng(0).standard_normal((size, PARAMETERS))
    return out


def _softmax(logs: Floats) -> Floats:
    out = np.exp(logs - logs.max())
    normalised: Floats = out / out.sum()
    return normalised


def _log_sum(logs: Floats, *, axis: int) -> Floats:
    """Logarithm of the sum of exponentials along an axis; many times as quick as `np.logaddexp.reduce`."""
    highest = logs.max(axis=axis)
    # In place: fresh memory for a second large array takes longer than the exponentials.
    scaled = logs - np.expand_dims(highest, axis)
    np.exp(scaled, out=scaled)
    out: Floats = np.log(scaled.sum(axis=axis)) + highest
    return out


def _find_bursts(data: Data, pool: Floats) -> tuple[list[tuple[Flags, float]], Floats]:
    """Find the likeliest set of trials in bursts, and its likeliest neighbours.

    Returns:
        The sets with their log prior, the likeliest first; and the log weights of the settings under the first.
    """
    settings, weights = grid()
    mu = data.law(pool)
    best = data.seen.copy()
    tried: set[bytes] = set()
    doubts: list[int] = []
    marginal: Floats = weights
    while best.tobytes() not in tried:
        tried.add(best.tobytes())
        left_out = np.broadcast_to(best, (len(settings), len(best)))
        likelihood = data.likelihood(settings, weights, left_out)
        logs = likelihood(mu)
        marginal = _log_sum(logs, axis=0)
        odds = _flip_log_odds(data, mu, likelihood, logs, best)
        doubts = [int(t) for t in np.argsort(-odds) if odds[t] > math.log(0.02)][:MOST_DOUBTS]
        likeliest = int(np.argmax(odds))
        if odds[likeliest] > 0 and (best & ~data.seen).sum() < max(1, len(best) // TRIALS_PER_BURST):
            best = best.copy()
            best[likeliest] = not best[likeliest]
    sets = [best]
    for trial in doubts:
        other = best.copy()
        other[trial] = not other[trial]
        sets.append(other)
    return [(found, burst_log_prior(found, data.seen)) for found in sets], marginal


def _flip_log_odds(data: Data, mu: Floats, likelihood: Likelihood, logs: Floats, bursts: Flags) -> Floats:
    """Log odds that each trial belongs to the other side: into a burst, or out of one; -inf for what sensors saw."""
    weights = logs - logs.max()
    np.exp(weights, out=weights)
    particles = np.argsort(-weights.sum(axis=1))[:100]
    chosen = np.argsort(-weights.sum(axis=0))[:30]
    weight = weights[np.ix_(particles, chosen)]
    weight /= weight.sum()
    residual = data.y - mu[particles][:, data.place]
    precision = data.precision(likelihood.settings[chosen], likelihood.left_out[chosen])
    diagonal = np.einsum("stt->st", precision)
    # Leave-one-out predictions of a Gaussian process (Sundararajan and Keerthi, 2001). A trial that is left out has
    # them already, but for the variance that left it out.
    error = np.einsum("stu,pu->pst", precision, residual) / diagonal
    variance = np.where(bursts, np.maximum(1 / diagonal - LEFT_OUT, likelihood.settings[chosen, :1] ** 2), 1 / diagonal)
    log_density = -0.5 * error**2 / variance - 0.5 * np.log(2 * np.pi * variance)
    odds = np.full(len(data.y), -np.inf)
    now = burst_log_prior(bursts, data.seen)
    loss = -(weight[:, :, np.newaxis] * error).sum(axis=(0, 1))
    for trial in np.flatnonzero(~data.seen):
        other = bursts.copy()
        other[trial] = not other[trial]
        step = burst_log_prior(other, data.seen) - now
        if bursts[trial]:
            evidence = math.log(max(1e-300, float((weight * np.exp(log_density[:, :, trial])).sum())))
            odds[trial] = step + evidence + math.log(DEEPEST_BURST)
        elif loss[trial] > 0:
            evidence = math.log(float((weight * np.exp(np.minimum(600.0, -log_density[:, :, trial]))).sum()))
            odds[trial] = step + evidence - math.log(DEEPEST_BURST)
    return odds


def _refine(data: Data, pool: Floats, bursts: Flags, marginal: Floats) -> tuple[Floats, Floats]:
    """Settings that matter, with a finer grid of noises where the coarse one has the noise, and their log weights."""
    settings, _ = grid()
    share = _softmax(marginal)
    middle = float(share @ np.log(settings[:, 0]))
    noises = np.exp(middle + FINE_NOISES)
    kept = [
        (drift, deviation, weight)
        for drift in DRIFTS
        for deviation in DEVIATIONS
        if (weight := float(share[(settings[:, 1] == drift) & (settings[:, 2] == deviation)].sum())) > NEGLIGIBLE_PAIR
    ]
    fine = np.array([(noise, drift, deviation) for drift, deviation, _ in kept for noise in noises])
    weights = np.array(
        [
            -0.5 * (math.log(noise / NOISE_MEDIAN) / NOISE_SPREAD) ** 2
            + math.log(DRIFT_WEIGHTS[DRIFTS.index(drift)] * DEVIATION_WEIGHTS[DEVIATIONS.index(deviation)])
            for noise, drift, deviation in fine
        ]
    )
    left_out = np.broadcast_to(bursts, (len(fine), len(bursts)))
    logs = _log_sum(data.likelihood(fine, weights, left_out)(data.law(pool)), axis=0)
    matters = logs > logs.max() + math.log(NEGLIGIBLE)
    return fine[matters], weights[matters]


_Total = Callable[[Floats], Floats]
_Moved = tuple[Floats, Floats]


def _temper(data: Data, likelihood: Likelihood, pool: Floats, random: np.random.Generator, effort: Effort) -> Floats:
    """Move particles from the prior to the posterior, by temperatures at which enough of them stay effective."""

    def total(parameters: Floats) -> Floats:
        return _log_sum(likelihood(data.law(parameters)), axis=1)

    particles, logs, temperature = pool, total(pool), 0.0
    for step in range(MOST_TEMPERATURES):
        wanted = effort.particles / 2 if not step else LOWEST_EFFECTIVE_SHARE * effort.particles
        raised = 1.0 if step == MOST_TEMPERATURES - 1 else _next_temperature(logs, temperature, wanted)
        chosen = _resample(_softmax((raised - temperature) * logs), effort.particles, random)
        particles, logs, temperature = particles[chosen], logs[chosen], raised
        for _ in range(effort.moves):
            particles, logs = _move(particles, temperature, random, total, logs)
        if temperature >= 1.0:
            break
    return particles


def _next_temperature(logs: Floats, temperature: float, wanted: float) -> float:
    def effective(raised: float) -> float:
        return float(1 / (_softmax((raised - temperature) * logs) ** 2).sum())

    if effective(1.0) >= wanted:
        return 1.0
    low, high = temperature, 1.0
    for _ in range(20):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if effective(middle) >= wanted else (low, middle)
    return max(low, temperature + 1e-4)


def _resample(weights: Floats, size: int, random: np.random.Generator) -> Ints:
    """Systematic resampling: indices, shape (size,)."""
    points = (random.random() + np.arange(size)) / size
    chosen: Ints = np.minimum(np.searchsorted(np.cumsum(weights), points), len(weights) - 1).astype(np.int64)
    return chosen


def _move(particles: Floats, temperature: float, random: np.random.Generator, total: _Total, logs: Floats) -> _Moved:
    """One step of differential evolution: along the difference of two other particles, sometimes in few directions.

    Now and then the step has the whole length of the difference, which leads from one mode to another.
    """
    size = len(particles)
    one, two = random.permutation(size), random.permutation(size)
    usual = 2.38 / math.sqrt(2 * PARAMETERS) * np.sqrt(random.random((size, 1)))
    step = np.where(random.random((size, 1)) < WHOLE_STEPS, 1.0, usual)
    share = np.where(random.random((size, 1)) < FEW_DIRECTIONS, 0.4, 1.0)
    jump = step * (particles[one] - particles[two]) + 0.05 * random.standard_normal(particles.shape)
    proposal = particles + (random.random(particles.shape) < share) * jump
    proposed = total(proposal)
    prior = 0.5 * ((particles**2).sum(axis=1) - (proposal**2).sum(axis=1))
    accepted = np.log(random.random(size)) < temperature * (proposed - logs) + prior
    return np.where(accepted[:, np.newaxis], proposal, particles), np.where(accepted, proposed, logs)


def _sample(data: Data, likelihood: Likelihood, particles: Floats, random: np.random.Generator) -> Posterior:
    """Sample whole curves: a particle, a setting with its bursts, and the deviation given both."""
    mu = data.law(particles)
    weights = likelihood(mu)
    weights -= _log_sum(weights, axis=1)[:, np.newaxis]
    np.exp(weights, out=weights)
    who = np.arange(CURVES) % len(particles)
    # The row's number added to each row makes all rows one ascending sequence.
    ladder = np.cumsum(weights, axis=1, out=weights) + np.arange(len(particles))[:, np.newaxis]
    which = np.searchsorted(ladder.reshape(-1), who + random.random(CURVES)) - who * weights.shape[1]
    which = np.clip(which, 0, weights.shape[1] - 1)
    drawn, index = np.unique(which, return_inverse=True)
    prior = np.repeat(likelihood.settings[drawn, 2:] ** 2, data.design.shape[1], axis=1)
    prior[:, 0] = SCALE_SD**2
    # Conditioning of a Gaussian on the trials, for each setting that was drawn.
    precisions = data.precision(likelihood.settings[drawn], likelihood.left_out[drawn])
    gains = prior[:, :, np.newaxis] * data.design.T @ precisions
    covariances = prior[:, :, np.newaxis] * (np.eye(prior.shape[1]) - (data.design.T @ gains.transpose(0, 2, 1)))
    values, vectors = eigh((covariances + covariances.transpose(0, 2, 1)) / 2)
    roots = vectors * np.sqrt(np.maximum(values, 0.0))[:, np.newaxis, :]
    residuals = data.y - mu[who][:, data.place]
    coefficients = random.standard_normal((CURVES, prior.shape[1]))
    for setting in range(len(drawn)):
        members = np.flatnonzero(index == setting)
        coefficients[members] = residuals[members] @ gains[setting].T + coefficients[members] @ roots[setting].T
    curves = law(particles, np.array(data.counts, dtype=np.float64), data.budget)[who]
    share = np.bincount(which, minlength=len(likelihood.settings)) / CURVES
    return Posterior(
        curves=curves + coefficients @ basis(data.counts).T,
        noise_sd=float(share @ likelihood.settings[:, 0]),
        drift_sd=float(share @ likelihood.settings[:, 1]),
        bursts=share @ (likelihood.left_out & ~data.seen),
    )
