#!/usr/bin/python
"""Ansible module: one application under pm2, in a stated number of cluster workers."""

from __future__ import annotations

DOCUMENTATION = r"""
module: pm2_app
short_description: Keep one application under pm2 in a stated number of cluster workers
description:
  - Starts, scales, reloads or removes one application, and reports what is there.
  - Believes the process list and never pm2's exit codes, which are 0 for applications that do not run and 1
    for a count that is already right.
  - Idempotent. pm2 itself is not (C(scale) to the same count fails, C(reload) ignores a changed C(instances)).
  - Calls pm2 with an environment of its own, so that nothing of the caller's reaches the application.
  - The first worker starts alone, and the others once it serves, since Strapi's schema synchronisation has no lock.
author: strapi-tuner developers
options:
  name:
    description: Name of the application in pm2.
    type: str
    required: true
  state:
    description:
      - C(present), the application runs in O(instances) workers with the settings of O(ecosystem).
      - C(reloaded), as C(present), and every worker is replaced without losing a request.
      - C(absent), pm2 does not know the application.
      - C(info), nothing is changed, and no pm2 daemon is started.
    type: str
    choices: [present, reloaded, absent, info]
    default: present
  instances:
    description: Number of workers. Needed for C(present) and C(reloaded).
    type: int
  ecosystem:
    description:
      - pm2 ecosystem file that describes the application. Needed to start it.
      - Without it, an application that runs already is only scaled or reloaded, and its settings are left alone.
    type: path
  pm2:
    description: pm2's command.
    type: path
    default: pm2
  node_bin_dir:
    description: Directory that holds C(node). It comes first on the PATH of pm2 and of the application.
    type: path
    required: true
  pm2_home:
    description: pm2's own directory. Each one is a pm2 of its own.
    type: path
    required: true
  port:
    description: TCP port of the application. When given, a start is refused while another process listens there.
    type: int
  health_url:
    description: >-
      Plain http address that answers 2xx when the application serves. When given, it is asked over fresh connections
      until every worker has answered (by its header C(X-Worker)), or once where the application sends no such header.
    type: str
  release:
    description: What each worker must name in its header C(X-Release), where the application sends that header.
    type: str
  service:
    description:
      - The systemd service that runs the pm2 daemon, when one does. This module then never starts a daemon, which would
        belong to the wrong control group and keep the service from starting.
    type: str
    default: ""
  lease:
    description:
      - The lock under which a change is made, where it is made under one - C(dir) and C(id) as host_lease knows them,
        and C(time_s), for how long it is renewed. A change is refused once the lock is lost.
    type: dict
  start_timeout_s:
    description: How long one worker may take from its start until it is ready, in seconds.
    type: int
    default: 60
  stable_s:
    description: After a change, how long all workers must stay up without a restart, in seconds.
    type: float
    default: 3.0
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
"""

EXAMPLES = r"""
- name: Run the application in two workers
  pm2_app:
    name: strapi
    instances: 2
    ecosystem: /srv/strapi/ecosystem.config.js
    node_bin_dir: /opt/nodejs/bin
    pm2: /opt/pm2/node_modules/.bin/pm2
    pm2_home: /srv/strapi/pm2

- name: Scale an application that somebody else started
  pm2_app:
    name: blog
    instances: 4
    node_bin_dir: /usr/bin
    pm2_home: /home/blog/.pm2
"""

RETURN = r"""
before:
  description: Number of workers found.
  type: int
  returned: always
after:
  description: Number of workers left running (in check mode, that would be).
  type: int
  returned: always
started:
  description: Number of workers started fresh to raise the count.
  type: int
  returned: always
stopped:
  description: Number of workers ended to lower the count.
  type: int
  returned: always
reloaded:
  description: Whether every worker was replaced without an interruption.
  type: bool
  returned: always
recreated:
  description: >-
    Whether the application was removed and started again, which interrupts it, because a setting that pm2 never updates
    differed.
  type: bool
  returned: always
differences:
  description: Names of the settings that differed from the ecosystem file.
  type: list
  elements: str
  returned: always
daemon_pid:
  description: Process id of pm2's daemon, or null.
  type: int
  returned: always
daemon_outdated:
  description: >-
    What differs between the running daemon and what would be started now (C(node), C(pm2)); only a new daemon mends it.
    Empty when no daemon runs. Mended with the application's own start where no service runs the daemon and nothing else
    is in it.
  type: list
  elements: str
  returned: always
port_owner:
  description: Who listens on O(port) other than this pm2 (pid and name, null where the system does not say), or null.
  type: dict
  returned: always
workers:
  description: The workers found last, each with pid, pm_id, instance, status, restarts and started_ms (epoch).
  type: list
  elements: dict
  returned: always
"""

