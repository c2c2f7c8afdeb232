"""From the raw report of trial.yml to a Trial. Pure."""

from __future__ import annotations

from typing import Any

from tuner import steady
from tuner.model import Report, Trial


def to_trial(report: Report, *, number: int, round_number: int, instances: int, wall_s: float) -> Trial:
    """Work out what one trial measured.

    Args:
        report: As trial.yml gave it.
        number: Position in the run.
        round_number: Round in the run.
        instances: Workers that were asked for.
        wall_s: What the whole trial took.
    """
    load, applied = report["load"], report["applied"]
    measured, bins = load["measured"], load["bins"]
    series = steady.measure(bins["ok"], width_s=bins["width_s"], skip_s=load["warmup_s"])
    before, after = report["before"], report["after"]
    span_s = max(after["time_s"] - before["time_s"], 1e-9)
    return Trial(
        number=number,
        round=round_number,
        instances=instances,
        booted=instances if applied["reloaded"] else int(applied["started"]),
        throughput_rps=series.throughput_rps,
        settled=series.settled,
        warmup_cut_s=series.cut_s,
        requests=int(measured["requests"]),
        errors=int(measured["errors"]),
        errors_by_kind={kind: count for kind, count in measured["errors_by_kind"].items() if count},
        latency_ms={name: load["latency_us"][name] / 1000 for name in ("p50", "p99") if load["latency_us"][name]},
        rss_bytes=sum(worker["rss_bytes"] for worker in after["workers"]),
        restarts=count_restarts(applied["workers"], report["workers"]),
        app_cpu_share=cpu_seconds(before, after) / span_s,
        generator_cpu_share=float(load["generator"]["cpu_share"]),
        wall_s=wall_s,
    )


def count_restarts(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> int:
    """Workers of the start that are not there any more, as the same process, at the end."""
    pids = {worker["pid"] for worker in after if worker["status"] == "online"}
    return sum(worker["pid"] not in pids for worker in before)


def cpu_seconds(before: Report, after: Report) -> float:
    """CPU time that the workers used between two readings, in seconds."""
    earlier = {worker["pid"]: worker["cpu_s"] for worker in before["workers"]}
    return float(sum(w["cpu_s"] - earlier[w["pid"]] for w in after["workers"] if w["pid"] in earlier))
