"""Whatever a host answers: one line that says what cannot be, exit code 5, and the host as it was found."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
from answering import Answering, Damage, recorded
from typed import Result, Typed

from tuner import reports
from tuner.ansible_target import AnsibleTarget, Outcome
from tuner.errors import HostError

HOST = ("--host", "prod1", "-i", "hosts.yml")
RECOMMEND = (
    "recommend",
    *HOST,
    "--url",
    "/api/articles",
    "--connections",
    "8",
    "--duration",
    "2",
    "--candidates",
    "1-2",
)


def put(path: str, value: Any) -> Damage:  # noqa: ANN401 whatever JSON can hold
    """Put a value in its place in a report; `loads.0.unsent` is the place of what one of several hosts counted."""
    *above, last = [int(key) if key.isdigit() else key for key in path.split(".")]

    def damage(report: Any) -> None:  # noqa: ANN401 as above
        for key in above:
            report = report[key]
        report[last] = value

    return damage


def drop(path: str) -> Damage:
    """Leave something out of a report."""
    *above, last = path.split(".")

    def damage(report: Any) -> None:  # noqa: ANN401 whatever JSON can hold
        for key in above:
            report = report[int(key) if key.isdigit() else key]
        del report[last]

    return damage


# What is changed in the report of inspect.yml, and what the error says.
INSPECT: dict[str, tuple[Damage, str]] = {
    "nothing but a task's time": (lambda report: report.clear(), "capacity is missing"),
    "no capacity": (drop("capacity"), "capacity is missing"),
    "capacity is a text": (put("capacity", "much"), "capacity: input should be a valid dictionary, and not 'much'"),
    "no budget": (drop("capacity.cpu_budget"), r"capacity\.cpu_budget is missing"),
    "a budget of nothing": (put("capacity.cpu_budget", 0), r"capacity\.cpu_budget: .* greater than 0, and not 0"),
    "a budget that is no number": (put("capacity.cpu_budget", math.nan), r"capacity\.cpu_budget: .* and not nan"),
    "an infinite budget": (put("capacity.cpu_budget", math.inf), r"capacity\.cpu_budget: .* and not inf"),
    "a budget beyond the CPUs": (put("capacity.cpu_budget", 64.0), "a budget of 64 CPUs, of which 2 may be used"),
    "negative CPUs": (put("capacity.cpus_affinity", -2), r"cpus_affinity: .* greater than or equal to 1, and not -2"),
    "a million CPUs": (
        put("capacity.cpus_affinity", 10**6),
        r"cpus_affinity: .* less than or equal to 8192, and not 1000000",
    ),
    "CPUs in words": (put("capacity.cpus_online", "2"), r"cpus_online: input should be a valid integer, and not '2'"),
    "no memory": (put("capacity.memory_total_bytes", None), r"memory_total_bytes: .* valid integer, and not None"),
    "negative memory": (put("capacity.memory_available_bytes", -1), r"memory_available_bytes: .* and not -1"),
    "an exabyte": (put("capacity.memory_total_bytes", 2**60), r"memory_total_bytes: .* and not 1152921504606846976"),
    "workers are a text": (put("application.workers", "\x1b[2J"), r"application\.workers: .* and not '\\x1b\[2J'"),
    "a worker without a status": (put("application.workers", [{"pid": 1}]), r"workers\.0\.status is missing"),
    "a worker of pid -1": (put("application.workers.0.pid", -1), r"workers\.0\.pid: .* and not -1"),
    "a peak in words": (put("application.counters.workers.0.rss_peak_bytes", "1G"), r"rss_peak_bytes: .* and not '1G'"),
    "a release that is a list": (put("application.release", ["x"]), r"application\.release: .* and not \['x'\]"),
    "an address that is a number": (put("application.url", 5), r"application\.url: .* and not 5"),
    "a pool of none": (put("database.pool_max", None), r"database\.pool_max: .* and not None"),
    "a pool in words": (put("database.pool_max", "ten"), r"database\.pool_max: .* and not 'ten'"),
    "negative connections": (put("database.connections", -1), r"database\.connections: .* and not -1"),
    "warnings are an object": (put("warnings", {}), "warnings: input should be a valid list, and not {}"),
    "a warning without its fix": (
        put("warnings", [{"file": "x", "line": 1, "message": "y"}]),
        r"warnings\.0\.fix is missing",
    ),
    "a lock of nobody": (put("lock", {}), r"lock\.user is missing"),
    "connections of others in words": (
        put("application.counters.connections", {"a": "b"}),
        r"connections\.a: .* not 'b'",
    ),
}
# As above, of check.yml.
CHECK: dict[str, tuple[Damage, str]] = {
    "no host": (put("hosts", []), "for each host one of {'hosts': 0, 'loads': 1, 'problems': 1}"),
    "a host without a load": (put("loads", []), "for each host one of {'hosts': 1, 'loads': 0, 'problems': 1}"),
    "a load without its requests": (put("loads.0", {"x": 1}), r"loads\.0\.by_name is missing"),
    "counts in words": (put("loads.0.by_name", {"/": {"total": "many"}}), r"by_name\./\.total: .* and not 'many'"),
    "a negative count": (
        put("loads.0.by_name", {"/": {"total": {"errors_by_kind": {"status": -1}, "status_counts": {}}}}),
        r"errors_by_kind\.status: .* and not -1",
    ),
}
# As above, of trial.yml: the host was touched by then.
TRIAL: dict[str, tuple[Damage, str]] = {
    "no load": (put("loads", []), "for each host one of {'hosts': 1, 'loads': 0}"),
    "no workers": (drop("applied.workers"), r"applied\.workers is missing"),
    "started in words": (put("applied.started", "one"), r"applied\.started: .* and not 'one'"),
    "a clock that went back": (
        put("after.time_s", 1.0),
        "a clock that did not go on during the load; was the host started",
    ),
    "no time": (put("before.time_s", math.nan), r"before\.time_s: .* and not nan"),
    "negative CPU time": (put("after.workers.0.cpu_s", -1.0), r"after\.workers\.0\.cpu_s: .* and not -1"),
    "CPU time of the host in words": (put("after.host_cpu_s", "idle"), r"after\.host_cpu_s: .* and not 'idle'"),
    "work that took no time": (put("after.spin_s", [0.0]), r"after\.spin_s\.0: .* greater than 0, and not 0"),
    "bins of no width": (put("loads.0.bins.width_s", 0), r"bins\.width_s: .* and not 0"),
    "bins that are a number": (put("loads.0.bins.ok", 5), r"bins\.ok: .* and not 5"),
    "a negative bin": (put("loads.0.bins.ok", [5, -5]), r"bins\.ok\.1: .* and not -5"),
    "more requests than there can be": (
        put("loads.0.measured.requests", 10**30),
        r"measured\.requests: .* and not 10000",
    ),
    "a count that is none": (put("loads.0.measured.x", "y"), r"loads\.0\.measured: \['x'\] are no counts"),
    "latency that is no number": (put("loads.0.latency_us.p99", math.nan), r"latency_us\.p99: .* and not nan"),
    "requests without a latency": (put("loads.0.latency_us.p99", None), r"latency_us: \d+ requests without a latency"),
    "a histogram of singles": (put("loads.0.latency_us.histogram", [[1]]), r"histogram\.0: .* and not \[1\]"),
    "a histogram of others": (
        put("loads.0.latency_us.histogram", [[1, 1]]),
        r"a histogram that does not hold \d+ requests",
    ),
    "no health of the generator": (drop("loads.0.generator"), r"loads\.0\.generator is missing"),
    "a generator without connections": (
        put("loads.0.generator.most_connections", 0),
        r"most_connections: .* and not 0",
    ),
    "connections in words": (put("loads.0.connections", "8"), r"loads\.0\.connections: .* and not '8'"),
    "a century of load": (put("loads.0.duration_s", 3.2e9), r"loads\.0\.duration_s: .* and not 3200000000"),
}
# What the application answers where its entries are counted.
SEED: dict[str, tuple[Damage, int, str]] = {
    "no status": (drop("fetched.status"), 5, r"fetched\.status is missing"),
    "a status in words": (put("fetched.status", "fine"), 5, r"fetched\.status: .* and not 'fine'"),
    "a body that is a number": (put("fetched.body", 5), 5, r"fetched\.body: .* and not 5"),
    "HTML": (
        put("fetched.body", "<html>"),
        2,
        "answers with something else than a Strapi collection; name one with --url",
    ),
    "no total": (put("fetched.body", '{"meta": {}}'), 2, "something else than a Strapi collection"),
    "a negative total": (
        put("fetched.body", '{"meta": {"pagination": {"total": -1}}}'),
        2,
        "something else than a Strapi",
    ),
    "an infinite total": (put("fetched.body", '{"meta": {"pagination": {"total": 1e999}}}'), 2, "something else than"),
    "nested 100000 deep": (put("fetched.body", "[" * 100_000), 2, "something else than a Strapi collection"),
}


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Typed:
    """The command, typed in a directory that holds an inventory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hosts.yml").write_text("all:\n  hosts:\n    prod1:\n")
    return Typed(monkeypatch, capsys)