import fcntl
import http.client
import json
import os
import pwd
import re
import shutil
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

# Settings that pm2 takes over at a reload, and those that it keeps from the first start for ever.
RELOADED_SETTINGS = ("node_args", "listen_timeout", "kill_timeout", "min_uptime", "max_restarts", "wait_ready")
FROZEN_SETTINGS = {"cwd": "pm_cwd", "script": "pm_exec_path"}
FROZEN_LOGS = {"out_file": "pm_out_log_path", "error_file": "pm_err_log_path"}
# pm2's daemon keeps the listening socket until the last old worker has gone, so that a new worker cannot listen on
# another address of the same port: a reload would end them all.
FROZEN_VARIABLES = ("HOST",)
POLL_S = 0.2
# A worker younger than this may be in a crash loop, which the process list shows as online.
SETTLED_MS = 10_000
COMMAND_MARGIN_S = 60
HEALTH_TIMEOUT_S = 5.0
HTTP_OK, HTTP_REDIRECT = 200, 300
TCP_LISTEN = "0A"
# A list at the start of a line, or behind a colour. Those within a line belong to banners, or to a list cut short.
LIST_START = re.compile(r"^(?:\s|\x1b\[[0-9;]*m)*(\[)(?=\s*[{\]])", re.MULTILINE)
# What pm2 puts into the name of a log file that a worker has for itself: error-0.log.
LOG_NUMBER = re.compile(r"-\d+(?=(\.[^./]*)?$)")
# How the daemon calls itself in the process list.
DAEMON_TITLE = re.compile(r"PM2 v(\S+): God Daemon")
# How the daemon is asked without a command: its socket in pm2's directory, and what `pm2 jlist` itself asks it.
DAEMON_SOCKET = "rpc.sock"
LIST_METHOD = "getMonitorData"
AMP_VERSION = 1
DAEMON_TIMEOUT_S = 10.0
LOCK_LOST = "the lock of the host was lost, and the host has brought itself back"
NODE_ERROR = re.compile(r"^\w*Error\b.*", re.MULTILINE)


class Pm2Error(Exception):
    """Something that the user must hear about, in one line."""


@dataclass(frozen=True)
class Worker:
    """One pm2 process of the application, as the process list shows it."""

    pid: int
    pm_id: int
    instance: int
    status: str
    restarts: int
    started_ms: int

    def is_alive(self) -> bool:
        """Whether pm2 calls it online and its process exists."""
        return self.status == "online" and self.pid > 0 and Path(f"/proc/{self.pid}").exists()


def parse_jlist(text: str) -> list[dict[str, Any]]:
    """Read `pm2 jlist`, which may come after banners and be followed by warnings.

    Args:
        text: Standard output of the command.

    Returns:
        The list of processes, as pm2 gave it.

    Raises:
        Pm2Error: When no JSON list is in it.
    """
    decoder = json.JSONDecoder()
    for match in LIST_START.finditer(text):
        try:
            value, _ = decoder.raw_decode(text, match.start(1))
        except ValueError:
            continue
        if isinstance(value, list) and all(isinstance(entry, dict) for entry in value):
            return value
    raise Pm2Error(f"pm2 jlist gave no process list but {text.strip()[-200:]!r}; run it by hand to see why")


