"""What flows between the parts: frozen records, with units in their names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

BYTES_PER_MIB = 1024 * 1024


@dataclass(frozen=True)
class HostCapacity:
    """What a host really has for the application.

    Attributes:
        cpus_online: CPUs of the machine.
        cpus_affinity: CPUs that the application's processes may run on.
        cpu_quota: The tightest CPU quota over all cgroups above the application, in CPUs; None without one.
        cpu_budget: The smaller of the two, in CPUs.
        cpu_limited_by: `online`, `affinity` or `quota`.
        memory_total_bytes: RAM of the machine.
        memory_limit_bytes: The tightest memory limit over all cgroups above; None without one.
        memory_available_bytes: What can be had now without swapping.
        assumed: Whether the limits are those of another process, since the application does not run.
    """

    cpus_online: int
    cpus_affinity: int
    cpu_quota: float | None
    cpu_budget: float
    cpu_limited_by: str
    memory_total_bytes: int
    memory_limit_bytes: int | None
    memory_available_bytes: int
    assumed: bool = False

    @property
    def memory_bytes(self) -> int:
        """The memory that counts: the machine's, or the limit below it."""
        return min(self.memory_total_bytes, self.memory_limit_bytes or self.memory_total_bytes)


@dataclass(frozen=True)
class Deployment:
    """The application as it was found on the host.

    Attributes:
        app_name: Its name in pm2.
        instances: Workers online; 0 when pm2 does not know it.
        unwell: Workers in any other state.
        url: Address at which the host itself reaches it.
        release: Name of the current release, or "".
        database_client: `sqlite`, `postgres` or `mysql`.
        sqlite_multi_process: Whether the inventory allows several processes on one SQLite file.
        database_pool_max: Connections that each instance may open.
        database_connections: Connections that the instances of this host may open in all; 0 when that is not known.
        worker_peak_bytes: The most memory that one worker has had; None before any has run.
        connections: How many connections are open to it, by the address of the other side.
    """

    app_name: str
    instances: int
    unwell: int
    url: str
    release: str
    database_client: str
    sqlite_multi_process: bool
    database_pool_max: int
    database_connections: int
    worker_peak_bytes: int | None
    connections: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ProjectWarning:
    """Something in the application's project that breaks with several instances.

    Attributes:
        file: Path from the project's directory.
        line: Line in it, counted from 1.
        message: What happens.
        fix: What to do about it, as an infinitive.
    """

    file: str
    line: int
    message: str
    fix: str


@dataclass(frozen=True)
class Lock:
    """Who holds the lock of a host.

    Attributes:
        user: Who.
        controller: From where.
        pid: Process there; None where the holder did not say.
        purpose: What for: deploy, rollback, recommend, compare or restore.
        since: Since when, as ISO 8601.
        renewed_s: How long ago it was renewed last, in seconds.
        time_s: For how long it was renewed then, in seconds.
        watchdog: Whether the host watches it, and brings itself back once it is not renewed in time.
        stale: Why it counts as left behind, or "".
        instances: What the host would bring itself back to; None where it would do nothing.
    """

    user: str
    controller: str
    pid: int | None
    purpose: str
    since: str
    renewed_s: float
    time_s: float
    watchdog: bool
    stale: str
    instances: int | None

    def __str__(self) -> str:
        """Who holds it, in words."""
        return f"{self.user} on {self.controller} (pid {self.pid}) since {self.since}, for {self.purpose}"


@dataclass(frozen=True)
class Inspection:
    """What `inspect` tells of one host."""

    host: str
    capacity: HostCapacity
    deployment: Deployment
    warnings: tuple[ProjectWarning, ...] = ()
    lock: Lock | None = None


