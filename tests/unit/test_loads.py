"""What several load hosts measured is put together exactly, and the health of each is kept."""

from __future__ import annotations

import asyncio
import copy
import random
from typing import Any

import pytest
from truth_server import Server, answer_ok, http_load, params

from tuner import loads

HOSTS = ("load1", "load2", "load3")


def outcome_of(seed: int) -> Any:  # noqa: ANN401 a dataclass of the module
    """What one worker of http_load counted: random latencies, errors, bins."""
    rng = random.Random(seed)
    recorder = http_load.Recorder(0.5, 2.0, 1)
    recorder.begin(0)
    now_ns = 0
    for _ in range(rng.randrange(300, 900)):
        now_ns += rng.randrange(1_000_000, 4_000_000)
        if rng.random() < 0.1:
            recorder.failure(0, now_ns, 1_000_000, http_load.TIMEOUT, f"slow {seed}")
        else:
            recorder.success(0, now_ns, int(rng.lognormvariate(16, 1.5)), 100, 200 + seed % 2)
    recorder.stop(max(now_ns, 2_500_000_000))
    return http_load.Outcome(
        started_at=1000.0,
        measured_ns=recorder.measured_ns,
        total_ns=2_500_000_000,
        phases=[recorder.warmup, recorder.measured, recorder.after],
        bins_ok=recorder.bins_ok,
        bins_errors=recorder.bins_errors,
        cpu_s=[0.1 * (seed + 1)],
        lags={100: seed},
        max_lag_ns=1000 * seed,
        busy_ns=0,
        planned=0,
        planned_measured=0,
        unsent=seed,
        unsent_measured=0,
        error_samples=recorder.error_samples,
        connected=True,
    )


def report_of(outcome: Any, connections: int) -> Any:  # noqa: ANN401 as above
    plan = http_load.make_plan(
        params("http://127.0.0.1:1", connections=connections, warmup_s=0.5, duration_s=2.0, requests=[{"path": "/"}])
    )
    return http_load.make_report(plan, outcome)


def test_counts_bins_and_percentiles_are_those_of_one_load_that_had_counted_everything() -> None:
    outcomes = [outcome_of(seed) for seed in range(3)]
    together = report_of(http_load.Outcome.sum(outcomes), 10)
    found = loads.merge(HOSTS, [report_of(outcome, share) for outcome, share in zip(outcomes, (4, 3, 3), strict=True)])
    assert found["connections"] == 10
    assert found["bins"] == together["bins"]
    for counts in ("measured", "total"):
        for name, value in together[counts].items():
            assert found[counts][name] == (pytest.approx(value, abs=0.002) if isinstance(value, float) else value), name
    for name, value in together["latency_us"].items():
        assert found["latency_us"][name] == (pytest.approx(value, abs=0.001) if name == "mean" else value), name
    assert found["unsent"] == together["unsent"] == 3
    assert found["error_samples"]["timeout"] == "slow 0"
    assert found["generator"]["cpu_s"] == pytest.approx(0.6)


def test_the_health_of_each_host_is_kept_and_the_worst_counts() -> None:
    reports = [report_of(outcome_of(seed), 4) for seed in range(3)]
    reports[1]["generator"].update(cpu_share=0.97, refused_reason="the generator used 97% of a core")
    reports[2]["generator"].update(littles_law_residual=2.5, send_rate=0.9, most_connections=500)
    found = loads.merge(HOSTS, reports)
    assert list(found["hosts"]) == list(HOSTS)
    assert found["hosts"]["load2"]["cpu_share"] == 0.97
    assert found["generator"]["cpu_share"] == 0.97
    assert found["generator"]["littles_law_residual"] == 2.5
    assert found["generator"]["send_rate"] == 0.9
    assert found["generator"]["most_connections"] == 1500
    assert found["generator"]["refused_reason"] == "load2: the generator used 97% of a core"


def test_hosts_that_did_not_begin_together_are_not_believed() -> None:
    reports = [report_of(outcome_of(seed), 4) for seed in range(2)]
    reports[1]["started_at"] += 0.4
    assert loads.merge(HOSTS[:2], reports)["generator"]["refused_reason"] == "the load hosts began 0.4 s apart"


def test_one_host_alone_stays_as_it_is() -> None:
    report = report_of(outcome_of(1), 4)
    kept = copy.deepcopy(report)
    assert loads.merge(HOSTS[:1], [report]) == {**kept, "hosts": {"load1": kept["generator"]}}


def test_a_load_that_nothing_answered_has_no_latency() -> None:
    empty = http_load.Outcome.sum([outcome_of(0)])
    empty.phases = [[http_load.Tally()] for _ in range(3)]
    found = loads.merge(HOSTS[:2], [report_of(empty, 1), report_of(empty, 1)])
    assert (found["latency_us"]["count"], found["latency_us"]["p99"]) == (0, None)
    assert found["generator"]["cpu_us_per_request"] is None


def test_two_generators_that_begin_together_load_one_server_with_what_was_asked_for() -> None:
    async def measure() -> tuple[list[Any], int]:
        async with Server(answer_ok) as server:
            begin = http_load.time.time() + 0.3
            changes: dict[str, object] = {"count": 200, "start_at": begin}
            plans = [
                http_load.make_plan(params(f"http://127.0.0.1:{server.port}", connections=share, **changes))
                for share in (3, 2)
            ]
            runs = [asyncio.to_thread(http_load.run_load, plan, lambda: False) for plan in plans]
            reports = await asyncio.gather(*runs)
            assert all(report["started_at"] > begin - 0.01 for report in reports)
            return list(reports), len(server.arrivals)

    reports, arrived = asyncio.run(measure())
    found = loads.merge(HOSTS[:2], reports)
    assert found["total"]["ok"] == found["measured"]["requests"] == arrived == 400
    assert sum(found["bins"]["ok"]) == 400
    assert found["connections"] == 5