def call_daemon(path: Path, method: str) -> list[dict[str, Any]]:
    """Ask pm2's daemon for a list of processes, which takes milliseconds where its command takes a third of a second.

    The wire is that of pm2's own client (axon over AMP): a byte with the version and the number of fields, and each
    field behind its length. The last field of a request is its number, which the answer repeats.

    Args:
        path: The daemon's socket.
        method: A method that gives a list, and takes an empty object.

    Raises:
        OSError: When there is no daemon, or it does not answer in time.
        ValueError: When what it says is no such list.
    """
    fields = ["j:" + json.dumps({"type": "call", "method": method, "args": [{}]}), "s:tuner:0"]
    encoded = [text.encode() for text in fields]
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.settimeout(DAEMON_TIMEOUT_S)
        daemon.connect(str(path))
        daemon.sendall(
            bytes([AMP_VERSION << 4 | len(encoded)]) + b"".join(struct.pack(">I", len(part)) + part for part in encoded)
        )
        with daemon.makefile("rb") as stream:
            (first,) = stream.read(1) or b"\0"
            if first != AMP_VERSION << 4 | len(encoded):
                raise ValueError(f"an answer that begins with {first}")
            (size,) = struct.unpack(">I", stream.read(4).ljust(4, b"\0"))
            field = stream.read(size)
    if len(field) != size:
        raise ValueError(f"an answer of {len(field)} bytes, and {size} were announced")
    answer = json.loads(field.removeprefix(b"j:"))
    called = answer.get("args") if isinstance(answer, dict) else None
    value = called[0] if isinstance(called, list) and called else None
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise ValueError(f"{method} gave no list of processes")
    return value


def as_worker(entry: dict[str, Any]) -> Worker:
    """Turn one entry of the process list into a Worker."""
    env = entry.get("pm2_env") or {}
    return Worker(
        pid=int(entry.get("pid") or 0),
        pm_id=int(entry["pm_id"]),
        instance=int(env.get("NODE_APP_INSTANCE") or 0),
        status=str(env.get("status", "unknown")),
        restarts=int(env.get("restart_time") or 0),
        started_ms=int(env.get("pm_uptime") or 0),
    )


