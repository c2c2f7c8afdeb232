"""The use case `recommend`, read top to bottom: inspect, plan, try, decide, write back, roll out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tuner import answers, budget, candidates, decide, gate, measuring, resume
from tuner.budget import TimeBudget
from tuner.concurrency import Choice
from tuner.errors import HostError, InputError, LimitError, UnresolvedError
from tuner.inventory import Edit
from tuner.journal import summarise
from tuner.leaving import (
    Actors,
    bring_back,
    left_as_found,
    let_go,
    noted,
    require_application,
    require_quiet,
    require_unlocked,
    restore_what_was_left,
)
from tuner.live import Live, describe
from tuner.measuring import VARIABLE, Measuring
from tuner.model import Decision, Inspection, Load, Plan, Verdict
from tuner.objective import Objective, find_smallest, hold
from tuner.procedure import Procedure
from tuner.resume import Record
from tuner.search import EFFORTS, Search
from tuner.slo import Slo
from tuner.wording import instances as in_words


@dataclass(frozen=True)
class Request:
    """What the user asked for.

    Attributes:
        host: Host of the inventory.
        load: The load that each candidate gets.
        requested: Instance counts to try, or None for the default ones.
        effort: How sure the run is to be, a key of tuner.search.EFFORTS.
        budget_s: The longest that the trials may take, in seconds; None is no limit.
        seed: Seed of the search's sampling.
        resume: An earlier run to go on with, as a directory or its name; None begins a new one.
        tolerance: Throughput one is willing to give up for fewer instances, 0 to 1.
        keep_disturbed: Whether a disturbed trial counts like any other.
        slo: Objective for the latency; None is none.
        rate_rps: Rate at which it must be kept; None takes 70 % of what the candidate can do.
        latency_first: Whether the smallest count that keeps the objective with headroom is chosen, instead of the
            smallest within the tolerance of the best throughput.
        live: Whether the application may be used by others meanwhile.
        write: Whether the result goes into the inventory and onto the host.
        dry_run: Whether only the plan is made.
    """

    host: str
    load: Load
    requested: tuple[int, ...] | None
    effort: str
    budget_s: float | None
    seed: int
    resume: str | None
    tolerance: float
    keep_disturbed: bool
    slo: Slo | None
    rate_rps: float | None
    latency_first: bool
    live: bool
    write: bool
    dry_run: bool


@dataclass(frozen=True)
class Outcome:
    """What came of a run.

    Attributes:
        inspection: The host and the application as they were found.
        plan: What was to be tried.
        decision: What the trials say; None after a dry run.
        edit: What was written to the inventory; None when nothing was to be written.
        running: The number of instances that the host was left on.
        directory: Where the records are; "" after a dry run.
        choice: How the number of connections was chosen; None where the user has said it.
        time: Where the time went; None until the run is at its end.
    """

    inspection: Inspection
    plan: Plan
    decision: Decision | None = None
    edit: Edit | None = None
    running: int = 0
    directory: str = ""
    choice: Choice | None = None
    time: TimeBudget | None = None


def recommend(request: Request, actors: Actors) -> Outcome:
    """Find by measurement how many instances a host should run, and make it so.

    An outcome whose verdict is `unresolved` or `unfit` leaves the host on what it ran, and nothing written.

    Raises:
        InputError: Something is wrong with what was asked, or somebody else measures this host; nothing was touched.
        HostError: The host or Ansible failed; the host runs what it ran.
        InterruptedByUserError: The user stopped the run; the host runs what it ran.
        RestoreError: The host could not be brought back to what it ran.
    """
    began = time.monotonic()
    with nullcontext() if request.dry_run else actors.journal.lock():
        actors.progress.step(f"Looking at {request.host}")
        before = _check_writable(request, actors) if request.write else None
        restore_what_was_left(actors, dry_run=request.dry_run)
        inspection = actors.target.inspect()
        require_unlocked(inspection)
        plan = _plan(request, inspection, actors)
        if request.dry_run:
            return Outcome(inspection, plan, running=inspection.deployment.instances)
        actors.interruption.check()
        earlier = _open_run(request, inspection, plan, actors)
        outcome = _measure_and_settle(request, _Prepared(inspection, plan, before, earlier), actors)
        if outcome.time:
            outcome = replace(outcome, time=budget.complete(outcome.time, time.monotonic() - began))
        actors.journal.close_run(to_summary(outcome))
        return outcome


def _check_writable(request: Request, actors: Actors) -> Edit:
    """Find out before minutes of measuring, not after, that the number cannot be written."""
    try:
        return actors.inventory.plan(request.host, VARIABLE, 1)
    except InputError as error:
        if "set it yourself" in error.remedy:  # to which number, nobody knows yet
            error.remedy = f"make {VARIABLE} a plain number there, or measure without writing (--no-write)"
        raise


def _plan(request: Request, inspection: Inspection, actors: Actors) -> Plan:
    """Choose the candidates, once it is sure that the application is there and answers."""
    require_application(inspection)
    if request.dry_run and inspection.deployment.connections:
        actors.progress.warn(
            f"{describe(inspection.deployment.connections)} are open; without --dry-run, that needs --live"
        )
    else:
        require_quiet(inspection, live=request.live)
    plan = candidates.plan(inspection.capacity, inspection.deployment, requested=request.requested)
    answers.check_answers(actors.target.check(request.load))
    trials = _search(request, inspection, plan).trials_left()
    running = inspection.deployment.instances
    estimate_s = measuring.estimate_s(trials, plan.candidates, request.load, running)
    actors.progress.planned(inspection, plan, trials, min(estimate_s, request.budget_s or estimate_s))
    return plan


def _open_run(request: Request, inspection: Inspection, plan: Plan, actors: Actors) -> list[Record]:
    """Begin the records of a run, or go on with those of an earlier one, and return its trials."""
    if request.resume is None:
        actors.journal.open_run({"request": asdict(request), "inspection": asdict(inspection), "plan": asdict(plan)})
        return []
    directory, found, lines = actors.journal.find_run(request.resume)
    resume.check_same(found, inspection, request.load, plan)
    records = resume.read_records(lines, str(directory))
    actors.journal.reopen_run(directory, max((record.session for record in records), default=0) + 1)
    return records


def _search(request: Request, inspection: Inspection, plan: Plan) -> Search:
    return Search(
        plan.candidates,
        inspection.capacity.cpu_budget,
        current=inspection.deployment.instances,
        tolerance=request.tolerance,
        seed=request.seed,
        costs=measuring.costs_of(request.load, measuring.TRIAL_OVERHEAD_S),
        effort=EFFORTS[request.effort],
    )


@dataclass(frozen=True)
class _Prepared:
    """What is known before the host is touched: what was found and planned, the inventory, and trials of earlier."""

    inspection: Inspection
    plan: Plan
    before: Edit | None
    earlier: Sequence[Record]


def _measure_and_settle(request: Request, prepared: _Prepared, actors: Actors) -> Outcome:
    """Measure, decide, and leave the host on what was decided, or else as it was found."""
    running = prepared.inspection.deployment.instances
    directory = str(actors.journal.directory)
    with left_as_found(prepared.inspection, "recommend", actors):
        measured = _make_measuring(request, prepared, actors)
        measured.choose_connections(prepared.plan.candidates)
        decision = _measure(request, prepared, measured)
        spent = budget.add_up(measured.trials[len(prepared.earlier) :], measured.choosing_s)
        found, plan = prepared.inspection, prepared.plan
        outcome = Outcome(found, plan, decision, None, running, directory, measured.choice, spent)
        # On disk before the last steps, which can fail: what minutes of measuring have shown is not lost with them.
        actors.journal.close_run(to_summary(outcome))
        if decision.instances is None or prepared.before is None:
            bring_back(running, actors)
            return outcome
        edit = _write_back(request, decision, prepared, measured.load, actors)
        let_go(actors)
    return replace(outcome, edit=edit, running=decision.instances)


def _make_measuring(request: Request, prepared: _Prepared, actors: Actors) -> Measuring:
    inspection, earlier = prepared.inspection, prepared.earlier
    load = replace(request.load, connections=earlier[-1].connections) if earlier else request.load
    return Measuring(
        actors.target,
        actors.journal,
        actors.interruption,
        actors.progress,
        load,
        inspection.capacity.cpu_budget,
        inspection.deployment.instances,
        request.budget_s,
        [record.trial for record in earlier],
        {record.trial.number for record in earlier if record.phase == "slo"},
        live=_live(request, inspection),
    )


def _live(request: Request, inspection: Inspection) -> Live | None:
    if not request.live:
        return None
    connections = sum(inspection.deployment.connections.values())
    return Live(connections, request.slo) if request.slo else Live(connections)


def _measure(request: Request, prepared: _Prepared, measured: Measuring) -> Decision:
    """Measure what the procedure asks for, after what was measured earlier, and decide."""
    inspection, plan = prepared.inspection, prepared.plan
    procedure = Procedure(
        _search(request, inspection, plan),
        plan.candidates,
        inspection.deployment.instances,
        tolerance=request.tolerance,
        memory_bytes=inspection.capacity.memory_bytes,
        keep_disturbed=request.keep_disturbed,
    )
    if prepared.earlier:
        measured.progress.step(f"Going on after {len(prepared.earlier)} trials")
        resume.replay(prepared.earlier, procedure)
    if not request.latency_first:
        measured.run(procedure)
    decision = decide.decide(procedure, measured.trials_at_full_load(), tolerance=request.tolerance, seed=request.seed)
    if request.slo is None:
        return decision
    objective = Objective(request.slo, measured, inspection.capacity.memory_bytes, request.keep_disturbed)
    if request.latency_first and request.rate_rps is not None:
        return find_smallest(decision, objective, plan.candidates, request.rate_rps)
    return hold(decision, objective, plan.candidates, request.rate_rps)


def _write_back(request: Request, decision: Decision, prepared: _Prepared, load: Load, actors: Actors) -> Edit:
    """Write the chosen count, roll it out as the next deploy would, and take it back if that fails."""
    instances, before = decision.instances or 0, prepared.before
    actors.interruption.check()
    edit = actors.inventory.plan(request.host, VARIABLE, instances)
    if before is None or (edit.path, edit.before) != (before.path, before.before):
        raise HostError(
            f"{edit.path} was changed while {request.host} was measured, so {VARIABLE}: {instances} was not written",
            remedy="write it yourself, or run again",
        )
    actors.progress.step(f"Writing {VARIABLE}: {instances} and rolling it out")
    actors.journal.announce_edit(edit)
    try:
        with noted(f"write {VARIABLE}: {instances} to {edit.path}", actors):
            actors.inventory.apply(edit)
    except InputError as error:  # by now the host was touched, and is brought back
        raise HostError(error.message, remedy=error.remedy) from error
    rolled_out = False
    try:
        with noted(f"deploy {in_words(instances)}", actors):
            actors.target.deploy()
        rolled_out = True
        actors.target.keep(instances)
        gate.require_serving(instances, _bearable_rps(request, decision), load, actors)
    except BaseException as error:
        actors.inventory.revert(edit)
        if rolled_out:
            actors.progress.warn(str(error))
            _roll_out_as_before(prepared, actors)
        raise
    return edit


def _roll_out_as_before(prepared: _Prepared, actors: Actors) -> None:
    """Roll the reverted inventory out, so that a restart of the host does not start a count that has failed."""
    actors.progress.step("Rolling out what the inventory said before")
    with noted("deploy as before", actors):
        # First of all, where the host is to end if this is cut off too.
        actors.target.keep(prepared.inspection.deployment.instances, for_return=True)
        actors.target.deploy()


def _bearable_rps(request: Request, decision: Decision) -> float:
    """A rate that the chosen count has shown to bear: a share of its throughput, or that of the objective."""
    measured = [row.throughput_rps for row in decision.candidates if row.instances == decision.instances]
    return gate.SHARE * measured[0] if measured else request.rate_rps or 1.0


def to_summary(outcome: Outcome) -> dict[str, Any]:
    """A run's outcome as JSON."""
    edit = outcome.edit
    common = {
        "host": outcome.inspection.host,
        "inspection": asdict(outcome.inspection),
        "plan": asdict(outcome.plan),
        "running": outcome.running,
        "written": {"path": str(edit.path), "changed": edit.changed, "diff": edit.diff()} if edit else None,
        "directory": outcome.directory or None,
        "connections": asdict(outcome.choice) if outcome.choice else None,
        "time": {**asdict(outcome.time), "measuring_share": outcome.time.measuring_share} if outcome.time else None,
    }
    return summarise(outcome.decision, **common) if outcome.decision else {"verdict": None, **common}


def raise_for_verdict(outcome: Outcome) -> None:
    """End with the exit code of the verdict.

    Raises:
        UnresolvedError: When the candidates could not be told apart.
        LimitError: When none kept the limits.
    """
    decision = outcome.decision
    if decision is None:
        return
    if decision.verdict is Verdict.UNRESOLVED:
        resumed = f"go on with --resume {Path(outcome.directory).name}"
        raise UnresolvedError("unresolved, nothing was written", remedy=f"{decision.remedy}; {resumed}")
    if decision.verdict is Verdict.UNFIT:
        raise LimitError("no candidate kept the limits, nothing was written", remedy="look at the table above")
