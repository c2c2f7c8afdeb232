"""The command line: help with examples, exit codes, and one line of error for whatever was typed."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from support import ROOT

from tuner import __version__, cli, options
from tuner.ansible_target import AnsibleTarget

COMMANDS = ("inspect", "recommend", "restore", "seed", "simulate", "status")
RECOMMEND = ("recommend", "--host", "prod1", "-i", "hosts.yml", "--url", "/api/articles")
VAULTED = "strapi_instances: !vault |\n  $ANSIBLE_VAULT;1.1;AES256\n  6231\n"

# What is typed, and what the error must say. No inventory is read for these.
BAD_USAGE: dict[str, tuple[tuple[str, ...], str]] = {
    "unknown command": (("recomend", "--host", "prod1"), "No such command 'recomend'"),
    "unknown option": (("inspect", "--host", "prod1", "--fast"), "No such option '--fast'"),
    "an argument too many": (("inspect", "--host", "prod1", "prod2"), "unexpected extra argument"),
    "no host": (("recommend",), "Missing option '--host'"),
    "no value": (("inspect", "--host"), "requires an argument"),
    "tolerance of nothing": ((*RECOMMEND, "--tolerance", "0"), "'0' is no share between 0 and 100%; write for example"),
    "tolerance of all": ((*RECOMMEND, "--tolerance", "100%"), "'100%' is no share"),
    "tolerance above all": ((*RECOMMEND, "--tolerance", "5"), "'5' is no share"),
    "negative tolerance": ((*RECOMMEND, "--tolerance", "-5%"), "'-5%' is no share"),
    "tolerance in words": ((*RECOMMEND, "--tolerance", "few"), "'few' is no share"),
    "tolerance nan": ((*RECOMMEND, "--tolerance", "nan"), "'nan' is no share"),
    "duration too short": ((*RECOMMEND, "--duration", "1.9"), "1.9 is not in the range 2<=x<=600"),
    "duration too long": ((*RECOMMEND, "--duration", "601"), "601.0 is not in the range"),
    "duration nan": ((*RECOMMEND, "--duration", "nan"), "'nan' is no number"),
    "an unknown effort": ((*RECOMMEND, "--effort", "some"), "'some' is not one of 'quick', 'standard', 'thorough'"),
    "a budget without a unit that is known": (
        (*RECOMMEND, "--budget", "10x"),
        "'10x' is no time up to a week; write for example 90s",
    ),
    "a budget of nothing": ((*RECOMMEND, "--budget", "0m"), "'0m' is no time up to a week"),
    "a negative seed": ((*RECOMMEND, "--seed", "-1"), "-1 is not in the range"),
    "no connection": ((*RECOMMEND, "--connections", "0"), "0 is not in the range 1<=x<=10000"),
    "too many connections": ((*RECOMMEND, "--connections", "10001"), "10001 is not in the range"),
    "nothing to seed": (("seed", "--host", "prod1", "--count", "0"), "0 is not in the range 1<=x<=1000000"),
    "results in a file": ((*RECOMMEND, "--results", "hosts.yml"), "'hosts.yml' is a file"),
}

# As above, with files besides hosts.yml; Ansible reads the inventory, and no host is contacted.
BAD_INPUT: dict[str, tuple[tuple[str, ...], dict[str, str], str]] = {
    "inventory that does not exist": (
        ("inspect", "--host", "prod1", "-i", "nowhere.yml"),
        {},
        r"inventory .*/nowhere\.yml does not exist; give a file or a directory with -i",
    ),
    "unknown host": (
        ("recommend", "--host", "prd1", "-i", "hosts.yml"),
        {},
        r"no host 'prd1' in .*hosts\.yml; did you mean prod1\? its hosts are prod1, here",
    ),
    "broken YAML": (
        ("inspect", "--host", "prod1", "-i", "hosts.yml"),
        {"hosts.yml": "all:\n  hosts:\n    prod1: {\n"},
        r"hosts\.yml:4 is not valid YAML",
    ),
    "candidates that look like an option": ((*RECOMMEND, "--candidates", "-1"), {}, "'-1' is no instance count; write"),
    "candidates of nothing": ((*RECOMMEND, "--candidates", ""), {}, "'an empty entry' is no instance count"),
    "candidates backwards": ((*RECOMMEND, "--candidates", "4-1"), {}, "'4-1' is no range of instance counts"),
    "no path": (RECOMMEND[:-2], {}, "no path to ask prod1 for is known; name one or more with --url, or set load_requ"),
    "a template": (
        RECOMMEND,
        {"host_vars/prod1.yml": "strapi_instances: '{{ cpus }}'\n"},
        r"prod1\.yml:1 has a template as the value; make strapi_instances a plain number there, or measure without",
    ),
    "a vaulted value": (
        RECOMMEND,
        {"host_vars/prod1.yml": VAULTED},
        r"prod1\.yml:1 has a value tagged !vault; make strapi_instances a plain number there, or measure without",
    ),
    "a path that is none": (
        (*RECOMMEND, "--url", "api"),
        {},
        "--url 'api' is no path of the application; begin it with /",
    ),
    "a path to seed that is none": (
        ("seed", "--host", "prod1", "-i", "hosts.yml", "--url", "api/articles"),
        {},
        "--url 'api/articles' is no path of the application; begin it with /",
    ),
}


@dataclass(frozen=True)
class Result:
    """How a command ended."""

    code: int
    out: str
    err: str


class Typed:
    """Runs the command as typed, in this process, with its output caught."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, *arguments: str) -> Result:
        """Run it."""
        self._monkeypatch.setattr(sys, "argv", ["tuner", *arguments])
        code: int | str | None = 0
        try:
            cli.main()
        except SystemExit as end:
            code = end.code
        caught = self._capsys.readouterr()
        assert isinstance(code, int)
        return Result(code, caught.out, caught.err)


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Typed:
    """The command, typed in a directory that holds an inventory, on a machine where no host may be contacted."""

    def contacted(*_: object, **__: object) -> None:
        pytest.fail("a host was contacted")

    for name in ("ANSIBLE_CONFIG", "ANSIBLE_INVENTORY", "TUNER_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(AnsibleTarget, "_run", contacted)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hosts.yml").write_text("all:\n  hosts:\n    prod1:\n    here: {ansible_connection: local}\n")
    return Typed(monkeypatch, capsys)


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


@pytest.mark.parametrize(("arguments", "said"), BAD_USAGE.values(), ids=BAD_USAGE.keys())
def test_wrong_usage_is_one_line(typed: Typed, arguments: tuple[str, ...], said: str) -> None:
    found = typed(*arguments)
    assert (found.code, found.out) == (2, "")
    assert said in found.err
    assert re.fullmatch(r"Error: [^\n]+[^.]; `tuner --help` shows how it is used\n", found.err)


@pytest.mark.parametrize(("arguments", "files", "said"), BAD_INPUT.values(), ids=BAD_INPUT.keys())
def test_wrong_input_is_one_line_and_no_host_is_contacted(
    typed: Typed, tmp_path: Path, arguments: tuple[str, ...], files: dict[str, str], said: str
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    found = typed(*arguments)
    assert (found.code, found.out) == (2, "")
    *progress, error = found.err.splitlines()
    assert progress in ([], ["Looking at prod1"], ["Seeding api/articles on prod1"])
    assert error.startswith("Error: ")
    assert re.search(said, error)
    assert not (tmp_path / "tuner-results").exists()


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
