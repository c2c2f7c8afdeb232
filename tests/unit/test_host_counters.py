"""host_counters against real processes, and its cgroup reading against recorded hosts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

import psutil
import pytest
from support import ROOT, load_module, run_module

host_capacity = load_module("capacity", "host_capacity")
host_counters = load_module("capacity", "host_counters")

TREES = ROOT / "tests" / "fixtures" / "cgroup"
BURNT_S = 0.3
BLOCK_BYTES = 64 * 1024**2
# The kernel counts CPU time in ticks of 1/100 s, user and system each rounded down.
ROUNDING_S = 2 / os.sysconf("SC_CLK_TCK")

# Once told to, fill and free a block of memory, burn CPU, say how much it took, and wait to be told to end.
BURNER = f"""
import time
input()
block = bytearray(b"x") * {BLOCK_BYTES}
del block
start = time.process_time()
while time.process_time() < start + {BURNT_S}:
    pass
print(time.process_time(), flush=True)
input()
"""

# Periods, throttled periods and seconds of all cpu.stat files from the process's cgroup up, added by hand.
THROTTLING = {
    "hybrid-host-no-limit": (0, 0, 0.0),
    "hybrid-host-service-quota": (3 + 0 + 55 + 0 + 0, 0, 0.0),
    "hybrid-host-nested-slices": (0 + 0 + 2 + 57 + 0 + 0, 0, 0.0),
    "hybrid-host-cpu-affinity": (0 + 0 + 61 + 0 + 0, 0, 0.0),
    "v1-container-quota-0.5": (8, 3, 0.133034166),
    "v1-container-quota-1.5-memory-1g": (7, 0, 0.0),
    "v1-container-cpuset-0": (0, 0, 0.0),
    "v1-container-service-quota-ignored": (10, 0, 0.0),
    "v1-container-cgroupns-private": (10, 0, 0.0),
    "constructed-v2-host-nested-slices": (100, 20, 0.9),
    "constructed-v2-container-cgroupns": (0, 0, 0.0),
}


def run(capsys: pytest.CaptureFixture[str], **params: object) -> dict[str, Any]:
    """Run the module as Ansible would, and return its whole result."""
    return run_module(host_counters, {"_ansible_check_mode": True, **params}, capsys)


def counted(capsys: pytest.CaptureFixture[str], **params: object) -> dict[str, Any]:
    """Run the module, which must succeed and change nothing, and return the counters."""
    result = run(capsys, **params)
    assert not result.get("failed"), result
    assert result["changed"] is False
    counters: dict[str, Any] = result["counters"]
    return counters


def pipe(stream: IO[str] | None) -> IO[str]:
    """Return a pipe that Popen was asked for."""
    assert stream is not None
    return stream


def test_a_burning_child_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", BURNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        (tmp_path / "pid").write_text(f"{child.pid}\n", encoding="utf-8")
        params = {"pids": [child.pid, os.getpid()], "daemon_pid_file": str(tmp_path / "pid")}
        before = counted(capsys, **params)
        print(file=pipe(child.stdin), flush=True)
        own_count_s = float(pipe(child.stdout).readline())
        after = counted(capsys, **params)
        child.communicate("\n")
    (first, _), (second, own) = before["workers"], after["workers"]
    assert (second["pid"], own["pid"], after["gone"]) == (child.pid, os.getpid(), [])
    assert second["cpu_s"] - first["cpu_s"] >= BURNT_S - ROUNDING_S
    assert second["cpu_s"] == pytest.approx(own_count_s, abs=0.2)
    assert after["daemon_cpu_s"] >= second["cpu_s"]
    assert second["started_s"] == first["started_s"] > own["started_s"]
    assert second["rss_peak_bytes"] >= BLOCK_BYTES
    assert second["rss_bytes"] < second["rss_peak_bytes"] - BLOCK_BYTES / 2
    busy_s = [sum(reading["host_cpu_s"][kind] for kind in ("user", "system")) for reading in (before, after)]
    assert busy_s[1] - busy_s[0] >= BURNT_S - ROUNDING_S
    assert after["time_s"] - before["time_s"] >= BURNT_S


def total_s() -> list[float]:
    """Return the first line of /proc/stat in seconds: user, nice, system and so on, summed over CPUs."""
    ticks = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:]
    return [int(tick) / os.sysconf("SC_CLK_TCK") for tick in ticks]


def test_the_host_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    low = total_s()
    counters = counted(capsys)
    high = total_s()
    assert low[0] <= counters["host_cpu_s"]["user"] <= high[0]
    assert low[2] <= counters["host_cpu_s"]["system"] <= high[2]
    assert (counters["workers"], counters["gone"]) == ([], [])
    assert (counters["daemon_cpu_s"], counters["cgroup_throttled"]) == (None, None)
    assert {"user", "system", "iowait", "steal", "idle"} <= set(counters["host_cpu_s"])
    assert 0 < counters["memory_available_bytes"] <= psutil.virtual_memory().total
    assert 0 <= counters["swap_used_bytes"] <= psutil.swap_memory().total
    for kind, seconds in counters["pressure_s"].items():
        assert (seconds is None) == (host_counters.read(Path("/proc/pressure", kind)) == "")
    assert list(counters["pressure_s"]) == ["cpu", "memory", "io"]


def test_processes_that_ended_are_listed_as_gone(capsys: pytest.CaptureFixture[str]) -> None:
    true = shutil.which("true") or "true"
    with subprocess.Popen([true]) as ended, subprocess.Popen([true]) as zombie:
        ended.wait()
        os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)  # a zombie until it is waited for
        counters = counted(capsys, pids=[ended.pid, os.getpid(), zombie.pid, -1, 2**40])
    assert [worker["pid"] for worker in counters["workers"]] == [os.getpid()]
    assert counters["gone"] == [ended.pid, zombie.pid, -1, 2**40]


@pytest.mark.parametrize("content", [None, "", "pm2\n", "-1\n", "\xb2"])
def test_no_daemon_is_null(content: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pid_file = tmp_path / "pm2.pid"
    if content is not None:
        pid_file.write_text(content, encoding="utf-8")
    counters = counted(capsys, daemon_pid_file=str(pid_file))
    assert (counters["daemon_cpu_s"], counters["cgroup_throttled"]) == (None, None)


def test_missing_psutil_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_counters, "PSUTIL_ERROR", "ImportError: No module named 'psutil'")
    result = run(capsys)
    assert result["failed"] is True
    assert "python3-psutil" in result["msg"]
    assert f"{sys.executable} -m pip install psutil" in result["msg"]


def test_a_forbidden_process_says_whom_to_become(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(pid: int) -> None:
        raise psutil.AccessDenied(pid)

    monkeypatch.setattr(psutil, "Process", refuse)
    result = run(capsys, pids=[1])
    assert result["failed"] is True
    assert "Process 1 may not be read" in result["msg"]
    assert "become_user" in result["msg"]


def test_every_recorded_tree_has_an_answer() -> None:
    assert {path.name for path in TREES.iterdir() if path.is_dir()} == set(THROTTLING)


@pytest.mark.parametrize("name", THROTTLING)
def test_throttling_of_a_recorded_host(name: str) -> None:
    found = host_counters.throttling(TREES / name, "self")
    assert (found.periods, found.throttled) == THROTTLING[name][:2]
    assert found.throttled_s == pytest.approx(THROTTLING[name][2], abs=1e-9)


@pytest.mark.parametrize("name", THROTTLING)
def test_both_modules_find_the_same_cgroups(name: str) -> None:
    view = host_capacity.cgroup_view(host_capacity.Tree(TREES / name), "self")
    levels = view.levels("cpu") + view.levels(host_capacity.UNIFIED)
    folders = host_counters.cpu_cgroup_folders(TREES / name, "self")
    assert levels
    assert sorted(folders) == sorted(TREES / name / level.lstrip("/") for level in levels)


@pytest.mark.parametrize("damaged", ["cgroup", "mountinfo"])
@pytest.mark.parametrize(
    "content",
    [None, b"", b"\xff\x00:\n1 1 0:1 / /sys\\000 rw - cgroup cgroup rw,cpu\n", b"0::/\n", b"1:cpu:/../x\n"],
)
def test_broken_cgroup_files_are_null(damaged: str, content: bytes | None, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    shutil.copytree(TREES / "v1-container-cgroupns-private", tree)
    path = tree / "proc/self" / damaged
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    assert host_counters.throttling(tree, "self") is None


@pytest.mark.parametrize(
    "text", ["", "nr_periods\n", "usage_usec 1200000\nuser_usec 1\n", "nr_periods x\nnr_throttled 1\n"]
)
def test_a_cpu_stat_without_throttling_is_null(text: str) -> None:
    assert host_counters.parse_throttling(text) is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("some avg10=0.62 avg60=0.38 avg300=1.02 total=16201282\nfull avg10=0.00 total=5\n", 16.201282),
        ("full avg10=0.00 avg60=0.00 avg300=0.00 total=5\n", None),
        ("some avg10=0.62\n", None),
        ("", None),
    ],
)
def test_pressure(text: str, seconds: float | None) -> None:
    assert host_counters.parse_pressure_s(text) == seconds


def test_peak_memory_is_in_bytes() -> None:
    assert host_counters.parse_peak_bytes("VmPeak:\t 9 kB\nVmHWM:\t  1780 kB\nVmRSS:\t 8 kB\n") == 1780 * 1024
    assert host_counters.parse_peak_bytes("Name:\tkthreadd\n") is None


@pytest.mark.parametrize(("text", "expected"), [("Rss:  10 kB\nPss:  3 kB\nPss_Anon: 9 kB\n", 3072), ("", None)])
def test_shared_memory_is_in_bytes(text: str, expected: int | None) -> None:
    assert host_counters.parse_pss_bytes(text) == expected


def test_the_share_of_memory_is_no_more_than_the_memory(capsys: pytest.CaptureFixture[str]) -> None:
    (worker,) = run(capsys, pids=[os.getpid()])["counters"]["workers"]
    assert 0 < worker["pss_bytes"] <= worker["rss_bytes"]


def test_the_database_is_found_by_the_name_of_its_processes(capsys: pytest.CaptureFixture[str]) -> None:
    own = psutil.Process()
    times = own.cpu_times()
    counters = run(capsys, database_processes=[own.name()])["counters"]
    assert counters["database_cpu_s"] >= times.user + times.system
    assert run(capsys, database_processes=["no such process"])["counters"]["database_cpu_s"] is None


@pytest.mark.parametrize("moment", ["before", "after"])
def test_the_timed_work_is_done_on_every_cpu_that_may_be_used(moment: str, capsys: pytest.CaptureFixture[str]) -> None:
    spins = run(capsys, spin=moment)["counters"]["spin_s"]
    assert len(spins) == len(os.sched_getaffinity(0))
    assert min(spins) > 0
    assert run(capsys)["counters"]["spin_s"] == []
