"""What a run found, did and measured: on disk before it goes on, whatever happens to it next."""

from __future__ import annotations

import base64
import errno
import fcntl
import getpass
import json
import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tuner.errors import HostError, InputError, TunerError
from tuner.host_names import check_host_name
from tuner.inventory import Edit
from tuner.model import Decision, Deployment, Report, Trial
from tuner.wording import quoted

PRIVATE = 0o700
PRIVATE_FILE = 0o600


@dataclass(frozen=True)
class Unfinished:
    """What a run noted before it changed a host, and has not taken back.

    Attributes:
        instances: What it found.
        lease: What tells the holder of the lock of the host from others.
        purpose: What the run was for.
        holder: Who started it, in words.
        since: When, as ISO 8601.
        edit: What it may have written to the inventory.
    """

    instances: int
    lease: str
    purpose: str
    holder: str
    since: str
    edit: Edit | None

    def __str__(self) -> str:
        """The run in words."""
        return f"the {self.purpose} of {self.since} by {self.holder}"


class Journal:
    """The records of all runs on one host, and of the one that is under way.

    A run has a directory of its own with `run.json` (what was found and planned), `steps.jsonl` (what was done to the
    host, announced before and confirmed after), `trials.jsonl` (one raw trial a line) and `summary.json` (what came of
    it). Beside them, `unfinished.json` exists while a run has changed the host and not yet left it.

    Args:
        results: Directory for the records of all hosts.
        host: Name of the host.

    Raises:
        InputError: When the host's name cannot be the name of a directory.
    """

    def __init__(self, results: Path, host: str) -> None:
        check_host_name(host)
        self._base = results.absolute() / host
        self._marker = self._base / "unfinished.json"
        self.directory = self._base
        self._session = 0
        self._note: dict[str, Any] = {}

    def open_run(self, found: Mapping[str, Any]) -> None:
        """Begin the records of a run.

        Args:
            found: What was found and planned.

        Raises:
            InputError: When they cannot be written.
        """
        started = datetime.now(UTC)
        self.directory = self._base / started.strftime("%Y-%m-%dT%H-%M-%S.%fZ")
        with self._writing(InputError):
            _make_private(self._base)
            self.directory.mkdir(mode=PRIVATE)
            _write(self.directory / "run.json", {"started_at": started.isoformat(), **found})

    def find_run(self, run: str) -> tuple[Path, dict[str, Any], list[dict[str, Any]]]:
        """Read an earlier run of this host.

        Args:
            run: Its directory, or the name of that below the results of this host.

        Returns:
            The directory, what `run.json` holds, and the lines of `trials.jsonl`.

        Raises:
            InputError: When there is no such run, or it cannot be read.
        """
        try:
            places = (self._base / run, Path(run))
            directory = next((path for path in places if (path / "run.json").is_file()), None)
            if directory is None:
                raise InputError(
                    f"{quoted(run)} is no run of this host",
                    remedy=f"name a directory below {self._base}, or give its whole path",
                )
            found = json.loads((directory / "run.json").read_text(encoding="utf-8"))
            trials = directory / "trials.jsonl"
            # A last line without its end is of a trial that was cut off.
            lines = trials.read_text(encoding="utf-8").split("\n")[:-1] if trials.exists() else []
            return directory.absolute(), found, [json.loads(line) for line in lines]
        except (OSError, ValueError, RecursionError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise InputError(f"the run {quoted(run)} cannot be read: {reason}", remedy="start a new run") from error

    def reopen_run(self, directory: Path, session: int) -> None:
        """Go on with the records of an earlier run.

        Args:
            directory: Where they are.
            session: Number of the session that begins, from 1; what was there before is 0.

        Raises:
            InputError: When they cannot be written.
        """
        self.directory, self._session = directory, session
        trials = directory / "trials.jsonl"
        if trials.exists():
            with self._writing(InputError):
                os.truncate(trials, trials.read_bytes().rfind(b"\n") + 1)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other runs off this host. The system lets go of the lock when this process ends, however it ends.

        Raises:
            InputError: When another run holds it, or it cannot be written.
        """
        with self._writing(InputError):
            _make_private(self._base)
            file = open(self._base / "lock", "a+", encoding="utf-8", opener=_open_private)  # noqa: SIM115 closed below
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                file.seek(0)
                raise InputError(
                    f"another run measures this host ({file.read().strip() or 'no more is known of it'})",
                    remedy="wait for its end, or stop it",
                ) from error
            file.truncate(0)
            file.write(f"pid {os.getpid()} since {datetime.now(UTC).isoformat(timespec='seconds')}\n")
            file.flush()
            yield

    def unfinished(self) -> Unfinished | None:
        """What an earlier run on this host noted before it was cut off, or None.

        Raises:
            InputError: When there is such a note and it cannot be read: what the host runs is then not what was found.
        """
        try:
            noted = json.loads(self._marker.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:
            raise self._unreadable(str(error)) from error
        if not isinstance(noted, dict) or type(noted.get("instances")) is not int or noted["instances"] < 1:
            raise self._unreadable("it names no number of instances")
        try:
            return Unfinished(
                instances=noted["instances"],
                lease=str(noted["lease"]),
                purpose=str(noted["purpose"]),
                holder=f"{noted['user']} on {noted['controller']} (pid {noted['pid']})",
                since=str(noted["since"]),
                edit=_to_edit(self._base.name, noted["edit"]) if "edit" in noted else None,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise self._unreadable(f"{type(error).__name__} {error}") from error

    def _unreadable(self, reason: str) -> InputError:
        return InputError(
            f"an earlier run was cut off, and its note {self._marker} cannot be read: {reason}",
            remedy="deploy the host again, then remove the note",
        )

    @contextmanager
    def _writing(self, kind: type[TunerError]) -> Iterator[None]:
        """Turn what goes wrong on disk into an error of this kind."""
        try:
            yield
        except OSError as error:
            raise kind(
                f"results cannot be written to {self.directory}: {error.strerror}", remedy="choose another --results"
            ) from error

    def touch_host(self, found: Deployment, lease: str, purpose: str) -> None:
        """Note, before the host is changed, what it must be brought back to.

        Args:
            found: The application as it was found.
            lease: What tells the holder of the lock of the host from others.
            purpose: What the run is for.

        Raises:
            InputError: When that cannot be written.
        """
        self._note = {
            "instances": found.instances,
            "release": found.release,
            "lease": lease,
            "purpose": purpose,
            "run": str(self.directory),
            "pid": os.getpid(),
            "user": getpass.getuser(),
            "controller": platform.node(),
            "since": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        with self._writing(InputError):
            _write(self._marker, self._note)

    def announce_edit(self, edit: Edit) -> None:
        """Note, before the inventory is written, what takes that back.

        Raises:
            HostError: When that cannot be written.
        """
        before = None if edit.before is None else base64.b64encode(edit.before).decode("ascii")
        after = base64.b64encode(edit.after).decode("ascii")
        noted = {
            "variable": edit.variable,
            "value": edit.value,
            "path": str(edit.path),
            "before": before,
            "after": after,
        }
        with self._writing(HostError):
            _write(self._marker, {**self._note, "edit": noted})

    def leave_host(self) -> None:
        """Note that the host is where it should be."""
        self._marker.unlink(missing_ok=True)
        _sync(self._base)

    @contextmanager
    def step(self, step: str) -> Iterator[None]:
        """Announce what is about to be done to the host, and confirm it after.

        Raises:
            HostError: When it cannot be written.
        """
        self.note_step(step, "begun")
        yield
        self.note_step(step, "done")

    def note_step(self, step: str, state: str) -> None:
        """Add what is about to be done to the host (`begun`), or was (`done`), to the records.

        Raises:
            HostError: When it cannot be written.
        """
        line = json.dumps({"at": datetime.now(UTC).isoformat(timespec="milliseconds"), "step": step, "state": state})
        self._add_line("steps.jsonl", line)

    def append(self, trial: Trial, raw: Report, phase: str) -> None:
        """Add one trial, and what it was for, to the records.

        Raises:
            HostError: When it cannot be written.
        """
        line = json.dumps(
            {"phase": phase, "session": self._session, "trial": asdict(trial), "raw": raw}, separators=(",", ":")
        )
        self._add_line("trials.jsonl", line)

    def _add_line(self, name: str, line: str) -> None:
        """Add a line to a file of the run, and be sure that it is on disk."""
        path = self.directory / name
        with self._writing(HostError), open(path, "a", encoding="utf-8", opener=_open_private) as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())

    def note_error(self, message: str) -> None:
        """Add to the summary what kept the run from its end.

        Raises:
            HostError: When it cannot be written.
        """
        try:
            summary = json.loads((self.directory / "summary.json").read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            summary = None
        self.close_run({**(summary if isinstance(summary, dict) else {"verdict": None}), "error": message})

    def close_run(self, summary: Mapping[str, Any]) -> None:
        """Write what came of the run.

        Raises:
            HostError: When it cannot be written.
        """
        with self._writing(HostError):
            _write(self.directory / "summary.json", summary)


def summarise(decision: Decision, **more: Any) -> dict[str, Any]:
    """A decision as JSON, with what else is to be said of the run."""
    return {**asdict(decision), **more}


def _to_edit(host: str, noted: Mapping[str, Any]) -> Edit:
    """The edit of which `announce_edit` has made this."""
    before, after = (None if noted[key] is None else base64.b64decode(noted[key]) for key in ("before", "after"))
    return Edit(host, str(noted["variable"]), int(noted["value"]), Path(noted["path"]), before, after or b"")


def _write(path: Path, content: Mapping[str, Any]) -> None:
    """Replace a file at once, and be sure that it is on disk."""
    part = path.with_name(f".{path.name}.part")
    with open(part, "w", encoding="utf-8", opener=_open_private) as file:
        json.dump(content, file, indent=2, default=str)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    _sync(path.parent)


def _make_private(directory: Path) -> None:
    """Make a directory, and those above it that are missing, for this user alone."""
    for missing in reversed([path for path in (directory, *directory.parents) if not path.exists()]):
        missing.mkdir(mode=PRIVATE, exist_ok=True)
    if not directory.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(directory))


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, PRIVATE_FILE)


def _sync(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