def find_differences(desired: dict[str, Any], entry: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Compare one running process with the ecosystem file.

    Args:
        desired: The application's entry of the ecosystem file.
        entry: One process of `pm2 jlist`.

    Returns:
        Names of the settings that a reload mends, and of those that pm2 never updates.
    """
    running = entry.get("pm2_env") or {}
    if isinstance(desired.get("node_args"), str):
        desired = {**desired, "node_args": desired["node_args"].split()}
    reload = [key for key in RELOADED_SETTINGS if key in desired and desired[key] != running.get(key)]
    # An absent value and an empty list of arguments are one and the same to pm2.
    reload = [key for key in reload if desired[key] or running.get(key)]
    environment = desired.get("env") or {}
    variables = [key for key, value in environment.items() if str(value) != str(running.get(key))]
    reload += [f"env.{key}" for key in variables if key not in FROZEN_VARIABLES]
    names = {key: name for key, name in (FROZEN_SETTINGS | FROZEN_LOGS).items() if key in desired}
    frozen = [key for key, name in names.items() if str(desired[key]) != str(running.get(name))]
    unnumbered = {key: LOG_NUMBER.sub("", str(running.get(name))) for key, name in FROZEN_LOGS.items()}
    frozen = [key for key in frozen if str(desired[key]) != unnumbered.get(key)]
    if "exec_mode" in desired and not str(running.get("exec_mode", "")).startswith(str(desired["exec_mode"])):
        frozen.append("exec_mode")
    frozen += [f"env.{key}" for key in variables if key in FROZEN_VARIABLES]
    return reload, frozen


class Pm2:
    """pm2's command line, called with an environment that holds nothing of the caller's."""

    def __init__(self, command: str, home: str, node_bin_dir: str, start_timeout_s: int, service: str = "") -> None:
        self.command = command
        self.service = service
        self.home = Path(home)
        self.start_timeout_s = start_timeout_s
        self.node = shutil.which("node", path=node_bin_dir)
        self.environment = {
            "PATH": f"{node_bin_dir}:/usr/local/bin:/usr/bin:/bin",
            "HOME": pwd.getpwuid(os.getuid()).pw_dir,
            "PM2_HOME": home,
            "LANG": "C.UTF-8",
            "PM2_DISCRETE_MODE": "true",  # no banner
            "PM2_CONCURRENT_ACTIONS": "1",  # reloads one worker after the other
        }

    def daemon_pid(self) -> int | None:
        """Process id of the daemon, or None when it does not run: then any pm2 command would start one."""
        try:
            pid = int((self.home / "pm2.pid").read_text())
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (OSError, ValueError):
            return None
        return pid if b"PM2" in command else None

    def installed_version(self) -> str:
        """Version of the pm2 that the command belongs to, or "" where its package does not tell."""
        for directory in Path(self.command).resolve().parents:
            try:
                package = json.loads((directory / "package.json").read_text(encoding="utf-8"))
            except (OSError, ValueError):
                continue
            return str(package.get("version", "")) if package.get("name") == "pm2" else ""
        return ""

    def find_outdated(self) -> list[str]:
        """What differs between the running daemon and the Node.js and pm2 that would be started now."""
        pid = self.daemon_pid()
        if pid is None or self.node is None:
            return []
        outdated = []
        try:
            running = Path(f"/proc/{pid}/exe").readlink()
            title = Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
        except OSError:
            return []
        if str(running) != self.ask_node("process.execPath"):
            outdated.append("node")
        version, installed = DAEMON_TITLE.search(title), self.installed_version()
        if version and installed and version.group(1) != installed:
            outdated.append("pm2")
        return outdated

    def ask_node(self, expression: str) -> str:
        """What Node.js says to an expression; a command that stands in front of it is not what runs in the end."""
        return self.run_node("--print", expression).stdout.strip()

    def run_node(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run Node.js in the environment of pm2 to its end."""
        return subprocess.run(  # noqa: S603 Node is the administrator's own setting
            [str(self.node), *arguments],
            env=self.environment,
            cwd="/",
            capture_output=True,
            timeout=COMMAND_MARGIN_S,
            check=False,
            text=True,
        )

    def running(self) -> set[int]:
        """Process ids of the workers that the daemon runs, ready or not; empty where the system does not tell."""
        pid = self.daemon_pid()
        try:
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            node = Path(f"/proc/{pid}/exe").readlink()
        except OSError:
            return set()
        return {int(child) for child in children if is_worker(Path(f"/proc/{child}"), node)}

    def reload(self, *arguments: str, workers: int) -> bool:
        """Run a command that replaces workers, and break it off when one of the new ones ends.

        pm2 itself would go on, and end every old worker once the new one has had its time. What is not replaced yet
        then stays, and the one under way boots again from wherever its link leads by then.

        Returns:
            Whether the command came to its end.
        """
        limit_s = workers * self.start_timeout_s + COMMAND_MARGIN_S
        deadline = time.monotonic() + limit_s
        old, new = self.running(), set[int]()
        command = [self.command, *arguments]
        with subprocess.Popen(  # noqa: S603 the command is the administrator's own setting
            command,
            env=self.environment,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
        ) as process:
            while process.poll() is None:
                running = self.running()
                new |= running - old
                if new - running or time.monotonic() > deadline:
                    process.kill()
                    process.wait()
                    # pm2's own lock would refuse the next reload for half a minute.
                    (self.home / "reload.lock").unlink(missing_ok=True)
                    if not new - running:
                        raise Pm2Error(f"pm2 {' '.join(arguments[:2])} did not end within {limit_s} s")
                    return False
                time.sleep(POLL_S)
        return True

    def run(self, *arguments: str, workers: int = 1) -> str:
        """Run one pm2 command; its exit code is not believed, so only a command that cannot run or end fails."""
        limit_s = workers * self.start_timeout_s + COMMAND_MARGIN_S
        try:
            done = subprocess.run(  # noqa: S603 the command is the administrator's own setting
                [self.command, *arguments],
                env=self.environment,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=limit_s,
                check=False,
                text=True,
                errors="replace",
            )
        except FileNotFoundError:
            raise Pm2Error(
                f"there is no pm2 at {self.command}; install it with the pm2 role, or set pm2_command"
            ) from None
        except OSError as error:
            raise Pm2Error(f"{self.command} cannot be run: {error.strerror}; install it with the pm2 role") from None
        except subprocess.TimeoutExpired:
            raise Pm2Error(f"pm2 {' '.join(arguments[:2])} did not end within {limit_s} s") from None
        return done.stdout

    def listed(self) -> list[dict[str, Any]]:
        """The processes of all applications; empty, without a call to pm2, when the daemon does not run."""
        if self.daemon_pid() is None:
            return []
        try:
            return call_daemon(self.home / DAEMON_SOCKET, LIST_METHOD)
        except (OSError, ValueError):
            # A pm2 that speaks otherwise, or another one's socket: its own command knows.
            return parse_jlist(self.run("-s", "jlist"))

    def processes(self, name: str) -> list[dict[str, Any]]:
        """The processes of one application; empty when the daemon does not run."""
        return [entry for entry in self.listed() if entry.get("name") == name]

    def read_ecosystem(self, path: str, name: str) -> dict[str, Any]:
        """The entry of one application in an ecosystem file, evaluated by Node as pm2 would."""
        if self.node is None:
            raise Pm2Error("node is not in node_bin_dir; set nodejs_dir, or install it with the nodejs role")
        script = "process.stdout.write('\\n' + JSON.stringify([].concat(require(process.argv[1]).apps ?? [])))"
        done = self.run_node("-e", script, path)
        if done.returncode != 0:
            found = NODE_ERROR.search(done.stderr)
            raise Pm2Error(f"{path} cannot be read: {found.group() if found else done.stderr.strip()[-200:]}")
        # What the file itself prints comes before.
        for app in json.loads(done.stdout.rpartition("\n")[2]):
            if app.get("name") == name:
                return dict(app)
        raise Pm2Error(f"{path} describes no application called {name}")


def is_worker(process: Path, node: Path) -> bool:
    """Whether a child of the daemon is a worker, and not a command that it calls (ps), nor about to become one.

    Args:
        process: Its directory in /proc.
        node: The Node.js that the daemon runs with.
    """
    try:
        return (process / "exe").readlink() == node and b"God Daemon" not in (process / "cmdline").read_bytes()
    except OSError:
        return False


def listening_inodes(port: int) -> set[str]:
    """Socket inodes that listen on a TCP port, IPv4 and IPv6, from /proc/net."""
    inodes = set()
    for table in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/net/{table}").read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            field = line.split()
            if field[3] == TCP_LISTEN and int(field[1].rsplit(":", 1)[1], 16) == port:
                inodes.add(field[9])
    return inodes


def holder_of(inodes: set[str]) -> int | None:
    """A process that holds one of these sockets, or None when the system does not let us see it."""
    wanted = {f"socket:[{inode}]" for inode in inodes}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(str(link.readlink()) in wanted for link in (process / "fd").iterdir()):
                return int(process.name)
        except OSError:
            continue
    return None


def find_port_owner(port: int, daemon_pid: int | None) -> dict[str, Any] | None:
    """Who listens on a port other than our pm2's daemon: pid and name, or None when it is free or ours."""
    inodes = listening_inodes(port)
    if not inodes:
        return None
    pid = holder_of(inodes)
    if pid is not None and pid == daemon_pid:
        return None
    try:
        name = Path(f"/proc/{pid}/comm").read_text().strip() if pid else None
    except OSError:
        name = None
    return {"pid": pid, "name": name}


def ask_health(url: str, release: str | None = None) -> str | None:
    """Ask for a health address once, on a fresh connection.

    Args:
        url: The address.
        release: What an answer that names a release must name.

    Returns:
        The answering worker's `X-Worker`, "" when the answer names none, None when there was no good answer.
    """
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 80, timeout=HEALTH_TIMEOUT_S)
    try:
        connection.connect()
        # Close by reset: thousands of checks must not leave their ports waiting.
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("GET", target, headers={"Connection": "close"})
        response = connection.getresponse()
        response.read()
    except (OSError, http.client.HTTPException):
        return None
    else:
        ok = HTTP_OK <= response.status < HTTP_REDIRECT and (
            release is None or response.headers.get("X-Release", release) == release
        )
        return response.headers.get("X-Worker", "") if ok else None
    finally:
        connection.close()


