"""host_capacity against recorded hosts, against broken files, and on this very host."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from support import ROOT, load_module, run_module

if TYPE_CHECKING:
    from pathlib import Path

host_capacity = load_module("capacity", "host_capacity")

TREES = ROOT / "tests" / "fixtures" / "cgroup"
POD = "/sys/fs/cgroup/cpu/libpod_parent/libpod-0123456789ab"
SERVICES = f"{POD}/system.slice"
GIB = 1024**3

# Online and affinity CPUs, quota and its file, what limits, memory limit: see the README beside the trees.
RECORDED = {
    "hybrid-host-no-limit": (2, 2, None, None, "online", None),
    "hybrid-host-service-quota": (2, 2, 0.4, f"{SERVICES}/q1.service/cpu.cfs_quota_us", "quota", None),
    "hybrid-host-nested-slices": (2, 2, 0.7, f"{POD}/app.slice/cpu.cfs_quota_us", "quota", None),
    "hybrid-host-cpu-affinity": (2, 1, 1.5, f"{POD}/cpu.cfs_quota_us", "affinity", None),
    "v1-container-quota-0.5": (2, 2, 0.5, "/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "quota", None),
    "v1-container-quota-1.5-memory-1g": (2, 2, 1.5, "/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "quota", GIB),
    "v1-container-cpuset-0": (2, 1, None, None, "affinity", None),
    "v1-container-service-quota-ignored": (2, 2, 1.5, "/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "quota", GIB),
    "v1-container-cgroupns-private": (2, 2, 1.5, "/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "quota", None),
    "constructed-v2-host-nested-slices": (4, 4, 0.7, "/sys/fs/cgroup/app.slice/cpu.max", "quota", GIB),
    "constructed-v2-container-cgroupns": (4, 4, 1.5, "/sys/fs/cgroup/cpu.max", "quota", GIB),
}

# A small version 2 host; each test takes files away, breaks them or adds some.
V2_HOST = {
    "proc/self/status": "Name:\tpython3\nCpus_allowed_list:\t0-3\n",
    "proc/self/cgroup": "0::/app.slice/pm2.service\n",
    "proc/self/mountinfo": "35 24 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n",
    "proc/meminfo": "MemTotal:        8000 kB\nMemAvailable:    6000 kB\n",
    "sys/devices/system/cpu/online": "0-3\n",
    "sys/fs/cgroup/app.slice/cpu.max": "250000 100000\n",
    "sys/fs/cgroup/app.slice/memory.max": "4096000\n",
}


def plant(root: Path, files: dict[str, str]) -> Path:
    """Write `files` below `root`."""
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content, encoding="utf-8")
    return root


def run(capsys: pytest.CaptureFixture[str], **params: object) -> dict[str, Any]:
    """Run the module as Ansible would, and return its whole result."""
    return run_module(host_capacity, {"_ansible_check_mode": True, **params}, capsys)


def measured(capsys: pytest.CaptureFixture[str], **params: object) -> dict[str, Any]:
    """Run the module, which must succeed and change nothing, and return the capacity."""
    result = run(capsys, **params)
    assert not result.get("failed"), result
    assert result["changed"] is False
    capacity: dict[str, Any] = result["capacity"]
    return capacity


def test_every_recorded_tree_has_an_answer() -> None:
    assert {path.name for path in TREES.iterdir() if path.is_dir()} == set(RECORDED)


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_host(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    online, allowed, quota, quota_path, limited_by, memory = RECORDED[name]
    found = measured(capsys, root=str(TREES / name))
    assert (found["cpus_online"], found["cpus_affinity"]) == (online, allowed)
    assert (found["cpu_quota"], found["cpu_quota_path"]) == (quota, quota_path)
    assert found["cpu_budget"] == min(allowed, quota or allowed)
    assert found["cpu_limited_by"] == limited_by
    assert found["memory_limit_bytes"] == memory
    assert (found["assumed"], found["pid"]) == (True, None)


def test_memory_of_a_recorded_container(capsys: pytest.CaptureFixture[str]) -> None:
    found = measured(capsys, root=str(TREES / "v1-container-quota-1.5-memory-1g"))
    assert found["memory_total_bytes"] == 24684092 * 1024
    assert found["memory_available_bytes"] == GIB, "usage was not recorded: the limit itself is the bound"


@pytest.mark.parametrize(
    ("extra", "available"),
    [
        ({"memory.current": "1000000\n", "memory.stat": "anon 1\ninactive_file 400000\n"}, 4096000 - 600000),
        ({"memory.current": "1000000\n"}, 4096000 - 1000000),
        ({"memory.current": "1000\n", "memory.stat": "inactive_file 400000\n"}, 4096000),
        ({"memory.current": "9000000\n"}, 0),
        ({"memory.max": "max\n", "memory.current": "1000000\n"}, 6000 * 1024),
        ({"memory.max": "8000000000\n", "memory.current": "1000000\n"}, 6000 * 1024),
    ],
    ids=[
        "reclaimable",
        "no-stat",
        "stat-above-usage",
        "over-the-limit",
        "unlimited",
        "looser-than-the-machine",
    ],
)
def test_available_memory_is_what_the_limit_leaves(
    extra: dict[str, str], available: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = V2_HOST | {f"sys/fs/cgroup/app.slice/{name}": content for name, content in extra.items()}
    assert measured(capsys, root=str(plant(tmp_path, files)))["memory_available_bytes"] == available


def test_available_memory_heeds_a_looser_limit_that_is_fuller(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = "sys/fs/cgroup/app.slice"
    files = {
        f"{folder}/memory.current": "4000000\n",
        f"{folder}/pm2.service/memory.max": "3000000\n",
        f"{folder}/pm2.service/memory.current": "0\n",
    }
    found = measured(capsys, root=str(plant(tmp_path, V2_HOST | files)))
    assert found["memory_limit_bytes"] == 3000000
    assert found["memory_available_bytes"] == 96000


def test_memory_usage_of_version_1_is_hierarchical(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = V2_HOST | {
        "proc/self/cgroup": "4:memory:/app\n0::/\n",
        "proc/self/mountinfo": "36 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
        "sys/fs/cgroup/memory/app/memory.limit_in_bytes": "4096000\n",
        "sys/fs/cgroup/memory/app/memory.usage_in_bytes": "1000000\n",
        "sys/fs/cgroup/memory/app/memory.stat": "inactive_file 7\ntotal_inactive_file 300000\n",
    }
    assert measured(capsys, root=str(plant(tmp_path, files)))["memory_available_bytes"] == 4096000 - 700000


@pytest.mark.parametrize(
    ("cpus", "quota", "expected"),
    [
        (("0-3", "0-3"), "max 100000", (4, 4.0, "online")),
        (("0-3", "0-3"), "400000 100000", (4, 4.0, "online")),
        (("0-127", "0-3"), "max 100000", (4, 4.0, "online")),
        (("4,7", "0-1"), "max 100000", (2, 2.0, "online")),
        (("0-1", "0-3"), "300000 100000", (2, 2.0, "affinity")),
        (("0-1", "0-3"), "200000 100000", (2, 2.0, "affinity")),
        (("0-2", "0-3"), "299999 100000", (3, 2.99999, "quota")),
        (("0,2-3", "0-3"), "5000 10000", (3, 0.5, "quota")),
    ],
)
def test_budget_is_the_smaller_of_affinity_and_quota(
    cpus: tuple[str, str],
    quota: str,
    expected: tuple[int, float, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    files = V2_HOST | {
        "proc/self/status": f"Cpus_allowed_list:\t{cpus[0]}\n",
        "sys/devices/system/cpu/online": f"{cpus[1]}\n",
        "sys/fs/cgroup/app.slice/cpu.max": f"{quota}\n",
    }
    found = measured(capsys, root=str(plant(tmp_path, files)))
    assert (found["cpus_affinity"], found["cpu_budget"], found["cpu_limited_by"]) == expected


@pytest.mark.parametrize(
    ("topology", "cores"),
    [
        ({0: (0, 0), 1: (0, 0), 2: (0, 1), 3: (0, 1)}, 2),
        ({0: (0, 0), 1: (1, 0), 2: (0, 0), 3: (1, 0)}, 2),
        ({0: (0, 0), 1: (0, 1), 2: (0, 2), 3: (0, 3), 4: (0, 4)}, 4),
        ({0: (0, 0), 1: (0, 1), 2: (0, 2)}, None),
        ({0: (0, -1), 1: (0, -1), 2: (0, -1), 3: (0, -1)}, None),
    ],
    ids=["hyperthreads", "two-packages", "one-outside-the-affinity", "one-missing", "not-known"],
)
def test_physical_cores_within_the_affinity(
    topology: dict[int, tuple[int, int]],
    cores: int | None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    files = dict(V2_HOST)
    for cpu, (package, core) in topology.items():
        folder = f"sys/devices/system/cpu/cpu{cpu}/topology"
        files |= {f"{folder}/physical_package_id": f"{package}\n", f"{folder}/core_id": f"{core}\n"}
    assert measured(capsys, root=str(plant(tmp_path, files)))["cores_physical"] == cores


@pytest.mark.parametrize(
    "content", [None, "", "\n", "max\n", "100000\n", "0 100000\n", "1 0\n", "a b\n", "-1 100000\n"]
)
def test_a_quota_file_without_a_quota_is_no_quota(
    content: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plant(tmp_path, V2_HOST)
    quota = tmp_path / "sys/fs/cgroup/app.slice/cpu.max"
    if content is None:
        quota.unlink()
    else:
        quota.write_text(content, encoding="utf-8")
    found = measured(capsys, root=str(tmp_path))
    assert (found["cpu_quota"], found["cpu_quota_path"], found["cpu_budget"]) == (None, None, 4.0)


@pytest.mark.parametrize("name", [name for name in V2_HOST if name != "proc/self/status"])
@pytest.mark.parametrize("damage", ["missing", "empty", "folder", "binary", "words"])
def test_a_broken_file_is_null_and_never_a_traceback(
    name: str, damage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = plant(tmp_path, V2_HOST) / name
    path.unlink()
    if damage == "folder":
        path.mkdir()
    elif damage != "missing":
        path.write_bytes({"empty": b"", "binary": b"\xff\x00\\000:\xfe - \n:", "words": b"no such thing\n"}[damage])
    found = measured(capsys, root=str(tmp_path))
    nulls = {
        "proc/self/cgroup": {"cpu_quota", "cpu_quota_path", "memory_limit_bytes"},
        "proc/self/mountinfo": {"cpu_quota", "cpu_quota_path", "memory_limit_bytes"},
        "proc/meminfo": {"memory_total_bytes", "memory_available_bytes"},
        "sys/devices/system/cpu/online": {"cpus_online"},
        "sys/fs/cgroup/app.slice/cpu.max": {"cpu_quota", "cpu_quota_path"},
        "sys/fs/cgroup/app.slice/memory.max": {"memory_limit_bytes"},
    }[name]
    always = {"cores_physical", "pid"}  # no topology in these trees, and no process either
    assert {key for key, value in found.items() if value is None} == nulls | always
    assert found["cpus_affinity"] == 4


@pytest.mark.parametrize("missing", [None, "proc/self/cgroup", "proc/self/mountinfo"])
def test_unreadable_cgroups_are_said(
    missing: str | None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    warnings: list[str] = []
    monkeypatch.setattr(host_capacity.AnsibleModule, "warn", lambda _, text: warnings.append(text))
    plant(tmp_path, V2_HOST)
    if missing is not None:
        (tmp_path / missing).unlink()
    measured(capsys, root=str(tmp_path))
    assert ["would go unseen" in text for text in warnings] == ([] if missing is None else [True])


@pytest.mark.parametrize("status", [None, "", "Name:\tx\n", "Cpus_allowed_list:\t\n", "Cpus_allowed_list:\t0-x\n"])
def test_no_affinity_is_a_failure_that_says_where_to_look(
    status: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plant(tmp_path, V2_HOST)
    if status is None:
        (tmp_path / "proc/self/status").unlink()
    else:
        (tmp_path / "proc/self/status").write_text(status, encoding="utf-8")
    result = run(capsys, root=str(tmp_path))
    assert result["failed"] is True
    assert "/proc/self/status has no valid Cpus_allowed_list" in result["msg"]
    assert "Traceback" not in str(result)


def test_a_unit_name_with_a_backslash_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = "/system.slice/app\\134x2dpm2.service"
    files = {
        "proc/self/cgroup": "0::/system.slice/app\\x2dpm2.service/worker\n",
        "proc/self/mountinfo": f"35 24 0:30 {base} /sys/fs/c\\040g rw - cgroup2 cgroup2 rw\n",
        "sys/fs/c g/cpu.max": "50000 100000\n",
    }
    found = measured(capsys, root=str(plant(tmp_path, V2_HOST | files)))
    assert (found["cpu_quota"], found["cpu_quota_path"]) == (0.5, "/sys/fs/c g/cpu.max")


def test_a_mount_that_another_one_hides_is_not_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hidden = "34 24 0:30 /app.slice /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
    files = {
        "proc/self/mountinfo": hidden + V2_HOST["proc/self/mountinfo"],
        "sys/fs/cgroup/pm2.service/cpu.max": "10000 100000\n",  # of /pm2.service, which is somebody else's
    }
    assert measured(capsys, root=str(plant(tmp_path, V2_HOST | files)))["cpu_quota"] == 2.5


@pytest.mark.parametrize(
    ("base", "path"),
    [("/app.slice", "/app.slice-other/x"), ("/app.slice/a", "/app.slice"), ("/", "/../x"), ("/..", "/../x")],
)
def test_a_cgroup_outside_of_the_mount_has_no_levels(base: str, path: str) -> None:
    mounts = [host_capacity.Mount(base, "/cg", frozenset({"cpu"}))]
    assert host_capacity.CgroupView({"cpu": path}, mounts).levels("cpu") == []


def test_a_mount_point_that_no_file_can_have_is_no_limit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {"proc/self/mountinfo": "35 24 0:30 / /sys/fs/cgroup\\000 rw - cgroup2 cgroup2 rw\n"}
    assert measured(capsys, root=str(plant(tmp_path, V2_HOST | files)))["cpu_quota"] is None


def test_controllers_that_share_a_hierarchy() -> None:
    view = host_capacity.CgroupView(
        host_capacity.parse_cgroup("3:cpu,cpuacct:/a/b:c\n"),
        host_capacity.parse_mountinfo("33 25 0:29 / /cg/cpu,cpuacct rw shared:8 - cgroup cgroup rw,cpu,cpuacct"),
    )
    assert view.levels("cpu") == ["/cg/cpu,cpuacct/a/b:c", "/cg/cpu,cpuacct/a", "/cg/cpu,cpuacct"]


def test_the_pid_file_names_the_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = min(os.sched_getaffinity(0))
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        os.sched_setaffinity(child.pid, {one})
        pid_file = tmp_path / "pm2.pid"
        pid_file.write_text(f"{child.pid}\n", encoding="utf-8")
        found = measured(capsys, pid_file=str(pid_file))
        child.communicate(b"\n")
    assert (found["pid"], found["assumed"], found["cpus_affinity"]) == (child.pid, False, 1)


def test_this_host_agrees_with_the_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    found = measured(capsys)
    assert (found["pid"], found["assumed"]) == (os.getpid(), True)
    assert found["cpus_affinity"] == len(os.sched_getaffinity(0))
    assert found["memory_total_bytes"] == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("content", [None, "", "pm2\n", "-1\n", "0\n", "1 2\n", "ended", "zombie"])
def test_a_pid_file_without_a_running_process_is_said(
    content: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pid_file = tmp_path / "pm2.pid"
    with subprocess.Popen([shutil.which("true") or "true"]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # ended, and a zombie until it is waited for
        if content == "ended":
            child.wait()
        if content is not None:
            pid_file.write_text(str(child.pid) if content in {"ended", "zombie"} else content, encoding="utf-8")
        found = measured(capsys, pid_file=str(pid_file))
    assert (found["pid"], found["assumed"]) == (os.getpid(), True)
