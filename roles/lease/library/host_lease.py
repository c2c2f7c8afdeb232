"""One lock for each host, and on a lease: who holds it must go on renewing it, or the host brings itself back."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_lease
short_description: The lock of a host, with a watchdog that brings an application back when its holder is gone
description:
  - The lock is the directory C(held) in O(dir). It says who holds it, from where, since when and for what.
  - It is held for a time and must be renewed. One that was not, and has nothing to bring back, counts as left behind
    and is taken over; the result tells whose it was.
  - With O(restore), a watchdog is started that brings the application back once the lock was not renewed in time, and
    then removes the lock. It needs nothing but the Python that runs this module, and outlives the connection.
  - The directory is to be one that a restart of the host empties, since that ends the watchdog too.
author: strapi-tuner developers
options:
  dir:
    description:
      - Directory of the lock, which is made where it is missing. It belongs to whoever holds the lock, so that they can
        let go of it.
    type: path
    required: true
  state:
    description:
      - C(info), nothing is changed.
      - C(taken), the lock is held under O(id); taking it again under the same one renews it, and O(restore) is what
        counts from then on.
      - C(released), the lock is not held under O(id); one that somebody else holds is left alone.
      - C(broken), nobody holds the lock, whoever did.
    type: str
    choices: [info, taken, released, broken]
    default: info
  id:
    description: What tells this holder from others. Needed for C(taken) and C(released).
    type: str
  holder:
    description: Who takes the lock - C(user), C(controller) and C(pid) there - and for what (C(purpose)).
    type: dict
    default: {}
  time_s:
    description: How long the lock is held without being renewed, in seconds.
    type: float
    default: 120.0
  restore:
    description:
      - What brings the application back, as options of pm2_app (C(app)), files to remove then (C(remove)), and a file
        that is told (C(log)).
    type: dict
  watchdog_dir:
    description: Directory that holds the program of the watchdog and pm2_app.py. Needed with O(restore).
    type: path
  user:
    description: User who runs the watchdog and owns the lock; needs root. Empty is who runs this module.
    type: str
    default: ""
  unit:
    description:
      - Beginning of the name of the transient systemd service that runs the watchdog; O(id) is the rest of it. Empty
        starts a process of its own.
    type: str
    default: ""
attributes:
  check_mode:
    support: full
    details: The lock is not taken, and one that somebody else holds is no failure.
"""

EXAMPLES = r"""
- name: Take the lock for a roll-out
  host_lease:
    dir: /run/lock/strapi-tuner
    state: taken
    id: 5f0c7c4e
    holder: {user: jane, controller: laptop, pid: 4711, purpose: deploy}
    time_s: 1800
"""

RETURN = r"""
lock:
  description: >-
    Who holds the lock now, or null - id, user, controller, pid, purpose, since (ISO 8601), renewed_s (how long ago),
    time_s, watchdog (whether one watches), stale (why it counts as left behind, or "") and instances (what its watchdog
    would bring back, or null).
  type: dict
  returned: always
taken_over:
  description: The lock that was left behind or broken, in the same form, or null.
  type: dict
  returned: always
held:
  description: Whether the lock is held under O(id).
  type: bool
  returned: always
held_by:
  description: Who holds the lock, in the form of RV(lock).
  type: dict
  returned: where that is why it was not taken
"""

import fcntl
import json
import os
import pwd
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

HELD = "held"
HOLDER = "holder.json"
ID = "id"
# What the watchdog makes of it, once nobody may renew the lock any more.
LATE = "id.late"
RENEWED = "renewed"
RESTORE = "restore.json"
WATCHDOG_PID = "watchdog.pid"
WATCHDOG = "watchdog.py"
DETACHED = "--detached"
# Python's own start, on a host that is busy.
WATCHDOG_START_S = 20.0
# As long as several workers may take to boot.
WATCHDOG_END_S = 300.0
POLL_S = 0.05
# A lock that says nothing is one that is being made, or was when its maker was killed.
UNFILLED_S = 60.0
UNKNOWN = "unknown"


class LeaseError(Exception):
    """The lock cannot be had as asked, in one line."""


