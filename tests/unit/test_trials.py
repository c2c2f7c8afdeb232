"""What one trial measured, worked out from its raw report."""

from __future__ import annotations

import json
from typing import Any

import pytest
from simulated import raw_report
from support import ROOT

from tuner.model import Trial
from tuner.trials import Setting, to_trial


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "tests/fixtures/trials" / name).read_text())
    return found


def convert(report: dict[str, Any], instances: int = 2) -> Trial:
    return to_trial(report, Setting(4, 2, instances, attempt=1, cpu_budget=2.0), [], wall_s=15.5)


def test_a_real_report_of_a_candidate_that_was_scaled_down_to() -> None:
    report = read("scaled-down-to-1.json")
    found = convert(report, instances=1)
    # Half a second and more of slow responses follow the planned 2 s: the best cut is at 4 s.
    assert found.warmup_cut_s == pytest.approx(4.0)
    assert found.throughput_rps == pytest.approx(sum(report["load"]["bins"]["ok"][40:]) / 6)
    assert found.throughput_rps == pytest.approx(265.17, abs=0.01)
    assert (found.number, found.round, found.instances, found.booted) == (4, 2, 1, 0)
    assert (found.requests, found.errors, found.errors_by_kind) == (1930, 0, {})
    assert found.latency_ms == {"p50": pytest.approx(250.085, abs=0.001), "p99": pytest.approx(4781.507, abs=0.001)}
    assert found.rss_bytes == 356909056
    assert found.restarts == 0
    assert found.usage.application == pytest.approx((24.22 - 12.12) / 10)
    assert found.usage.generator == pytest.approx(0.0372)
    assert found.wall_s == pytest.approx(15.5)


def test_a_real_report_of_a_candidate_that_booted_a_worker() -> None:
    found = convert(read("one-of-2-booted.json"))
    assert found.booted == 1
    assert found.warmup_cut_s >= 10.0
    assert found.rss_bytes == 423968768 + 341721088
    assert found.usage.application == pytest.approx((40.53 - 24.24 + 19.64 - 2.57) / 18)


def test_a_result_that_the_load_generator_refuses_counts_as_disturbed() -> None:
    report = raw_report(2, 400.0)
    report["load"]["generator"]["refused_reason"] = "a worker used 0.97 of its CPU"
    assert convert(report).disturbances == ("load generator: a worker used 0.97 of its CPU",)


def test_a_reload_boots_every_worker() -> None:
    report = raw_report(3, 400.0)
    report["applied"]["reloaded"] = True
    assert convert(report, instances=3).booted == 3


def test_a_worker_that_died_counts_as_a_restart_and_its_counters_for_nothing() -> None:
    report = raw_report(3, 400.0)
    report["after"]["workers"] = [
        {"pid": 100, "cpu_s": 6.0, "rss_bytes": 1000},
        {"pid": 101, "cpu_s": 5.0, "rss_bytes": 1000},
        {"pid": 999, "cpu_s": 3.0, "rss_bytes": 500},
    ]
    found = convert(report, instances=3)
    assert found.restarts == 1
    assert found.rss_bytes == 2500
    assert found.usage.application == pytest.approx((5 + 4) / 10)


def test_a_process_that_was_replaced_by_one_with_the_same_number_counts_as_a_restart() -> None:
    report = raw_report(2, 400.0)
    for reading, started_s in (("before", 50.0), ("after", 90.0)):
        report[reading]["workers"] = [
            {"pid": 100, "cpu_s": 1.0, "rss_bytes": 1000, "started_s": 50.0},
            {"pid": 101, "cpu_s": 1.0, "rss_bytes": 1000, "started_s": started_s},
        ]
    assert convert(report).restarts == 1


def test_a_worker_that_was_gone_before_the_load_counts_as_a_restart() -> None:
    report = raw_report(2, 400.0)
    report["before"]["workers"] = report["after"]["workers"] = report["before"]["workers"][:1]
    assert convert(report).restarts == 1


def test_all_workers_gone() -> None:
    report = raw_report(2, 400.0)
    report["after"]["workers"] = []
    found = convert(report)
    assert (found.restarts, found.rss_bytes, found.usage.application) == (2, 0, 0.0)


def test_every_second_of_a_trial_is_spent_on_something() -> None:
    report = {**raw_report(2, 400.0, started=1), "switched_s": 3.5}
    found = convert(report).spent
    # 15.5 s in all; 10 s of load, the first 2 of them planned as warm-up; the rest is Ansible.
    assert (found.measuring_s, found.settling_s, found.booting_s) == pytest.approx((8.0, 2.0, 3.5))
    assert found.rest_s == pytest.approx(15.5 - 10 - 3.5)


def test_switching_without_a_boot_is_not_booting() -> None:
    found = convert({**raw_report(2, 400.0), "switched_s": 1.5}).spent
    assert (found.booting_s, found.rest_s) == pytest.approx((0.0, 5.5))


def test_a_load_without_a_success_is_a_throughput_of_nothing_and_has_no_latency() -> None:
    report = raw_report(2, 0.0)
    report["load"]["measured"] = {"requests": 70, "errors": 70, "errors_by_kind": {"timeout": 0, "connect": 70}}
    report["load"]["latency_us"] = {"p50": None, "p99": None}
    found = convert(report)
    assert found.throughput_rps == 0.0
    assert found.latency_ms == {}
    assert found.errors_by_kind == {"connect": 70}
    assert found.error_rate == 1.0


def test_a_load_without_a_request_failed_altogether() -> None:
    report = raw_report(2, 0.0)
    report["load"]["bins"]["ok"] = []
    found = convert(report)
    assert (found.throughput_rps, found.settled, found.error_rate) == (0.0, False, 1.0)
