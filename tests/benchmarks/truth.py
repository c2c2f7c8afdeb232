"""Does the load generator say what happened? It loads a server that knows the truth, and a table shows both.

    python tests/benchmarks/truth.py

Each line is one load: what the server did and counted, what http_load reported, and the difference. Times are those
that the server took by its own clock, so that a busy machine changes both sides. The last line is JSON.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from truth_server import (  # found through the line above
    OK,
    Answer,
    always,
    answer_ok,
    never,
    run,
    stalls_once,
    unevenly,
)

BUSY_S = 5.0
STALL_S = 0.5
NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"


@dataclass(frozen=True)
class Line:
    """One line of the table.

    Attributes:
        what: What was looked at.
        truth: What the server knows.
        reported: What http_load said.
    """

    what: str
    truth: float
    reported: float

    @property
    def error(self) -> float:
        """The difference as a share of the truth; infinite where one of them is nought."""
        if self.truth == self.reported:
            return 0.0
        return abs(self.reported - self.truth) / self.truth if self.truth else math.inf


def counts() -> list[Line]:
    """Requests that the server saw."""
    load, server = run(answer_ok, connections=50, count=20_000)
    return [Line("requests answered, closed loop", len(server.arrivals), load["total"]["ok"])]


def schedule() -> list[Line]:
    """Requests of an open loop, sent at their times."""
    load, server = run(answer_ok, connections=50, mode="open", rate=500.0, warmup_s=0, duration_s=BUSY_S)
    return [
        Line("requests answered, open loop", len(server.arrivals), load["total"]["ok"]),
        Line("requests planned at 500/s", len(server.arrivals), load["planned"]),
    ]


def delays() -> list[Line]:
    """Percentiles of delays that the server made, in milliseconds."""
    took_s: list[float] = []
    load, _ = run(unevenly(took_s), connections=40, count=5_000)
    took_s.sort()
    ranks = {name: math.ceil(len(took_s) * percent / 100) - 1 for name, percent in (("p50", 50), ("p99", 99))}
    latency = load["latency_us"]
    return [Line(f"{name} of delays, ms", took_s[rank] * 1e3, latency[name] / 1e3) for name, rank in ranks.items()]


def stall() -> list[Line]:
    """The longest wait in a server that stands still for half a second, in milliseconds."""
    loop: dict[str, Any] = {"mode": "open", "rate": 400.0, "arrivals": "uniform", "connections": 2, "warmup_s": 0}
    load, _ = run(stalls_once(1.0, STALL_S), duration_s=BUSY_S, **loop)
    # The first request that falls into the stall waits for all of it.
    return [Line("longest wait in a stall, ms", STALL_S * 1e3, load["latency_us"]["max"] / 1e3)]


def errors() -> list[Line]:
    """Errors of each kind that can be counted on the server's side."""
    answers: dict[str, Answer] = {
        "status": always(NOT_FOUND, keep=True),
        "reset": always(b"", keep=False),
        "short_body": always(OK[:-1], keep=False),
        "malformed": always(b"SPAM\r\n\r\n", keep=True),
        "timeout": never,
    }
    lines = []
    for kind, answer in answers.items():
        load, server = run(answer, connections=4, warmup_s=0, duration_s=1.0, timeout_s=0.2)
        lines.append(Line(f"errors of kind {kind}", len(server.arrivals), load["total"]["errors_by_kind"][kind]))
    return lines


def main() -> None:
    """Entry point."""
    parts: tuple[Callable[[], list[Line]], ...] = (counts, schedule, delays, stall, errors)
    lines = [line for part in parts for line in part()]
    print(f"{'':<34}{'truth':>12}{'http_load':>12}{'error':>9}")
    for line in lines:
        print(f"{line.what:<34}{line.truth:>12,.1f}{line.reported:>12,.1f}{line.error:>9.2%}")
    print(json.dumps({"largest_error": max(line.error for line in lines), "lines": len(lines)}))


if __name__ == "__main__":
    main()
