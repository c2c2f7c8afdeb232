#!/usr/bin/python
"""Ansible module: the CPUs and the memory that a process on the host may really use."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: host_capacity
short_description: Report the CPUs and the memory that a process may really use
version_added: "0.1.0"
description:
  - Reads the CPU affinity of one process, for example of the pm2 daemon, and the tightest CPU quota and
    memory limit over its control group and all the visible ones above it.
  - Understands control groups (cgroups) of version 1, of version 2 and of both side by side.
  - Ansible's own facts see no quota and no memory limit, and see the affinity of the login session only.
  - Changes nothing.
options:
  pid_file:
    description:
      - File that holds the pid of the process whose limits count, for example C(~/.pm2/pm2.pid).
      - Where it is not given, cannot be read or names no running process, the module's own process stands in,
        and RV(capacity.assumed) is true. A login session often lies outside of a service's limits.
    type: path
  root:
    description:
      - Folder that holds the C(proc) and C(sys) to read.
      - Only for tests on recorded trees. With anything but V(/) the process is C(proc/self) of that tree, and
        O(pid_file) is ignored.
    type: path
    default: /
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
notes:
  - Needs no privileges, provided that O(pid_file) is readable and C(/proc) is not mounted with C(hidepid).
author:
  - The strapi-tuner authors
"""

EXAMPLES = r"""
- name: Read what the pm2 daemon may use
  host_capacity:
    pid_file: /home/strapi/.pm2/pm2.pid
  register: measured

- name: Show what limits the number of instances
  ansible.builtin.debug:
    msg: "{{ measured.capacity.cpu_budget }} CPUs, limited by {{ measured.capacity.cpu_limited_by }}"

- name: Read a recorded tree
  host_capacity:
    root: tests/fixtures/cgroup/v1-container-quota-0.5
"""

RETURN = r"""
capacity:
  description: What the process may use.
  returned: success
  type: dict
  contains:
    cpus_online:
      description: CPUs that the machine has switched on; null where the kernel does not tell.
      type: int
      returned: always
      sample: 4
    cpus_affinity:
      description: Online CPUs that the process may run on (its affinity mask, which includes its cpuset).
      type: int
      returned: always
      sample: 4
    cpu_quota:
      description: Tightest CPU quota, in CPUs, over the process's cgroup and its ancestors; null without one.
      type: float
      returned: always
      sample: 1.5
    cpu_quota_path:
      description: The cgroup file that sets RV(capacity.cpu_quota); null without a quota.
      type: str
      returned: always
      sample: /sys/fs/cgroup/app.slice/cpu.max
    cpu_budget:
      description: CPUs that the process can use at a time, the smaller one of affinity and quota.
      type: float
      returned: always
      sample: 1.5
    cpu_limited_by:
      description: What sets the budget. V(online) says that nothing is tighter than the machine.
      type: str
      choices: [online, affinity, quota]
      returned: always
      sample: quota
    cores_physical:
      description: Distinct physical cores within the affinity; null where the kernel does not tell.
      type: int
      returned: always
      sample: 2
    memory_total_bytes:
      description: Memory of the machine; null where C(/proc/meminfo) cannot be read.
      type: int
      returned: always
      sample: 8589934592
    memory_limit_bytes:
      description: Tightest memory limit over the process's cgroup and its ancestors; null without one.
      type: int
      returned: always
      sample: 1073741824
    memory_available_bytes:
      description:
        - What can be used without swapping, bounded by what each memory limit leaves, that is the limit less
          the usage of its cgroup. Inactive file cache does not count as used.
        - Null where C(/proc/meminfo) cannot be read.
      type: int
      returned: always
      sample: 734003200
    assumed:
      description: Whether the module's own process stands in for the one of O(pid_file).
      type: bool
      returned: always
      sample: false
    pid:
      description: The process whose limits these are; null for a recorded tree.
      type: int
      returned: always
      sample: 1234
"""

import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from ansible.module_utils.basic import AnsibleModule

