"""The lock of a host, and the watchdog that brings an application back: real processes, a real pm2."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from pm2_sandbox import START_TIMEOUT_S, Sandbox
from support import ROOT, load_file, load_module, run_module

host_lease = load_module("lease", "host_lease")

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

ID = "5f0c7c4e"
HOLDER = {"user": "jane", "controller": "laptop", "pid": 4711, "purpose": "recommend"}
# Longer than any of these tests: a lock that nothing but its release ends.
LONG_S = 600.0
SHORT_S = 3.0
LIMIT_S = 90.0


@dataclass
class Leased:
    """A lock below the directory of a test, for an application under a real pm2.

    Attributes:
        box: The application.
        directory: The lock.
        programs: Where the watchdog lies, as the role puts it there.
    """

    box: Sandbox
    directory: Path
    programs: Path

    def call(self, state: str, **params: Any) -> dict[str, Any]:
        """Run the module as Ansible would, and return its whole result."""
        arguments = {
            "dir": str(self.directory.parent),
            "state": state,
            "id": ID,
            "holder": HOLDER,
            "time_s": LONG_S,
            **params,
        }
        given = {key: value for key, value in arguments.items() if value is not None}
        return run_module(host_lease, given, self.box.capsys)

    def done(self, state: str, **params: Any) -> dict[str, Any]:
        """Run the module, which must succeed."""
        result = self.call(state, **params)
        assert not result.get("failed"), result.get("msg")
        return result

    def refused(self, state: str, **params: Any) -> str:
        """Run the module, which must fail without a traceback, and return the message."""
        result = self.call(state, **params)
        assert result.get("failed") is True, result
        assert "exception" not in result
        return str(result["msg"])

    def restore(self, instances: int) -> dict[str, Any]:
        """What brings the application back."""
        node = shutil.which("node")
        assert node is not None
        return {
            "app": {
                "name": "shop",
                "state": "present",
                "instances": instances,
                "ecosystem": str(self.box.folder / "ecosystem.config.js"),
                "pm2": str(self.box.command),
                "node_bin_dir": str(Path(node).parent),
                "pm2_home": str(self.box.home),
                "port": self.box.port,
                "health_url": f"http://127.0.0.1:{self.box.port}/",
                "release": None,
                "service": "",
                "lease": None,
                "start_timeout_s": START_TIMEOUT_S,
                "stable_s": 0.5,
            },
            "remove": [str(self.box.folder / "trial")],
            "log": str(self.box.home / "lease.log"),
        }

    def take(self, instances: int, time_s: float) -> int:
        """Take the lock with a watchdog, and return that one's process id."""
        result = self.done("taken", time_s=time_s, restore=self.restore(instances), watchdog_dir=str(self.programs))
        assert (result["held"], result["lock"]["watchdog"]) == (True, True)
        return int((self.directory / "watchdog.pid").read_text())

    def lease(self, time_s: float = LONG_S) -> dict[str, Any]:
        """The lock as pm2_app is told of it."""
        return {"dir": str(self.directory.parent), "id": ID, "time_s": time_s}

    def workers(self) -> int:
        """How many workers are online."""
        return sum(worker["status"] == "online" for worker in self.box.done(state="info")["workers"])

    def log(self) -> str:
        """What the watchdog has noted."""
        return (self.box.home / "lease.log").read_text()


def wait_for_end(pid: int) -> None:
    """Wait until a process has ended."""
    with suppress(psutil.NoSuchProcess):
        psutil.Process(pid).wait(LIMIT_S)


@pytest.fixture
def leased(sandbox: Sandbox) -> Iterator[Leased]:
    """An application of which nothing runs yet, and a lock that nobody holds; its watchdog is ended behind the test."""
    programs = sandbox.folder / "lease"
    programs.mkdir()
    for program in ("roles/lease/files/watchdog.py", "roles/pm2/library/pm2_app.py"):
        shutil.copy(ROOT / program, programs)
    found = Leased(sandbox, sandbox.folder / "lock" / "held", programs)
    try:
        yield found
    finally:
        pid = host_lease.read_text(found.directory / "watchdog.pid")
        shutil.rmtree(found.directory, ignore_errors=True)
        if pid:
            wait_for_end(int(pid))


