"""A service-level objective: a percentile of the latency, at a stated rate, that must not be exceeded. Pure.

The requests are sent on a schedule, and their latency counts from the planned moment, so that an application that
stalls is not asked less often for it (coordinated omission).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from tuner import limits, loads
from tuner.errors import InputError
from tuner.limits import Measured
from tuner.model import Report, SloResult
from tuner.wording import quoted

# One-sided 95 % quantile of the normal distribution.
Z_95 = 1.645
# Less of the schedule than this was sent or answered in time: the rate was not kept.
RATE_KEPT = 0.98
SLO_TEXT = re.compile(r"p(\d{1,2}(?:\.\d+)?)\s*[=<]\s*(\d{1,7}(?:\.\d+)?)\s*(ms|s)", re.ASCII)


@dataclass(frozen=True)
class Slo:
    """The objective.

    Attributes:
        percent: Which percentile of the latency, above 0 and below 100.
        limit_ms: What it must not exceed.
    """

    percent: float
    limit_ms: float

    def __str__(self) -> str:
        return f"p{self.percent:g} of {self.limit_ms:g} ms"


def parse_slo(text: str) -> Slo:
    """Read an objective, such as `p99=250ms` or `p99.9=1s`.

    Raises:
        InputError: When it is none.
    """
    found = SLO_TEXT.fullmatch(text.strip().lower())
    percent, limit_ms = (float(found[1]), float(found[2]) * (1 if found[3] == "ms" else 1000)) if found else (0.0, 0.0)
    if not percent or not limit_ms:
        raise InputError(
            f"--slo {quoted(text)} is no objective", remedy="write a percentile and a time, such as p99=250ms"
        )
    return Slo(percent, limit_ms)


def upper_percentile_us(histogram: Sequence[Sequence[int]], percent: float) -> float | None:
    """The upper 95 % bound of a percentile, from order statistics.

    The number of requests below the true percentile is binomial, so that the observation at rank
    n p + 1.645 sqrt(n p (1 - p)) is above it with 95 % probability (David and Nagaraja, "Order Statistics", 2003, 7.1).

    Args:
        histogram: Pairs of index and count, ascending.
        percent: Which percentile.

    Returns:
        The bound in microseconds; None where too few requests were seen.
    """
    count, share = sum(pair[1] for pair in histogram), percent / 100
    rank = math.ceil(count * share + Z_95 * math.sqrt(count * share * (1 - share)))
    return loads.percentile_us(histogram, 100 * rank / count) if 0 < rank <= count else None


def requests_needed(percent: float) -> int:
    """How many requests it takes until `upper_percentile_us` knows a bound."""
    share = percent / 100
    return math.ceil(Z_95**2 * share / (1 - share))


def judge(
    slo: Slo, rate_rps: float, trials: Sequence[Measured], reports: Sequence[Report], memory_bytes: int
) -> SloResult:
    """Judge one candidate by its trials at the rate.

    Args:
        slo: The objective.
        rate_rps: The planned rate.
        trials: At least one trial of the candidate.
        reports: What http_load reported in each of them.
        memory_bytes: Memory that the application may use in all.
    """
    pooled: dict[int, int] = {}
    for report in reports:
        for index, count in report["latency_us"]["histogram"]:
            pooled[index] = pooled.get(index, 0) + count
    histogram = sorted(pooled.items())
    achieved = sum(trial.throughput_rps for trial in trials) / len(trials)
    value = loads.percentile_us(histogram, slo.percent) / 1000 if histogram else None
    upper_us = upper_percentile_us(histogram, slo.percent)
    upper = None if upper_us is None else upper_us / 1000
    reason = limits.find_unfit(trials, memory_bytes)
    if not reason and achieved < RATE_KEPT * rate_rps:
        reason = f"{achieved:,.0f} of {rate_rps:,.0f} requests/s were answered in time"
    if not reason and upper is None:
        seen, needed = sum(pooled.values()), requests_needed(slo.percent)
        reason = f"{seen} requests tell too little of p{slo.percent:g}, {needed} do: measure longer (--duration)"
    if not reason and upper is not None and value is not None and upper > slo.limit_ms:
        reason = f"p{slo.percent:g} is {value:,.0f} ms, and may be {upper:,.0f} ms"
    requests = sum(trial.requests for trial in trials)
    instances = trials[0].instances
    return SloResult(instances, rate_rps, achieved, requests, value, upper, met=not reason, reason=reason)
