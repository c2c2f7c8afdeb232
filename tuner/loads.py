"""What several hosts measured that loaded the application together, as if one had. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

Load = Mapping[str, Any]
"""What http_load reports; its RETURN describes each field."""

# http_load's histogram is exact below 256, and has 128 buckets for each doubling above.
SUB_BUCKET_BITS = 7
NS_PER_US = 1000
PERCENTILES = {"p50": 50.0, "p90": 90.0, "p95": 95.0, "p99": 99.0, "p99_9": 99.9}
# Bins that begin at different times cannot be added.
LARGEST_SKEW_BINS = 1


def merge(hosts: Sequence[str], loads: Sequence[Load]) -> dict[str, Any]:
    """Put the results of one load together.

    Args:
        hosts: Names of the hosts that sent it.
        loads: What http_load reported on each of them; they began at the same moment.

    Returns:
        The same for all of them together, by exact sums of counts, bins and histograms: connections and rates are
        sums, and the health of the generator is that of the host where it was worst. `hosts` has the health on each.
        `by_name` is left out.
    """
    health = {host: load["generator"] for host, load in zip(hosts, loads, strict=True)}
    first = loads[0]
    if len(loads) == 1:
        return {**first, "hosts": health}
    duration_s = max(load["duration_s"] for load in loads)
    measured = _add_counts([load["measured"] for load in loads])
    return {
        **{key: value for key, value in first.items() if key != "by_name"},
        "started_at": min(load["started_at"] for load in loads),
        "duration_s": duration_s,
        "connections": sum(load["connections"] for load in loads),
        "workers": sum(load["workers"] for load in loads),
        "rate_rps": _sum_known(load["rate_rps"] for load in loads),
        "planned": _sum_known(load["planned"] for load in loads),
        "unsent": sum(load["unsent"] for load in loads),
        "bins": {
            "width_s": first["bins"]["width_s"],
            **{kind: _add_bins([load["bins"][kind] for load in loads]) for kind in ("ok", "errors")},
        },
        "measured": measured,
        "total": _add_counts([load["total"] for load in loads]),
        "latency_us": _merge_latency([load["latency_us"] for load in loads]),
        "generator": _worst_health(health, loads, measured["requests"]),
        "error_samples": {kind: text for load in reversed(loads) for kind, text in load["error_samples"].items()},
        "hosts": health,
    }


def _sum_known(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _add_bins(series: Sequence[Sequence[int]]) -> list[int]:
    return [sum(column) for column in zip_longest(*series, fillvalue=0)]


def _add_counts(counted: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Add up counts, and counts by name; throughputs of hosts that sent at the same time add up too."""
    total: dict[str, Any] = {}
    for name, value in counted[0].items():
        if isinstance(value, Mapping):
            keys = dict.fromkeys(key for counts in counted for key in counts[name])
            total[name] = {key: sum(counts[name].get(key, 0) for counts in counted) for key in keys}
        else:
            total[name] = sum(counts[name] for counts in counted)
    return total


def _merge_latency(latencies: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    answered = [latency for latency in latencies if latency["count"]]
    if not answered:
        return dict(latencies[0])
    counts: dict[int, int] = {}
    for latency in answered:
        for index, count in latency["histogram"]:
            counts[index] = counts.get(index, 0) + count
    histogram = sorted(counts.items())
    total = sum(latency["count"] for latency in answered)
    low, high = min(latency["min"] for latency in answered), max(latency["max"] for latency in answered)
    mean = sum(latency["mean"] * latency["count"] for latency in answered) / total
    return {
        "count": total,
        "min": low,
        "max": high,
        "mean": round(mean, 3),
        # The middle of the outermost buckets may lie outside what was seen.
        **{name: min(max(percentile_us(histogram, percent), low), high) for name, percent in PERCENTILES.items()},
        "histogram": [list(pair) for pair in histogram],
    }


def percentile_us(histogram: Sequence[Sequence[int]], percent: float) -> float:
    """A percentile (nearest rank) of one of http_load's histograms.

    Args:
        histogram: Pairs of index and count, ascending and not empty.
        percent: 0 to 100.

    Returns:
        The middle of its bucket, in microseconds.
    """
    indices, counts = np.asarray(histogram, dtype=np.int64).T
    rank = max(1.0, np.ceil(round(int(counts.sum()) * percent / 100, 6)))
    index = int(indices[np.searchsorted(np.cumsum(counts), rank)])
    shift = max(0, (index >> SUB_BUCKET_BITS) - 1)
    low = (index - (shift << SUB_BUCKET_BITS)) << shift
    return (low + ((1 << shift) - 1) / 2) / NS_PER_US


def _worst_health(health: Mapping[str, Any], loads: Sequence[Load], requests: int) -> dict[str, Any]:
    generators = list(health.values())
    cpu_s = sum(generator["cpu_s"] for generator in generators)
    lags = [generator["schedule_lag_us"] for generator in generators]
    rates = [generator["send_rate"] for generator in generators if generator["send_rate"] is not None]
    residuals = [g["littles_law_residual"] for g in generators if g["littles_law_residual"] is not None]
    reasons = [f"{host}: {found['refused_reason']}" for host, found in health.items() if found["refused_reason"]]
    starts = [load["started_at"] for load in loads]
    if max(starts) - min(starts) > LARGEST_SKEW_BINS * loads[0]["bins"]["width_s"]:
        reasons.append(f"the load hosts began {max(starts) - min(starts):.1f} s apart")
    return {
        "cpu_s": round(cpu_s, 4),
        "cpu_share": max(generator["cpu_share"] for generator in generators),
        "cpu_us_per_request": round(cpu_s * 1e6 / requests, 2) if requests else None,
        "littles_law_residual": max(residuals, default=None),
        "send_rate": min(rates, default=None),
        "schedule_lag_us": {
            "count": sum(lag["count"] for lag in lags),
            **{
                name: max((lag[name] for lag in lags if lag[name] is not None), default=None)
                for name in ("p50", "p99", "max")
            },
        },
        # They share the connections equally.
        "most_connections": len(loads) * min(generator["most_connections"] for generator in generators),
        "refused_reason": "; ".join(reasons),
    }
