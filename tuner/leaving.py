"""How every run on a host begins and ends: an application that runs, and a host left as it was found."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from tuner.errors import InputError, TunerError
from tuner.interruption import Interruption
from tuner.inventory import Inventory
from tuner.journal import Journal
from tuner.measuring import Progress
from tuner.model import Inspection
from tuner.target import Target


@dataclass(frozen=True)
class Actors:
    """Who does the work of a run: the adapters, handed in by the command."""

    target: Target
    inventory: Inventory
    journal: Journal
    interruption: Interruption
    progress: Progress


def require_application(inspection: Inspection) -> None:
    """Refuse a host on which the application does not run as it should.

    Raises:
        InputError: When it does not.
    """
    found = inspection.deployment
    if not found.instances and not found.unwell:
        raise InputError(
            f"no application {found.app_name!r} runs under pm2 on {inspection.host}",
            remedy=f"deploy it first: ansible-playbook deploy.yml --limit {inspection.host}",
        )
    if found.unwell:
        raise InputError(
            f"{found.unwell} of {found.unwell + found.instances} workers of {found.app_name!r} "
            f"on {inspection.host} are not online",
            remedy=f"deploy it again: ansible-playbook deploy.yml --limit {inspection.host}",
        )


def restore_what_was_left(actors: Actors, *, dry_run: bool = False) -> None:
    """Bring the host back to where a run that was cut off had found it."""
    left = actors.journal.unfinished()
    if left is None:
        return
    cut_off = f"the run of {left.get('since', 'an unknown time')} was cut off"
    if dry_run:
        actors.progress.warn(f"{cut_off}; without --dry-run, the host is brought back to {left['instances']} first")
        return
    actors.progress.warn(f"{cut_off}; bringing the host back to {left['instances']} instances first")
    actors.target.restore(left["instances"])
    actors.journal.leave_host()


@contextmanager
def left_as_found(instances: int, actors: Actors) -> Iterator[None]:
    """Bring the host back when anything goes wrong inside; until it is, the journal says so on disk."""
    actors.journal.touch_host(instances)
    try:
        yield
    except BaseException as error:
        with suppress(TunerError):  # a full disk must not keep the host from being brought back
            actors.journal.note_error(str(error))
        bring_back(instances, actors)
        actors.journal.leave_host()
        if isinstance(error, TunerError):
            error.aftermath = f"the host was brought back to what it ran before ({instances})"
        raise
    actors.journal.leave_host()


def bring_back(instances: int, actors: Actors) -> None:
    """Bring the host back to a number of instances, and to its deployed settings."""
    actors.progress.step(f"Bringing the host back to {instances} instances")
    actors.target.restore(instances)
