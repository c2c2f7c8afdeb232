#!/usr/bin/python
"""Ansible module: cumulative counters of an application's workers and of their host, read once."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: host_counters
short_description: Read the cumulative counters of an application's workers and of their host
version_added: "0.1.0"
description:
  - Reads once what the kernel has counted so far. The differences between two calls, just before and just
    after a load, say what happened in between, and no sampler has to run beside the load.
  - A counter that this host does not have is null.
  - Changes nothing.
options:
  pids:
    description: The processes to account for one by one, that is the application's workers.
    type: list
    elements: int
    default: []
  daemon_pid_file:
    description:
      - File that holds the pid of the workers' parent, for example C(~/.pm2/pm2.pid).
      - Where it is not given, cannot be read or names no running process, RV(counters.daemon_cpu_s) and
        RV(counters.cgroup_throttled) are null.
    type: path
  database_processes:
    description: Names of processes that are the database. Their CPU time is summed, where they run on this host.
    type: list
    elements: str
    default: [postgres, mysqld, mariadbd]
  spin:
    description:
      - When to time a fixed piece of work on every CPU at once, C(before) or C(after) the counters are read. Of three
        times on each, the quickest counts.
      - It takes longer where something else wants the CPU, also where the hypervisor hides that.
    type: str
    choices: [never, before, after]
    default: never
  port:
    description: TCP port of which the open connections are counted.
    type: int
attributes:
  check_mode:
    description: Runs the same in check mode, since it changes nothing.
    support: full
  diff_mode:
    description: There is never a difference to show.
    support: none
  platform:
    description: Needs the C(/proc) and C(/sys) of Linux.
    platforms: linux
    support: full
requirements:
  - Python 3.9 or newer
  - psutil (Debian package C(python3-psutil))
notes:
  - Needs no privileges, if O(daemon_pid_file) is readable and C(/proc) is mounted without C(hidepid).
author:
  - The strapi-tuner authors
"""

EXAMPLES = r"""
- name: Read the counters before the load
  host_counters:
    pids: [1201, 1214]
    daemon_pid_file: /home/strapi/.pm2/pm2.pid
  register: before
"""

RETURN = r"""
counters:
  description: What has been counted up to now.
  returned: success
  type: dict
  contains:
    time_s:
      description: Monotonic clock of the host, for the length of the span between two calls.
      type: float
      returned: always
      sample: 81234.51
    workers:
      description: The processes of O(pids) that are running, in that order.
      type: list
      elements: dict
      returned: always
      contains:
        pid:
          description: The process.
          type: int
          returned: always
          sample: 1201
        cpu_s:
          description: CPU time of the process itself, user and system together; its children do not count.
          type: float
          returned: always
          sample: 42.5
        rss_bytes:
          description: Memory that the process has in RAM now.
          type: int
          returned: always
          sample: 187695104
        pss_bytes:
          description: Its share of RAM, with what it shares with others divided among them; null where not told.
          type: int
          returned: always
          sample: 171966464
        rss_peak_bytes:
          description: The most it ever had in RAM (C(VmHWM)); null where the kernel does not tell.
          type: int
          returned: always
          sample: 214958080
        started_s:
          description: Start, in seconds since 1970. A change means another process under this pid.
          type: float
          returned: always
          sample: 1764511200.25
    gone:
      description: The processes of O(pids) that are not running any more.
      type: list
      elements: int
      returned: always
      sample: []
    daemon_cpu_s:
      description: CPU time of the daemon itself; null without one.
      type: float
      returned: always
      sample: 3.1
    host_cpu_s:
      description:
        - CPU time by kind, summed over all CPUs.
        - The time of guests is already part of C(user) and C(nice), so do not add it again.
      type: dict
      returned: always
      sample: {user: 950.2, nice: 0.0, system: 210.7, idle: 88100.0, iowait: 12.9, softirq: 8.8, steal: 1.2}
    memory_available_bytes:
      description: Memory of the machine that can be used without swapping; cgroup limits are not considered.
      type: int
      returned: always
      sample: 6442450944
    swap_used_bytes:
      description: Swap space of the machine in use.
      type: int
      returned: always
      sample: 0
    cgroup_throttled:
      description:
        - How often a CPU quota stopped the daemon's cgroup, summed over that cgroup and its visible
          ancestors, since a quota on any of them stops it.
        - Null without a daemon, and where no cgroup counts throttling.
      type: dict
      returned: always
      contains:
        periods:
          description: Quota periods in which there was work to do.
          type: int
          returned: always
          sample: 1200
        throttled:
          description: Those in which the quota was used up.
          type: int
          returned: always
          sample: 31
        throttled_s:
          description: Time stopped, summed over CPUs.
          type: float
          returned: always
          sample: 1.84
    pressure_s:
      description:
        - Time in which a task of the host waited for C(cpu), C(memory) or C(io) (C(/proc/pressure)); null where the
          kernel does not count.
      type: dict
      returned: always
      sample: {cpu: 16.2, memory: 0.0, io: 3.4}
    database_cpu_s:
      description: CPU time of all processes of O(database_processes) together; null where none runs.
      type: float
      returned: always
      sample: 12.4
    module_cpu_s:
      description: CPU time that this module itself has used so far.
      type: float
      returned: always
      sample: 0.11
    spin_s:
      description: What the fixed piece of work took on each CPU, in the order of their numbers; empty without O(spin).
      type: list
      elements: float
      returned: always
      sample: [0.051, 0.052]
    connections:
      description: Connections that are open to O(port), by the address of the other side; null without O(port).
      type: dict
      returned: always
      sample: {10.0.0.7: 12}
"""