def read_text(path: Path) -> str:
    """A small file without the white space around, "" where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object, empty where there is none."""
    try:
        value = json.loads(read_text(path))
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def replace_text(path: Path, text: str, mode: int = 0o644) -> None:
    """Put a whole file in its place at once."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(text, encoding="utf-8")
    part.chmod(mode)
    part.replace(path)


def is_watched(directory: Path) -> bool:
    """Whether the watchdog of this lock runs."""
    pid = read_text(directory / WATCHDOG_PID)
    try:
        command = Path(f"/proc/{int(pid)}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError):
        return False
    return os.fsencode(directory) in command


def look(directory: Path) -> dict[str, Any] | None:
    """Who holds the lock, or None; see RETURN."""
    try:
        made = directory.stat().st_mtime
    except OSError:
        return None
    holder, restore = read_json(directory / HOLDER), read_json(directory / RESTORE)
    try:
        renewed = (directory / RENEWED).stat().st_mtime
    except OSError:
        renewed = made
    try:
        time_s = float(read_text(directory / RENEWED).split()[0])
    except (ValueError, IndexError):
        time_s = UNFILLED_S
    renewed_s = max(0.0, time.time() - renewed)
    watched = is_watched(directory)
    stale = "" if watched or renewed_s <= time_s else f"not renewed for {renewed_s:.0f} s"
    return {
        "id": read_text(directory / ID),
        **{key: str(holder.get(key, UNKNOWN)) for key in ("user", "controller", "purpose", "since")},
        "pid": holder.get("pid") if isinstance(holder.get("pid"), int) else None,
        "renewed_s": round(renewed_s, 1),
        "time_s": time_s,
        "watchdog": watched,
        "stale": stale,
        "instances": (restore.get("app") or {}).get("instances"),
    }


def describe(lock: dict[str, Any]) -> str:
    """A lock in words."""
    return f"{lock['user']} on {lock['controller']} (pid {lock['pid']}) since {lock['since']}, for {lock['purpose']}"


class HeldError(LeaseError):
    """Somebody else holds it."""


class Lease:
    """The lock of one host, and what was asked for it."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.base = Path(options["dir"])
        self.directory = self.base / HELD

    def is_held(self) -> bool:
        """Whether it is held under this id. A watchdog that has begun to act has taken the id away."""
        return bool(self.options["id"]) and read_text(self.directory / ID) == self.options["id"]

    def renew(self) -> None:
        """Count its time anew."""
        replace_text(self.directory / RENEWED, f"{self.options['time_s']:g}\n")
        self.own(self.directory / RENEWED)

    def own(self, path: Path) -> None:
        """Give a file to the user who runs the watchdog."""
        if self.options["user"]:
            user = pwd.getpwnam(self.options["user"])
            os.chown(path, user.pw_uid, user.pw_gid)

    def take(self) -> dict[str, Any] | None:
        """Take it, or renew it where it is held under this id.

        Returns:
            What was left behind and is taken over, or None.

        Raises:
            LeaseError: When somebody else holds it.
        """
        try:
            self.base.mkdir(mode=0o755, parents=True, exist_ok=True)
        except OSError as error:
            raise LeaseError(f"{self.base} cannot be made: {error.strerror}; set lease_dir") from None
        self.await_watchdog()
        with self.alone():
            left = look(self.directory)
            if self.is_held():
                left = None
                self.renew()
                if self.options["restore"]:
                    self.note_restore()
            else:
                if left and (not left["stale"] or left["instances"] is not None):
                    raise HeldError(self.refusal(left))
                if left:
                    self.remove()
                self.make()
        if self.options["restore"] and not is_watched(self.directory):
            try:
                self.watch()
            except BaseException:
                self.release()
                raise
        return left

    def await_watchdog(self) -> None:
        """Where the watchdog of this very lock has begun to act, let it come to its end.

        Raises:
            LeaseError: When that takes too long.
        """
        deadline = time.monotonic() + WATCHDOG_END_S
        while read_text(self.directory / LATE) == self.options["id"] and is_watched(self.directory):
            if time.monotonic() > deadline:
                raise LeaseError(f"the host brings itself back, and has not done so within {WATCHDOG_END_S:g} s")
            time.sleep(POLL_S)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep others from taking, releasing and breaking the lock meanwhile."""
        handle = os.open(self.base, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def refusal(self, found: dict[str, Any]) -> str:
        """Why it cannot be had."""
        if found["stale"]:
            return (
                f"{describe(found)}, holds the lock and is gone ({found['stale']}), and so is its watchdog, "
                f"which was to bring {found['instances']} instances back"
            )
        return f"the host is locked by {describe(found)}"

    def make(self) -> None:
        """Make the lock, and say in it who holds it."""
        try:
            self.directory.mkdir(mode=0o755)
        except OSError as error:
            raise LeaseError(f"{self.directory} cannot be made: {error.strerror}; remove {self.base}") from None
        holder = {**self.options["holder"], "since": datetime.now(UTC).isoformat(timespec="seconds")}
        replace_text(self.directory / HOLDER, json.dumps(holder) + "\n")
        self.renew()
        if self.options["restore"]:
            self.note_restore()
        # Last of all: who sees the id sees the rest.
        replace_text(self.directory / ID, self.options["id"] + "\n")
        for path in (self.directory / HOLDER, self.directory / ID, self.directory, self.base):
            self.own(path)

    def note_restore(self) -> None:
        """Say what is to be brought back."""
        replace_text(self.directory / RESTORE, json.dumps(self.options["restore"]) + "\n", mode=0o600)
        self.own(self.directory / RESTORE)

    def watch(self) -> None:
        """Start the watchdog, and wait until it watches."""
        command = [sys.executable, str(Path(self.options["watchdog_dir"]) / WATCHDOG), str(self.directory)]
        if self.options["unit"]:
            user = [f"--uid={self.options['user']}"] if self.options["user"] else []
            # --collect, or a watchdog that has failed would be in the way of the next one.
            rights = ["--property=NoNewPrivileges=yes", "--property=CapabilityBoundingSet="]
            # A name of its own: the watchdog of the lock before takes a moment to see that it is gone.
            unit = f"--unit={self.options['unit']}-{''.join(filter(str.isalnum, self.options['id']))}"
            run = ["systemd-run", "--quiet", "--collect", unit, *user, *rights, "--"]
            done = subprocess.run([*run, *command], capture_output=True, text=True, check=False)  # noqa: S603 own program
            if done.returncode:
                raise LeaseError(f"the watchdog of the lock cannot be started: {done.stderr.strip()}")
        else:
            # It goes on in a session of its own, and this call returns.
            done = subprocess.run([*command, DETACHED], capture_output=True, text=True, check=False)  # noqa: S603 own program
            if done.returncode:
                raise LeaseError(f"the watchdog of the lock cannot be started: {done.stderr.strip()[-200:]}")
        deadline = time.monotonic() + WATCHDOG_START_S
        while not is_watched(self.directory):
            if time.monotonic() > deadline:
                raise LeaseError(f"the watchdog of the lock did not start within {WATCHDOG_START_S:g} s")
            time.sleep(POLL_S)

    def release(self) -> None:
        """Let go of it; the watchdog ends when it sees that."""
        if self.base.exists():
            with self.alone():
                self.remove()

    def remove(self) -> None:
        """Take it away at once, and then what is in it."""
        gone = self.directory.with_name(f".{self.directory.name}.{os.getpid()}")
        try:
            self.directory.rename(gone)
        except FileNotFoundError:
            return
        except OSError as error:
            raise LeaseError(
                f"{self.directory} cannot be removed: {error.strerror}; remove it as who owns it"
            ) from None
        shutil.rmtree(gone, ignore_errors=True)


def act(options: dict[str, Any], *, check_mode: bool) -> dict[str, Any]:
    """Bring the lock to the asked state, and say what it is then."""
    lease = Lease(options)
    state, taken_over = options["state"], None
    changed = False
    before = look(lease.directory)
    if not check_mode:
        if state == "taken":
            changed = not lease.is_held()
            taken_over = lease.take()
        elif (state == "released" and lease.is_held()) or (state == "broken" and before):
            changed = True
            taken_over = before if state == "broken" else None
            lease.release()
    return {"changed": changed, "held": lease.is_held(), "lock": look(lease.directory), "taken_over": taken_over}


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "dir": {"type": "path", "required": True},
            "state": {
                "type": "str",
                "choices": ["info", "taken", "released", "broken"],
                "default": "info",
            },
            "id": {"type": "str"},
            "holder": {"type": "dict", "default": {}},
            "time_s": {"type": "float", "default": 120.0},
            "restore": {"type": "dict"},
            "watchdog_dir": {"type": "path"},
            "user": {"type": "str", "default": ""},
            "unit": {"type": "str", "default": ""},
        },
        required_if=[("state", state, ["id"]) for state in ("taken", "released")],
        required_by={"restore": ["watchdog_dir"]},
        supports_check_mode=True,
    )
    try:
        module.exit_json(**act(module.params, check_mode=module.check_mode))
    except HeldError as error:
        module.fail_json(msg=str(error), held_by=look(Path(module.params["dir"]) / HELD))
    except LeaseError as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg=f"the lock of the host cannot be kept: {error.filename}: {error.strerror}")


if __name__ == "__main__":
    main()
