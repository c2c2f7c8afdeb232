"""The use case `status`: what the runs on each host came to, and what was left behind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.errors import InputError
from tuner.host_names import is_host_name
from tuner.journal import Journal


@dataclass(frozen=True)
class HostStatus:
    """The records of one host.

    Attributes:
        host: Its name.
        runs: How many runs there are.
        last: When the last one was started, as ISO 8601; "" if there was none.
        came_to: What the last one came to, in words.
        unfinished: The run that was cut off and not taken back yet, in words; "" is none.
        instances: What that one had found; None is none.
        lock: Who holds the lock of the host now, in words, "" for nobody; None where the host was not asked.
    """

    host: str
    runs: int
    last: str
    came_to: str
    unfinished: str
    instances: int | None
    lock: str | None = None


def read(results: Path) -> Iterator[HostStatus]:
    """Read the records of every host.

    Args:
        results: Directory of the records.

    Raises:
        InputError: When it cannot be read, or a note of a run that was cut off cannot.
    """
    try:
        names = sorted(path.name for path in results.iterdir() if path.is_dir() and is_host_name(path.name))
    except FileNotFoundError:
        return
    except OSError as error:
        raise InputError(f"{results} cannot be read: {error.strerror}", remedy="choose another --results") from error
    for name in names:
        yield of_host(results, name)


def of_host(results: Path, host: str) -> HostStatus:
    """Read the records of one host.

    Raises:
        InputError: When the note of a run that was cut off cannot be read.
    """
    left = Journal(results, host).unfinished()
    runs = sorted(path.parent for path in (results / host).glob("*/run.json"))
    last = runs[-1] if runs else None
    return HostStatus(
        host=host,
        runs=len(runs),
        last=str(_read(last / "run.json").get("started_at", "unknown"))[:19] if last else "",
        came_to=_came_to(last) if last else "",
        unfinished=str(left) if left else "",
        instances=left.instances if left else None,
    )


def _came_to(run: Path) -> str:
    if not (run / "summary.json").exists():
        return "did not end"
    summary = _read(run / "summary.json")
    if error := summary.get("error"):
        return f"failed: {error}"
    if verdict := summary.get("verdict"):
        count = summary.get("instances")
        return f"{verdict}: {count} instances" if count is not None else str(verdict)
    return str(summary.get("sentence") or "no verdict")


def _read(path: Path) -> dict[str, Any]:
    """A JSON object, empty where it cannot be read: a status is shown of all the rest."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