class App:
    """One application under one pm2: what it is, and what brings it to where it should be."""

    def __init__(self, pm2: Pm2, options: dict[str, Any]) -> None:
        self.pm2 = pm2
        self.name: str = options["name"]
        self.instances: int = options["instances"] or 0
        self.ecosystem: str | None = options["ecosystem"]
        self.port: int | None = options["port"]
        self.health_url: str | None = options["health_url"]
        self.release: str | None = options["release"]
        self.stable_s: float = options["stable_s"]
        # In check mode, on a host that has nothing yet, there is nothing to compare with either.
        readable = self.ecosystem and (not options["check_mode"] or Path(self.ecosystem).exists())
        self.desired = pm2.read_ecosystem(self.ecosystem, self.name) if self.ecosystem and readable else {}
        listed = pm2.listed()
        self.found = [entry for entry in listed if entry.get("name") == self.name]
        self.seen = [as_worker(entry) for entry in self.found]
        self.outdated = pm2.find_outdated()
        # A new daemon ends all that it runs; where a service runs the daemon, it is for whoever manages that service.
        self.renews_daemon = bool(self.desired and self.outdated and len(self.found) == len(listed) and not pm2.service)

    def workers(self) -> list[Worker]:
        """The workers as the process list shows them now."""
        return [as_worker(entry) for entry in self.pm2.processes(self.name)]

    def is_young(self) -> bool:
        """Whether a worker was started so recently that its being online proves nothing yet."""
        now_ms = time.time() * 1000
        return any(now_ms - as_worker(entry).started_ms < SETTLED_MS for entry in self.found)

    def plan(self, *, force_reload: bool) -> dict[str, Any]:
        """Say what would have to be done, from what was found."""
        before = [as_worker(entry) for entry in self.found]
        differences = [find_differences(self.desired, entry) for entry in self.found] if self.desired else []
        reload = sorted({key for mendable, _ in differences for key in mendable})
        frozen = sorted({key for _, fixed in differences for key in fixed}) + (
            self.outdated if self.renews_daemon else []
        )
        unwell = [worker for worker in before if not worker.is_alive()]
        recreate = bool(before and frozen)
        return {
            "before": len(before),
            "after": self.instances,
            "recreated": recreate,
            "reloaded": bool(before) and not recreate and bool(reload or unwell or force_reload),
            "started": self.instances if recreate else max(0, self.instances - len(before)),
            "stopped": 0 if recreate else max(0, len(before) - self.instances),
            "differences": reload + frozen + (["worker status"] if unwell else []),
        }

    def apply(self, plan: dict[str, Any]) -> None:
        """Carry a plan out, and make sure that what it promised is there and stays."""
        self.require_daemon()
        if plan["recreated"]:
            self.pm2.run(*(["kill"] if self.renews_daemon else ["delete", self.name]))
        if plan["recreated"] or not plan["before"]:
            self.start_first()
        elif plan["reloaded"]:
            self.reload(plan["before"])
        present = len(self.workers())
        if present != self.instances:
            # New workers copy the first one's settings, so this comes after the reload.
            self.pm2.run("scale", self.name, str(self.instances), workers=max(1, self.instances - present))
        self.settle(self.instances)
        self.watch()

    def require_daemon(self) -> None:
        """Fail where a service should run the daemon and does not: any pm2 command would start another one."""
        if self.pm2.service and self.pm2.daemon_pid() is None:
            raise Pm2Error(
                f"pm2's daemon does not run, which is the business of a service: systemctl start {self.pm2.service}; "
                f"journalctl -u {self.pm2.service} says what hindered it"
            )

    def start_first(self) -> None:
        """Start one worker alone and wait until it serves."""
        if self.ecosystem is None:
            raise Pm2Error(f"{self.name} is not under pm2, and no ecosystem file says how to start it; deploy it first")
        self.refuse_taken_port()
        self.pm2.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        # pm2 takes the count from the file alone: this one is the same application with one worker.
        single = self.pm2.home / "first-worker.config.js"
        single.write_text(
            f"module.exports = {{ apps: require({json.dumps(self.ecosystem)}).apps"
            f".filter((app) => app.name === {json.dumps(self.name)})"
            ".map((app) => ({ ...app, instances: 1 })) };\n"
        )
        self.pm2.run("start", str(single))
        self.settle(1)

    def refuse_taken_port(self) -> None:
        """Fail when another process listens where the application should."""
        owner = find_port_owner(self.port, self.pm2.daemon_pid()) if self.port else None
        if owner is not None:
            who = f"{owner['name']} (pid {owner['pid']})" if owner["pid"] else "a process of another user"
            raise Pm2Error(f"port {self.port} is taken by {who}; stop it, or give the application another port")

    def reload(self, count: int) -> None:
        """Replace every worker, one after the other; also revives those that are stopped or errored."""
        command = ("reload", self.name) if self.ecosystem is None else ("startOrReload", self.ecosystem, "--update-env")
        if not self.pm2.reload(*command, workers=count):
            self.fail(self.workers(), "a new worker ended before it served, and the reload was broken off")

    def settle(self, count: int) -> None:
        """Wait until the process list shows this many workers, all online, and each of them answers."""
        deadline = time.monotonic() + self.pm2.start_timeout_s
        while True:
            workers = self.seen = self.workers()
            if any(worker.status == "errored" for worker in workers):
                self.fail(workers, "a worker failed each time it was started")
            if len(workers) == count and all(worker.is_alive() for worker in workers):
                break
            if time.monotonic() > deadline:
                self.fail(workers, f"not {count} workers online within {self.pm2.start_timeout_s} s")
            time.sleep(POLL_S)
        if self.health_url:
            self.await_answers(workers, deadline)

    def await_answers(self, workers: list[Worker], deadline: float) -> None:
        """Ask over fresh connections, which pm2 hands round, until each worker has been seen answering."""
        missing = {str(worker.instance) for worker in workers}
        while missing:
            answer = ask_health(self.health_url or "", self.release)
            if answer == "":
                return
            missing.discard(answer or "")
            if time.monotonic() > deadline:
                who = f"instance {', '.join(sorted(missing))}" + (f" of release {self.release}" if self.release else "")
                self.fail(workers, f"no answer at {self.health_url} from {who}")
            if answer is None:
                time.sleep(POLL_S)

    def watch(self) -> None:
        """Fail when a worker is replaced within the next `stable_s`: pm2 calls a crash loop online."""
        if not self.stable_s:
            return
        first = self.seen
        deadline = time.monotonic() + self.stable_s
        while time.monotonic() < deadline:
            time.sleep(min(POLL_S, self.stable_s))
            if any(worker.restarts > old.restarts for worker, old in zip(self.workers(), first, strict=False)):
                break
        last = self.seen = self.workers()
        if [worker for worker in last if worker.is_alive()] != first:
            self.fail(last, f"workers restarted within {self.stable_s:g} s after they were ready")

    def fail(self, workers: list[Worker], reason: str) -> None:
        """Raise with the reason, the state of the workers and the last lines of the application's error log."""
        states = ", ".join(f"{w.status} ({w.restarts} restarts)" for w in workers) or "no worker"
        # The list knows the file, also where the ecosystem file does not: that of a worker that fails, if one does.
        listed = sorted(self.pm2.processes(self.name), key=lambda entry: as_worker(entry).is_alive())
        log = next((entry["pm2_env"].get("pm_err_log_path") for entry in listed), self.desired.get("error_file"))
        raise Pm2Error(f"{self.name}: {reason}; state: {states}{last_lines(log)}")


