"""How every run on a host begins and ends: an application that runs, and a host left as it was found."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from uuid import uuid4

from tuner.errors import HostError, InputError, LockedError, TunerError
from tuner.interruption import Interruption
from tuner.inventory import Inventory
from tuner.journal import Journal
from tuner.live import describe
from tuner.measuring import Progress
from tuner.model import Inspection
from tuner.target import Target
from tuner.wording import instances as in_words


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


def require_unlocked(inspection: Inspection) -> None:
    """Refuse a host of which somebody else holds the lock.

    Raises:
        LockedError: When somebody does.
    """
    if (lock := inspection.lock) and (not lock.stale or lock.instances is not None):
        gone = f", who is gone ({lock.stale})" if lock.stale else ""
        raise LockedError(f"{inspection.host} is locked by {lock}{gone}")


def require_quiet(inspection: Inspection, *, live: bool) -> None:
    """Refuse an application that somebody uses, unless the user has said that this is known.

    Raises:
        InputError: When somebody does.
    """
    found = inspection.deployment
    if found.connections and not live:
        raise InputError(
            f"{describe(found.connections)} are open to {found.app_name!r} on {inspection.host}: for minutes, "
            "their requests would wait in line with thousands of others, and workers would start and stop",
            remedy="measure when nobody uses it, or begin with little load and stop when it harms them (--live)",
        )


def restore_what_was_left(actors: Actors, *, dry_run: bool = False, break_lock: bool = False) -> bool:
    """Bring host and inventory back to where a run that was cut off had found them.

    Returns:
        Whether there was such a run.
    """
    left = actors.journal.unfinished()
    if left is None:
        return False
    if dry_run:
        actors.progress.warn(
            f"{left} was cut off; without --dry-run, the host is brought back to {left.instances} first"
        )
        return True
    actors.progress.warn(f"{left} was cut off; bringing the host back to {in_words(left.instances)} first")
    if left.edit:
        actors.inventory.revert(left.edit)
    actors.target.restore(left.instances, left.lease, break_lock=break_lock)
    if left.edit:
        # The count that was to be written may be in what a restart of the host would start.
        actors.target.deploy()
    actors.journal.leave_host()
    return True


@contextmanager
def left_as_found(inspection: Inspection, purpose: str, actors: Actors) -> Iterator[None]:
    """Lock the host, and bring it back when anything goes wrong inside; until it is, the journal says so on disk.

    Whoever comes to the end of this has left the host as it should be, and its lock is released.
    """
    instances, lease = inspection.deployment.instances, uuid4().hex
    actors.journal.touch_host(inspection.deployment, lease, purpose)
    try:
        actors.target.lock(lease, purpose, instances)
    except LockedError:  # nothing was touched
        actors.journal.leave_host()
        raise
    except BaseException as error:
        _put_right(error, instances, actors)
        raise
    try:
        yield
    except BaseException as error:
        _put_right(error, instances, actors)
        raise
    actors.journal.leave_host()


def _put_right(error: BaseException, instances: int, actors: Actors) -> None:
    """After an error: have it in the records, and the host as it was."""
    with suppress(TunerError):  # a full disk must not keep the host from being brought back
        actors.journal.note_error(str(error))
    bring_back(instances, actors)
    actors.journal.leave_host()
    if isinstance(error, TunerError):
        error.aftermath = f"the host was brought back to what it ran before ({instances})"


def let_go(actors: Actors) -> None:
    """Release the lock of a host that is as it should be; where that fails, the host does so itself."""
    try:
        actors.target.unlock()
    except HostError as error:
        actors.progress.warn(f"{error}; the host lets go of its lock by itself in a few minutes")


def bring_back(instances: int, actors: Actors) -> None:
    """Bring the host back to a number of instances, and to its deployed settings."""
    actors.progress.step(f"Bringing the host back to {in_words(instances)}")
    with noted(f"restore {in_words(instances)}", actors):
        actors.target.restore(instances)


@contextmanager
def noted(step: str, actors: Actors) -> Iterator[None]:
    """Announce a step in the records before it is done, and confirm it after; a disk that is full hinders neither."""
    with suppress(TunerError):
        actors.journal.note_step(step, "begun")
    yield
    with suppress(TunerError):
        actors.journal.note_step(step, "done")
