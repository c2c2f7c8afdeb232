"""What a killed tuner would leave behind on the controller."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from tuner import abandoned

LIMIT_S = 20
STARTS_A_CHILD = """
import os, pty, signal
from tuner.abandoned import end_children_with_this_process
end_children_with_this_process()
pid, _ = pty.fork()
if not pid:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as ansible-playbook does
    os.execlp("sleep", "sleep", "600")
print(pid, flush=True)
signal.pause()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can do this")
def test_what_was_started_ends_with_its_starter_however_that_ends() -> None:
    with subprocess.Popen([sys.executable, "-c", STARTS_A_CHILD], stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        child = psutil.Process(int(starter.stdout.readline()))
        assert child.is_running()
        starter.kill()
        child.wait(LIMIT_S)


def gone_pid() -> int:
    """The process id of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait(LIMIT_S)
    return process.pid


def test_directories_of_tuners_that_run_no_more_are_removed_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    old, target = tmp_path / f"tuner-{gone_pid()}-ab_c1", tmp_path / "target"
    for path in (old, target, tmp_path / "tuner-notes-today", tmp_path / f"tuner-{os.getpid()}-abc"):
        (path / "env").mkdir(parents=True)
    (tmp_path / f"tuner-{gone_pid()}-file").touch()
    (tmp_path / f"tuner-{gone_pid()}-link").symlink_to(target)
    kept = {path.name for path in tmp_path.iterdir()} - {old.name}
    with abandoned.private_directory() as mine:
        abandoned.remove_abandoned_directories()
        assert Path(mine).stat().st_mode & 0o777 == 0o700
        assert {path.name for path in tmp_path.iterdir()} == kept | {Path(mine).name}
    assert (target / "env").is_dir()
