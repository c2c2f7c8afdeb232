"""What a run noted is on disk, readable by its owner alone, and tells the next run what was left behind."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from records import deployment, trial

from tuner.errors import HostError, InputError
from tuner.inventory import Edit
from tuner.journal import Journal

LEASE = "5f0c7c4e"
HOSTILE = [
    "",
    ".",
    "..",
    "../x",
    "/etc",
    "a/b",
    ".ssh",
    "-rf",
    "a b",
    "a\nb",
    "a\n",
    "a\0b",
    "é",
    "a;b",
    "a:b",
    "h" * 251,
]
BROKEN_NOTES = {
    "empty": b"",
    "cut off": b'{"instances": ',
    "no object": b"[2]\n",
    "no number": b'{"instances": "2"}\n',
    "a truth": b'{"instances": true}\n',
    "nothing of it": b"{}\n",
    "no lease": b'{"instances": 2}\n',
    "an edit of nothing": b'{"instances": 2, "lease": "x", "purpose": "recommend", "user": "u", "controller": "c", '
    b'"pid": 1, "since": "s", "edit": {"path": 1}}\n',
    "not UTF-8": b'{"instances": 2, "since": "\xff"}\n',
}


def begin(results: Path, host: str = "prod1") -> Journal:
    journal = Journal(results, host)
    journal.open_run({"plan": {"candidates": (1, 2)}})
    return journal


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_a_run_leaves_what_was_found_measured_and_decided(tmp_path: Path) -> None:
    journal = begin(tmp_path)
    journal.append(trial(1, 1, 200.0), {"load": {"ok": 1}}, "search")
    journal.append(trial(2, 1, 400.0), {"load": {"ok": 2}}, "confirm")
    journal.close_run({"verdict": "certified", "path": tmp_path})
    assert journal.directory.parent == tmp_path / "prod1"
    found = read(journal.directory / "run.json")
    assert found["plan"] == {"candidates": [1, 2]}
    assert found["started_at"][:10] == journal.directory.name[:10]
    rows = [json.loads(row) for row in (journal.directory / "trials.jsonl").read_text().splitlines()]
    assert [(row["trial"]["instances"], row["raw"]["load"]["ok"]) for row in rows] == [(1, 1), (2, 2)]
    assert read(journal.directory / "summary.json") == {"verdict": "certified", "path": str(tmp_path)}


def test_each_run_has_a_directory_of_its_own(tmp_path: Path) -> None:
    assert begin(tmp_path).directory != begin(tmp_path).directory
    assert begin(tmp_path, "prod2").directory.parent == tmp_path / "prod2"


def test_records_are_readable_by_their_owner_alone(tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        journal = begin(tmp_path / "results")
        journal.touch_host(deployment(instances=2), LEASE, "recommend")
        journal.append(trial(1, 1, 200.0), {}, "search")
        journal.close_run({})
    finally:
        os.umask(mask)
    base = tmp_path / "results/prod1"
    modes = {path.name: path.stat().st_mode & 0o777 for path in [base, *base.rglob("*")]}
    assert base.parent.stat().st_mode & 0o777 == 0o700
    assert modes.pop("prod1") == 0o700
    assert modes.pop(journal.directory.name) == 0o700
    assert modes == dict.fromkeys(("unfinished.json", "run.json", "trials.jsonl", "summary.json"), 0o600)


def test_every_file_and_its_directory_are_on_disk_before_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = begin(tmp_path)
    synced: list[str] = []
    real = os.fsync

    def fsync(handle: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{handle}").readlink()))
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    base = journal.directory.parent
    journal.touch_host(deployment(instances=2), LEASE, "recommend")
    assert synced == [str(base / ".unfinished.json.part"), str(base)]
    synced.clear()
    journal.append(trial(1, 1, 200.0), {}, "search")
    assert synced == [str(journal.directory / "trials.jsonl")]
    synced.clear()
    journal.leave_host()
    assert synced == [str(base)]


def test_the_note_of_a_host_in_use_lives_until_the_host_is_left(tmp_path: Path) -> None:
    journal = begin(tmp_path)
    assert journal.unfinished() is None
    journal.touch_host(deployment(instances=2), LEASE, "recommend")
    noted = Journal(tmp_path, "prod1").unfinished()
    assert noted is not None
    assert (noted.instances, noted.lease, noted.edit) == (2, LEASE, None)
    assert str(noted).startswith("the recommend of 20")
    assert f"(pid {os.getpid()})" in noted.holder
    assert Journal(tmp_path, "prod2").unfinished() is None
    journal.leave_host()
    assert Journal(tmp_path, "prod1").unfinished() is None
    journal.leave_host()


@pytest.mark.parametrize("before", [None, b"", b"# mine\n\xff"], ids=["no file", "an empty file", "bytes"])
def test_an_edit_that_was_announced_can_be_taken_back_by_the_next_run(tmp_path: Path, before: bytes | None) -> None:
    journal = begin(tmp_path)
    journal.touch_host(deployment(instances=2), LEASE, "recommend")
    edit = Edit(
        "prod1", "strapi_instances", 3, tmp_path / "host_vars/prod1/tuner.yml", before, b"strapi_instances: 3\n"
    )
    journal.announce_edit(edit)
    noted = Journal(tmp_path, "prod1").unfinished()
    assert noted is not None
    assert (noted.edit, noted.instances, noted.lease) == (edit, 2, LEASE)


def test_steps_are_announced_before_and_confirmed_after(tmp_path: Path) -> None:
    journal = begin(tmp_path)
    journal.note_step("trial 1 with 2 instances", "begun")
    journal.note_step("trial 1 with 2 instances", "done")
    rows = [json.loads(row) for row in (journal.directory / "steps.jsonl").read_text().splitlines()]
    assert [(row["step"], row["state"]) for row in rows] == [("trial 1 with 2 instances", s) for s in ("begun", "done")]
    assert rows[0]["at"] <= rows[1]["at"]


@pytest.mark.parametrize("content", BROKEN_NOTES.values(), ids=BROKEN_NOTES.keys())
def test_a_note_that_cannot_be_read_is_not_taken_for_none(tmp_path: Path, content: bytes) -> None:
    journal = begin(tmp_path)
    note = tmp_path / "prod1/unfinished.json"
    note.write_bytes(content)
    with pytest.raises(InputError, match=r"prod1/unfinished\.json cannot be read: .*; deploy the host again"):
        journal.unfinished()
    assert note.read_bytes() == content


@pytest.mark.parametrize("host", HOSTILE)
def test_a_host_name_that_leads_elsewhere_is_refused(tmp_path: Path, host: str) -> None:
    with pytest.raises(InputError, match="cannot be the name of a host") as caught:
        Journal(tmp_path, host)
    assert str(caught.value).isprintable()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("host", ["prod1", "db-1.example.org", "10.0.0.7", "fe80::1", "_x"])
def test_an_ordinary_host_name_is_a_directory(tmp_path: Path, host: str) -> None:
    assert begin(tmp_path, host).directory.is_relative_to(tmp_path / host)


def test_nothing_is_made_before_a_run_begins(tmp_path: Path) -> None:
    Journal(tmp_path / "results", "prod1").unfinished()
    assert not (tmp_path / "results").exists()


def test_results_that_cannot_be_written_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"results cannot be written to .*: Not a directory; choose another --results"):
        begin(tmp_path / "file")


def test_a_disk_that_fills_up_is_said_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = begin(tmp_path)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(HostError, match="No space left on device"):
        journal.append(trial(1, 1, 200.0), {}, "search")
    with pytest.raises(InputError, match="No space left on device"):
        journal.touch_host(deployment(instances=2), LEASE, "recommend")
    with pytest.raises(HostError, match="No space left on device"):
        journal.close_run({})
