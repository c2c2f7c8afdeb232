"""What people see: progress while a run goes on, tables, sentences, or JSON for machines."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import IO, Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn
from rich.table import Table
from rich.text import Text

from tuner.budget import TimeBudget
from tuner.compare import Comparison
from tuner.model import BYTES_PER_MIB, CandidateSummary, Inspection, Plan, Trial, Verdict
from tuner.recommend import Outcome
from tuner.status import HostStatus
from tuner.wording import instances as in_words
from tuner.wording import listed, plural

# Where the output goes into a file, lines need not fit a screen.
FILE_WIDTH = 120
VERDICT_STYLE = {
    Verdict.CERTIFIED: "bold green",
    Verdict.RESOLVED: "bold green",
    Verdict.UNRESOLVED: "bold yellow",
    Verdict.UNFIT: "bold red",
}


def make_console(*, stderr: bool = False, file: IO[str] | None = None) -> Console:
    """A console that uses colour on a terminal only, honours NO_COLOR, and takes every text as it is."""
    console = Console(stderr=stderr, file=file, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = FILE_WIDTH
    return console


class TimeLeft(ProgressColumn):
    """Time until the end as last estimated, counted down while nothing new is known."""

    def render(self, task: Task) -> Text:
        """Show it as minutes and seconds."""
        ends_at = task.fields.get("ends_at")
        if ends_at is None:
            return Text("")
        return Text(f"about {clock(max(0.0, ends_at - time.monotonic()))} left", style="cyan")


class ConsoleProgress:
    """Progress on standard error: a line that is alive on a terminal, plain lines elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            TimeLeft(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("", total=None)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bar.stop()

    def step(self, what: str) -> None:
        """Something that takes seconds begins."""
        self._bar.update(self._task, description=what, completed=0, total=None, ends_at=None)
        if not self._console.is_terminal:
            self._console.print(what)

    def counted(self, what: str, done: int, total: int) -> None:
        """Something goes on, of which so much is done."""
        self._bar.update(self._task, description=f"{what} {done}/{total}", completed=done, total=total)

    def planned(self, inspection: Inspection, plan: Plan, trials: int, estimate_s: float) -> None:
        """The plan is made: show it."""
        print_plan(self._console, inspection, plan, trials, estimate_s)

    def note(self, message: str) -> None:
        """Something that was found out."""
        self._console.print(message)

    def warn(self, message: str) -> None:
        """Something the user should know."""
        self._console.print(Text(f"Warning: {message}", style="yellow"))

    def trial_begins(self, number: int, total: int, what: str, left_s: float) -> None:
        """A trial begins."""
        what = f"trial {number} of about {total}: {what}"
        self._bar.update(
            self._task, description=what, completed=number - 1, total=total, ends_at=time.monotonic() + left_s
        )
        if not self._console.is_terminal:
            self._console.print(f"{what} (about {clock(left_s)} left)")

    def trial_ended(self, trial: Trial, what: str) -> None:
        """A trial has ended: show what it measured."""
        marks = [] if trial.settled else ["never settled"]
        marks += ["extended"] if trial.extended else []
        marks += [f"disturbed: {reason}" for reason in trial.disturbances]
        marks += [plural(trial.errors, "error")] if trial.errors else []
        marks += [f"{plural(trial.restarts, 'worker')} died"] if trial.restarts else []
        self._console.print(
            f"{trial.number:>4}  {what:<12} "
            f"{trial.throughput_rps:>8,.1f} requests/s  p50 {trial.latency_ms.get('p50', 0):>6,.0f} ms"
            f"  p99 {trial.latency_ms.get('p99', 0):>6,.0f} ms  {', '.join(marks)}".rstrip()
        )


def print_inspection(console: Console, inspection: Inspection) -> None:
    """Show what a host has and runs."""
    capacity, found = inspection.capacity, inspection.deployment
    quota = "none" if capacity.cpu_quota is None else f"{capacity.cpu_quota:g} CPUs"
    limit = capacity.memory_limit_bytes
    rows = {
        "host": inspection.host,
        "CPU budget": f"{capacity.cpu_budget:g} CPUs, limited by {_limit_in_words(capacity.cpu_limited_by)}",
        "CPUs online": f"{capacity.cpus_online}",
        "CPU affinity": f"{capacity.cpus_affinity}",
        "CPU quota": quota,
        "memory": f"{mebibytes(capacity.memory_total_bytes)}, {mebibytes(capacity.memory_available_bytes)} available",
        "memory limit": "none" if limit is None else mebibytes(limit),
        "application": _application_in_words(inspection),
        "address": found.url,
        "database": found.database_client,
    }
    grid = Table.grid(padding=(0, 2))
    for name, value in rows.items():
        grid.add_row(name, value)
    console.print(grid)
    if capacity.assumed:
        console.print("The application does not run, so these are the limits of a process that Ansible started.")
    print_warnings(console, inspection)


def print_warnings(console: Console, inspection: Inspection) -> None:
    """Show what in the project breaks with several instances, and how to mend it."""
    if inspection.warnings:
        console.print("With more than one instance:")
    for found in inspection.warnings:
        text = f"  Warning: {found.file}:{found.line}: {found.message}. To mend it, {found.fix}."
        console.print(Text(text, style="yellow"))


def _limit_in_words(limited_by: str) -> str:
    return {"online": "the machine itself", "affinity": "CPU affinity", "quota": "a CPU quota"}.get(
        limited_by, limited_by
    )


def _application_in_words(inspection: Inspection) -> str:
    found = inspection.deployment
    if not found.instances and not found.unwell:
        return f"{found.app_name}: not running"
    unwell = f", {found.unwell} not online" if found.unwell else ""
    return f"{found.app_name}: {in_words(found.instances)}{unwell}, release {found.release or 'unknown'}"


def print_plan(console: Console, inspection: Inspection, plan: Plan, trials: int, estimate_s: float) -> None:
    """Show what will be tried, why no more than that, and how long it takes."""
    capacity, found = inspection.capacity, inspection.deployment
    console.print(
        f"{inspection.host}: {capacity.cpu_budget:g} CPUs ({_limit_in_words(capacity.cpu_limited_by)}), "
        f"{_application_in_words(inspection)} at {found.url}",
    )
    console.print(
        f"Candidates {listed(plan.candidates)}; about {plural(trials, 'trial')}, {clock(estimate_s)}. Upper bounds:"
    )
    for bound in plan.bounds:
        console.print(f"  {bound.limit:>3}  {bound.reason}")
    if max(plan.candidates, default=1) > 1:
        print_warnings(console, inspection)


def print_outcome(console: Console, outcome: Outcome) -> None:
    """Show what came of a run: the table, the verdict, what was written, what runs."""
    decision = outcome.decision
    if decision is None:
        console.print("Nothing was measured or changed (--dry-run).")
        return
    named = [(str(candidate.instances), candidate) for candidate in decision.candidates]
    console.print(_table(named, chosen=str(decision.instances)))
    for candidate in decision.candidates:
        if reason := candidate.unfit or candidate.eliminated:
            console.print(f"  {in_words(candidate.instances)}: out, {reason}")
    if disturbed := sum(candidate.disturbed for candidate in decision.candidates):
        console.print(f"  {plural(disturbed, 'trial')} disturbed by something else on the host")
    for result in decision.slo:
        kept = result.reason or "the objective is kept"
        console.print(f"  {in_words(result.instances)} at {result.rate_rps:,.0f} requests/s: {kept}")
    console.print()
    verdict = str(decision.verdict)
    if decision.verdict is Verdict.RESOLVED and decision.resolution is not None:
        verdict += f" ±{decision.resolution:.1%}"
    console.print(Text(f"{verdict}  ", style=VERDICT_STYLE[decision.verdict]), end="")
    console.print(decision.sentence)
    if decision.remedy:
        console.print(f"To resolve it: {decision.remedy}.")
    console.print()
    _print_written(console, outcome)
    if outcome.time:
        console.print(_time_in_words(outcome.time))


def print_comparison(console: Console, found: Comparison) -> None:
    """Show what came of a comparison: the table and the answer."""
    console.print(_table(list(found.settings.items()), chosen=""))
    for name, setting in found.settings.items():
        if setting.unfit:
            console.print(f"  {name}: {setting.unfit}")
        if setting.disturbed:
            console.print(f"  {name}: {plural(setting.disturbed, 'trial')} disturbed by something else")
    console.print()
    console.print(found.sentence)
    console.print()
    running = found.inspection.deployment.instances
    console.print(f"{found.inspection.host} runs {in_words(running)} with the settings it had.")
    console.print(f"Records: {found.directory}", soft_wrap=True)


def print_status(console: Console, found: Sequence[HostStatus]) -> None:
    """Show what the runs on each host came to."""
    if not found:
        console.print("No host has records.")
        return
    table = Table(box=None, pad_edge=False)
    for title in ("host", "runs", "last run", "came to"):
        table.add_column(title, justify="right" if title == "runs" else "left", overflow="fold")
    for host in found:
        table.add_row(host.host, str(host.runs), host.last, host.came_to)
    console.print(table)
    for host in found:
        if host.unfinished:
            console.print(Text(host.host, style="bold yellow"), end="")
            console.print(
                f": {host.unfinished} was cut off; "
                f"tuner restore --host {host.host} brings back its {in_words(host.instances or 0)}."
            )
        if host.lock is not None:
            held = f"its lock is held by {host.lock}" if host.lock else "nobody holds its lock"
            console.print(f"{host.host}: {held}.")


def _print_written(console: Console, outcome: Outcome) -> None:
    edit = outcome.edit
    if edit is None:
        console.print(f"Nothing was written; {outcome.inspection.host} runs {in_words(outcome.running)}, as before.")
    elif edit.changed:
        console.print(f"Written to {edit.path}:", soft_wrap=True)
        console.print(edit.diff().rstrip(), soft_wrap=True)
        console.print(f"{outcome.inspection.host} runs {in_words(outcome.running)}.")
    else:
        console.print(
            f"{edit.path} says so already; {outcome.inspection.host} runs {in_words(outcome.running)}.",
            soft_wrap=True,
        )
    console.print(f"Records: {outcome.directory}", soft_wrap=True)


def _time_in_words(spent: TimeBudget) -> str:
    parts = {
        "settling": spent.settling_s,
        "booting workers": spent.booting_s,
        "Ansible": spent.ansible_s,
        "choosing connections": spent.connections_s,
        "before and after": spent.around_s,
    }
    rest = ", ".join(f"{name} {clock(seconds)}" for name, seconds in parts.items() if round(seconds))
    return f"Time: {clock(spent.total_s)}, {spent.measuring_share:.0%} of it measuring; {rest}"


def _table(named: Sequence[tuple[str, CandidateSummary]], *, chosen: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in (
        "instances" if chosen else "setting",
        "requests/s",
        "95% interval",
        "ratio",
        "p50 / p99",
        "memory",
        "errors",
    ):
        table.add_column(name, justify="right")
    table.add_column("limited by")
    for name, candidate in named:
        mark = "→ " if name == chosen else ""
        table.add_row(f"{mark}{name}", *_cells(candidate), style="bold" if mark else None)
    return table


def _cells(candidate: CandidateSummary) -> list[str]:
    interval, latency = candidate.interval_rps, candidate.latency_ms
    return [
        f"{candidate.throughput_rps:,.1f}",
        f"{interval[0]:,.0f} to {interval[1]:,.0f}" if interval else "-",
        "-" if candidate.ratio is None else f"{candidate.ratio:.2f}",
        f"{latency['p50']:,.0f} / {latency['p99']:,.0f} ms" if latency.keys() >= {"p50", "p99"} else "-",
        mebibytes(candidate.rss_bytes),
        f"{candidate.errors}",
        candidate.limited_by,
    ]


def print_json(console: Console, summary: Mapping[str, Any]) -> None:
    """Print one JSON document and nothing else."""
    console.file.write(json.dumps(summary, indent=2, default=str) + "\n")


def mebibytes(count: int) -> str:
    """Bytes as `1,234 MiB`."""
    return f"{count / BYTES_PER_MIB:,.0f} MiB"


def clock(seconds: float) -> str:
    """Seconds as `m:ss`."""
    whole = round(seconds)
    return f"{whole // 60}:{whole % 60:02d}"
