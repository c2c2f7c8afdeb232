"""What a candidate must keep whatever its throughput: errors, memory, restarts. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol, TypeVar

from tuner.model import BYTES_PER_MIB

LARGEST_ERROR_RATE = 0.001
LARGEST_MEMORY_SHARE = 0.85
CONFIDENCE = 0.95


class Measured(Protocol):
    """What the limits and the decision need of a trial; see tuner.model.Trial."""

    @property
    def instances(self) -> int:
        """Workers that ran."""

    @property
    def throughput_rps(self) -> float:
        """Successful responses per second; 0 when there was none."""

    @property
    def requests(self) -> int:
        """Requests completed."""

    @property
    def errors(self) -> int:
        """Those that failed."""

    @property
    def rss_bytes(self) -> int:
        """Memory of all workers together."""

    @property
    def restarts(self) -> int:
        """Workers that died."""

    @property
    def disturbances(self) -> tuple[str, ...]:
        """What disturbed it."""


AnyMeasured = TypeVar("AnyMeasured", bound=Measured)


def error_rate_bounds(errors: int, requests: int) -> tuple[float, float]:
    """One-sided 95 % bounds of the error rate from below and from above.

    Clopper and Pearson, "The use of confidence or fiducial limits illustrated in the case of the binomial",
    Biometrika 26, 1934.

    Args:
        errors: Requests that failed.
        requests: All requests.
    """
    from scipy.special import betaincinv  # noqa: PLC0415 a third of a second, which `tuner --help` must not pay

    low = float(betaincinv(errors, requests - errors + 1, 1 - CONFIDENCE)) if errors else 0.0
    high = float(betaincinv(errors + 1, requests - errors, CONFIDENCE)) if errors < requests else 1.0
    return low, high


def undisturbed(trials: Sequence[AnyMeasured]) -> Sequence[AnyMeasured]:
    """The trials that nothing disturbed, or all where there are none: what disturbs a host may let requests fail."""
    return [trial for trial in trials if not trial.disturbances] or trials


def find_unfit(trials: Sequence[Measured], memory_bytes: int) -> str:
    """Say why a candidate surely cannot be chosen whatever its throughput, or "" when nothing speaks against it.

    Args:
        trials: All its trials, at least one. A worker that died did so in a disturbed trial too.
        memory_bytes: Memory that the application may use in all.
    """
    if sum(trial.restarts for trial in trials):
        return "a worker died under load"
    counting = undisturbed(trials)
    requests, errors = sum(t.requests for t in counting), sum(t.errors for t in counting)
    if not requests or not all(trial.throughput_rps > 0 for trial in counting):
        return "requests were not answered"
    if error_rate_bounds(errors, requests)[0] > LARGEST_ERROR_RATE:
        return f"{errors / requests:.2%} of the requests failed"
    peak = max(trial.rss_bytes for trial in counting)
    if peak > LARGEST_MEMORY_SHARE * memory_bytes:
        return f"{peak / BYTES_PER_MIB:,.0f} MiB are more than {LARGEST_MEMORY_SHARE:.0%} of the memory"
    return ""


def find_unproven(trials: Sequence[Measured]) -> str:
    """Say what keeps the error rate of a candidate from being surely within its limit; "" when it surely is.

    Args:
        trials: All its trials; none tell nothing.
    """
    # Disturbed trials whose requests were answered all the same are proof too, with whatever failed in them.
    for counting in (trials, undisturbed(trials)):
        requests, errors = sum(t.requests for t in counting), sum(t.errors for t in counting)
        high = error_rate_bounds(errors, requests)[1]
        if high <= LARGEST_ERROR_RATE:
            return ""
    allowed = f"{LARGEST_ERROR_RATE:.1%} is allowed"
    return f"{errors} of {requests:,} requests failed, so that up to {high:.2%} may, and {allowed}"


def requests_needed() -> int:
    """How many requests without an error show that the rate is within its limit."""
    return math.ceil(math.log(1 - CONFIDENCE) / math.log(1 - LARGEST_ERROR_RATE))