# The name of the version 2 hierarchy: its line in /proc/PID/cgroup names no controller.
UNIFIED = ""
# Version 1 writes "no limit" as the largest number of whole pages in 63 bits; no machine has 4 EiB.
UNLIMITED_BYTES = 2**62
# A line of mountinfo, see proc(5): 3 numbers, root, point, options, tags, "-", type, source, options.
MOUNT_LINE = re.compile(r"^\S+ \S+ \S+ (\S+) (\S+) \S.*? - (\S+) (?:.* )?(\S+)$", re.MULTILINE)


class UnknownCapacityError(Exception):
    """The files do not tell, and any answer would be a guess."""


class Mount(NamedTuple):
    """A cgroup hierarchy in the file system: its part below `base` is seen at `point`."""

    base: str
    point: str
    controllers: frozenset[str]


class Quota(NamedTuple):
    """A CPU quota in CPUs, and the cgroup file that sets it."""

    cpus: float
    path: str


class MemoryLimit(NamedTuple):
    """A cgroup's memory limit, and what its processes use of it (None where it is not known)."""

    limit_bytes: int
    used_bytes: int | None


@dataclass(frozen=True)
class Tree:
    """The file system below `root`, addressed as a process on that host would."""

    root: Path

    def text(self, path: str) -> str | None:
        """Return the content of the file at the absolute `path`, None where it cannot be read."""
        try:
            return (self.root / path.lstrip("/")).read_text(encoding="utf-8", errors="replace")
        except (OSError, ValueError):  # ValueError: the path holds a NUL
            return None


@dataclass(frozen=True)
class CgroupView:
    """Where one process stands in the cgroup hierarchies, and where these are mounted."""

    paths: dict[str, str]
    mounts: list[Mount]

    def levels(self, controller: str) -> list[str]:
        """Return the visible folders that rule the process, from its own cgroup up to the mount point."""
        own = self.paths.get(controller)
        found: list[str] = []
        for mount in self.mounts:
            below = path_below(own, mount.base) if own and controller in mount.controllers else None
            if below is not None:
                found += ["/".join([mount.point, *below[:depth]]) for depth in range(len(below), -1, -1)]
        return found


@dataclass(frozen=True)
class Capacity:
    """What the module returns; RETURN describes each field."""

    cpus_online: int | None
    cpus_affinity: int
    cpu_quota: float | None
    cpu_quota_path: str | None
    cpu_budget: float
    cpu_limited_by: str
    cores_physical: int | None
    memory_total_bytes: int | None
    memory_limit_bytes: int | None
    memory_available_bytes: int | None
    assumed: bool
    pid: int | None


def parse_integer(text: str | None) -> int | None:
    """Return the integer that `text` holds, None for anything else."""
    try:
        return int(text or "")
    except ValueError:
        return None


def parse_cpu_list(text: str | None) -> frozenset[int]:
    """Return the CPUs of a kernel list such as `0-2,8`; none of them where it is missing or malformed."""
    cpus: set[int] = set()
    for part in (text or "").strip().split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if match is None:
            return frozenset()
        cpus.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return frozenset(cpus)


def parse_fields(text: str | None, separator: str | None = None) -> dict[str, str]:
    """Return the `key<separator>value` lines of a /proc or cgroup file."""
    pairs = (line.split(separator, 1) for line in (text or "").split("\n"))
    return {pair[0]: pair[1].strip() for pair in pairs if len(pair) > 1}


def parse_cgroup(text: str | None) -> dict[str, str]:
    """Return the path for each controller of a /proc/PID/cgroup, that of version 2 under `UNIFIED`."""
    paths: dict[str, str] = {}
    for line in (text or "").split("\n"):
        _, found, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if found and path:
            paths.update(dict.fromkeys(controllers.split(","), path))
    return paths


def parse_mountinfo(text: str | None) -> list[Mount]:
    """Return the cgroup mounts of a /proc/PID/mountinfo that no later mount on the same point hides."""
    visible: dict[str, Mount] = {}
    for base, point, kind, options in MOUNT_LINE.findall(text or ""):
        controllers = {"cgroup": frozenset(options.split(",")), "cgroup2": frozenset({UNIFIED})}
        visible[point] = Mount(unescape(base), unescape(point), controllers.get(kind, frozenset()))
    return [mount for mount in visible.values() if mount.controllers]


