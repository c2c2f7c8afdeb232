"""A booted test host, who uses its application, and the runs of tuner on it: what faults.py and collisions.py share."""

from __future__ import annotations

import hashlib
import http.client
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from tuner import assembly

PM2_HOME = "/srv/strapi/pm2"
LIMIT_S = 600.0
PAGE_S = 0.05


@dataclass(frozen=True)
class Place:
    """The host and where the runs on it keep their records.

    Attributes:
        host: Its name.
        inventory: Its inventory.
        container: Its container.
        results: Directory of the records.
    """

    host: str
    inventory: Path
    container: str
    results: Path

    def tuner(self, *arguments: str) -> list[str]:
        """A command line of tuner on this host."""
        options = ["--host", self.host, "-i", str(self.inventory), "--results", str(self.results)]
        return [sys.executable, "-m", "tuner", arguments[0], *options, *arguments[1:]]

    def inside(self, *command: str) -> str:
        """Run a command in the container, as root."""
        done = subprocess.run(
            ["podman", "exec", self.container, *command], capture_output=True, text=True, check=False, timeout=60
        )
        return done.stdout.strip()

    def pid_of(self, pattern: str) -> list[str]:
        """Process ids in the container of what matches."""
        return self.inside("pgrep", "--full", pattern).split()

    def is_locked(self) -> bool:
        """Whether somebody holds the lock of the host."""
        return self.inside("sh", "-c", "test -e /run/lock/strapi-tuner/held && echo held") == "held"

    def connections(self, url: str) -> int:
        """Connections to the application that are open."""
        port = urlsplit(url).port
        return len(self.inside("ss", "-Htn", "state", "established", "sport", "=", f":{port}").splitlines())

    def around(self, namespace: str, *command: str) -> None:
        """Run a command of this machine, with its rights, in a namespace of the container (`net` or `mount`)."""
        pid = subprocess.run(
            ["podman", "inspect", "--format", "{{.State.Pid}}", self.container],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        subprocess.run(["nsenter", f"--{namespace}", "--target", pid, *command], check=True)

    def network(self, state: str) -> None:
        """Take the container's network away (`down`) or give it back (`up`)."""
        self.around("net", "ip", "link", "set", "eth0", state)

    @contextmanager
    def small_disk(self) -> Iterator[None]:
        """Have pm2's directory, its logs and those of the lease on a small file system of their own meanwhile."""
        self.inside("systemctl", "stop", "pm2-strapi")
        self.around("mount", "cp", "-a", PM2_HOME, "/run/pm2-home")
        self.around("mount", "mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", PM2_HOME)
        try:
            self.around("mount", "cp", "-aT", "/run/pm2-home", PM2_HOME)
            self.inside("systemctl", "start", "pm2-strapi")
            yield
        finally:
            self.inside("systemctl", "stop", "pm2-strapi")
            self.around("mount", "umount", PM2_HOME)
            self.around("mount", "rm", "-r", "/run/pm2-home")
            self.inside("systemctl", "start", "pm2-strapi")


@dataclass
class Client:
    """Somebody who uses the application meanwhile.

    Attributes:
        url: Address of the application.
        sent: Requests sent.
        lost: Those that got no good answer.
    """

    url: str
    sent: int = 0
    lost: int = 0
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread:
            self._thread.join()

    def _ask(self) -> None:
        parts = urlsplit(self.url)
        while not self._over.wait(PAGE_S):
            connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=10)
            self.sent += 1
            try:
                connection.request("GET", "/_health", headers={"Connection": "close"})
                self.lost += connection.getresponse().status != http.client.NO_CONTENT
            except (OSError, http.client.HTTPException):
                self.lost += 1
            finally:
                connection.close()


class Run:
    """A run of tuner, and what it says.

    Args:
        command: Its command line.

    Attributes:
        process: Its process.
        said: For each beginning of a line that somebody waits for, whether it was said.
        last: The last line that it said.
    """

    BEGUN = "trial 1 of about"
    RESTORING = "Bringing the host back"
    GATE = "Seeing"

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.said = {beginning: threading.Event() for beginning in (self.BEGUN, self.RESTORING, self.GATE)}
        self.last = ""
        self._reader = threading.Thread(target=self._read)

    def __enter__(self) -> Self:
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.process.wait(LIMIT_S)
        self._reader.join()

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            for line in lines:
                self.last = line.strip() or self.last
                for beginning, event in self.said.items():
                    if line.startswith(beginning):
                        event.set()
        for event in self.said.values():  # it says no more, so that nobody need wait
            event.set()

    def has_ended(self) -> bool:
        """Whether it has ended by now."""
        return self.process.poll() is not None

    def ends_within(self, limit_s: float) -> bool:
        """Wait for its end, and say whether it came."""
        try:
            self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return False
        return True


def find_application(host: str, inventory: Path) -> tuple[str, int]:
    """The address of a host's application as seen from here, and how many workers it has."""
    with assembly.open_session(host, inventory, verbose=False) as session:
        found = session.target.inspect().deployment
        return f"http://{session.variables['ansible_host']}:{urlsplit(found.url).port}", found.instances


def fingerprint(inventory: Path) -> str:
    """What the bytes of the inventory come to."""
    digest = hashlib.sha256()
    for path in sorted(path for path in inventory.rglob("*") if path.is_file()):
        digest.update(path.as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def is_as_it_was(place: Place, url: str, instances: int) -> bool:
    """Whether the host runs so many workers, all of them well, answers, and is not locked."""
    if place.is_locked():
        return False
    listed = place.inside(
        *("runuser", "-u", "strapi", "--", "env", "PM2_HOME=" + PM2_HOME, "HOME=/srv/strapi"),
        *("PATH=/srv/strapi/current/.node-bin:/usr/bin:/bin", "sh", "-c"),
        f"test -s {PM2_HOME}/pm2.pid && kill -0 $(cat {PM2_HOME}/pm2.pid) && /opt/pm2/node_modules/.bin/pm2 -s jlist",
    )
    try:
        states = [one["pm2_env"]["status"] for one in json.loads(listed[listed.index("[") :])]
    except ValueError:
        return False
    if states != ["online"] * instances:
        return False
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=5)
    try:
        connection.request("GET", "/_health", headers={"Connection": "close"})
        return connection.getresponse().status == http.client.NO_CONTENT
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
