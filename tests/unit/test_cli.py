"""The command line: help with examples, exit codes, and one line of error for whatever was typed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT
from typed import Result, Typed, offline

from tuner import __version__, options
from tuner.ansible_target import AnsibleTarget

COMMANDS = ("inspect", "recommend", "restore", "seed", "simulate", "status")


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Typed:
    return offline(tmp_path, "all:\n  hosts:\n    prod1:\n    here: {ansible_connection: local}\n", monkeypatch, capsys)


def test_help_shows_examples_exit_codes_and_every_command(typed: Typed) -> None:
    found = typed("--help")
    assert (found.code, found.err) == (0, "")
    assert "Examples:\n    tuner inspect --host prod1 " in found.out
    assert re.search(r"^ +3 +unresolved; nothing was written$", found.out, re.MULTILINE)
    assert all(re.search(rf"^  {command} ", found.out, re.MULTILINE) for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("option", ["--help", "-h"])
def test_each_command_s_help_shows_an_example(typed: Typed, command: str, option: str) -> None:
    found = typed(command, option)
    assert (found.code, found.err) == (0, "")
    assert re.search(rf"Examples?:\n    tuner {command} (--host \w+|hosts\.jsonl)", found.out)
    assert "\\b" not in found.out


def test_no_command_shows_the_help(typed: Typed) -> None:
    found = typed()
    assert (found.code, found.out) == (2, "")
    assert found.err.startswith("Usage: ")
    assert "Examples:\n    tuner inspect" in found.err


def test_version(typed: Typed) -> None:
    assert typed("--version") == Result(0, f"tuner, version {__version__}\n", "")


def test_a_defect_is_one_line_too_unless_asked_for_more(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    def defect(*_: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(AnsibleTarget, "inspect", defect)
    arguments = ("inspect", "--host", "prod1", "-i", "hosts.yml")
    found = typed(*arguments)
    assert found.code == 1
    assert found.err.splitlines()[-1].startswith("Error: a defect in tuner: ZeroDivisionError: division by zero; set ")
    monkeypatch.setenv("TUNER_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        typed(*arguments)


@pytest.mark.parametrize(("text", "share"), [("5%", 0.05), ("0.05", 0.05), (" 2.5% ", 0.025), ("1e-3", 0.001)])
def test_a_tolerance_is_a_share_or_a_percentage(text: str, share: float) -> None:
    assert options.Percentage().convert(text, None, None) == pytest.approx(share)


@pytest.mark.parametrize(("text", "number"), [("auto", None), ("1", 1), ("10000", 10_000)])
def test_connections_are_a_number_or_chosen_by_measurement(text: str, number: int | None) -> None:
    assert options.Connections(1, 10_000).convert(text, None, None) == number


def test_the_program_ends_with_the_exit_code_and_without_a_traceback() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tuner", "frob"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "Error: No such command 'frob'; `tuner --help` shows how it is used\n"
