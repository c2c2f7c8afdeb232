"""The use case `restore`: bring a host back to where a run that was cut off, here or elsewhere, had found it."""

from __future__ import annotations

from tuner.errors import InputError
from tuner.leaving import Actors, require_unlocked, restore_what_was_left
from tuner.model import Lock
from tuner.wording import instances as in_words


def restore(host: str, actors: Actors, *, break_lock: bool) -> str:
    """Bring a host and its inventory back.

    Args:
        host: Host of the inventory.
        actors: Who does the work.
        break_lock: Whether that is done whoever holds the lock of the host.

    Returns:
        What was done, in words.

    Raises:
        InputError: Somebody holds the lock, and it is not to be broken; nothing was touched.
        HostError: The host cannot be looked at.
        RestoreError: The host could not be brought back.
    """
    with actors.journal.lock():
        left = actors.journal.unfinished()
        if left and restore_what_was_left(actors, break_lock=break_lock):
            return f"{host} runs {in_words(left.instances)} again, as before {left}."
        actors.progress.step(f"Looking at {host}")
        inspection = actors.target.inspect()
        if inspection.lock is None:
            return f"Nothing is to be restored on {host}: no run was cut off, and nobody holds its lock."
        if not break_lock:
            require_unlocked(inspection)
        return _break(host, inspection.lock, inspection.deployment.instances, actors)


def _break(host: str, lock: Lock, running: int, actors: Actors) -> str:
    """Break a lock, and do what its holder would have had to."""
    count = lock.instances if lock.instances is not None else running
    if not count:
        raise InputError(
            f"nothing runs on {host}, and its lock does not say what did",
            remedy="deploy it: ansible-playbook deploy.yml",
        )
    actors.progress.warn(f"breaking the lock of {lock}")
    actors.target.restore(count, break_lock=True)
    return f"{host} runs {in_words(count)}; the lock of {lock} was broken."
