"""What the playbooks report of a host, checked where it comes in: what cannot be true ends the command. Pure.

A host is not trusted to tell the truth, nor is what it passes on of others. Its texts are made printable here, once for
all that show them.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any, NotRequired

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError, WrapValidator
from typing_extensions import TypedDict  # pydantic takes that of the standard library from Python 3.12 on

from tuner.errors import HostError
from tuner.model import Report
from tuner.validation import in_words
from tuner.wording import printable

# Linux has no more CPUs than these (NR_CPUS), and more memory in one machine was never seen.
MOST_CPUS = 8192
MOST_BYTES = 2**50
MOST_COUNT = 10**12
LONGEST_S = 10**9
LONGEST_TRIAL_S = 3600
PAIR = 2

Text = Annotated[str, AfterValidator(printable)]
Count = Annotated[int, Field(ge=0, le=MOST_COUNT)]
Bytes = Annotated[int, Field(ge=0, le=MOST_BYTES)]
Cpus = Annotated[int, Field(ge=1, le=MOST_CPUS)]
Share = Annotated[float, Field(ge=0, le=MOST_CPUS, allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=0, le=LONGEST_S, allow_inf_nan=False)]
Micros = Annotated[float, Field(ge=0, le=1e6 * LONGEST_S, allow_inf_nan=False)]
# What a template made, which older versions of Ansible turn into text.
Templated = Annotated[int, Field(strict=False, ge=0, le=MOST_COUNT)]
Flag = Annotated[bool, Field(strict=False)]


def _check_capacity(found: Capacity) -> Capacity:
    if found["cpu_budget"] > found["cpus_affinity"]:
        raise ValueError(f"a budget of {found['cpu_budget']:g} CPUs, of which {found['cpus_affinity']} may be used")
    return found


class Capacity(TypedDict):
    """What host_capacity measured."""

    cpus_online: Cpus | None
    cpus_affinity: Cpus
    cpu_quota: Annotated[float, Field(gt=0, le=MOST_CPUS, allow_inf_nan=False)] | None
    cpu_budget: Annotated[float, Field(gt=0, le=MOST_CPUS, allow_inf_nan=False)]
    cpu_limited_by: Text
    memory_total_bytes: Annotated[int, Field(ge=1, le=MOST_BYTES)]
    memory_limit_bytes: Annotated[int, Field(ge=1)] | None
    memory_available_bytes: Bytes
    assumed: Flag


class CountedWorker(TypedDict):
    """What host_counters says of one worker."""

    pid: Annotated[int, Field(ge=1)]
    cpu_s: Seconds
    rss_bytes: Bytes
    pss_bytes: Bytes | None
    rss_peak_bytes: Bytes | None
    started_s: Annotated[float, Field(allow_inf_nan=False)]


class Throttling(TypedDict):
    """How often a quota stopped the application."""

    periods: Count
    throttled: Count


class Counters(TypedDict):
    """What host_counters read."""

    time_s: Seconds
    workers: list[CountedWorker]
    daemon_cpu_s: Seconds | None
    host_cpu_s: dict[Text, Seconds]
    cgroup_throttled: Throttling | None
    pressure_s: dict[Text, Seconds | None]
    database_cpu_s: Seconds | None
    spin_s: list[Annotated[float, Field(gt=0, le=LONGEST_S, allow_inf_nan=False)]]
    connections: dict[Text, Count] | None


class Worker(TypedDict):
    """What pm2 says of one worker."""

    pid: Annotated[int, Field(ge=0)]
    status: Text


class Application(TypedDict):
    """What runs under pm2."""

    name: Text
    url: Text
    release: Text
    workers: list[Worker]
    counters: Counters


class Database(TypedDict):
    """What the application's database allows."""

    client: Text
    sqlite_multi_process: Flag
    pool_max: Templated
    connections: Templated


class Finding(TypedDict):
    """What strapi_lint found."""

    file: Text
    line: Annotated[int, Field(ge=1)]
    message: Text
    fix: Text


class HeldLock(TypedDict):
    """What host_lease says of the lock of the host."""

    user: Text
    controller: Text
    pid: int | None
    purpose: Text
    since: Text
    renewed_s: Seconds
    time_s: Seconds
    watchdog: bool
    stale: Text
    instances: Annotated[int, Field(ge=0, le=MOST_COUNT)] | None


class InspectReport(TypedDict):
    """The report of inspect.yml."""

    capacity: Annotated[Capacity, AfterValidator(_check_capacity)]
    lock: HeldLock | None
    application: Application
    database: Database
    warnings: list[Finding]


def _empty_or_checked(value: object, check: Any) -> Any:  # noqa: ANN401 pydantic's own signature
    return value if value == {} else check(value)


def _check_lengths(*names: str) -> AfterValidator:
    """The lists of these names belong together, one entry a host."""

    def check(found: Mapping[str, Any]) -> Mapping[str, Any]:
        lengths = {name: len(found[name]) for name in names}
        if len(set(lengths.values())) > 1 or not found[names[0]]:
            raise ValueError(f"for each host one of {lengths}")
        return found

    return AfterValidator(check)


class AskedCounts(TypedDict):
    """How often a request was answered, and how."""

    errors_by_kind: dict[Text, Count]
    status_counts: dict[Text, Count]


class AskedRequest(TypedDict):
    """What http_load says of the requests of one name."""

    total: AskedCounts


class Asked(TypedDict):
    """What http_load says where each request was sent once."""

    by_name: dict[Text, AskedRequest]
    error_samples: dict[Text, Text]


# A host that could not send has nothing to say.
AskedOrNothing = Annotated[Asked, WrapValidator(_empty_or_checked)]


