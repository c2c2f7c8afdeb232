"""The real target: a host of an inventory, reached through Ansible playbooks."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import ansible_runner
from pydantic import TypeAdapter

from tuner import abandoned, extra_vars, loads, reports
from tuner.errors import HostError, InputError, InterruptedByUserError, LockedError, RestoreError
from tuner.interruption import Interruption
from tuner.journal import PRIVATE, PRIVATE_FILE
from tuner.model import Deployment, HostCapacity, Inspection, Load, Lock, ProjectWarning, Report
from tuner.project import ansible_environment
from tuner.wording import instances as in_words

# Tells playbooks/callback_plugins/packed_modules.py where to keep them.
PACKED_VARIABLE = "STRAPI_TUNER_PACKED_MODULES"
# How soon a wish to stop is noticed, in seconds.
CANCEL_POLL_S = 0.2
# Beyond the load itself, a trial may boot workers one after the other.
PLAYBOOK_LIMIT_S = 1800
REPORT_TASK = "Report"
SWITCH_TASK = "Run the application in the stated number of instances"
UNREACHABLE_HINT = "check that `ansible -i {inventory} {host} -m ping` works"
OUTPUT_LINES = 8
# How long the host waits for a sign of life beyond the longest step that is expected, before it brings itself back; the
# default of the role lease.
GRACE_S = 120.0
# Beside the load, a trial may boot each worker, which takes some seconds; and a roll-out looks at everything once.
LEASE_BOOT_S = 10.0
LEASE_DEPLOY_S = 180.0
# Strapi writes one entry after the other anyway; a few requests at once hide the way there and back.
SEED_CONNECTIONS = 8
SEED_TIMEOUT_S = 30


@dataclass
class Outcome:
    """What one playbook run told.

    Attributes:
        status: ansible-runner's word for how it ended.
        reached: Whether the host took part and did not fail.
        report: The message of the task called Report; empty when it did not come.
        failure: The first failure in words, or "".
        unreachable: The host that could not be reached, or "".
        output: Ansible's own output, line by line.
        task_s: What each task took that ended well, by its name.
        holder: Who holds the lock of the host, where that was why a task failed.
    """

    status: str = ""
    reached: bool = False
    report: dict[str, Any] = field(default_factory=dict)
    failure: str = ""
    unreachable: str = ""
    output: list[str] = field(default_factory=list)
    task_s: dict[str, float] = field(default_factory=dict)
    holder: dict[str, Any] | None = None

    def note(self, event: Mapping[str, Any], host: str) -> bool:
        """Take from one event what matters; the return value keeps the event off the disk."""
        data = event.get("event_data") or {}
        kind = event.get("event")
        if text := str(event.get("stdout") or "").strip():
            self.output.extend(text.splitlines())
        if kind == "runner_on_ok":
            task = str(data.get("task"))
            self.task_s[task] = self.task_s.get(task, 0.0) + float(data.get("duration") or 0.0)
            message = (data.get("res") or {}).get("msg")
            if task == REPORT_TASK and isinstance(message, dict):  # tasks of the user may have this name too
                self.report = message
        elif kind in ("runner_on_failed", "runner_on_unreachable") and not data.get("ignore_errors"):
            result = _failed_result(data)
            if kind == "runner_on_unreachable" and not self.unreachable:
                # The loops of the playbooks are over the hosts that send the load.
                self.unreachable = str(result.get("item", host))
            self.failure = self.failure or _describe(result, data.get("task"))
            self.holder = self.holder or result.get("held_by")
        elif kind == "playbook_on_stats":
            failed = {**(data.get("failures") or {}), **(data.get("dark") or {})}
            self.reached = host in (data.get("ok") or {}) and host not in failed
        return False


def _failed_result(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """The result of a task that failed; of a loop, that of the first item that did."""
    result: Mapping[str, Any] = data.get("res") or {}
    items = [item for item in result.get("results") or () if item.get("failed") or item.get("unreachable")]
    return items[0] if items else result


def _describe(result: Mapping[str, Any], task: object) -> str:
    message = result.get("msg") or result.get("stderr") or "no reason given"
    # The tasks' own errors are sentences; Ansible wraps some of them.
    text = str(message).removeprefix("Task failed: ").removeprefix("Module failed: ").strip()
    return f"{text} (task {task!r})"


class AnsibleTarget:
    """One host of an inventory.

    Args:
        project: Directory that holds the playbooks.
        inventory: Absolute path of the inventory.
        host: Name of the host in it.
        interruption: Says whether the user asked to stop.
        on_output: Gets Ansible's output line by line, when somebody wants to see it.
        grace_s: How long the host waits beyond the longest step that is expected, before it brings itself back.
        packed: Private directory in which the modules that one playbook has packed wait for the next one.
    """

    def __init__(  # noqa: PLR0913 where the host is, and how to treat it
        self,
        project: Path,
        inventory: Path,
        host: str,
        interruption: Interruption,
        *,
        on_output: Callable[[str], None] | None = None,
        grace_s: float = GRACE_S,
        packed: str = "",
    ) -> None:
        self._project = project
        self._inventory = inventory
        self._host = host
        self._interruption = interruption
        self._on_output = on_output
        self._grace_s = grace_s
        self._packed = packed
        self._lease = ""

    def inspect(self) -> Inspection:
        """Look at the host and the application; see Target."""
        return to_inspection(self._host, self._checked(self._run("inspect.yml"), reports.INSPECT))

    def lock(self, lease: str, purpose: str, instances: int) -> None:
        """Take the lock of the host; see Target."""
        self._lease = lease
        self._run("lock.yml", {"lease_purpose": purpose, "lease_pid": os.getpid(), "lease_instances": instances})

    def keep(self, instances: int, *, for_return: bool = False) -> None:
        """Tell the host what to bring back from now on; see Target."""
        longest_s = LEASE_DEPLOY_S if for_return else 0.0
        try:
            self._run("lock.yml", {"lease_instances": instances}, can_stop=not for_return, longest_s=longest_s)
        except LockedError as error:  # the own lock was lost meanwhile
            raise HostError(error.message) from error

    def unlock(self) -> None:
        """Let go of the lock; see Target."""
        self._run("unlock.yml", can_stop=False)
        self._lease = ""

    def check(self, load: Load) -> Report:
        """Send each request once; see Target."""
        try:
            report = self._run("check.yml", _requests(load))
        except HostError as error:  # nothing was touched, and the answers themselves are in the report
            raise InputError(error.message, remedy=error.remedy) from error
        return self._checked(report, reports.CHECK)

    def seed(self, path: str, entries: Sequence[dict[str, str]]) -> Report:
        """Add entries to a collection and count them; see tuner.seed.Seedable."""
        requests = [{"path": path, "name": path, "method": "POST", "body": {"data": entry}} for entry in entries]
        variables = {
            "load_requests": requests,
            "load_path": f"{path}?pagination%5BpageSize%5D=1",
            "load_ask_everywhere": False,
            "load_ask_connections": SEED_CONNECTIONS,
            "load_timeout_s": SEED_TIMEOUT_S,
        }
        return self._checked(self._run("seed.yml", variables), reports.SEED)

    def trial(self, candidate: Mapping[str, object], load: Load) -> Report:
        """Measure one candidate; see Target."""
        variables = {
            **candidate,
            **_requests(load),
            "load_connections": load.connections,
            "load_duration_s": load.duration_s,
            **({"load_mode": "open", "load_rate": load.rate_rps} if load.rate_rps else {}),
            "trial_warmup_cold_s": load.warmup_cold_s,
            "trial_warmup_warm_s": load.warmup_warm_s,
        }
        instances = int(str(candidate["strapi_instances"]))
        longest_s = load.warmup_cold_s + load.duration_s + instances * LEASE_BOOT_S
        report = self._checked(self._run("trial.yml", variables, longest_s=longest_s), reports.TRIAL)
        switched_s = report["task_s"].get(SWITCH_TASK, 0.0)
        return {**report, "switched_s": switched_s, "load": loads.merge(report["hosts"], report["loads"])}

    def restore(self, instances: int, lease: str = "", *, break_lock: bool = False) -> None:
        """Bring a count back; see Target."""
        self._lease = lease or self._lease
        variables = {"strapi_instances": instances, "lease_purpose": "restore", "lease_break": break_lock}
        try:
            self._run("restore.yml", variables, can_stop=False, longest_s=instances * LEASE_BOOT_S)
        except (HostError, LockedError) as error:
            itself = "the host does so by itself in a few minutes, or " if self._lease else ""
            raise RestoreError(
                f"{self._host} could not be brought back to {in_words(instances)}: {error.message}",
                remedy=f"{itself}run: tuner restore --host {self._host} --inventory {self._inventory}",
            ) from error
        self._lease = ""

    def deploy(self) -> None:
        """Roll the inventory out; see Target."""
        self._run("deploy.yml", needs_report=False, can_stop=False, longest_s=LEASE_DEPLOY_S)

    def _checked(self, report: Report, kind: TypeAdapter[Any]) -> Report:
        return reports.check(self._host, report, kind)

    def _run(
        self,
        playbook: str,
        variables: Mapping[str, Any] | None = None,
        *,
        needs_report: bool = True,
        can_stop: bool = True,
        longest_s: float = 0.0,
    ) -> Report:
        """Run one playbook on the host alone and return its report.

        `successful` is not enough: it is also said when no host was touched.
        """
        outcome = Outcome()
        lease = {"lease_id": self._lease, "lease_time_s": self._grace_s + longest_s} if self._lease else {}

        def note(event: Mapping[str, Any]) -> bool:
            if self._on_output and event.get("stdout"):
                self._on_output(str(event["stdout"]))
            return outcome.note(event, self._host)

        # A directory for each run: ansible-runner leaves the variables of one run to the next.
        with abandoned.private_directory() as private:
            # In a file, and not in the arguments of a process, which have a limit and can be seen by everyone.
            given = Path(private) / "env" / "extravars"
            given.parent.mkdir(mode=PRIVATE)
            given.touch(mode=PRIVATE_FILE)
            given.write_text(extra_vars.dump({**(variables or {}), **lease}), encoding="utf-8")
            runner = ansible_runner.run(
                private_data_dir=private,
                project_dir=str(self._project),
                playbook=str(self._project / "playbooks" / playbook),
                inventory=str(self._inventory),
                limit=self._host,
                envvars={**ansible_environment(self._project), PACKED_VARIABLE: self._packed},
                settings={"pexpect_timeout": CANCEL_POLL_S, "suppress_ansible_output": True},
                event_handler=note,
                # Also without a wish to stop: without it, ansible-runner replaces the signal handlers for good.
                cancel_callback=self._interruption.requested if can_stop else lambda: False,
                timeout=PLAYBOOK_LIMIT_S,
                quiet=True,
            )
            outcome.status = str(runner.status)
        if outcome.status == "canceled" or (can_stop and self._interruption.requested()):
            raise InterruptedByUserError("interrupted")
        if outcome.status != "successful" or not outcome.reached or (needs_report and not outcome.report):
            raise self._failure(playbook, outcome)
        return {**outcome.report, "task_s": outcome.task_s} if outcome.report else {}

    def _failure(self, playbook: str, outcome: Outcome) -> HostError | LockedError:
        if outcome.holder:
            holder = self._checked(outcome.holder, reports.LOCK)
            return LockedError(f"{self._host} is locked by {to_lock(holder)}")
        if outcome.unreachable:
            hint = UNREACHABLE_HINT.format(inventory=self._inventory, host=outcome.unreachable)
            return HostError(f"{outcome.unreachable} cannot be reached: {outcome.failure}", remedy=hint)
        reason = outcome.failure or " / ".join(outcome.output[-OUTPUT_LINES:]) or f"status {outcome.status}"
        return HostError(f"{playbook} failed on {self._host}: {reason}")


def _requests(load: Load) -> dict[str, Any]:
    return {"load_requests": [{"path": path} for path in load.paths]} if load.paths else {}


def to_lock(seen: Mapping[str, Any]) -> Lock:
    """Turn what host_lease says of the lock into a record."""
    return Lock(**{field.name: seen[field.name] for field in fields(Lock)})


def to_inspection(host: str, report: Report) -> Inspection:
    """Turn the report of inspect.yml into records."""
    seen, application, database = report["capacity"], report["application"], report["database"]
    workers = application["workers"]
    online = [worker for worker in workers if worker["status"] == "online"]
    peaks = [worker["rss_peak_bytes"] for worker in application["counters"]["workers"] if worker["rss_peak_bytes"]]
    capacity = HostCapacity(
        cpus_online=seen["cpus_online"],
        cpus_affinity=seen["cpus_affinity"],
        cpu_quota=seen["cpu_quota"],
        cpu_budget=float(seen["cpu_budget"]),
        cpu_limited_by=seen["cpu_limited_by"],
        memory_total_bytes=seen["memory_total_bytes"],
        memory_limit_bytes=seen["memory_limit_bytes"],
        memory_available_bytes=seen["memory_available_bytes"],
        assumed=bool(seen["assumed"]),
    )
    deployment = Deployment(
        app_name=application["name"],
        instances=len(online),
        unwell=len(workers) - len(online),
        url=application["url"],
        release=application["release"],
        database_client=database["client"],
        sqlite_multi_process=bool(database["sqlite_multi_process"]),
        database_pool_max=int(database["pool_max"]),
        database_connections=int(database["connections"]),
        worker_peak_bytes=max(peaks, default=None),
        connections=application["counters"]["connections"] or {},
    )
    warnings = tuple(
        ProjectWarning(found["file"], int(found["line"]), found["message"], found["fix"])
        for found in report["warnings"]
    )
    lock = to_lock(report["lock"]) if report["lock"] else None
    return Inspection(host=host, capacity=capacity, deployment=deployment, warnings=warnings, lock=lock)