def unescape(field: str) -> str:
    r"""Undo mountinfo's octal escapes: a blank is `\040`, the backslash of some systemd units `\134`."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)


def path_below(path: str, base: str) -> list[str] | None:
    """Return the steps from `base` to `path`; None where it lies elsewhere or outside of the namespace."""
    steps = [step for step in path.split("/") if step]
    top = [step for step in base.split("/") if step]
    if ".." in steps + top or steps[: len(top)] != top:
        return None
    return steps[len(top) :]


def quota_in_cpus(quota: str | None, period: str | None) -> float | None:
    """Return quota / period; None where there is no quota (`max` or -1) or no sensible pair."""
    quota_us, period_us = parse_integer(quota), parse_integer(period)
    if quota_us is None or period_us is None or quota_us <= 0 or period_us <= 0:
        return None
    return quota_us / period_us


def tightest_quota(tree: Tree, view: CgroupView) -> Quota | None:
    """Return the tightest CPU quota over all visible ancestors, of both cgroup versions."""
    found: list[tuple[float | None, str]] = []
    for level in view.levels("cpu"):
        path = f"{level}/cpu.cfs_quota_us"
        found.append((quota_in_cpus(tree.text(path), tree.text(f"{level}/cpu.cfs_period_us")), path))
    for level in view.levels(UNIFIED):
        path = f"{level}/cpu.max"
        quota, _, period = (tree.text(path) or "").partition(" ")
        found.append((quota_in_cpus(quota, period), path))
    quotas = [Quota(cpus, path) for cpus, path in found if cpus is not None]
    return min(quotas, key=lambda quota: quota.cpus, default=None)


def memory_limits(tree: Tree, view: CgroupView) -> list[MemoryLimit]:
    """Return the memory limits of all visible ancestors, of both cgroup versions, with their usage."""
    files = [
        ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        (UNIFIED, "memory.max", "memory.current", "inactive_file"),
    ]
    found: list[MemoryLimit] = []
    for controller, limit_file, usage_file, cache_key in files:
        for level in view.levels(controller):
            limit = parse_integer(tree.text(f"{level}/{limit_file}"))
            if limit is not None and 0 <= limit < UNLIMITED_BYTES:
                usage = parse_integer(tree.text(f"{level}/{usage_file}"))
                cache = parse_integer(parse_fields(tree.text(f"{level}/memory.stat")).get(cache_key)) or 0
                found.append(MemoryLimit(limit, None if usage is None else max(0, usage - cache)))
    return found


def memory_available(machine_bytes: int | None, limits: list[MemoryLimit]) -> int | None:
    """Return what can still be used: the machine's free memory, bounded by what each limit leaves.

    A limit whose usage is not known bounds by itself. None where the machine's part is not known.
    """
    if machine_bytes is None:
        return None
    return max(0, min([machine_bytes, *(limit.limit_bytes - (limit.used_bytes or 0) for limit in limits)]))


def meminfo_bytes(tree: Tree, key: str) -> int | None:
    """Return a line of /proc/meminfo, which counts in KiB, in bytes."""
    value = parse_fields(tree.text("/proc/meminfo"), ":").get(key, "")
    kibibytes = parse_integer(value.split(" ", 1)[0])
    return None if kibibytes is None else kibibytes * 1024


def affinity(tree: Tree, process: str, online: frozenset[int]) -> frozenset[int]:
    """Return the CPUs that the process may run on.

    The mask may name CPUs that could be plugged in later, so only the online ones count. Where the two have
    none in common, the online list is a container's own count from 0 (lxcfs), and the mask is right.

    Raises:
        UnknownCapacityError: The mask cannot be read.
    """
    path = f"/proc/{process}/status"
    seen = parse_fields(tree.text(path), ":").get("Cpus_allowed_list")
    mask = parse_cpu_list(seen)
    if not mask:
        raise UnknownCapacityError(
            f"{path} has no valid Cpus_allowed_list (seen: {seen!r}): any number of CPUs would be a guess. "
            f"Check on the target that /proc is mounted: grep Cpus_allowed_list {path}"
        )
    return mask & online or mask


def physical_cores(tree: Tree, cpus: frozenset[int]) -> int | None:
    """Return the number of distinct (package, core) pairs of `cpus`; None where one of them is not known."""
    cores: set[tuple[int, int]] = set()
    for cpu in cpus:
        topology = f"/sys/devices/system/cpu/cpu{cpu}/topology"
        package = parse_integer(tree.text(f"{topology}/physical_package_id"))
        core = parse_integer(tree.text(f"{topology}/core_id"))
        if package is None or core is None or core < 0:  # the kernel says -1 for "not known"
            return None
        cores.add((package, core))
    return len(cores)


def limited_by(online: int | None, allowed: int, quota: Quota | None) -> str:
    """Return what sets the CPU budget; `online` where nothing is tighter than the machine."""
    if quota is not None and quota.cpus < allowed:
        return "quota"
    return "online" if allowed == online else "affinity"


def is_running(tree: Tree, process: str) -> bool:
    """Return whether the process exists and has not ended (a zombie has no limits of its own any more)."""
    status = tree.text(f"/proc/{process}/status")
    return status is not None and parse_fields(status, ":").get("State", "")[:1] not in {"Z", "X"}


def choose_pid(tree: Tree, pid_file: str | None) -> tuple[int | None, bool]:
    """Return the pid to look at (None: a recorded tree's), and whether it stands in for the wanted one."""
    if tree.root != Path("/"):
        return None, True
    wanted = parse_integer(tree.text(pid_file)) if pid_file else None
    if wanted is not None and is_running(tree, str(wanted)):
        return wanted, False
    return os.getpid(), True


def cgroup_view(tree: Tree, process: str) -> CgroupView:
    """Read where the process stands in the cgroup hierarchies."""
    return CgroupView(
        paths=parse_cgroup(tree.text(f"/proc/{process}/cgroup")),
        mounts=parse_mountinfo(tree.text(f"/proc/{process}/mountinfo")),
    )


def measure(tree: Tree, pid_file: str | None) -> Capacity:
    """Read everything that bounds the process of `pid_file`.

    Raises:
        UnknownCapacityError: The CPU affinity cannot be read.
    """
    pid, assumed = choose_pid(tree, pid_file)
    process = "self" if pid is None else str(pid)
    view = cgroup_view(tree, process)
    online = parse_cpu_list(tree.text("/sys/devices/system/cpu/online"))
    allowed = affinity(tree, process, online)
    quota = tightest_quota(tree, view)
    limits = memory_limits(tree, view)
    return Capacity(
        cpus_online=len(online) or None,
        cpus_affinity=len(allowed),
        cpu_quota=quota.cpus if quota else None,
        cpu_quota_path=quota.path if quota else None,
        cpu_budget=min(float(len(allowed)), quota.cpus if quota else float("inf")),
        cpu_limited_by=limited_by(len(online) or None, len(allowed), quota),
        cores_physical=physical_cores(tree, allowed),
        memory_total_bytes=meminfo_bytes(tree, "MemTotal"),
        memory_limit_bytes=min((limit.limit_bytes for limit in limits), default=None),
        memory_available_bytes=memory_available(meminfo_bytes(tree, "MemAvailable"), limits),
        assumed=assumed,
        pid=pid,
    )


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(
        argument_spec={"pid_file": {"type": "path"}, "root": {"type": "path", "default": "/"}},
        supports_check_mode=True,
    )
    root = Path(module.params["root"])
    try:
        capacity = measure(Tree(root), module.params["pid_file"])
    except UnknownCapacityError as error:
        module.fail_json(msg=str(error))
    else:
        view = cgroup_view(Tree(root), str(capacity.pid or "self"))
        if not (view.paths and view.mounts):
            module.warn(
                "The cgroups of the process cannot be read, so a CPU quota or memory limit would go unseen. "
                f"Check on the target: grep cgroup /proc/{capacity.pid or 'self'}/mountinfo"
            )
        module.exit_json(changed=False, capacity=asdict(capacity))


if __name__ == "__main__":
    main()
