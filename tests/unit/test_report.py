"""What people and machines read: aligned tables, colour on terminals only, and JSON that is nothing but JSON."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from records import GIB, capacity, deployment, trial
from rich.console import Console

from tuner import decide, report
from tuner.budget import TimeBudget
from tuner.inventory import Edit
from tuner.model import Bound, Inspection, Plan, ProjectWarning
from tuner.procedure import Procedure
from tuner.recommend import Outcome, to_summary
from tuner.search import Search
from tuner.wording import instances

INSPECTION = Inspection("prod1", capacity(2.0), deployment(instances=2))
PLAN = Plan((1, 2, 12), (Bound(8, "4 for each of 2 CPUs [really]"),))
HEADERS = ("instances", "requests/s", "95% interval", "ratio", "p50 / p99", "memory", "errors")


def outcome(edit: Edit | None = None, *, directory: str = "/results/prod1") -> Outcome:
    rates = {1: (208.4, 210.0, 207.0), 2: (400.0, 405.0, 399.0), 12: (10_400.0, 10_410.0, 10_390.0)}
    trials = [trial(n, number, rate) for n in rates for number, rate in enumerate(rates[n], start=1)]
    dead = [trial(3, number, 0.0, latency_ms={}, errors=4000) for number in (1, 2, 3)]
    procedure = Procedure(Search((1, 2, 3, 12), 8.0), (1, 2, 3, 12), 2, tolerance=0.05, memory_bytes=64 * GIB)
    for found in (*trials, *trials, *dead):
        procedure.note(found)
    while procedure.next() is not None:
        procedure.note(trials[-1])
    decision = decide.decide(procedure, [*trials, *dead], tolerance=0.05, seed=0)
    return Outcome(INSPECTION, PLAN, decision, edit, 12 if edit else 2, directory)


def printed(found: Outcome, *, terminal: bool = False) -> str:
    file = io.StringIO()
    report.print_outcome(Console(file=file, width=120, highlight=False, markup=False, force_terminal=terminal), found)
    return file.getvalue()


def edit_of(path: Path) -> Edit:
    return Edit("prod1", "strapi_instances", 12, path, b"strapi_instances: 2\n", b"strapi_instances: 12\n")


def test_columns_are_aligned() -> None:
    lines = printed(outcome()).splitlines()
    ends = [lines[0].index(name) + len(name) for name in HEADERS]
    rows = lines[1:5]
    assert [row.split()[0] for row in rows] == ["1", "2", "3", "→"]
    for row in rows:
        padded = row.ljust(ends[-1] + 1)
        for end in ends:
            assert not padded[end - 1].isspace(), row
            assert padded[end].isspace(), row


def test_what_was_not_measured_is_a_dash_and_no_nought() -> None:
    row = next(line for line in printed(outcome()).splitlines() if line.split()[:1] == ["3"])
    assert row.split() == ["3", "0.0", "-", "-", "-", "900", "MiB", "12000", "application", "CPU"]


def test_the_verdict_and_the_reasons_follow() -> None:
    text = printed(outcome())
    assert "  2 instances: out, 12 instances give " in text
    assert "  3 instances: out, requests were not answered" in text
    assert re.search(r"^certified  12 instances: the best, and no smaller count is within 5% of it", text, re.MULTILINE)
    assert "Nothing was written; prod1 runs 2 instances, as before." in text


def test_long_paths_and_diffs_are_not_broken(tmp_path: Path) -> None:
    path = tmp_path / "a-directory-with-a-long-name" / ("x" * 150) / "host_vars/prod1/tuner.yml"
    text = printed(outcome(edit_of(path), directory=str(path.parent)))
    assert f"Written to {path}:\n" in text
    assert edit_of(path).diff() in text
    assert f"Records: {path.parent}\n" in text
    assert "prod1 runs 12 instances." in text


def test_what_was_written_already_is_said() -> None:
    edit = Edit("prod1", "strapi_instances", 12, Path("/inv/tuner.yml"), b"a", b"a")
    assert "/inv/tuner.yml says so already; prod1 runs 12 instances." in printed(outcome(edit))


def test_where_the_time_went_is_the_last_line() -> None:
    spent = TimeBudget(
        measuring_s=150.0, settling_s=40.0, booting_s=0.2, ansible_s=35.0, connections_s=0.0, around_s=24.8
    )
    assert printed(replace(outcome(), time=spent)).splitlines()[-1] == (
        "Time: 4:10, 60% of it measuring; settling 0:40, Ansible 0:35, before and after 0:25"
    )


def test_a_dry_run_has_no_table() -> None:
    text = printed(Outcome(INSPECTION, PLAN, running=2))
    assert text == "Nothing was measured or changed (--dry-run).\n"


def test_colour_is_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[" not in printed(outcome())
    assert "\x1b[" in printed(outcome(), terminal=True)


def test_the_console_of_a_command_has_no_colour_in_a_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    report.print_outcome(report.make_console(), outcome())
    report.make_console(stderr=True).print("x", style="red")
    caught = capsys.readouterr()
    assert "\x1b" not in caught.out + caught.err
    assert caught.err == "x\n"


def test_no_color_is_honoured_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    report.make_console().print("x", style="red")
    assert "\x1b[31m" not in capsys.readouterr().out


def test_json_is_valid_and_alone(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    summary = to_summary(outcome(edit_of(tmp_path / "[x]/tuner.yml")))
    report.print_json(report.make_console(), summary)
    text = capsys.readouterr().out
    assert text.startswith("{\n")
    assert text.endswith("}\n")
    found = json.loads(text, parse_constant=pytest.fail)
    assert (found["verdict"], found["instances"], found["running"]) == ("certified", 12, 12)
    assert found["written"]["path"] == str(tmp_path / "[x]/tuner.yml")
    assert found["candidates"][2]["ratio"] is None


def test_the_plan_shows_bounds_and_time() -> None:
    file = io.StringIO()
    report.print_plan(report.make_console(file=file), INSPECTION, PLAN, 9, 312.0)
    lines = file.getvalue().splitlines()
    assert lines[0].startswith("prod1: 2 CPUs (a CPU quota), strapi: 2 instances, release 8c42c2fda145 at http://")
    assert lines[1:] == [
        "Candidates 1, 2 and 12; about 9 trials, 5:12. Upper bounds:",
        "    8  4 for each of 2 CPUs [really]",
    ]


def test_an_inspection_names_every_limit() -> None:
    file = io.StringIO()
    host = capacity(1.5, memory_limit_bytes=2 * GIB, assumed=True)
    report.print_inspection(
        report.make_console(file=file), Inspection("[prod1]", host, deployment(instances=0, unwell=0))
    )
    rows = dict(re.split(r"\s{2,}", line.rstrip(), maxsplit=1) for line in file.getvalue().splitlines()[:10])
    assert rows["host"] == "[prod1]"
    assert rows["CPU budget"] == "1.5 CPUs, limited by a CPU quota"
    assert rows["memory"] == "262,144 MiB, 204,800 MiB available"
    assert rows["memory limit"] == "2,048 MiB"
    assert rows["application"] == "strapi: not running"
    assert "these are the limits of a process that Ansible started" in file.getvalue()


@pytest.mark.parametrize(("candidates", "shown"), [((1, 2), True), ((1,), False)])
def test_what_breaks_with_several_instances_is_shown_where_several_are_tried(
    candidates: tuple[int, ...],
    shown: bool,
) -> None:
    warning = ProjectWarning("config/server.ts", 7, "cron tasks [all] run once in every instance", "claim a lock")
    inspection = replace(INSPECTION, warnings=(warning,))
    expected = [
        "With more than one instance:",
        "  Warning: config/server.ts:7: cron tasks [all] run once in every instance. To mend it, claim a lock.",
    ]
    plan, asked = io.StringIO(), io.StringIO()
    report.print_plan(report.make_console(file=plan), inspection, replace(PLAN, candidates=candidates), 9, 312.0)
    report.print_inspection(report.make_console(file=asked), inspection)
    assert plan.getvalue().splitlines()[-2:] == expected if shown else "Warning" not in plan.getvalue()
    assert asked.getvalue().splitlines()[-2:] == expected


def test_progress_in_a_file_is_plain_lines() -> None:
    file = io.StringIO()
    with report.ConsoleProgress(report.make_console(file=file)) as progress:
        progress.step("Looking at [prod1]")
        progress.trial_begins(1, 9, "1 instance", 130.0)
        progress.trial_ended(trial(1, 1, 208.44, settled=False, errors=2, restarts=1), "1 instance")
        progress.warn("[careful]")
    measured = "   1  1 instance      208.4 requests/s  p50    100 ms  p99    250 ms"
    assert file.getvalue().splitlines() == [
        "Looking at [prod1]",
        "trial 1 of about 9: 1 instance (about 2:10 left)",
        f"{measured}  never settled, 2 errors, 1 worker died",
        "Warning: [careful]",
    ]


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0, "0:00"), (9.4, "0:09"), (59.6, "1:00"), (60, "1:00"), (605, "10:05"), (3600, "60:00")]
)
def test_clock(seconds: float, shown: str) -> None:
    assert report.clock(seconds) == shown


@pytest.mark.parametrize(("count", "shown"), [(0, "0 instances"), (1, "1 instance"), (2, "2 instances")])
def test_plural(count: int, shown: str) -> None:
    assert instances(count) == shown