def last_lines(path: str | None, count: int = 20) -> str:
    """The end of a log file as it goes behind an error message, or "" when there is none."""
    try:
        lines = Path(path or "").read_text(errors="replace").splitlines()[-count:]
    except OSError:
        return ""
    return "".join(f"\n  {line}" for line in [f"last lines of {path}:", *lines]) if lines else ""


def describe(count: int, differences: list[str]) -> str:
    """One side of the diff: names of settings only, since values may be private."""
    return f"instances: {count}\n" + "".join(f"{name}: differs from the ecosystem file\n" for name in differences)


def look(app: App, port: int | None) -> dict[str, Any]:
    """What is there now, without a change."""
    daemon_pid = app.pm2.daemon_pid()
    return {
        "workers": [asdict(worker) for worker in app.seen],
        "daemon_pid": daemon_pid,
        "daemon_outdated": app.outdated,
        "port_owner": find_port_owner(port, daemon_pid) if port else None,
    }


@contextmanager
def one_at_a_time(home: Path, limit_s: int) -> Iterator[None]:
    """Hold the lock of one pm2: a playbook that was killed may have left its module at work, which must end first.

    Raises:
        Pm2Error: When the other does not end within `limit_s`.
    """
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    deadline = time.monotonic() + limit_s
    with (home / "pm2_app.lock").open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise Pm2Error(
                        f"another change of the applications in {home} did not end within {limit_s} s"
                    ) from None
                time.sleep(POLL_S)
        yield


