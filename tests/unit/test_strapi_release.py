"""strapi_release: switching, the way back also after a roll-out that was killed, and what is cleaned up."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from support import load_module, run_module

strapi_release = load_module("strapi", "strapi_release")

Result = dict[str, Any]


class Host:
    """A directory as the role keeps it, and the module working on it."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root = root
        self.capsys = capsys
        (root / "shared").mkdir()

    def build(self, *names: str) -> None:
        """Put releases there that were never used."""
        for name in names:
            (self.root / "releases" / name).mkdir(parents=True)

    def await_settings(self, text: str) -> None:
        """Settings that wait to be switched to."""
        (self.root / "shared" / ".env.next").write_text(f"SECRET={text}\n")
        (self.root / "ecosystem.next.config.js").write_text(f"// {text}\n")

    def settings(self) -> tuple[str, str]:
        """The settings that count now."""
        return (self.root / "shared" / ".env").read_text(), (self.root / "ecosystem.config.js").read_text()

    def run(self, state: str = "info", *, check: bool = False, **params: object) -> Result:
        """Run the module as Ansible would."""
        arguments = {"root": str(self.root), "state": state, "_ansible_check_mode": check, **params}
        return run_module(strapi_release, arguments, self.capsys)

    def roll_out(self, release: str, settings: str) -> None:
        """A roll-out that went well."""
        self.await_settings(settings)
        self.run("switched", release=release)
        self.run("confirmed")


