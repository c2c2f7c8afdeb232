"""What a run does to a host, whatever host it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from tuner.model import Inspection, Load, Report


class Target(Protocol):
    """One host with one application on it."""

    def inspect(self) -> Inspection:
        """Look at the host and the application; changes nothing.

        Raises:
            HostError: When the host cannot be reached, or Ansible fails on it.
        """

    def lock(self, lease: str, purpose: str, instances: int) -> None:
        """Take the lock of the host; every later call is made under it.

        Args:
            lease: What tells this holder of the lock from others.
            purpose: What it is for, as others are told.
            instances: What the host brings itself back to once the lock is not renewed in time.

        Raises:
            LockedError: When somebody else holds it.
            HostError: When the host or Ansible fails; it may be held then.
        """

    def keep(self, instances: int, *, for_return: bool = False) -> None:
        """Tell the host to bring itself back to this count from now on.

        Args:
            instances: The count.
            for_return: Whether a roll-out on the way back follows, for which the host waits; the user stops neither.

        Raises:
            HostError: When the host or Ansible fails, or the lock was lost.
        """

    def unlock(self) -> None:
        """Let go of the lock; is not stopped by the user.

        Raises:
            HostError: When that fails; the host then lets go of it by itself.
        """

    def check(self, load: Load) -> Report:
        """Send each request of a load once, from where the load will come from; the raw report.

        Raises:
            InputError: When the inventory does not say what to send, or from where, in a way that works.
        """

    def trial(self, candidate: Mapping[str, object], load: Load) -> Report:
        """Switch to a candidate, load it and return the raw report.

        Args:
            candidate: Role variables, such as `strapi_instances`.
            load: The load that it gets.

        Raises:
            HostError: When the host or Ansible fails.
            InterruptedByUserError: When the user stopped the run meanwhile.
        """

    def restore(self, instances: int, lease: str = "", *, break_lock: bool = False) -> None:
        """Bring the application back to this count, whatever was left behind, and let go of the lock.

        Is not stopped by the user.

        Args:
            instances: The count.
            lease: The lock of a run that was cut off, under which this is done; "" is that of this run.
            break_lock: Whether it is done whoever holds the lock.

        Raises:
            RestoreError: When that fails.
        """

    def deploy(self) -> None:
        """Roll out what the inventory says now; is not stopped by the user.

        Raises:
            HostError: When that fails.
        """
