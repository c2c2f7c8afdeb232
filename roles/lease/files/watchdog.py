"""Watch the lock of a host, and bring the application back once it was not renewed in time.

Run as `watchdog.py DIRECTORY [--detached]`, where DIRECTORY is what the module host_lease made. It ends when that is
gone. It counts on a clock that nobody can set and that goes on while the host sleeps.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import syslog
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

# Beside this file on the host.
import pm2_app

POLL_S = 1.0
# Between two attempts, where the first one fails.
RETRY_S = 10.0
# What a host needs to go on: below this share of its memory, or with this much more swapped out than there was, it is
# about to kill processes or to stand still. Seen twice in a row, since a moment is none.
MEMORY_FLOOR = 0.04
SWAP_GROWTH_BYTES = 512 * 1024**2
LOOKS = 2


def now_s() -> float:
    """Seconds since the host was started, sleep included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def read_memory() -> tuple[float, int]:
    """The share of this host's memory that is available, and how much is swapped out, in bytes; see proc(5)."""
    fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines())
    kib = {name: int(value.split()[0]) for name, value in fields.items()}
    return kib["MemAvailable"] / kib["MemTotal"], (kib["SwapTotal"] - kib["SwapFree"]) * 1024


class Watch:
    """One lock, from the time when it was taken until it is gone.

    Args:
        directory: The lock.
        poll_s: Time between two looks, in seconds.
        retry_s: Time between two attempts, in seconds.
        memory: What tells how the host stands, as read_memory does.
    """

    def __init__(
        self,
        directory: Path,
        poll_s: float = POLL_S,
        retry_s: float = RETRY_S,
        memory: Callable[[], tuple[float, int]] = read_memory,
    ) -> None:
        self.directory = directory
        self.poll_s = poll_s
        self.retry_s = retry_s
        self.inode = directory.stat().st_ino
        self.memory = memory
        self.swapped = memory()[1]
        self.scarce = 0
        self.restore = self.read_restore()

    def read_restore(self) -> dict[str, Any]:
        """What brings the application back; its holder may have changed that since."""
        restore: dict[str, Any] = json.loads((self.directory / "restore.json").read_text(encoding="utf-8"))
        return restore

    def is_gone(self) -> bool:
        """Whether the lock was released, be it that somebody else has taken it since."""
        try:
            return self.directory.stat().st_ino != self.inode
        except OSError:
            return True

    def read_renewal(self) -> tuple[tuple[int, int], float]:
        """What tells one renewal from another, and for how long it holds, in seconds."""
        path = self.directory / "renewed"
        seen = path.stat()
        return (seen.st_ino, seen.st_mtime_ns), float(path.read_text(encoding="ascii").split()[0])

    def find_scarcity(self) -> str:
        """Say what of the host's memory has run out, or "" where it has not."""
        available, swapped = self.memory()
        if available < MEMORY_FLOOR:
            found = f"{available:.1%} of the host's memory were left"
        elif swapped > self.swapped + SWAP_GROWTH_BYTES:
            found = f"the host swapped {(swapped - self.swapped) / 1024**2:.0f} MiB out"
        else:
            found = ""
        self.scarce = self.scarce + 1 if found else 0
        return found if self.scarce >= LOOKS else ""

    def wait(self) -> str:
        """Wait until the lock is gone, or was not renewed in time, or the host's memory runs out.

        Returns:
            Why the application is to be brought back; "" when the lock is gone.
        """
        mark, time_s = self.read_renewal()
        since = now_s()
        while not self.is_gone():
            try:
                found, time_s = self.read_renewal()
            except (OSError, ValueError, IndexError):
                found = mark  # removed or replaced just now, which the next look will tell
            if found != mark:
                mark, since = found, now_s()
            if now_s() - since > time_s:
                return f"the lock was not renewed within {time_s:.0f} s, its holder is gone"
            if scarcity := self.find_scarcity():
                return scarcity
            time.sleep(self.poll_s)
        return ""

    def bring_back(self, reason: str) -> None:
        """Bring the application back, try after try, and then remove the lock."""
        # From here on nobody can renew it: who held it must not change the host any more.
        (self.directory / "id").rename(self.directory / "id.late")
        self.restore = self.read_restore()
        self.log(reason)
        while not self.is_gone():
            try:
                done = pm2_app.run(self.restore["app"])
            except pm2_app.Pm2Error as error:
                self.log(f"the application could not be brought back, next attempt in {self.retry_s:g} s: {error}")
                time.sleep(self.retry_s)
                continue
            for path in self.restore["remove"]:
                Path(path).unlink(missing_ok=True)
            self.log(f"{reason}: the application runs in {done['after']} instances again (it ran in {done['before']})")
            # Away at once, so that nobody finds half of it.
            gone = self.directory.with_name(f".{self.directory.name}.{os.getpid()}")
            self.directory.rename(gone)
            shutil.rmtree(gone, ignore_errors=True)

    def log(self, message: str) -> None:
        """Note what happens in the system's log, and in a file that stays where that is not read."""
        line = " ".join(message.split())
        syslog.syslog(f"{self.restore['app']['name']}: {line}")
        with open(
            self.restore["log"], "a", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, 0o600)
        ) as file:
            file.write(f"{datetime.now(UTC).isoformat(timespec='seconds')} {line}\n")


def detach() -> None:
    """Go on in a process that nothing of the caller ends, nor waits for."""
    if os.fork():
        os._exit(0)
    os.setsid()
    os.chdir("/")
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)


def main() -> None:
    """Entry point."""
    if "--detached" in sys.argv[2:]:
        detach()
    directory = Path(sys.argv[1])
    syslog.openlog("strapi-tuner", syslog.LOG_PID)
    watch = Watch(directory)
    part = directory / ".watchdog.pid"
    part.write_text(f"{os.getpid()}\n", encoding="ascii")
    part.rename(directory / "watchdog.pid")
    if reason := watch.wait():
        watch.bring_back(reason)


if __name__ == "__main__":
    main()