@pytest.fixture
def host(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Host:
    """A host with nothing on it yet."""
    return Host(tmp_path, capsys)


def state_of(root: Path) -> dict[str, str]:
    """Everything below a directory: links with their target, files with their content and mode."""
    return {
        str(path.relative_to(root)): f"-> {path.readlink()}"
        if path.is_symlink()
        else f"{path.stat().st_mode:o} {path.read_text()}"
        for path in sorted(root.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


def test_a_bare_host_has_no_release(host: Host) -> None:
    """Nothing is there, and asking changes nothing."""
    found = host.run()
    assert (found["current"], found["previous"], found["releases"]) == ("", "", [])
    assert not found["changed"]


def test_a_first_release_becomes_current_with_its_settings(host: Host) -> None:
    """The link leads to it and the settings that waited count; what waited is gone."""
    host.build("a")
    host.await_settings("one")
    result = host.run("switched", release="a")
    assert result["changed"]
    assert result["current"] == "a"
    assert host.settings() == ("SECRET=one\n", "// one\n")
    assert not (host.root / "shared" / ".env.next").exists()
    assert result["unfinished"]
    assert not host.run("confirmed")["unfinished"]


def test_the_same_again_changes_nothing(host: Host) -> None:
    """The same release with the same settings is no change, and leaves no switch behind."""
    host.build("a")
    host.roll_out("a", "one")
    host.await_settings("one")
    result = host.run("switched", release="a")
    assert not result["changed"]
    assert not result["unfinished"]
    assert not (host.root / "shared" / ".env.next").exists()


def test_other_settings_are_a_change_of_their_own(host: Host) -> None:
    """Names of what changes are told, never a value."""
    host.build("a")
    host.roll_out("a", "one")
    host.await_settings("two")
    result = host.run("switched", release="a")
    assert result["differences"] == [".env", "ecosystem.config.js"]
    assert "two" not in json.dumps(result)


def test_the_release_before_is_the_previous_one_once_it_is_confirmed(host: Host) -> None:
    """A release that never served is none to go back to."""
    host.build("a", "b")
    host.roll_out("a", "one")
    host.await_settings("two")
    assert host.run("switched", release="b")["previous"] == ""
    assert host.run("confirmed")["previous"] == "a"


def test_new_settings_do_not_make_a_release_its_own_predecessor(host: Host) -> None:
    """The previous release stays when only settings changed."""
    host.build("a", "b")
    host.roll_out("a", "one")
    host.roll_out("b", "two")
    host.roll_out("b", "three")
    assert host.run()["previous"] == "a"


def test_returning_puts_everything_back(host: Host) -> None:
    """Links, settings, modes: byte for byte as before the switch."""
    host.build("a", "b", "c")
    host.roll_out("a", "one")
    host.roll_out("b", "two")
    (host.root / "shared" / ".env").chmod(0o600)
    before = state_of(host.root)
    host.await_settings("three")
    host.run("switched", release="c")
    result = host.run("returned")
    assert result["changed"]
    assert state_of(host.root) == before


def test_returning_from_a_first_release_leaves_none(host: Host) -> None:
    """Where nothing was, nothing is left: no link and no settings."""
    host.build("a")
    host.await_settings("one")
    host.run("switched", release="a")
    assert host.run("returned")["current"] == ""
    assert not (host.root / "ecosystem.config.js").exists()
    assert not (host.root / "shared" / ".env").exists()


def test_returning_without_a_switch_changes_nothing(host: Host) -> None:
    """There is nothing to take back."""
    host.build("a")
    host.roll_out("a", "one")
    assert not host.run("returned")["changed"]
    assert host.run()["current"] == "a"


def test_a_roll_out_that_was_killed_is_taken_back_with_the_next_that_fails(host: Host) -> None:
    """What was never confirmed is no state to return to, however many of those there are."""
    host.build("a", "b", "c")
    host.roll_out("a", "one")
    host.await_settings("two")
    host.run("switched", release="b")  # and here it was killed
    host.await_settings("three")
    host.run("switched", release="c")
    assert host.run("returned")["current"] == "a"
    assert host.settings() == ("SECRET=one\n", "// one\n")


def test_what_is_kept_for_the_way_back_is_private(host: Host) -> None:
    """The copy of .env is as closed as the original."""
    host.build("a", "b")
    host.roll_out("a", "one")
    host.await_settings("two")
    host.run("switched", release="b")
    assert (host.root / "before").stat().st_mode & 0o777 == 0o700


def test_check_mode_tells_and_does_nothing(host: Host) -> None:
    """Also for a release that is not built yet."""
    host.build("a")
    host.roll_out("a", "one")
    before = state_of(host.root)
    assert host.run("switched", check=True, release="b")["changed"]
    assert not host.run("switched", check=True, release="a")["changed"]
    host.run("cleaned", check=True, keep=0)
    host.run("bad", check=True, release="a")
    assert state_of(host.root) == before


def test_a_release_that_is_not_there_is_refused_with_those_that_are(host: Host) -> None:
    """One line, and nothing changed."""
    host.build("a", "b")
    result = host.run("switched", release="c")
    assert result["failed"]
    assert result["msg"] == f"there is no release 'c' in {host.root}/releases; there are: a, b"


def test_a_bad_release_says_why_until_it_serves(host: Host) -> None:
    """The mark goes when the release is confirmed after all."""
    host.build("a")
    host.run("bad", release="a", reason="it was not ready within 60 s")
    assert [found["bad"] for found in host.run()["releases"]] == ["it was not ready within 60 s"]
    host.roll_out("a", "one")
    assert [found["bad"] for found in host.run()["releases"]] == [""]


def test_cleaning_keeps_those_used_last(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """By when they were used, whatever the age of their directories; those never used go first."""
    for second, name in enumerate("abcdefg"):
        host.build(name)
        monkeypatch.setattr(strapi_release.time, "time", lambda now=1000 + second: now)
        host.roll_out(name, name)
    host.build("never")
    os.utime(host.root / "releases" / "a")
    result = host.run("cleaned", keep=5)
    assert sorted(result["removed"]) == ["a", "b", "never"]
    assert not host.run("cleaned", keep=5)["changed"]


@pytest.mark.parametrize("keep", [0, 1])
def test_cleaning_never_takes_the_current_or_the_previous_release(host: Host, keep: int) -> None:
    """However few are to be kept, and also after a rollback to an old one."""
    host.build("a", "b", "c")
    for name in ("a", "b", "c", "a"):
        host.roll_out(name, name)
    host.run("cleaned", keep=keep)
    assert {found["name"] for found in host.run()["releases"]} == {"a", "c"}


def test_cleaning_keeps_what_an_unfinished_switch_may_return_to(host: Host) -> None:
    """The release before, the one before that, and the new one."""
    host.build("a", "b", "c")
    host.roll_out("a", "one")
    host.roll_out("b", "two")
    host.run("switched", release="c")
    assert host.run("cleaned", keep=1)["removed"] == []
