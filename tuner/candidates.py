"""Which instance counts are worth trying, with the reason for each bound. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from tuner.errors import InputError
from tuner.model import BYTES_PER_MIB, Bound, Deployment, HostCapacity, Plan
from tuner.wording import quoted

# Some of the memory must be left to the kernel's caches and to whatever else runs.
MEMORY_SHARE = 0.85
# A worker's memory grows with the requests that it has served: what was seen is not the most that it will be.
MEMORY_GROWTH = 1.3
# A reload runs new workers beside the old ones.
CONNECTIONS_KEPT_INSTANCES = 2
# Beyond so many workers a CPU, only switching between them grows.
MOST_PER_CPU = 4
COUNTS = re.compile(r"\s*(\d{1,4})(?:\s*-\s*(\d{1,4}))?\s*", re.ASCII)
# Unless more are asked for: a worker that waits for its database leaves its CPU to another.
USUAL_MORE, USUAL_PER_CPU = 2, 1.25


def find_bounds(capacity: HostCapacity, deployment: Deployment) -> tuple[Bound, ...]:
    """Find what bounds the number of instances.

    Args:
        capacity: What the host has.
        deployment: What runs on it.

    Returns:
        Upper bounds, the tightest first; never empty.
    """
    cpus = math.ceil(capacity.cpu_budget)
    bounds = [Bound(max(MOST_PER_CPU, MOST_PER_CPU * cpus), f"{MOST_PER_CPU} for each of {cpus} CPUs")]
    if deployment.database_client == "sqlite" and not deployment.sqlite_multi_process:
        bounds.append(Bound(1, "SQLite is shared by several processes only where strapi_sqlite_multi_process is true"))
    if deployment.worker_peak_bytes:
        bounds.append(_memory_bound(capacity, deployment.worker_peak_bytes))
    if (
        deployment.database_client != "sqlite"
        and min(deployment.database_connections, deployment.database_pool_max) > 0
    ):
        bounds.append(_connection_bound(deployment))
    return tuple(sorted(bounds, key=lambda bound: bound.limit))


def _memory_bound(capacity: HostCapacity, worker_peak_bytes: int) -> Bound:
    room = MEMORY_SHARE * capacity.memory_bytes
    each = MEMORY_GROWTH * worker_peak_bytes
    return Bound(
        max(1, int(room / each)),
        f"{MEMORY_SHARE:.0%} of {capacity.memory_bytes / BYTES_PER_MIB:,.0f} MiB memory "
        f"at {each / BYTES_PER_MIB:,.0f} MiB an instance",
    )


def _connection_bound(deployment: Deployment) -> Bound:
    limit = deployment.database_connections // deployment.database_pool_max - CONNECTIONS_KEPT_INSTANCES
    return Bound(
        max(1, limit),
        f"{deployment.database_connections} database connections at {deployment.database_pool_max} an instance, "
        f"less {CONNECTIONS_KEPT_INSTANCES} instances for a reload",
    )


def parse_counts(text: str) -> tuple[int, ...]:
    """Read instance counts as a user writes them: `1-4`, `1,2,4` or both.

    Raises:
        InputError: When the text is no list of whole numbers of 1 or more.
    """
    counts: set[int] = set()
    for part in text.split(","):
        match = COUNTS.fullmatch(part)
        if match is None:
            raise InputError(
                f"candidates {quoted(text)}: {quoted(part.strip() or 'an empty entry')} is no instance count",
                remedy="write whole numbers such as 1-4 or 1,2,4",
            )
        first, last = int(match.group(1)), int(match.group(2) or match.group(1))
        if first < 1 or last < first:
            raise InputError(
                f"candidates {quoted(text)}: {quoted(part.strip())} is no range of instance counts from 1 upwards",
                remedy="write whole numbers such as 1-4 or 1,2,4",
            )
        counts.update(range(first, last + 1))
    return tuple(sorted(counts))


def check_within(bounds: Sequence[Bound], count: int) -> None:
    """Refuse to try more instances than there may be.

    Args:
        bounds: The tightest first.
        count: How many are asked for.

    Raises:
        InputError: When that is above a bound.
    """
    tightest = bounds[0]
    if count > tightest.limit:
        raise InputError(
            f"candidate {count} is above the bound of {tightest.limit} instances: {tightest.reason}",
            remedy=f"ask for candidates up to {tightest.limit}",
        )


def usual_bound(cpu_budget: float) -> Bound:
    """The most instances that are tried without being asked for."""
    cpus = math.ceil(cpu_budget)
    limit = max(cpus + USUAL_MORE, math.ceil(USUAL_PER_CPU * cpus))
    return Bound(limit, f"{limit - cpus} more than the CPUs; ask for more with --candidates")


def plan(capacity: HostCapacity, deployment: Deployment, *, requested: tuple[int, ...] | None = None) -> Plan:
    """Choose the candidates: all counts up to the tightest bound, and what runs now.

    Args:
        capacity: What the host has.
        deployment: What runs on it.
        requested: Instance counts that the user asked for, instead of the default ones.

    Raises:
        InputError: When a requested count is above a bound.
    """
    bounds = find_bounds(capacity, deployment)
    tightest = bounds[0]
    if requested:
        check_within(bounds, max(requested))
        return Plan(candidates=requested, bounds=bounds)
    usual = usual_bound(capacity.cpu_budget)
    counts = set(range(1, min(usual.limit, tightest.limit) + 1))
    if 0 < deployment.instances <= tightest.limit:
        counts.add(deployment.instances)
    return Plan(candidates=tuple(sorted(counts)), bounds=tuple(sorted((*bounds, usual), key=lambda bound: bound.limit)))
