"""A trial's time series: where warm-up ends, and the throughput after it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

# MSER-5 batches five observations; five bins of 100 ms make batches of half a second.
BATCH = 5
# A cut beyond half of the series means that it had not settled (White 1997; Hoad et al. 2008).
LARGEST_CUT_SHARE = 0.5
# Fewer batches than these can be alike by chance: with two, two fifths of all steady series would be called unsettled
# (Hoad, Robinson and Davies, "Automating warm-up length estimation", Winter Simulation Conference 2008).
FEWEST_LEFT = 5
# Halves that differ by less than this settle it: of flat series, the rule alone calls one in nine unsettled.
SMALLEST_CHANGE = 0.05
# Squared standard errors that differ by less than this share of the squared level differ by rounding alone.
ROUNDING = 1e-24
ROUNDING_SHARE = 1e-9


@dataclass(frozen=True)
class Steady:
    """The steady part of one series.

    Attributes:
        cut_s: Time left out at the start, in seconds.
        throughput_rps: Mean of the rest, in successful responses per second.
        settled: Whether a steady part was found.
    """

    cut_s: float
    throughput_rps: float
    settled: bool


def find_cut(batches: Sequence[float]) -> int:
    """Find where warm-up ends, by the marginal standard error rule.

    The cut is the d that minimises sum((y_i - mean_d)^2 for i > d) / (n - d)^2, the squared standard error of the mean
    of what is left (White, "An effective truncation heuristic for bias reduction in simulation output", Simulation
    69, 1997).

    Args:
        batches: Means of equal spans of time, in order.

    Returns:
        Number of batches to leave out, between 0 and all but five; the smallest of several that are equally good.
    """
    series = np.asarray(batches, dtype=float)
    cuts = range(len(series) - FEWEST_LEFT + 1)
    errors = [float(np.sum((series[d:] - series[d:].mean()) ** 2)) / (len(series) - d) ** 2 for d in cuts]
    equal = min(errors, default=0.0) + ROUNDING * float(np.max(np.abs(series), initial=0.0)) ** 2
    return next((cut for cut, error in enumerate(errors) if error <= equal), 0)


def measure(ok_per_bin: Sequence[int], *, width_s: float, skip_s: float) -> Steady:
    """Find the steady throughput of one trial.

    Args:
        ok_per_bin: Successful responses in each bin of the whole trial, the planned warm-up included.
        width_s: Width of a bin in seconds.
        skip_s: Planned warm-up, which is left out in any case.

    Returns:
        The steady part. Only what comes before the series first reaches its steady level is warm-up: a slow spell
        after that is part of what is measured. A series whose best cut lies in its second half, and whose halves differ
        by more than 5 %, is not settled.
    """
    skipped = round(skip_s / width_s)
    rest = list(ok_per_bin[skipped:])
    whole = len(rest) // BATCH * BATCH
    if whole == 0:
        return Steady(cut_s=skipped * width_s, throughput_rps=0.0, settled=False)
    batches = np.asarray(rest[:whole], dtype=float).reshape(-1, BATCH).mean(axis=1)
    largest = int(len(batches) * LARGEST_CUT_SHARE)
    best = find_cut(batches.tolist())
    cut = min(best, largest)
    # One of them is as high as their mean, so there is always a first; but for rounding, which must not hide it.
    cut = min(cut, int(np.argmax(batches >= batches[cut:].mean() * (1 - ROUNDING_SHARE))))
    return Steady(
        cut_s=(skipped + cut * BATCH) * width_s,
        throughput_rps=float(batches[cut:].mean()) / width_s,
        settled=best <= largest or _halves_agree(batches),
    )


def _halves_agree(batches: npt.NDArray[np.float64]) -> bool:
    half = len(batches) // 2
    first, second = float(batches[:half].mean()), float(batches[half:].mean())
    return abs(second - first) <= SMALLEST_CHANGE * first