def hold(lease: dict[str, Any], home: Path) -> None:
    """Renew the lock under which a change is made.

    Args:
        lease: The option of this module.
        home: pm2's directory, where the watchdog of the lock keeps its log.

    Raises:
        Pm2Error: When it is lost: the host has brought itself back by then, or somebody else changes it.
    """
    directory = Path(lease["dir"]) / "held"
    try:
        held = (directory / "id").read_text(encoding="utf-8").strip() == lease["id"]
        if held:
            part = directory / f".renewed.{os.getpid()}"
            part.write_text(f"{float(lease['time_s']):g}\n", encoding="ascii")
            part.replace(directory / "renewed")
    except OSError:
        held = False
    if not held:
        log = home / "lease.log"
        said = log.read_text(encoding="utf-8", errors="replace").splitlines()[-1:] if log.exists() else []
        raise Pm2Error(LOCK_LOST + "".join(f": {line}" for line in said))


def run(options: dict[str, Any], *, check_mode: bool = False) -> dict[str, Any]:
    """Bring the application to the asked state, or say in check mode what that would take.

    Args:
        options: Value of every option of this module.
        check_mode: Whether nothing may be changed.

    Returns:
        What the module returns.

    Raises:
        Pm2Error: When the application could not be brought there.
    """
    if check_mode or options["state"] == "info":
        return act(options, check_mode=check_mode)
    limit_s = (options["instances"] or 1) * options["start_timeout_s"] + COMMAND_MARGIN_S
    with one_at_a_time(Path(options["pm2_home"]), limit_s):
        if options["lease"]:
            hold(options["lease"], Path(options["pm2_home"]))
        return act(options, check_mode=check_mode)


