"""A simulated host: it follows tuner.target.Target, and its reports come from a table instead of a load."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from asked import check
from records import capacity, deployment

from tuner.errors import HostError, LockedError, RestoreError
from tuner.model import Inspection, Load, Lock, Plan, Report, Trial

BIN_S = 0.1


def raw_report(instances: int, throughput_rps: float, *, started: int = 0) -> dict[str, Any]:
    """A report as trial.yml makes it, of a load that had this throughput from its first tenth of a second on."""
    workers = [{"pid": 100 + number, "status": "online"} for number in range(instances)]
    counted = [{"pid": 100 + number, "cpu_s": 1.0, "rss_bytes": 2**28} for number in range(instances)]
    host = {"user": 100.0, "system": 20.0, "idle": 1000.0, "steal": 0.0}
    return {
        "host": "prod1",
        "applied": {"reloaded": False, "started": started, "workers": workers},
        "before": {"time_s": 10.0, "workers": counted, "host_cpu_s": host},
        "after": {"time_s": 20.0, "workers": counted, "host_cpu_s": host},
        "load": {
            "warmup_s": 2.0,
            "duration_s": 8.0,
            "connections": 100,
            "bins": {"width_s": BIN_S, "ok": [round(throughput_rps * BIN_S)] * 100},
            "measured": {"requests": round(throughput_rps * 8), "errors": 0, "errors_by_kind": {"timeout": 0}},
            "latency_us": {"p50": 100_000.0, "p99": 250_000.0},
            "generator": {"cpu_share": 0.05, "refused_reason": "", "most_connections": 10_000},
            "hosts": {"prod1": {"cpu_s": 0.4}},
        },
    }


class SimulatedTarget:
    """A simulated host that runs some instances.

    Args:
        url: Address of what answers in place of the application.
        throughputs: For each candidate its throughputs in turn, again and again, in requests per second.
        written: The file from which `deploy` takes the count.
        running: Instances that it runs at first.
        on_trial: Called with the number of each trial, while that runs.
        broken: Names of the methods that fail.
        failing_at_rate: Whether requests fail that are sent at a stated rate.
    """

    def __init__(  # noqa: PLR0913 each is a choice of some test
        self,
        url: str,
        throughputs: Mapping[int, Sequence[float]],
        *,
        written: Path,
        running: int = 2,
        on_trial: Callable[[int], None] = lambda _: None,
        broken: Sequence[str] = (),
        failing_at_rate: bool = False,
    ) -> None:
        self.running = running
        self.unwell = 0
        self.calls: list[str] = []
        self.locks: list[str] = []
        self.purpose = ""
        self.locked_by: Lock | None = None
        self.loads: list[Load] = []
        self._url = url
        self._throughputs = throughputs
        self._written = written
        self._on_trial = on_trial
        self._broken = broken
        self._failing_at_rate = failing_at_rate
        self._trials = 0
        self._tried: Counter[int] = Counter()

    @property
    def touched(self) -> bool:
        """Whether anything but looking and asking was done."""
        return bool(set(self.calls) - {"inspect", "check"})

    def inspect(self) -> Inspection:
        """Look at the host; see tuner.target.Target."""
        self.calls.append("inspect")
        found = deployment(instances=self.running, unwell=self.unwell, url=self._url)
        return Inspection("prod1", capacity(2.0), found, lock=self.locked_by)

    def lock(self, lease: str, purpose: str, instances: int) -> None:
        """Take the lock, unless somebody has it; see tuner.target.Target."""
        assert lease
        if self.locked_by or "lock" in self._broken:
            raise LockedError(f"prod1 is locked by {self.locked_by}")
        self.purpose = purpose
        self.keep(instances)

    def keep(self, instances: int, *, for_return: bool = False) -> None:
        """Note what the host would bring back; see tuner.target.Target."""
        self.locks.append(f"{self.purpose} {instances}" + (", on the way back" if for_return else ""))

    def unlock(self) -> None:
        """Let go of the lock; see tuner.target.Target."""
        if "unlock" in self._broken:
            raise HostError("prod1 cannot be reached")
        self.locks.append("released")

    def check(self, load: Load) -> Report:
        """Ask what answers in place of the application; see tuner.target.Target."""
        self.calls.append("check")
        return check(self._url, load.paths)

    def trial(self, candidate: Mapping[str, object], load: Load) -> Report:
        """Report what the table says; see tuner.target.Target."""
        assert load.connections
        self.loads.append(load)
        instances = candidate["strapi_instances"]
        assert isinstance(instances, int)
        self.calls.append(f"trial {instances}")
        started, self.running = max(0, instances - self.running), instances
        rates = self._throughputs[instances]
        rate = rates[self._tried[instances] % len(rates)]
        self._tried[instances] += 1
        self._trials += 1
        self._on_trial(self._trials)
        report = raw_report(instances, rate, started=started)
        if load.rate_rps and self._failing_at_rate:
            report["load"]["measured"]["errors"] = report["load"]["measured"]["requests"] // 2
        return report

    def restore(self, instances: int, lease: str = "", *, break_lock: bool = False) -> None:
        """Bring a count back; see tuner.target.Target."""
        if self.locked_by and not break_lock:
            raise RestoreError(f"prod1 is locked by {self.locked_by}")
        self.locked_by = None
        self.locks.append(f"released{' ' + lease if lease else ''}")
        self.calls.append(f"restore {instances}")
        if "restore" in self._broken:
            raise RestoreError("prod1 could not be brought back", remedy="run: ansible-playbook restore.yml")
        self.running = instances

    def deploy(self) -> None:
        """Run what was written; see tuner.target.Target."""
        self.running = yaml.safe_load(self._written.read_text())["strapi_instances"]
        self.calls.append(f"deploy {self.running}")
        if "deploy" in self._broken:
            raise HostError("deploy.yml failed on prod1: no space left")


class NotedProgress:
    """Progress that is only noted."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.warnings: list[str] = []
        self.plans: list[Plan] = []
        self.left_s: list[float] = []

    def step(self, what: str) -> None:
        """Something begins."""

    def planned(self, inspection: Inspection, plan: Plan, trials: int, estimate_s: float) -> None:
        """The plan is made."""
        assert inspection.host == "prod1"
        assert trials > 0
        assert estimate_s > 0
        self.plans.append(plan)

    def note(self, message: str) -> None:
        """Something that was found out."""
        self.notes.append(message)

    def warn(self, message: str) -> None:
        """Something the user should know."""
        self.warnings.append(message)

    def trial_begins(self, number: int, total: int, what: str, left_s: float) -> None:
        """A trial begins."""
        assert number <= total
        assert what
        self.left_s.append(left_s)

    def trial_ended(self, trial: Trial, what: str) -> None:
        """A trial has ended."""