class CheckReport(TypedDict):
    """The report of check.yml."""

    base_url: Text
    hosts: list[Text]
    loads: list[AskedOrNothing]
    problems: list[Text]


class Fetched(TypedDict):
    """One answer of the application; the body is read as JSON and not shown."""

    status: Annotated[int, Field(strict=False)]
    body: str
    problem: Text


class SeedReport(TypedDict):
    """The report of seed.yml."""

    base_url: Text
    host: Text
    load: AskedOrNothing
    problem: Text
    fetched: Fetched


def _check_counts(found: Counts) -> Counts:
    if unknown := found.keys() - Counts.__annotations__.keys():
        raise ValueError(f"{sorted(unknown)} are no counts")
    return found


class Counts(TypedDict):
    """What http_load counted."""

    requests: Count
    ok: Count
    errors: Count
    retried: Count
    errors_by_kind: dict[Text, Count]
    status_counts: dict[Text, Count]
    bytes: Bytes
    throughput_rps: Annotated[float, Field(ge=0, le=MOST_COUNT, allow_inf_nan=False)]


CheckedCounts = Annotated[Counts, AfterValidator(_check_counts)]


def _check_latency(found: Latency) -> Latency:
    pairs = found["histogram"]
    ascending = all(low[0] < high[0] for low, high in pairwise(pairs))
    if not ascending or sum(count for _, count in pairs) != found["count"]:
        raise ValueError(f"a histogram that does not hold {found['count']} requests in ascending order")
    if found["count"] and None in (found["min"], found["mean"], found["max"], found["p50"], found["p99"]):
        raise ValueError(f"{found['count']} requests without a latency")
    return found


class Latency(TypedDict):
    """What http_load says of the latency; see its RETURN for the histogram."""

    count: Count
    min: Micros | None
    max: Micros | None
    mean: Micros | None
    p50: Micros | None
    p90: Micros | None
    p95: Micros | None
    p99: Micros | None
    p99_9: Micros | None
    histogram: list[Annotated[list[Count], Field(min_length=PAIR, max_length=PAIR)]]


class Lag(TypedDict):
    """How late the load generator was."""

    count: Count
    p50: Micros | None
    p99: Micros | None
    max: Micros | None


class Generator(TypedDict):
    """The health of the load generator."""

    cpu_s: Seconds
    cpu_share: Share
    littles_law_residual: Annotated[float, Field(allow_inf_nan=False)] | None
    send_rate: Annotated[float, Field(allow_inf_nan=False)] | None
    schedule_lag_us: Lag
    most_connections: Annotated[int, Field(ge=1)]
    refused_reason: Text


class Bins(TypedDict):
    """Responses in each span of time."""

    width_s: Annotated[float, Field(ge=0.001, le=LONGEST_TRIAL_S, allow_inf_nan=False)]
    ok: list[Count]
    errors: list[Count]


class Load(TypedDict):
    """What http_load measured on one host."""

    started_at: Annotated[float, Field(ge=0, le=MOST_COUNT, allow_inf_nan=False)]
    warmup_s: Annotated[float, Field(ge=0, le=LONGEST_TRIAL_S, allow_inf_nan=False)]
    duration_s: Annotated[float, Field(ge=0, le=LONGEST_TRIAL_S, allow_inf_nan=False)]
    connections: Annotated[int, Field(ge=1, le=MOST_COUNT)]
    workers: Count
    rate_rps: Annotated[float, Field(ge=0, le=MOST_COUNT, allow_inf_nan=False)] | None
    planned: Count | None
    unsent: Count
    bins: Bins
    measured: CheckedCounts
    total: CheckedCounts
    latency_us: Annotated[Latency, AfterValidator(_check_latency)]
    generator: Generator
    error_samples: dict[Text, Text]


class Applied(TypedDict):
    """What pm2_app did to have the candidate run."""

    started: Count
    reloaded: bool
    workers: list[Worker]


def _check_trial(found: TrialReport) -> TrialReport:
    if not found["after"]["time_s"] > found["before"]["time_s"]:
        raise ValueError("a clock that did not go on during the load; was the host started anew?")
    return found


class TrialReport(TypedDict):
    """The report of trial.yml."""

    host: Text
    applied: Applied
    before: Counters
    after: Counters
    hosts: list[Text]
    loads: list[Load]
    task_s: NotRequired[dict[str, float]]


INSPECT: TypeAdapter[Any] = TypeAdapter(InspectReport)
LOCK: TypeAdapter[Any] = TypeAdapter(HeldLock)
CHECK: TypeAdapter[Any] = TypeAdapter(Annotated[CheckReport, _check_lengths("hosts", "loads", "problems")])
SEED: TypeAdapter[Any] = TypeAdapter(SeedReport)
TRIAL: TypeAdapter[Any] = TypeAdapter(
    Annotated[TrialReport, AfterValidator(_check_trial), _check_lengths("hosts", "loads")]
)


def check(host: str, report: Report, kind: TypeAdapter[Any]) -> Report:
    """Give back a report whose every known field can be true, and whose texts can be shown.

    Args:
        host: Whom it is of.
        report: As the playbook made it. Fields that are not known here are passed on as they are.
        kind: What it must be, one of those above.

    Raises:
        HostError: When something is missing in it, or cannot be true; names the field.
    """
    try:
        found: Report = kind.validate_python(dict(report), strict=True, extra="allow")
    except ValidationError as error:
        raise HostError(
            f"{host} reports what cannot be: {in_words(error)}", remedy="look at what it says, with -v"
        ) from error
    return found
