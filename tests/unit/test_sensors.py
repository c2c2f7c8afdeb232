"""Who used the CPUs, what the limit was, and whether something disturbed it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from records import usage
from simulated import raw_report
from support import ROOT

from tuner import sensors

BUDGET = 2.0


def busy_report() -> dict[str, Any]:
    """Ten seconds of load: 12 s of CPU for two workers, 1 for pm2, 2 for the database, 0.5 for the load, 1.5 others."""
    report = raw_report(2, 400.0)
    after = report["after"] = json.loads(json.dumps(report["after"]))
    after["workers"][0]["cpu_s"] += 7.0
    after["workers"][1]["cpu_s"] += 5.0
    report["before"].update(daemon_cpu_s=3.0, database_cpu_s=10.0, cgroup_throttled=None, spin_s=[0.05, 0.06])
    after.update(daemon_cpu_s=4.0, database_cpu_s=12.0, cgroup_throttled=None, spin_s=[0.07, 0.05])
    after["host_cpu_s"].update(user=114.0, system=23.0, idle=1002.0, steal=1.0)
    return report


def test_every_second_of_the_host_is_somebodys() -> None:
    found = sensors.read_usage(busy_report())
    assert found.application == pytest.approx(1.2)
    assert found.busiest_worker == pytest.approx(0.7)
    assert found.daemon == pytest.approx(0.1)
    assert found.database == pytest.approx(0.2)
    assert found.generator == pytest.approx(0.05)
    assert found.foreign == pytest.approx((14 + 3 - 12 - 1 - 2 - 0.5) / 10)
    assert found.steal == pytest.approx(0.1)
    assert found.slowest_spin_s == pytest.approx(0.07)


def test_guests_are_not_counted_twice_and_waiting_is_no_work() -> None:
    report = busy_report()
    before = sensors.read_usage(report).foreign
    for kind in ("guest", "guest_nice", "iowait"):
        report["before"]["host_cpu_s"] = {**report["before"]["host_cpu_s"], kind: 0.0}
        report["after"]["host_cpu_s"][kind] = 9.0
    assert sensors.read_usage(report).foreign == pytest.approx(before)


def test_a_host_without_database_daemon_or_quota() -> None:
    found = sensors.read_usage(raw_report(1, 100.0))
    assert (found.database, found.daemon, found.throttled_share, found.slowest_spin_s) == (None, 0.0, 0.0, None)


def test_throttled_periods_are_those_of_the_load() -> None:
    report = busy_report()
    report["before"]["cgroup_throttled"] = {"periods": 1000, "throttled": 900, "throttled_s": 9.0}
    report["after"]["cgroup_throttled"] = {"periods": 1100, "throttled": 925, "throttled_s": 9.5}
    assert sensors.read_usage(report).throttled_share == pytest.approx(0.25)


def test_a_real_trial_of_one_worker_was_limited_by_that_worker() -> None:
    report = json.loads((ROOT / "tests/fixtures/trials/scaled-down-to-1.json").read_text())
    found = sensors.read_usage(report)
    assert found.busiest_worker == pytest.approx(found.application) == pytest.approx(1.21)
    assert sensors.find_limit(found, cpu_budget=BUDGET, instances=1, connections=100) == "application CPU"


QUIET = [usage(foreign=0.1, slowest_spin_s=0.05), usage(foreign=0.9, slowest_spin_s=0.3)]


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (usage(foreign=0.19, slowest_spin_s=0.06), None),
        (usage(foreign=0.21), "other processes used 0.21 CPUs (at best 0.10)"),
        (usage(foreign=1.1), "other processes used 1.10 CPUs (at best 0.10)"),
        (usage(steal=0.05), "the hypervisor took 0.05 CPUs"),
        (usage(slowest_spin_s=0.1), "a fixed piece of work took 2.0 times as long as at best"),
    ],
)
def test_disturbances_are_what_differs_from_the_best_of_the_run(seen: Any, reason: str | None) -> None:  # noqa: ANN401 a usage
    found = sensors.find_disturbances(seen, QUIET, cpu_budget=BUDGET)
    assert found == ((reason,) if reason else ())


def test_the_first_trial_does_not_know_yet_what_is_usual_and_lets_more_pass() -> None:
    assert sensors.find_disturbances(usage(foreign=0.49, slowest_spin_s=9.0), [], cpu_budget=BUDGET) == ()
    found = sensors.find_disturbances(usage(foreign=0.51), [], cpu_budget=BUDGET)
    assert found == ("other processes used 0.51 CPUs",)


def test_a_slow_trial_is_no_disturbed_trial() -> None:
    assert sensors.find_disturbances(usage(application=0.01), QUIET, cpu_budget=BUDGET) == ()


@pytest.mark.parametrize(
    ("seen", "limit"),
    [
        (usage(generator=0.95, application=1.9), "generator"),
        (usage(throttled_share=0.2, application=1.9), "quota"),
        (usage(daemon=0.95, application=0.8), "pm2"),
        (usage(database=1.3, application=0.5), "database CPU"),
        (usage(application=1.85), "application CPU"),
        (usage(application=1.5, foreign=0.4), "all CPUs"),
        (usage(application=0.9, foreign=0.1), "nothing"),
    ],
)
def test_limits(seen: Any, limit: str) -> None:  # noqa: ANN401 a usage
    assert sensors.find_limit(seen, cpu_budget=BUDGET, instances=2, connections=32) == limit


def test_few_connections_are_the_limit_only_where_nothing_else_is() -> None:
    idle, busy = usage(application=0.9), usage(application=1.85)
    assert sensors.find_limit(idle, cpu_budget=BUDGET, instances=2, connections=31) == "connections"
    assert sensors.find_limit(busy, cpu_budget=BUDGET, instances=2, connections=31) == "application CPU"


def test_a_generator_elsewhere_uses_nothing_of_this_host() -> None:
    report = busy_report()
    report["load"]["hosts"] = {"load1": {"cpu_s": 4.0}, "load2": {"cpu_s": 4.0}}
    found = sensors.read_usage(report)
    assert found.generator_here == 0.0
    assert found.foreign == pytest.approx((14 + 3 - 12 - 1 - 2) / 10)


def test_the_share_of_each_worker_is_that_of_the_cpu_time_of_all() -> None:
    found = sensors.read_usage(busy_report())
    assert found.workers == pytest.approx((0.7, 0.5))
    assert found.worker_shares == pytest.approx((7 / 12, 5 / 12))
    assert usage(application=0.0, workers=(0.0, 0.0)).worker_shares == ()


def test_others_are_counted_over_the_time_between_the_readings_and_not_of_the_load_alone() -> None:
    report = busy_report()
    report["after"]["time_s"] = 30.0  # ten seconds of load, and ten in which several load hosts got ready
    found = sensors.read_usage(report)
    assert found.foreign == pytest.approx((14 + 3 - 12 - 1 - 2 - 0.5) / 20)
    assert found.steal == pytest.approx(0.05)
    assert found.application == pytest.approx(1.2)


def test_pressure_is_a_share_of_the_time_between_the_readings() -> None:
    report = busy_report()
    report["before"].update(time_s=100.0, pressure_s={"cpu": 50.0, "memory": 0.0, "io": None})
    report["after"].update(time_s=120.0, pressure_s={"cpu": 55.0, "memory": 0.5, "io": None})
    assert sensors.read_usage(report).pressure == pytest.approx({"cpu": 0.25, "memory": 0.025})
    assert sensors.read_usage(busy_report()).pressure == {}


def test_memory_is_the_peaks_and_the_shares_of_all_workers() -> None:
    report = busy_report()
    for worker, peak, share in zip(report["after"]["workers"], (300, 500), (200, 150), strict=True):
        worker.update(rss_peak_bytes=peak, pss_bytes=share)
    found = sensors.read_usage(report)
    assert (found.rss_peak_bytes, found.pss_bytes) == (800, 350)
    report["after"]["workers"][0]["pss_bytes"] = None
    assert sensors.read_usage(report).pss_bytes is None
    report["after"]["workers"] = []
    assert sensors.read_usage(report).rss_peak_bytes is None
