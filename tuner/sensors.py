"""What the counters beside a load say: who used the CPUs, what the limit was, and whether something disturbed it. Pure.

Whether a trial was disturbed is judged by these sensors alone, never by its throughput.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tuner.model import Report, Usage

# CPU time of others, as a share of the budget, above the least that was seen in this run (Ansible itself is in it).
FOREIGN_SHARE = 0.05
# The same in the first trial, when that least is not known yet.
UNKNOWN_FOREIGN_SHARE = 0.25
# Share of the CPUs that the hypervisor gave to somebody else.
STEAL_SHARE = 0.02
# The timed work on the slowest CPU, over the least that it took in this run.
SPIN_RATIO = 1.5
# From here on a CPU, or all of them, count as used up.
BUSY_SHARE = 0.9
# Share of the scheduler's periods in which the quota stopped the application.
THROTTLED_SHARE = 0.05
# Handed out in turn, so many connections a worker keep each of them busy (as tuner.concurrency begins with).
FEW_CONNECTIONS = 16
# What the kernel counts beside the time of processes; that of guests is in user and nice already.
NO_WORK = ("idle", "iowait", "steal", "guest", "guest_nice")


def read_usage(report: Report) -> Usage:
    """Work out who used how much of the CPUs between the two readings of a trial.

    Args:
        report: The raw report of trial.yml.

    Returns:
        CPU time in CPUs (1.0 is one CPU all the time): of application, pm2, database and load generator over
        the time in which the load was on, of others and the hypervisor over the time between the readings.
    """
    before, after, load = report["before"], report["after"], report["load"]
    loaded_s = max(load["warmup_s"] + load["duration_s"], 1e-9)
    # Others are at work all the time, also while several load hosts get ready.
    between_s = max(after["time_s"] - before["time_s"], 1e-9)
    workers = _worker_seconds(report)
    host = {kind: after["host_cpu_s"][kind] - before["host_cpu_s"].get(kind, 0.0) for kind in after["host_cpu_s"]}
    busy = sum(seconds for kind, seconds in host.items() if kind not in NO_WORK)
    daemon = _difference(report, "daemon_cpu_s")
    database = _difference(report, "database_cpu_s")
    # Its CPU time is that of the measured window.
    here = load["hosts"].get(report["host"], {"cpu_s": 0.0})["cpu_s"] / max(load["duration_s"], 1e-9)
    known = sum(workers) + (daemon or 0.0) + (database or 0.0) + here * loaded_s
    throttled = _throttled_share(before.get("cgroup_throttled"), after.get("cgroup_throttled"))
    return Usage(
        application=sum(workers) / loaded_s,
        workers=tuple(seconds / loaded_s for seconds in workers),
        daemon=(daemon or 0.0) / loaded_s,
        database=None if database is None else database / loaded_s,
        generator=float(load["generator"]["cpu_share"]),
        generator_here=here,
        foreign=max(0.0, busy - known) / between_s,
        steal=host.get("steal", 0.0) / between_s,
        throttled_share=throttled,
        slowest_spin_s=max([*before.get("spin_s", ()), *after.get("spin_s", ())], default=None),
        pressure=_pressure(before, after, between_s),
        rss_peak_bytes=_sum_known(after["workers"], "rss_peak_bytes"),
        pss_bytes=_sum_known(after["workers"], "pss_bytes"),
    )


def _pressure(before: Report, after: Report, between_s: float) -> dict[str, float]:
    earlier, later = before.get("pressure_s", {}), after.get("pressure_s", {})
    known = [kind for kind in later if later[kind] is not None and earlier.get(kind) is not None]
    return {kind: (later[kind] - earlier[kind]) / between_s for kind in known}


def _sum_known(workers: Sequence[Mapping[str, Any]], name: str) -> int | None:
    values = [worker.get(name) for worker in workers]
    return sum(value for value in values if value is not None) if values and None not in values else None


def _worker_seconds(report: Report) -> list[float]:
    earlier = {worker["pid"]: worker["cpu_s"] for worker in report["before"]["workers"]}
    return [w["cpu_s"] - earlier[w["pid"]] for w in report["after"]["workers"] if w["pid"] in earlier]


def _difference(report: Report, name: str) -> float | None:
    earlier, later = report["before"].get(name), report["after"].get(name)
    return None if earlier is None or later is None else float(later - earlier)


def _throttled_share(before: Report | None, after: Report | None) -> float:
    if not before or not after:
        return 0.0
    periods = after["periods"] - before["periods"]
    return (after["throttled"] - before["throttled"]) / periods if periods > 0 else 0.0


def find_disturbances(usage: Usage, earlier: Sequence[Usage], *, cpu_budget: float) -> tuple[str, ...]:
    """Say what disturbed a trial.

    Args:
        usage: Of this trial.
        earlier: Of the trials before it in this run.
        cpu_budget: CPUs that the application may use.

    Returns:
        Reasons in words; none when the trial was quiet.
    """
    found = []
    # The least that was seen, and no average: what disturbs for long must not become what is usual.
    usual = min((u.foreign for u in earlier), default=0.0)
    allowed = FOREIGN_SHARE if earlier else UNKNOWN_FOREIGN_SHARE
    if usage.foreign - usual > allowed * cpu_budget:
        found.append(f"other processes used {usage.foreign:.2f} CPUs" + (f" (at best {usual:.2f})" if earlier else ""))
    if usage.steal > STEAL_SHARE * cpu_budget:
        found.append(f"the hypervisor took {usage.steal:.2f} CPUs")
    spins = [u.slowest_spin_s for u in earlier if u.slowest_spin_s is not None]
    if usage.slowest_spin_s is not None and spins and usage.slowest_spin_s > SPIN_RATIO * min(spins):
        ratio = usage.slowest_spin_s / min(spins)
        found.append(f"a fixed piece of work took {ratio:.1f} times as long as at best")
    return tuple(found)


def find_refusal(report: Report) -> tuple[str, ...]:
    """Why the load generator says that its result is not to be believed, as `find_disturbances` gives reasons."""
    reason = report["load"]["generator"].get("refused_reason", "")
    return (f"load generator: {reason}",) if reason else ()


def find_limit(usage: Usage, *, cpu_budget: float, instances: int, connections: int) -> str:
    """Say what limited the throughput of a trial.

    Args:
        usage: Of the trial.
        cpu_budget: CPUs that the application may use.
        instances: Workers that ran.
        connections: Connections of the load.

    Returns:
        `generator`, `quota`, `pm2`, `database CPU`, `application CPU`, `all CPUs`, `connections`: nothing was used up
        and each worker had so few that some were idle now and then; or `nothing`: a heavier load would give more.
    """
    used = usage.application + usage.daemon + (usage.database or 0.0) + usage.generator_here + usage.foreign
    limits = {
        "generator": usage.generator > BUSY_SHARE,
        "quota": usage.throttled_share > THROTTLED_SHARE,
        "pm2": usage.daemon > BUSY_SHARE,
        "database CPU": (usage.database or 0.0) > max(usage.application, BUSY_SHARE * cpu_budget / 2),
        "application CPU": usage.application >= BUSY_SHARE * min(instances, cpu_budget),
        "all CPUs": used >= BUSY_SHARE * cpu_budget,
        "connections": connections < FEW_CONNECTIONS * instances,
    }
    return next((name for name, reached in limits.items() if reached), "nothing")