import ipaddress
import os
import re
import sys
import time
import traceback
from collections import Counter
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

try:
    import psutil
except ImportError:
    PSUTIL_ERROR: str | None = traceback.format_exc()
else:
    PSUTIL_ERROR = None

# Iterations of the timed work: about 25 ms of one CPU, long against the clock and the scheduler's turns.
SPIN_ROUNDS = 300_000
# The quickest of so many counts: other processes show in their CPU time, and this is for what does not show there.
SPIN_REPEATS = 3

ESTABLISHED = "01"
PRESSURES = ("cpu", "memory", "io")

# A line of mountinfo, see proc(5): 3 numbers, root, point, options, tags, "-", type, source, options.
MOUNT_LINE = re.compile(r"^\S+ \S+ \S+ (\S+) (\S+) \S.*? - (\S+) (?:.* )?(\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Worker:
    """The counters of one process; RETURN describes each field."""

    pid: int
    cpu_s: float
    rss_bytes: int
    pss_bytes: int | None
    rss_peak_bytes: int | None
    started_s: float


@dataclass(frozen=True)
class Throttling:
    """How often a CPU quota stopped a cgroup; RETURN describes each field."""

    periods: int
    throttled: int
    throttled_s: float


@dataclass(frozen=True)
class Counters:
    """What the module returns; RETURN describes each field."""

    time_s: float
    workers: list[Worker]
    gone: list[int]
    daemon_cpu_s: float | None
    host_cpu_s: dict[str, float]
    memory_available_bytes: int
    swap_used_bytes: int
    cgroup_throttled: Throttling | None
    pressure_s: dict[str, float | None]
    database_cpu_s: float | None
    module_cpu_s: float
    spin_s: list[float]
    connections: dict[str, int] | None = None


def read(path: Path) -> str:
    """Return the content of a file, nothing where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError):  # ValueError: the path holds a NUL
        return ""


def parse_peak_bytes(status: str) -> int | None:
    """Return the VmHWM of a /proc/PID/status, which counts in KiB, in bytes."""
    match = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    return int(match[1]) * 1024 if match else None


def parse_pss_bytes(rollup: str) -> int | None:
    """Return the Pss of a /proc/PID/smaps_rollup, which counts in KiB, in bytes."""
    match = re.search(r"^Pss:\s+(\d+) kB$", rollup, re.MULTILINE)
    return int(match[1]) * 1024 if match else None


def parse_pressure_s(text: str) -> float | None:
    """Return the total of the `some` line of a /proc/pressure file, which counts in microseconds."""
    match = re.search(r"^some .*\btotal=(\d+)$", text, re.MULTILINE)
    return int(match[1]) / 1e6 if match else None


def parse_throttling(text: str) -> Throttling | None:
    """Return the counters of a cpu.stat: nanoseconds in cgroup version 1, microseconds in version 2."""
    found = {key: int(value) for key, value in re.findall(r"^(\w+) (\d+)$", text, re.MULTILINE)}
    if "nr_periods" not in found or "nr_throttled" not in found:
        return None
    throttled_s = found.get("throttled_time", 0) / 1e9 + found.get("throttled_usec", 0) / 1e6
    return Throttling(found["nr_periods"], found["nr_throttled"], throttled_s)


def cpu_cgroup_folders(root: Path, process: str) -> list[Path]:
    """Return the visible folders of the process's cgroup and its ancestors that can count CPU throttling."""
    lines = (line.split(":", 2) for line in read(root / "proc" / process / "cgroup").split("\n"))
    paths = {name: line[2] for line in lines if len(line) > 2 for name in line[1].split(",")}  # noqa: PLR2004 the three fields of a line
    mounts = {  # a later mount on the same point hides an earlier one
        unescape(point): (unescape(base), "" if kind == "cgroup2" else "cpu", kind, options.split(","))
        for base, point, kind, options in MOUNT_LINE.findall(read(root / "proc" / process / "mountinfo"))
    }
    folders: list[Path] = []
    for point, (base, controller, kind, options) in mounts.items():
        if controller in paths and (kind == "cgroup2" or (kind == "cgroup" and "cpu" in options)):
            folders += folders_between(root / point.lstrip("/"), base, paths[controller])
    return folders


def folders_between(point: Path, base: str, path: str) -> list[Path]:
    """Return the folders from cgroup `path` up to `base`, which is mounted at `point`."""
    steps = [step for step in path.split("/") if step]
    top = [step for step in base.split("/") if step]
    if ".." in steps + top or steps[: len(top)] != top:
        return []
    below = steps[len(top) :]
    return [point.joinpath(*below[:depth]) for depth in range(len(below), -1, -1)]


def unescape(field: str) -> str:
    r"""Undo mountinfo's octal escapes: a blank is `\040`, the backslash of some systemd units `\134`."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)


def throttling(root: Path, process: str) -> Throttling | None:
    """Return the throttling of the process's cgroup and its ancestors together, None where not counted."""
    stats = [parse_throttling(read(folder / "cpu.stat")) for folder in cpu_cgroup_folders(root, process)]
    counted = [stat for stat in stats if stat is not None]
    if not counted:
        return None
    return Throttling(
        periods=sum(stat.periods for stat in counted),
        throttled=sum(stat.throttled for stat in counted),
        throttled_s=sum(stat.throttled_s for stat in counted),
    )


def read_worker(pid: int) -> Worker | None:
    """Read the counters of one process, None where it is not running any more.

    Raises:
        psutil.AccessDenied: The process may not be read.
    """
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            if process.status() in {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}:
                return None
            times = process.cpu_times()
            return Worker(
                pid=pid,
                cpu_s=times.user + times.system,
                rss_bytes=process.memory_info().rss,
                pss_bytes=parse_pss_bytes(read(Path(f"/proc/{pid}/smaps_rollup"))),
                rss_peak_bytes=parse_peak_bytes(read(Path(f"/proc/{pid}/status"))),
                started_s=process.create_time(),
            )
    except (psutil.NoSuchProcess, ValueError, OverflowError):  # the last two: no pid at all, such as -1
        return None


def read_daemon(pid_file: str | None) -> Worker | None:
    """Read the counters of the process that `pid_file` names, None where there is none."""
    text = read(Path(pid_file)).strip() if pid_file else ""
    return read_worker(int(text)) if text.isdecimal() else None


def read_database(names: list[str]) -> float | None:
    """Return the CPU time of all processes with one of these names, None where there is none."""
    found = []
    for process in psutil.process_iter(["name"]):
        if process.info["name"] in names:
            try:
                times = process.cpu_times()
            except psutil.Error:  # it has ended, or may not be read
                continue
            found.append(times.user + times.system)
    return sum(found) if found else None


def spin(rounds: int) -> float:
    """Do a fixed piece of work and return the seconds that it took by the clock on the wall."""
    state = 1
    began = time.perf_counter()
    for _ in range(rounds):
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
    return time.perf_counter() - began


def spin_on(cpu: int, rounds: int) -> tuple[int, int]:
    """Start the work on one CPU in a child process; returns its pid and the end of the pipe that it answers on."""
    reader, writer = os.pipe()
    child = os.fork()
    if child:
        os.close(writer)
        return child, reader
    try:  # the child: whatever happens, it must not come back into the module
        os.sched_setaffinity(0, {cpu})
        os.write(writer, repr(min(spin(rounds) for _ in range(SPIN_REPEATS))).encode())
    finally:
        os._exit(0)


def spin_everywhere(cpus: list[int]) -> list[float]:
    """Time the same work on each of these CPUs at once; a CPU that may not be used gives no answer and is left out."""
    children = [spin_on(cpu, SPIN_ROUNDS) for cpu in cpus]
    answers = []
    for child, reader in children:
        with os.fdopen(reader, "rb") as pipe:
            answers.append(pipe.read())
        os.waitpid(child, 0)
    return [float(answer) for answer in answers if answer]


def parse_connections(table: str, port: int) -> Counter[str]:
    """Return how many connections are open to a local port, by the address of the other side.

    Args:
        table: As /proc/net/tcp or tcp6 has it, addresses in hexadecimal words of the host's byte order.
        port: The port.
    """
    found: Counter[str] = Counter()
    for line in table.splitlines()[1:]:
        fields = line.split()
        local, remote, state = fields[1:4]
        if state == ESTABLISHED and int(local.rsplit(":", 1)[1], 16) == port:
            found[to_address(remote.rsplit(":", 1)[0])] += 1
    return found


def to_address(text: str) -> str:
    """Return an address of /proc/net/tcp or tcp6 as people write it, an IPv4 address in IPv6 as what it is."""
    words = [int(text[start : start + 8], 16).to_bytes(4, sys.byteorder) for start in range(0, len(text), 8)]
    address = ipaddress.ip_address(b"".join(words))
    return str(getattr(address, "ipv4_mapped", None) or address)


def count_connections(port: int) -> dict[str, int]:
    """Return how many connections are open to a local port, by the address of the other side."""
    return dict(sum((parse_connections(read(Path("/proc/net", name)), port) for name in ("tcp", "tcp6")), Counter()))


def read_counters(pids: list[int], daemon: Worker | None, databases: list[str], spin_s: list[float]) -> Counters:
    """Read every counter once, the workers' first.

    Raises:
        psutil.AccessDenied: One of the processes may not be read.
    """
    time_s = time.monotonic()
    workers = [read_worker(pid) for pid in pids]
    running = [worker for worker in workers if worker is not None]
    return Counters(
        time_s=time_s,
        workers=running,
        gone=[pid for pid in pids if pid not in {worker.pid for worker in running}],
        daemon_cpu_s=daemon.cpu_s if daemon else None,
        host_cpu_s=psutil.cpu_times()._asdict(),
        memory_available_bytes=psutil.virtual_memory().available,
        swap_used_bytes=psutil.swap_memory().used,
        cgroup_throttled=throttling(Path("/"), str(daemon.pid)) if daemon else None,
        pressure_s={kind: parse_pressure_s(read(Path("/proc/pressure", kind))) for kind in PRESSURES},
        database_cpu_s=read_database(databases),
        module_cpu_s=time.process_time(),
        spin_s=spin_s,
    )


def run(options: dict[str, Any]) -> Counters:
    """Read the counters, with the timed work before or after them as asked."""
    daemon = read_daemon(options["daemon_pid_file"])
    cpus = sorted(os.sched_getaffinity(daemon.pid if daemon else 0))
    spun = spin_everywhere(cpus) if options["spin"] == "before" else []
    counters = read_counters(
        options["pids"], read_daemon(options["daemon_pid_file"]), options["database_processes"], spun
    )
    if options["port"]:
        counters = replace(counters, connections=count_connections(options["port"]))
    return replace(counters, spin_s=spin_everywhere(cpus)) if options["spin"] == "after" else counters


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(
        argument_spec={
            "pids": {"type": "list", "elements": "int", "default": []},
            "daemon_pid_file": {"type": "path"},
            "database_processes": {"type": "list", "elements": "str", "default": ["postgres", "mysqld", "mariadbd"]},
            "spin": {"type": "str", "choices": ["never", "before", "after"], "default": "never"},
            "port": {"type": "int"},
        },
        supports_check_mode=True,
    )
    if PSUTIL_ERROR is not None:
        remedy = f"Install the Debian package python3-psutil, or: {sys.executable} -m pip install psutil."
        module.fail_json(msg=f"{remedy} {missing_required_lib('psutil')}", exception=PSUTIL_ERROR)
    try:
        counters = run(module.params)
    except psutil.AccessDenied as error:
        module.fail_json(
            msg=f"Process {error.pid} may not be read: {error.msg or 'access denied'}. "
            "Run the task as the user of the application (become_user)."
        )
    else:
        module.exit_json(changed=False, counters=asdict(counters))


if __name__ == "__main__":
    main()