@dataclass(frozen=True)
class Load:
    """The load that every candidate gets.

    Attributes:
        paths: Paths with queries, sent exactly as they are, in turn; none takes load_requests of the inventory.
        connections: Connections of the closed loop, each with one request at a time; None until they are chosen.
        duration_s: Measured time of a trial.
        warmup_cold_s: Load before it when workers were booted for this trial: they need time to reach full speed.
        warmup_warm_s: Load before it otherwise.
        rate_rps: Requests per second of an open loop; 0 is a closed one, in which answers set the pace.
    """

    paths: tuple[str, ...] = ()
    connections: int | None = 100
    duration_s: float = 20.0
    warmup_cold_s: float = 10.0
    warmup_warm_s: float = 2.0
    rate_rps: float = 0.0


@dataclass(frozen=True)
class Bound:
    """The most instances that something allows, and the reason in words."""

    limit: int
    reason: str


@dataclass(frozen=True)
class Plan:
    """Which instance counts may be tried, and why no others.

    Attributes:
        candidates: Instance counts, ascending.
        bounds: Upper bounds, the tightest first.
    """

    candidates: tuple[int, ...]
    bounds: tuple[Bound, ...]


@dataclass(frozen=True)
class Usage:
    """Who used the CPUs while a load was on. Shares are in CPUs: 1.0 is one CPU all the time.

    Attributes:
        application: All workers together.
        workers: Each of them, in the order in which pm2 lists them.
        daemon: pm2's daemon, which hands the connections to the workers.
        database: The database, where it runs on this host; None where it does not.
        generator: The load generator's busiest process, wherever it runs.
        generator_here: What the load generator used on this host.
        foreign: Everything else on this host.
        steal: Taken by the hypervisor.
        throttled_share: Share of the scheduler's periods in which a CPU quota stopped the application, 0 to 1.
        slowest_spin_s: What a fixed piece of work took on the slowest CPU before or after; None where it was not timed.
        pressure: Share of the time in which some task of the host waited for `cpu`, `memory` or `io`, 0 to 1; only what
            the kernel counts.
        rss_peak_bytes: The most memory that each worker has had so far, added up; None where the kernel does not tell.
        pss_bytes: Memory of all workers at the end of the load, what they share counted once; None as above.
    """

    application: float
    workers: tuple[float, ...]
    daemon: float
    database: float | None
    generator: float
    generator_here: float
    foreign: float
    steal: float
    throttled_share: float
    slowest_spin_s: float | None
    pressure: Mapping[str, float] = field(default_factory=dict)
    rss_peak_bytes: int | None = None
    pss_bytes: int | None = None

    @property
    def busiest_worker(self) -> float:
        """The worker that used most."""
        return max(self.workers, default=0.0)

    @property
    def worker_shares(self) -> tuple[float, ...]:
        """What each worker had of the CPU time of all, 0 to 1; how evenly the connections were handed out."""
        return tuple(used / self.application for used in self.workers) if self.application else ()


@dataclass(frozen=True)
class Spent:
    """Where the time of one trial went, in seconds.

    Attributes:
        measuring_s: Load that counts.
        settling_s: Load that was cut off as warm-up.
        booting_s: Switching to a candidate with workers that were not running.
        rest_s: Everything else: Ansible, switching without a boot, reading the counters.
    """

    measuring_s: float = 0.0
    settling_s: float = 0.0
    booting_s: float = 0.0
    rest_s: float = 0.0