def act(options: dict[str, Any], *, check_mode: bool) -> dict[str, Any]:
    """Find out what is there, and do what brings it to the asked state."""
    pm2 = Pm2(
        options["pm2"], options["pm2_home"], options["node_bin_dir"], options["start_timeout_s"], options["service"]
    )
    app = App(pm2, {**options, "check_mode": check_mode})
    found = len(app.found)
    nothing = {"before": found, "after": found, "started": 0, "stopped": 0, "reloaded": False, "recreated": False}
    plan: dict[str, Any] = {**nothing, "differences": []}
    if options["state"] == "absent":
        plan.update(after=0, stopped=found)
        if found and not check_mode:
            pm2.run("delete", app.name)
            app.seen = app.workers()
    elif options["state"] != "info":
        plan = app.plan(force_reload=options["state"] == "reloaded")
    changed = any(plan[key] for key in ("started", "stopped", "reloaded", "recreated"))
    if options["state"] in ("present", "reloaded") and not check_mode:
        if changed:
            app.apply(plan)
        elif app.is_young():
            app.watch()
    diff = {"before": describe(found, plan["differences"]), "after": describe(plan["after"], [])}
    return {"changed": changed, "diff": diff, **plan, **look(app, options["port"])}


def main() -> None:
    """Entry point."""
    from ansible.module_utils.basic import AnsibleModule  # noqa: PLC0415 the watchdog of a lease has no Ansible

    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["present", "reloaded", "absent", "info"], "default": "present"},
            "instances": {"type": "int"},
            "ecosystem": {"type": "path"},
            "pm2": {"type": "path", "default": "pm2"},
            "node_bin_dir": {"type": "path", "required": True},
            "pm2_home": {"type": "path", "required": True},
            "port": {"type": "int"},
            "health_url": {"type": "str"},
            "release": {"type": "str"},
            "service": {"type": "str", "default": ""},
            "lease": {"type": "dict"},
            "start_timeout_s": {"type": "int", "default": 60},
            "stable_s": {"type": "float", "default": 3.0},
        },
        required_if=[("state", "present", ["instances"]), ("state", "reloaded", ["instances"])],
        supports_check_mode=True,
    )
    count = module.params["instances"]
    if count is not None and count < 1:
        module.fail_json(
            msg=f"instances is {count}, and an application needs 1 at least; to remove it, use state: absent"
        )
    try:
        module.exit_json(**run(module.params, check_mode=module.check_mode))
    except Pm2Error as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
