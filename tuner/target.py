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

    def restore(self, instances: int) -> None:
        """Bring the application back to this count, whatever was left behind; is not stopped by the user.

        Raises:
            RestoreError: When that fails.
        """

    def deploy(self) -> None:
        """Roll out what the inventory says now; is not stopped by the user.

        Raises:
            HostError: When that fails.
        """