def answer(monkeypatch: pytest.MonkeyPatch, **damage: Damage) -> Answering:
    answering = Answering(damage)
    monkeypatch.setattr(AnsibleTarget, "_run", staticmethod(answering))
    return answering


def check_said(found: Result, code: int, said: str) -> None:
    assert (found.code, found.out) == (code, "")
    error = found.err.splitlines()[-1]
    assert re.search(rf"^Error: .*{said}", error)
    assert "a defect in tuner" not in found.err
    assert error.isprintable()


def test_the_recorded_reports_pass_as_they_are() -> None:
    kinds = {"inspect": reports.INSPECT, "check": reports.CHECK, "seed": reports.SEED, "trial": reports.TRIAL}
    for name, kind in kinds.items():
        assert reports.check("prod1", recorded(name), kind) == recorded(name)


@pytest.mark.parametrize(("damage", "said"), INSPECT.values(), ids=INSPECT.keys())
def test_report_of_inspect(typed: Typed, monkeypatch: pytest.MonkeyPatch, damage: Damage, said: str) -> None:
    answering = answer(monkeypatch, inspect=damage)
    check_said(typed("inspect", *HOST), 5, f"prod1 reports what cannot be: .*{said}")
    assert answering.ran == ["inspect"]


@pytest.mark.parametrize(("damage", "said"), CHECK.values(), ids=CHECK.keys())
def test_report_of_check(
    typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Damage, said: str
) -> None:
    answering = answer(monkeypatch, check=damage)
    check_said(typed(*RECOMMEND, "--results", "results"), 5, f"prod1 reports what cannot be: .*{said}")
    assert answering.ran == ["inspect", "check"]
    assert [path.name for path in tmp_path.glob("results/prod1/*")] == ["lock"]
    assert not (tmp_path / "host_vars").exists()