@dataclass(frozen=True)
class Trial:
    """One candidate measured once.

    Attributes:
        number: Position in the run, from 1.
        round: Number of the sweep of the search, or of the pair, that it belongs to, from 1.
        instances: Workers that ran.
        booted: Workers that were started for this trial.
        throughput_rps: Successful responses per second in steady state; 0 when there was none.
        settled: Whether throughput had stopped rising or falling within the trial.
        warmup_cut_s: How much of the trial was left out as warm-up, from its start.
        requests: Requests completed while measuring.
        errors: Those that failed, or were answered with something else than 2xx.
        errors_by_kind: Their number by kind.
        latency_ms: Percentiles by name (`p50`, `p99`), of the closed loop.
        rss_bytes: Memory of all workers together at the end of the load.
        restarts: Workers that pm2 had to replace.
        usage: Who used the CPUs.
        limited_by: What limited the throughput.
        disturbances: What the sensors say disturbed it; empty when nothing did.
        attempt: 1, or more when it repeats a disturbed one.
        wall_s: What the whole trial took, switching included.
        spent: Where that time went.
        extended: Whether it had not settled at first, and was then measured for as long again.
    """

    number: int
    round: int
    instances: int
    booted: int
    throughput_rps: float
    settled: bool
    warmup_cut_s: float
    requests: int
    errors: int
    errors_by_kind: Mapping[str, int]
    latency_ms: Mapping[str, float]
    rss_bytes: int
    restarts: int
    usage: Usage
    limited_by: str
    disturbances: tuple[str, ...]
    attempt: int
    wall_s: float
    spent: Spent = Spent()
    extended: bool = False

    @property
    def error_rate(self) -> float:
        """Failed requests over all requests, 0 to 1; 1 when nothing was answered at all."""
        return self.errors / self.requests if self.requests else 1.0


class Verdict(StrEnum):
    """How sure a decision is."""

    CERTIFIED = "certified"
    RESOLVED = "resolved"
    UNRESOLVED = "unresolved"
    UNFIT = "unfit"


@dataclass(frozen=True)
class CandidateSummary:
    """All trials of one candidate together.

    Attributes:
        instances: The candidate.
        trials: Number of trials that count.
        throughput_rps: Geometric mean over the trials.
        interval_rps: 95 % interval of it, or None with fewer than two trials.
        ratio: Throughput over that of the smallest candidate that was measured; None where either had none.
        latency_ms: Medians over the trials of the percentiles.
        rss_bytes: The most that all workers together had at the end of a trial.
        limited_by: What limited most of its trials.
        disturbed: How many of its trials were disturbed, also when they were repeated.
        requests: Requests over all trials.
        errors: Those that failed.
        unfit: Why it cannot be chosen, or "".
        eliminated: Why it is out of the race, or "".
    """

    instances: int
    trials: int
    throughput_rps: float
    interval_rps: tuple[float, float] | None
    ratio: float | None
    latency_ms: Mapping[str, float]
    rss_bytes: int
    requests: int
    errors: int
    limited_by: str = ""
    disturbed: int = 0
    unfit: str = ""
    eliminated: str = ""


@dataclass(frozen=True)
class SloResult:
    """What one candidate gave at a rate.

    Attributes:
        instances: The candidate.
        rate_rps: Requests per second that were planned.
        achieved_rps: Successful responses per second, over all windows.
        requests: Requests in all windows.
        latency_ms: The percentile over all windows together; None where nothing was answered.
        upper_ms: Its upper 95 % bound; None where too few requests were seen for one.
        met: Whether the objective is surely kept.
        reason: Why it is not, or "".
    """

    instances: int
    rate_rps: float
    achieved_rps: float
    requests: int
    latency_ms: float | None
    upper_ms: float | None
    met: bool
    reason: str


@dataclass(frozen=True)
class Decision:
    """What the trials say.

    Attributes:
        verdict: How sure it is.
        instances: The chosen count; None when there is none.
        tolerance: Throughput one is willing to give up for fewer instances, 0 to 1.
        resolution: Half-width of the 95 % interval of the choice's throughput relative to the best, 0 to 1, or None.
        probability: Probability that the likeliest count is the right one, 0 to 1.
        seed: Seed of the sampling: with the same trials it leads to the same decision.
        stop_reason: Why the run ended.
        sentence: The verdict with its reason, for a person.
        remedy: What would resolve it, or "".
        candidates: One summary for each candidate that was measured.
        slo: What candidates gave at a stated rate, where an objective was asked for.
    """

    verdict: Verdict
    instances: int | None
    tolerance: float
    resolution: float | None
    probability: float
    seed: int
    stop_reason: str
    sentence: str
    remedy: str = ""
    candidates: tuple[CandidateSummary, ...] = field(default=())
    slo: tuple[SloResult, ...] = field(default=())


Report = Mapping[str, Any]
