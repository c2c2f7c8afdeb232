"""A host whose answers are those of a real one, recorded, and in which a test changes something."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from typing import Any

from support import ROOT

from tuner.errors import HostError

REPORTS = ROOT / "tests/fixtures/reports"
Damage = Callable[[dict[str, Any]], object]


def recorded(name: str) -> dict[str, Any]:
    """The report that a playbook made of a real host."""
    found: dict[str, Any] = json.loads((REPORTS / f"{name}.json").read_text(encoding="utf-8"))
    return found


class Answering:
    """Takes the place of AnsibleTarget._run: notes which playbook would have run, and gives the recorded report.

    Args:
        damage: For a playbook what is changed in its report.
    """

    def __init__(self, damage: Mapping[str, Damage] | None = None) -> None:
        self.ran: list[str] = []
        self._damage = damage or {}

    def __call__(self, playbook: str, *_: object, **__: object) -> dict[str, Any]:
        """Run nothing."""
        name = playbook.removesuffix(".yml")
        self.ran.append(name)
        if not (REPORTS / f"{name}.json").exists():
            return {}
        report = copy.deepcopy(recorded(name))
        if damage := self._damage.get(name):
            damage(report)
        return report


class Unreachable(Answering):
    """As above, and the host cannot be locked: whatever goes that far has passed every check of its input."""

    def __call__(self, playbook: str, *_: object, **__: object) -> dict[str, Any]:
        """Run nothing."""
        report = super().__call__(playbook)
        if playbook == "lock.yml":
            raise HostError("every check was passed")
        return report