@pytest.mark.parametrize(("damage", "said"), TRIAL.values(), ids=TRIAL.keys())
def test_report_of_a_trial(
    typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Damage, said: str
) -> None:
    answering = answer(monkeypatch, trial=damage)
    found = typed(*RECOMMEND, "--results", "results")
    check_said(found, 5, f"prod1 reports what cannot be: .*{said}.*; the host was brought back to what it ran before")
    assert answering.ran[:4] == ["inspect", "check", "lock", "trial"]
    assert answering.ran.count("trial") == 1
    assert "restore" in answering.ran[4:]
    assert not list(tmp_path.glob("results/prod1/unfinished.json"))
    assert not (tmp_path / "host_vars").exists()


@pytest.mark.parametrize(("damage", "code", "said"), SEED.values(), ids=SEED.keys())
def test_report_of_seed(typed: Typed, monkeypatch: pytest.MonkeyPatch, damage: Damage, code: int, said: str) -> None:
    answering = answer(monkeypatch, seed=damage)
    check_said(typed("seed", *HOST), code, said)
    assert answering.ran == ["seed"]


def test_what_a_host_writes_cannot_reach_the_terminal(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = "[red]x[/nope] \x1b]0;owned\x07\x1b[2J\r\N{RIGHT-TO-LEFT OVERRIDE}\ud800 :smile:"

    def damage(report: dict[str, Any]) -> None:
        report["application"] |= {"name": hostile, "url": hostile, "release": hostile}
        report["warnings"] = [{"file": hostile, "line": 1, "message": hostile, "fix": hostile}]

    answer(monkeypatch, inspect=damage)
    found = typed("inspect", *HOST)
    assert found.code == 0
    assert all(line.isprintable() for line in found.out.splitlines())
    assert r"[red]x[/nope] \x1b]0;owned\x07\x1b[2J\r\u202e\ud800 :smile:" in " ".join(found.out.split())


@pytest.mark.parametrize("result", ["text", ["list"], None, 5])
def test_a_task_of_the_user_s_that_is_called_report_is_no_report(result: object) -> None:
    outcome = Outcome()
    outcome.note({"event": "runner_on_ok", "event_data": {"task": "Report", "res": {"msg": result}}}, "prod1")
    assert outcome.report == {}


def test_a_report_says_what_is_wrong_with_it_in_few_words() -> None:
    with pytest.raises(HostError) as caught:
        reports.check("prod1", {**recorded("inspect"), "capacity": "x" * 10_000}, reports.INSPECT)
    assert len(str(caught.value)) < 250
