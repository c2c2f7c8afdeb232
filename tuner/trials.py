"""From the raw report of trial.yml to a Trial. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tuner import sensors, steady
from tuner.model import Report, Trial, Usage


@dataclass(frozen=True)
class Setting:
    """What is known of a trial before it runs.

    Attributes:
        number: Position in the run.
        round: Round in the run.
        instances: Workers that are asked for.
        attempt: 1, or more when it repeats a disturbed one.
        cpu_budget: CPUs that the application may use.
    """

    number: int
    round: int
    instances: int
    attempt: int
    cpu_budget: float


def to_trial(report: Report, setting: Setting, earlier: Sequence[Usage], *, wall_s: float) -> Trial:
    """Work out what one trial measured.

    Args:
        report: As trial.yml gave it.
        setting: What was asked for.
        earlier: Who used the CPUs in the trials before it, for what is usual in this run.
        wall_s: What the whole trial took.
    """
    load, applied = report["load"], report["applied"]
    measured, bins = load["measured"], load["bins"]
    series = steady.measure(bins["ok"], width_s=bins["width_s"], skip_s=load["warmup_s"])
    usage = sensors.read_usage(report)
    return Trial(
        number=setting.number,
        round=setting.round,
        instances=setting.instances,
        booted=setting.instances if applied["reloaded"] else int(applied["started"]),
        throughput_rps=series.throughput_rps,
        settled=series.settled,
        warmup_cut_s=series.cut_s,
        requests=int(measured["requests"]),
        errors=int(measured["errors"]),
        errors_by_kind={kind: count for kind, count in measured["errors_by_kind"].items() if count},
        latency_ms={name: load["latency_us"][name] / 1000 for name in ("p50", "p99") if load["latency_us"][name]},
        rss_bytes=sum(worker["rss_bytes"] for worker in report["after"]["workers"]),
        restarts=count_restarts(applied["workers"], report["workers"]),
        usage=usage,
        limited_by=sensors.find_limit(usage, cpu_budget=setting.cpu_budget, instances=setting.instances),
        disturbances=sensors.find_refusal(report)
        + sensors.find_disturbances(usage, earlier, cpu_budget=setting.cpu_budget),
        attempt=setting.attempt,
        wall_s=wall_s,
    )


def count_restarts(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> int:
    """Workers of the start that are not there any more, as the same process, at the end."""
    pids = {worker["pid"] for worker in after if worker["status"] == "online"}
    return sum(worker["pid"] not in pids for worker in before)
