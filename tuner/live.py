"""Measuring an application that people use meanwhile: who they are, and whether the load harms them. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuner.loads import PERCENTILES, percentile_us
from tuner.model import Report
from tuner.slo import Slo

# What is still an answer to somebody who waits for a page; --slo says otherwise.
BEARABLE = Slo(99.0, 1000.0)
# Connections come and go: only this much fewer than there were at first is a loss, and only where their number does not
# vary by as much on its own (by its root, when each comes for itself). Nothing can be told from fewer than ten.
LOST_SHARE = 0.5
LOST_DEVIATIONS = 3.0
# With how few connections the load begins.
FEWEST = 2
MOST_DOUBLINGS = 10


@dataclass(frozen=True)
class Live:
    """What a load must not do to those who use the application.

    Attributes:
        connections: How many they had open when the run began.
        slo: What the load's own requests must keep.
    """

    connections: int
    slo: Slo = BEARABLE

    def find_harm(self, report: Report) -> str:
        """Say what a load has done to them, or "" when nothing is to be seen.

        Args:
            report: As trial.yml gave it.
        """
        latency_ms = self._latency_ms(report["load"]["latency_us"])
        if latency_ms > self.slo.limit_ms:
            slowest = 100 - self.slo.percent
            share = "one request" if slowest == 1 else f"{slowest:g} requests"
            return f"{share} in a hundred took more than {latency_ms:,.0f} ms ({self.slo.limit_ms:,.0f} ms are allowed)"
        left = sum((report["after"].get("connections") or {}).values())
        before = self.connections
        if left < min(LOST_SHARE * before, before - LOST_DEVIATIONS * math.sqrt(before)):
            return f"of the {before} connections of others, {left} are left"
        return ""

    def _latency_ms(self, latency_us: Mapping[str, Any]) -> float:
        """The percentile of the objective, in milliseconds; 0 where nothing was answered."""
        for name, percent in PERCENTILES.items():
            if percent == self.slo.percent:
                return (latency_us[name] or 0.0) / 1000
        histogram = latency_us["histogram"]
        return percentile_us(histogram, self.slo.percent) / 1000 if histogram else 0.0


def describe(connections: Mapping[str, int]) -> str:
    """Who uses the application, in words.

    Args:
        connections: How many are open, by the address of the other side; at least one.
    """
    total, (first, *others) = sum(connections.values()), sorted(connections, key=lambda one: -connections[one])
    more = f" and {len(others)} more addresses" if others else ""
    return f"{total} connection{'s' if total != 1 else ''} from {first}{more}"
