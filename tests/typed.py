"""The command tuner, typed in this process, with its output caught."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tuner import cli
from tuner.ansible_target import AnsibleTarget


@dataclass(frozen=True)
class Result:
    """How a command ended."""

    code: int
    out: str
    err: str


class Typed:
    """Runs the command as typed, in this process, with its output caught."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        for name in ("ANSIBLE_CONFIG", "ANSIBLE_INVENTORY", "TUNER_DEBUG"):
            monkeypatch.delenv(name, raising=False)
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


def offline(root: Path, hosts: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Typed:
    """The command, typed in a directory that holds an inventory, on a machine where no host may be contacted."""

    def contacted(*_: object, **__: object) -> None:
        pytest.fail("a host was contacted")

    monkeypatch.setattr(AnsibleTarget, "_run", contacted)
    monkeypatch.chdir(root)
    (root / "hosts.yml").write_text(hosts)
    return Typed(monkeypatch, capsys)
