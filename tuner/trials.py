"""From the raw report of trial.yml to a Trial. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tuner import budget, sensors, steady
from tuner.model import Report, Spent, Trial, Usage

# What the records call loads that only choose the number of connections, and add to the phase of a trial's second part.
CHOOSING, EXTENDED = "connections", ", extended"


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
    booted = setting.instances if applied["reloaded"] else int(applied["started"])
    return Trial(
        number=setting.number,
        round=setting.round,
        instances=setting.instances,
        booted=booted,
        throughput_rps=series.throughput_rps,
        settled=series.settled,
        warmup_cut_s=series.cut_s,
        requests=int(measured["requests"]),
        errors=int(measured["errors"]),
        errors_by_kind={kind: count for kind, count in measured["errors_by_kind"].items() if count},
        latency_ms={name: load["latency_us"][name] / 1000 for name in ("p50", "p99") if load["latency_us"][name]},
        rss_bytes=sum(worker["rss_bytes"] for worker in report["after"]["workers"]),
        restarts=count_restarts(report["before"]["workers"], report["after"]["workers"], len(applied["workers"])),
        usage=usage,
        limited_by=sensors.find_limit(
            usage, cpu_budget=setting.cpu_budget, instances=setting.instances, connections=load["connections"]
        ),
        disturbances=sensors.find_refusal(report)
        + sensors.find_disturbances(usage, earlier, cpu_budget=setting.cpu_budget),
        attempt=setting.attempt,
        wall_s=wall_s,
        spent=find_spent(report, booted, series.cut_s, wall_s),
    )


def extend(first: Trial, report: Report, second: Trial, extension: Report) -> Trial:
    """A trial that had not settled, and was measured on at once: one series, but for the second part's warm-up.

    Args:
        first: What did not settle.
        report: As trial.yml gave it.
        second: The extension alone, of which the counters and latencies are.
        extension: As trial.yml gave it.
    """
    load, more = report["load"], extension["load"]
    width_s = load["bins"]["width_s"]
    bins = [*load["bins"]["ok"], *more["bins"]["ok"][round(more["warmup_s"] / width_s) :]]
    series = steady.measure(bins, width_s=width_s, skip_s=load["warmup_s"])
    kinds = dict.fromkeys([*first.errors_by_kind, *second.errors_by_kind])
    return replace(
        second,
        booted=first.booted,
        throughput_rps=series.throughput_rps,
        settled=series.settled,
        warmup_cut_s=series.cut_s,
        requests=first.requests + second.requests,
        errors=first.errors + second.errors,
        errors_by_kind={k: first.errors_by_kind.get(k, 0) + second.errors_by_kind.get(k, 0) for k in kinds},
        restarts=first.restarts + second.restarts,
        wall_s=first.wall_s + second.wall_s,
        spent=budget.extend(
            first.spent, second.spent, load["warmup_s"] + load["duration_s"] + more["duration_s"] - series.cut_s
        ),
        extended=True,
    )


def count_restarts(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]], workers: int) -> int:
    """Workers that were not there any more, as the same process, at the end.

    Args:
        before: Those that the counters found at the start of the load.
        after: Those that they found at its end, by the same process ids.
        workers: How many there were to be.
    """
    started = {(worker["pid"], worker.get("started_s")) for worker in before}
    return workers - sum((worker["pid"], worker.get("started_s")) in started for worker in after)


def find_spent(report: Report, booted: int, cut_s: float, wall_s: float) -> Spent:
    """Where the time of a trial went.

    Args:
        report: As trial.yml gave it.
        booted: Workers that were started for it.
        cut_s: Load that was left out as warm-up.
        wall_s: What the whole trial took.
    """
    load_s = report["load"]["warmup_s"] + report["load"]["duration_s"]
    booting_s = float(report.get("switched_s", 0.0)) if booted else 0.0
    return Spent(
        measuring_s=load_s - cut_s,
        settling_s=cut_s,
        booting_s=booting_s,
        rest_s=max(0.0, wall_s - load_s - booting_s),
    )
