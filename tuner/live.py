"""Measuring an application that people use meanwhile: who they are, and whether the load harms them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tuner.model import Report

# What is still an answer to somebody who waits for a page; --slo says otherwise.
LONGEST_MS = 1000.0
# Connections come and go: only this much fewer than there were at first is a loss.
LOST_SHARE = 0.5
# With how few connections the load begins.
FEWEST = 2
MOST_DOUBLINGS = 10


@dataclass(frozen=True)
class Live:
    """What a load must not do to those who use the application.

    Attributes:
        connections: How many they had open when the run began.
        limit_ms: The longest that the slowest percent of the load's own requests may take, in milliseconds.
    """

    connections: int
    limit_ms: float = LONGEST_MS

    def find_harm(self, report: Report) -> str:
        """Say what a load has done to them, or "" when nothing is to be seen.

        Args:
            report: As trial.yml gave it.
        """
        p99_us = report["load"]["latency_us"].get("p99")
        if p99_us and p99_us / 1000 > self.limit_ms:
            return (
                f"one request in a hundred took more than {p99_us / 1000:,.0f} ms ({self.limit_ms:,.0f} ms are allowed)"
            )
        left = sum((report["after"].get("connections") or {}).values())
        if left < LOST_SHARE * self.connections:
            return f"of the {self.connections} connections of others, {left} are left"
        return ""


def describe(connections: Mapping[str, int]) -> str:
    """Who uses the application, in words.

    Args:
        connections: How many are open, by the address of the other side; at least one.
    """
    total, (first, *others) = sum(connections.values()), sorted(connections, key=lambda one: -connections[one])
    more = f" and {len(others)} more addresses" if others else ""
    return f"{total} connection{'s' if total != 1 else ''} from {first}{more}"
