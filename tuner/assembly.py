"""Puts the parts of a command together: finds project and inventory, and hands the adapters to the use case."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.text import Text

from tuner import abandoned, candidates
from tuner.ansible_target import GRACE_S, AnsibleTarget
from tuner.answers import check_paths
from tuner.compare import ROUNDS, CompareRequest
from tuner.errors import InputError
from tuner.host_names import check_host_name
from tuner.interruption import Interruption
from tuner.inventory import Inventory
from tuner.journal import Journal
from tuner.leaving import Actors
from tuner.model import Load
from tuner.project import default_inventory, find_project
from tuner.recommend import Request
from tuner.report import ConsoleProgress, make_console
from tuner.settings import parse_variants
from tuner.slo import parse_slo
from tuner.variables import check_variables
from tuner.wording import printable


@dataclass(frozen=True)
class Session:
    """What every command on a host works with."""

    host: str
    project: Path
    inventory: Inventory
    variables: Mapping[str, Any]
    interruption: Interruption
    progress: ConsoleProgress
    target: AnsibleTarget

    def actors(self, results: Path | None) -> Actors:
        """The adapters that `recommend` needs."""
        journal = Journal(find_results(results, self.project), self.host)
        return Actors(self.target, self.inventory, journal, self.interruption, self.progress)


def find_results(given: Path | None, project: Path | None = None) -> Path:
    """The directory for the records of all runs."""
    return (given or (project or find_project()) / "tuner-results").absolute()


@contextmanager
def open_session(host: str, source: Path | None, *, verbose: bool) -> Iterator[Session]:
    """Find the host, and hold signals back until the command can act on them.

    Raises:
        InputError: When project, inventory or host cannot be found, or a variable of the host cannot be used.
    """
    check_host_name(host)
    abandoned.end_children_with_this_process()
    abandoned.remove_abandoned_directories()
    project = find_project()
    inventory = Inventory(source or default_inventory(project), project_dir=project)
    variables = inventory.host_vars(host)
    check_variables(host, variables)
    console = make_console(stderr=True)

    def show(output: str) -> None:
        for line in output.splitlines():
            # Ansible's colours go, and whatever else a host wants the terminal to do is shown instead.
            console.print(printable(Text.from_ansi(line).plain, len(line)), style="dim")

    with (
        Interruption() as interruption,
        ConsoleProgress(console) as progress,
        abandoned.private_directory() as packed,
    ):
        target = AnsibleTarget(
            project,
            inventory.source,
            host,
            interruption,
            on_output=show if verbose else None,
            grace_s=variables.get("lease_grace_s", GRACE_S),
            packed=packed,
        )
        yield Session(host, project, inventory, variables, interruption, progress, target)


def make_compare_request(session: Session, options: Mapping[str, Any]) -> CompareRequest:
    """Turn the options of `compare` into a request.

    Raises:
        InputError: When the settings or the paths cannot be read.
    """
    return CompareRequest(
        host=session.host,
        variants=parse_variants(options["settings"]),
        load=_load(session, options),
        rounds=ROUNDS[options["effort"]],
        budget_s=options["budget"],
        keep_disturbed=options["keep_disturbed"],
        live=options["live"],
    )


def make_request(session: Session, options: Mapping[str, Any]) -> Request:
    """Turn the options of `recommend` into a request.

    Raises:
        InputError: When no path to ask for is known, or the candidates or the objective cannot be read.
    """
    wanted = options["candidates"]
    objective = parse_slo(options["slo"]) if options["slo"] is not None else None
    if options["objective"] == "latency" and (objective is None or options["rate"] is None):
        raise InputError("--objective latency needs an objective at a rate", remedy="add --rate 200 --slo p99=250ms")
    if options["rate"] is not None and objective is None:
        raise InputError("--rate says at which rate an objective must be kept", remedy="add --slo p99=250ms")
    return Request(
        host=session.host,
        load=_load(session, options),
        requested=candidates.parse_counts(wanted) if wanted is not None else None,
        effort=options["effort"],
        budget_s=options["budget"],
        seed=secrets.randbelow(2**31) if options["seed"] is None else options["seed"],
        resume=options["resume"],
        tolerance=options["tolerance"],
        keep_disturbed=options["keep_disturbed"],
        slo=objective,
        rate_rps=options["rate"],
        latency_first=options["objective"] == "latency",
        live=options["live"],
        write=not options["no_write"],
        dry_run=options["dry_run"],
    )


def _load(session: Session, options: Mapping[str, Any]) -> Load:
    duration_s, budget_s = options["duration"], options["budget"]
    if budget_s is not None and budget_s <= duration_s:
        raise InputError(
            f"no trial of {duration_s:g} s (--duration) ends within {budget_s:g} s (--budget)",
            remedy="give it more time, or shorter trials",
        )
    return Load(paths=_paths(session, options["urls"]), connections=options["connections"], duration_s=duration_s)


def _paths(session: Session, urls: Sequence[str]) -> tuple[str, ...]:
    """The paths that were asked for; none where the inventory names requests."""
    check_paths(urls)
    if not urls and not session.variables.get("load_requests"):
        raise InputError(
            f"no path to ask {session.host} for is known",
            remedy="name one or more with --url, or set load_requests in the inventory",
        )
    return tuple(urls)