def test_a_lock_is_held_by_one(leased: Leased) -> None:
    assert leased.done("info")["lock"] is None
    taken = leased.done("taken")
    assert (taken["changed"], taken["held"], taken["taken_over"]) == (True, True, None)
    lock = taken["lock"]
    assert {key: lock[key] for key in HOLDER} == HOLDER
    assert (lock["stale"], lock["watchdog"], lock["instances"]) == ("", False, None)
    message = leased.refused("taken", id="other")
    assert message.startswith(f"the host is locked by jane on laptop (pid 4711) since {lock['since']}, for recommend")
    assert not leased.done("taken")["changed"]
    assert not leased.done("released", id="other")["changed"]
    assert leased.done("info")["held"]
    assert leased.done("released")["changed"]
    assert not leased.directory.exists()


def test_check_mode_takes_nothing_and_fails_for_nobody(leased: Leased) -> None:
    assert not leased.done("taken", _ansible_check_mode=True)["held"]
    assert not leased.directory.exists()
    leased.done("taken")
    assert leased.done("taken", id="other", _ansible_check_mode=True)["lock"]["user"] == "jane"


@pytest.mark.parametrize("left_behind", [False, True], ids=["free", "left behind"])
def test_one_of_many_gets_the_lock(leased: Leased, *, left_behind: bool) -> None:
    """Processes that begin at once: a line on their standard input is the start."""
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); import host_lease; sys.stdin.readline()\n"
        "options = {'dir': sys.argv[2], 'id': sys.argv[3], 'holder': {}, 'time_s': 60.0, 'restore': None,"
        " 'watchdog_dir': None, 'user': '', 'unit': '', 'state': 'taken'}\n"
        "try: print(host_lease.act(options, check_mode=False)['held'])\n"
        "except host_lease.LeaseError: print(False)\n"
    )
    library = str(ROOT / "roles/lease/library")
    if left_behind:
        leased.done("taken", time_s=60.0)
        for path in (leased.directory / "renewed", leased.directory):
            os.utime(path, (1, 1))
    many = [
        subprocess.Popen(
            [sys.executable, "-c", script, library, str(leased.directory.parent), f"id-{number}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(12)
    ]
    for one in many:
        assert one.stdin is not None
        one.stdin.write("\n")
        one.stdin.flush()
    assert sorted(one.communicate()[0].strip() for one in many) == ["False"] * 11 + ["True"]


def test_a_lock_that_was_left_behind_is_taken_over_and_told(leased: Leased) -> None:
    leased.done("taken", time_s=60.0)
    for path in (leased.directory / "renewed", leased.directory):
        os.utime(path, (1, 1))
    assert leased.done("info")["lock"]["stale"].startswith("not renewed for ")
    result = leased.done("taken", id="other")
    assert result["held"]
    assert (result["taken_over"]["user"], result["taken_over"]["purpose"]) == ("jane", "recommend")


def test_a_lock_that_says_nothing_yet_is_not_taken_over_at_once(leased: Leased) -> None:
    leased.directory.mkdir(parents=True)
    assert leased.refused("taken").startswith("the host is locked by unknown on unknown")
    os.utime(leased.directory, (1, 1))
    assert leased.done("taken")["held"]


def test_what_stands_in_the_way_of_the_lock_is_said(leased: Leased) -> None:
    message = leased.refused("taken", dir="/proc/strapi-tuner")
    assert message == "/proc/strapi-tuner cannot be made: No such file or directory; set lease_dir"
    message = leased.refused("taken", restore=leased.restore(1), watchdog_dir="/nowhere")
    assert re.fullmatch(r"the watchdog of the lock cannot be started: .*/nowhere/watchdog\.py.*", message)
    assert not leased.directory.exists()


def test_the_host_brings_itself_back_when_nobody_renews_the_lock(leased: Leased) -> None:
    leased.box.done(instances=1)
    (leased.box.folder / "trial").write_text("")
    watchdog = leased.take(1, SHORT_S)
    leased.box.done(instances=3, lease=leased.lease(SHORT_S))
    assert leased.workers() == 3
    wait_for_end(watchdog)
    assert leased.workers() == 1
    assert not leased.directory.exists()
    assert not (leased.box.folder / "trial").exists()
    assert "the application runs in 1 instances again (it ran in 3)" in leased.log()
    assert leased.box.home.joinpath("lease.log").stat().st_mode & 0o777 == 0o600


def test_whoever_lost_the_lock_changes_nothing_any_more(leased: Leased) -> None:
    leased.box.done(instances=1)
    watchdog = leased.take(1, SHORT_S)
    wait_for_end(watchdog)
    message = leased.box.refused(instances=3, lease=leased.lease())
    assert message.startswith("the lock of the host was lost, and the host has brought itself back: 20")
    assert "the lock was not renewed within 3 s, its holder is gone: the application runs in 1 instances" in message
    assert leased.workers() == 1


def test_whoever_comes_back_waits_for_the_watchdog_that_has_begun(leased: Leased) -> None:
    leased.box.done(instances=2)
    leased.take(1, LONG_S)
    with (leased.box.home / "pm2_app.lock").open("w") as busy:
        # Held as by a module that is still at work: the watchdog has begun, and waits.
        fcntl.flock(busy, fcntl.LOCK_EX)
        (leased.directory / "renewed").write_text("0\n")
        watchdog = psutil.Process(int((leased.directory / "watchdog.pid").read_text()))
        while not (leased.directory / "id.late").exists():
            assert watchdog.is_running()
    assert leased.done("taken")["held"]
    assert leased.workers() == 1
    assert "the application runs in 1 instances again (it ran in 2)" in leased.log()


def test_a_watchdog_goes_with_its_lock_and_brings_nothing_back(leased: Leased) -> None:
    leased.box.done(instances=1)
    watchdog = leased.take(3, LONG_S)
    leased.done("released")
    wait_for_end(watchdog)
    assert leased.workers() == 1
    assert not (leased.box.home / "lease.log").exists()


def test_a_holder_can_change_what_is_brought_back(leased: Leased) -> None:
    leased.box.done(instances=1)
    watchdog = leased.take(1, LONG_S)
    assert leased.take(2, SHORT_S) == watchdog
    wait_for_end(watchdog)
    assert leased.workers() == 2


def test_what_its_watchdog_left_undone_is_not_taken_over(leased: Leased) -> None:
    leased.box.done(instances=1)
    watchdog = leased.take(1, LONG_S)
    leased.box.done(instances=2, lease=leased.lease())
    os.kill(watchdog, signal.SIGKILL)
    wait_for_end(watchdog)
    for path in (leased.directory / "renewed", leased.directory):
        os.utime(path, (1, 1))
    message = leased.refused("taken", id="other")
    assert "and so is its watchdog, which was to bring 1 instances back" in message
    broken = leased.done("broken")
    assert (broken["taken_over"]["instances"], broken["lock"]) == (1, None)


@pytest.mark.parametrize(
    ("available", "swapped_mib", "said"),
    [(0.03, 0, "3.0% of the host's memory were left"), (0.5, 600, "the host swapped 600 MiB out")],
    ids=["memory", "swap"],
)
def test_a_host_that_runs_out_of_memory_brings_itself_back_at_once(
    leased: Leased, monkeypatch: pytest.MonkeyPatch, available: float, swapped_mib: int, said: str
) -> None:
    monkeypatch.syspath_prepend(str(leased.programs))
    watchdog = load_file(leased.programs / "watchdog.py")
    leased.box.done(instances=1)
    os.kill(leased.take(1, LONG_S), signal.SIGKILL)
    leased.box.done(instances=2, lease=leased.lease())
    readings = iter([(0.9, 0), (available, swapped_mib * 2**20), (0.9, 0), *[(available, swapped_mib * 2**20)] * 2])
    watch = watchdog.Watch(leased.directory, poll_s=0.0, memory=lambda: next(readings))
    reason = watch.wait()
    assert reason == said
    watch.bring_back(reason)
    assert leased.workers() == 1
    assert not leased.directory.exists()
    assert f"{said}: the application runs in 1 instances again (it ran in 2)" in leased.log()


def test_a_dead_daemon_is_brought_back_too(leased: Leased) -> None:
    leased.box.done(instances=2)
    watchdog = leased.take(2, SHORT_S)
    pid = leased.box.pm2().daemon_pid()
    os.kill(pid, signal.SIGKILL)
    wait_for_end(watchdog)
    assert leased.workers() == 2
    assert leased.box.pm2().daemon_pid() not in (None, pid)
