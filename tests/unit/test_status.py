"""What `tuner status` shows of the records, and what `tuner restore` brings back, on a simulated host."""

from __future__ import annotations

from pathlib import Path

import pytest
from records import deployment
from simulated import NotedProgress, SimulatedTarget

from tuner import restore as use_case
from tuner import status
from tuner.errors import InputError
from tuner.interruption import Interruption
from tuner.inventory import Inventory
from tuner.journal import Journal
from tuner.leaving import Actors
from tuner.model import Lock

LOCK = Lock(
    "jane", "laptop", 7, "recommend", "2026-01-01T00:00:00+00:00", 3.0, 180.0, watchdog=True, stale="", instances=3
)


def actors_of(root: Path, target: SimulatedTarget) -> Actors:
    """A simulated host, with a real inventory and a real journal."""
    (root / "hosts.yml").write_text("all:\n  hosts:\n    prod1:\n")
    inventory = Inventory(root / "hosts.yml", project_dir=root)
    return Actors(target, inventory, Journal(root / "results", "prod1"), Interruption(), NotedProgress())


def host(root: Path, running: int = 1) -> SimulatedTarget:
    """A simulated host that runs some instances."""
    return SimulatedTarget("http://127.0.0.1:9", {}, written=root / "host_vars/prod1/tuner.yml", running=running)


def test_nothing_to_restore_is_said_and_nothing_is_touched(tmp_path: Path) -> None:
    target = host(tmp_path)
    done = use_case.restore("prod1", actors_of(tmp_path, target), break_lock=False)
    assert done == "Nothing is to be restored on prod1: no run was cut off, and nobody holds its lock."
    assert not target.touched


def test_a_run_that_was_cut_off_is_taken_back_under_its_own_lock(tmp_path: Path) -> None:
    target = host(tmp_path)
    actors = actors_of(tmp_path, target)
    actors.journal.open_run({})
    actors.journal.touch_host(deployment(instances=2), "lease-1", "compare")
    (left,) = status.read(tmp_path / "results")
    assert (left.host, left.instances, left.runs) == ("prod1", 2, 1)
    assert left.unfinished.startswith("the compare of 20")
    done = use_case.restore("prod1", actors, break_lock=False)
    assert done.startswith("prod1 runs 2 instances again, as before the compare of 20")
    assert (target.running, target.locks) == (2, ["released lease-1"])
    (left,) = status.read(tmp_path / "results")
    assert (left.unfinished, left.instances) == ("", None)


def test_a_lock_of_somebody_else_stands_until_it_is_broken(tmp_path: Path) -> None:
    target = host(tmp_path)
    target.locked_by = LOCK
    actors = actors_of(tmp_path, target)
    with pytest.raises(InputError, match=r"prod1 is locked by jane on laptop \(pid 7\) since 2026.*--break-lock"):
        use_case.restore("prod1", actors, break_lock=False)
    assert not target.touched
    done = use_case.restore("prod1", actors, break_lock=True)
    # To what the run of the lock had found, and not to what it was measuring.
    assert done.startswith("prod1 runs 3 instances; the lock of jane on laptop (pid 7)")
    assert target.running == 3
    assert target.locked_by is None


def test_records_are_told_as_far_as_they_can_be_read(tmp_path: Path) -> None:
    for name, summary in (("a", '{"verdict": "resolved", "instances": 2}'), ("b", '{"error": "no space"}'), ("c", "{")):
        journal = Journal(tmp_path, name)
        journal.open_run({})
        (journal.directory / "summary.json").write_text(summary)
    Journal(tmp_path, "d").open_run({})
    (tmp_path / "no host").mkdir()
    assert [(one.host, one.runs, one.came_to) for one in status.read(tmp_path)] == [
        ("a", 1, "resolved: 2 instances"),
        ("b", 1, "failed: no space"),
        ("c", 1, "no verdict"),
        ("d", 1, "did not end"),
    ]
    assert list(status.read(tmp_path / "nowhere")) == []


def test_a_broken_note_is_said(tmp_path: Path) -> None:
    (tmp_path / "prod1").mkdir()
    (tmp_path / "prod1/unfinished.json").write_text("{")
    with pytest.raises(InputError, match="cannot be read"):
        list(status.read(tmp_path))
