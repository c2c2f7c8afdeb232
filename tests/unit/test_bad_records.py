"""Whatever lies in the place of the records of an earlier run: one line, exit code 2, and the host is not touched."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from answering import Damage, Unreachable, recorded
from records import trial
from typed import Typed

from tuner import reports
from tuner.ansible_target import AnsibleTarget, to_inspection
from tuner.candidates import plan
from tuner.model import Load

RUN = "2026-11-30T12-00-00.000000Z"
RECOMMEND = (
    *("recommend", "--host", "prod1", "-i", "hosts.yml", "--url", "/api/articles", "--connections", "8"),
    *("--results", "results"),
)
RESUME = (*RECOMMEND, "--resume", RUN)
OTHER_VERSION = "was written by another version of tuner, or changed: "


def run_json() -> dict[str, Any]:
    """What a run on the recorded host would have noted at its start."""
    inspection = to_inspection("prod1", reports.check("prod1", recorded("inspect"), reports.INSPECT))
    planned = plan(inspection.capacity, inspection.deployment)
    load = Load(paths=("/api/articles",), connections=8, duration_s=20.0)
    noted = {"request": {"load": asdict(load)}, "inspection": asdict(inspection), "plan": asdict(planned)}
    found: dict[str, Any] = json.loads(json.dumps(noted))
    return found


def line() -> dict[str, Any]:
    """One trial of it."""
    noted = {"phase": "search", "session": 0, "trial": asdict(trial(1, 1, 200.0)), "raw": {"load": {"connections": 8}}}
    found: dict[str, Any] = json.loads(json.dumps(noted))
    return found


def put(*path: Any) -> Damage:
    *above, last, value = path

    def damage(record: Any) -> None:  # noqa: ANN401 whatever JSON can hold
        for key in above:
            record = record[key]
        record[last] = value

    return damage


# What is changed in run.json, and what the error says.
RUNS: dict[str, tuple[Damage, str]] = {
    "empty": (lambda found: found.clear(), rf"run\.json {OTHER_VERSION}inspection is missing"),
    "of another host": (
        put("inspection", "host", "prod2"),
        "its host was 'prod2', and is 'prod1' now; give the options",
    ),
    "of another release": (put("inspection", "deployment", "release", "x"), "its release was 'x', and is "),
    "of another machine": (
        put("inspection", "capacity", "cpu_budget", 64.0),
        r"its CPU budget was 64\.0, and is 2\.0 now",
    ),
    "of other candidates": (put("plan", "candidates", [1, 2, 9]), r"its list of candidates was \[1, 2, 9\], and is"),
    "of another load": (put("request", "load", "connections", 100), r"its load \(connections\) was 100, and is 8 now"),
    "an inspection in words": (put("inspection", "none"), f"{OTHER_VERSION}inspection: .* and not 'none'"),
    "a plan that is a list": (put("plan", []), rf"{OTHER_VERSION}plan: .* and not \[\]"),
    "a request of nothing": (put("request", {}), rf"{OTHER_VERSION}request\.load is missing"),
}
# The same for a line of trials.jsonl.
LINES: dict[str, tuple[Damage, str]] = {
    "empty": (lambda found: found.clear(), rf"{OTHER_VERSION}0\.phase is missing"),
    "no trial": (put("trial", None), rf"{OTHER_VERSION}0\.trial: .* and not None"),
    "throughput in words": (put("trial", "throughput_rps", "fast"), r"0\.trial\.throughput_rps: .* and not 'fast'"),
    "throughput that is no number": (
        put("trial", "throughput_rps", float("nan")),
        r"trial\.throughput_rps: .* not nan",
    ),
    "negative throughput": (put("trial", "throughput_rps", -1.0), r"0\.trial: a trial of less than nothing"),
    "no instances": (put("trial", "instances", 0), r"0\.trial: a trial of less than nothing"),
    "more errors than requests": (put("trial", "errors", 10**6), r"0\.trial: a trial of less than nothing"),
    "no usage": (put("trial", "usage", {}), r"0\.trial\.usage\.application is missing"),
    "workers in words": (put("trial", "usage", "workers", "two"), r"0\.trial\.usage\.workers: .* and not 'two'"),
    "a session of words": (put("session", "last"), r"0\.session: .* and not 'last'"),
    "no connections": (put("raw", "load", "connections", 0), r"0\.raw\.load\.connections: .* and not 0"),
    "a second part alone": (
        put("phase", "search, extended"),
        f"{OTHER_VERSION}it begins with the second part of a trial",
    ),
}


def no_run(directory: Path) -> None:
    (directory / "run.json").unlink()


def run_in_the_place_of_a_file(directory: Path) -> None:
    (directory / "run.json").unlink()
    (directory / "run.json").mkdir()


def fill(name: str, content: bytes) -> Callable[[Path], None]:
    def prepare(directory: Path) -> None:
        (directory / name).write_bytes(content)

    return prepare


# What is done to the directory of the run.
FILES: dict[str, tuple[Callable[[Path], None], str]] = {
    "no run.json": (no_run, f"'{RUN}' is no run of this host; name a directory below .*results/prod1"),
    "run.json is a directory": (run_in_the_place_of_a_file, f"'{RUN}' is no run of this host"),
    "run.json is empty": (fill("run.json", b""), f"the run '{RUN}' cannot be read: .*; start a new run"),
    "run.json is cut off": (fill("run.json", b'{"plan": '), f"the run '{RUN}' cannot be read"),
    "run.json is a list": (fill("run.json", b"[1]"), rf"run\.json {OTHER_VERSION}input should be a valid dict"),
    "run.json is not UTF-8": (fill("run.json", b'{"plan": "\xff"}'), f"the run '{RUN}' cannot be read"),
    "run.json is nested 100000 deep": (fill("run.json", b"[" * 100_000), f"the run '{RUN}' cannot be read"),
    "trials.jsonl holds words": (fill("trials.jsonl", b"fast\n"), f"the run '{RUN}' cannot be read"),
    "trials.jsonl holds a list": (fill("trials.jsonl", b"[1]\n"), rf"{OTHER_VERSION}0: input should be a valid dict"),
    "trials.jsonl is not UTF-8": (fill("trials.jsonl", b"\xff\n"), f"the run '{RUN}' cannot be read"),
    "trials.jsonl is cut in its middle": (fill("trials.jsonl", b'{"phase\n{}\n'), f"the run '{RUN}' cannot be read"),
}
NAMES: dict[str, tuple[str, str]] = {
    "empty": ("", "'' is no run of this host"),
    "of nothing": ("2026-01-01", "'2026-01-01' is no run of this host"),
    "of another place": ("../../etc", r"'\.\./\.\./etc' is no run of this host"),
    "of 300 characters": ("x" * 300, r"\(302 characters\) cannot be read: File name too long"),
    "with control characters": ("a\x1b[2J\nb", r"'a\\x1b\[2J\\nb' is no run of this host"),
}
# What stands in unfinished.json, beside what a run would have noted.
NOTES: dict[str, bytes] = {
    "empty": b"",
    "cut off": b'{"instances": 2, "lease"',
    "a list": b"[]",
    "no number": b'{"instances": "2"}',
    "a negative number": b'{"instances": -2, "lease": "x"}',
    "nothing": b'{"instances": 0, "lease": "x"}',
    "half": b'{"instances": 1.5, "lease": "x"}',
    "no lease": b'{"instances": 2}',
    "not UTF-8": b'{"instances": 2, "lease": "\xff"}',
    "nested 100000 deep": b"[" * 100_000,
    "an edit of nothing": b'{"instances": 2, "lease": "x", "purpose": "p", "user": "u", "controller": "c", "pid": 1, '
    b'"since": "s", "edit": {"path": 1}}',
}


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The records of a run that could be continued."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hosts.yml").write_text("all:\n  hosts:\n    prod1:\n")
    found = tmp_path / "results/prod1" / RUN
    found.mkdir(parents=True)
    (found / "run.json").write_text(json.dumps(run_json()))
    (found / "trials.jsonl").write_text(json.dumps(line()) + "\n")
    return found


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Typed:
    return Typed(monkeypatch, capsys)


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Unreachable:
    found = Unreachable()
    monkeypatch.setattr(AnsibleTarget, "_run", staticmethod(found))
    return found


def snapshot(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file() and path.name != "lock"}


def check_refused(typed: Typed, host: Unreachable, said: str, *arguments: str) -> None:
    untouched = snapshot(Path.cwd())
    found = typed(*arguments)
    assert (found.code, found.out) == (2, "")
    error = found.err.splitlines()[-1]
    assert re.search(rf"^Error: .*{said}", error)
    assert "a defect in tuner" not in error
    assert error.isprintable()
    assert set(host.ran) <= {"inspect", "check"}
    assert snapshot(Path.cwd()) == untouched


def test_the_sound_run_is_continued(typed: Typed, host: Unreachable, directory: Path) -> None:
    found = typed(*RESUME)
    assert (found.code, host.ran[:3]) == (5, ["inspect", "check", "lock"])
    assert "every check was passed" in found.err
    assert (directory / "trials.jsonl").exists()


@pytest.mark.parametrize(("damage", "said"), RUNS.values(), ids=RUNS.keys())
def test_run_json(typed: Typed, host: Unreachable, directory: Path, damage: Damage, said: str) -> None:
    found = run_json()
    damage(found)
    (directory / "run.json").write_text(json.dumps(found))
    check_refused(typed, host, said, *RESUME)


@pytest.mark.parametrize(("damage", "said"), LINES.values(), ids=LINES.keys())
def test_trials_jsonl(typed: Typed, host: Unreachable, directory: Path, damage: Damage, said: str) -> None:
    found = line()
    damage(found)
    (directory / "trials.jsonl").write_text(json.dumps(found) + "\n")
    check_refused(typed, host, said, *RESUME)


@pytest.mark.parametrize(("prepare", "said"), FILES.values(), ids=FILES.keys())
def test_files(typed: Typed, host: Unreachable, directory: Path, prepare: Callable[[Path], None], said: str) -> None:
    prepare(directory)
    check_refused(typed, host, said, *RESUME)


@pytest.mark.usefixtures("directory")
@pytest.mark.parametrize(("name", "said"), NAMES.values(), ids=NAMES.keys())
def test_names(typed: Typed, host: Unreachable, name: str, said: str) -> None:
    check_refused(typed, host, said, *RECOMMEND, "--resume", name)


@pytest.mark.usefixtures("directory")
@pytest.mark.parametrize(
    "command", [RECOMMEND, ("restore", "--host", "prod1", "-i", "hosts.yml", "--results", "results")]
)
@pytest.mark.parametrize("content", NOTES.values(), ids=NOTES.keys())
def test_unfinished_json(typed: Typed, host: Unreachable, content: bytes, command: tuple[str, ...]) -> None:
    Path("results/prod1/unfinished.json").write_bytes(content)
    said = (
        r"an earlier run was cut off, and its note .*unfinished\.json cannot be read: .*; deploy the host again, then"
    )
    check_refused(typed, host, said, *command)
    assert host.ran == []


def test_a_last_line_that_was_cut_off_is_of_no_trial(typed: Typed, host: Unreachable, directory: Path) -> None:
    trials = directory / "trials.jsonl"
    whole = trials.read_bytes()
    trials.write_bytes(whole + b'{"phase": "sea')
    found = typed(*RESUME)
    assert "every check was passed" in found.err
    assert trials.read_bytes() == whole
    assert host.ran[:3] == ["inspect", "check", "lock"]


def test_a_broken_summary_does_not_keep_the_host_from_being_brought_back(
    typed: Typed, host: Unreachable, directory: Path
) -> None:
    (directory / "summary.json").write_text("[]")
    found = typed(*RESUME)
    assert found.code == 5
    assert "restore" in host.ran
    assert "every check was passed" in json.loads((directory / "summary.json").read_text())["error"]
