"""Compare the CPU cost of one request: http_load against wrk and ab, side by side against one small server.

    python tests/benchmarks/load_generator.py

Takes about 20 s and both cores of a small machine. The clients take turns, so that a noisy spell hits all of
them; the median of the rounds is reported. What http_load spends before its first request (starting Python,
importing Ansible) is left out, for a turn here is much shorter than a real run. The last line is JSON for
whoever watches the figures.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from support import load_module  # found through the line above

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: keep-alive\r\nContent-Length: %d\r\n\r\n"
CONNECTIONS = 100
ROUNDS = 3
RUN_S = 1
AB_REQUESTS = 25_000
SIZES = {"200 B": 200, "6 kB": 6_000}
CLIENT_TIMEOUT_S = 20
MAX_CPU_RATIO = 3.0
MAX_CPU_US = 20.0


@dataclass(frozen=True)
class Sample:
    """What one client did in one turn."""

    client: str
    size: str
    cpu_us_per_request: float
    rate_rps: float


class Responder(asyncio.Protocol):
    """Answers every segment with the same bytes: the cheapest HTTP server that Python can be."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember where to write to."""
        if isinstance(transport, asyncio.Transport):
            self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer with as many bytes as the path says; `ab` speaks HTTP/1.0 and must hear of keep-alive."""
        size = int(data[5 : data.index(b" ", 5)])
        if self._transport is not None:
            self._transport.write(HEAD % size + b"x" * size)


async def serve() -> None:
    """Serve on a free port until the standard input ends."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Responder, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201  # the parent reads it
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


@contextmanager
def running_server() -> Iterator[str]:
    """Run the server in a process of its own and give its address."""
    with subprocess.Popen(
        [sys.executable, __file__, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        if process.stdout is None or process.stdin is None:
            raise RuntimeError("the server has no pipes")
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        process.stdin.close()
        process.wait(timeout=CLIENT_TIMEOUT_S)


def http_load_once(base_url: str, path: str) -> None:
    """Run http_load without Ansible around it and print the number of requests."""
    http_load = load_module("load", "http_load")
    plan = http_load.make_plan(
        {
            "base_url": base_url,
            "requests": [{"path": path}],
            "connections": CONNECTIONS,
            "warmup_s": 0.0,
            "duration_s": float(RUN_S),
            "keep_alive": True,
            "timeout_s": 10.0,
        }
    )
    start_cpu_s = time.process_time()
    load = http_load.run_load(plan, lambda: False)
    print(json.dumps({"requests": load["total"]["requests"], "start_cpu_s": start_cpu_s}))  # noqa: T201  # as above


def http_load_done(stdout: str) -> tuple[int, float]:
    """Return the number of requests and the CPU time spent before them."""
    done = json.loads(stdout)
    return int(done["requests"]), float(done["start_cpu_s"])


def wrk_done(stdout: str) -> tuple[int, float]:
    """Return the number of requests in the report of `wrk`."""
    return _number(r"(\d+) requests in", stdout), 0.0


def ab_done(stdout: str) -> tuple[int, float]:
    """Return the number of requests in the report of `ab`, without the failed ones."""
    return _number(r"Complete requests:\s+(\d+)", stdout) - _number(r"Failed requests:\s+(\d+)", stdout), 0.0


def _number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    if found is None:
        raise RuntimeError(f"no {pattern!r} in:\n{text}")
    return int(found[1])


@dataclass(frozen=True)
class Client:
    """A load generator.

    Attributes:
        name: What the table calls it.
        command: What to run; the address follows.
        prefix: What comes before the path.
        done: Reads its output: the number of requests, and the seconds of CPU time that do not count.
    """

    name: str
    command: list[str]
    prefix: str
    done: Callable[[str], tuple[int, float]]

    def run(self, size: str, length: int) -> Sample:
        """Let it load the server for one turn."""
        command = [*self.command, f"{self.prefix}/{length}"]
        before, started = os.times(), time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=CLIENT_TIMEOUT_S)
        elapsed_s, after = time.perf_counter() - started, os.times()
        requests, start_cpu_s = self.done(done.stdout)
        cpu_s = after.children_user - before.children_user + after.children_system - before.children_system
        return Sample(self.name, size, (cpu_s - start_cpu_s) / requests * 1e6, requests / elapsed_s)


def installed_clients(base_url: str) -> Iterator[Client]:
    """Find the clients of this machine, http_load first."""
    own = [sys.executable, __file__, "http_load", base_url]
    yield Client("http_load", own, "", http_load_done)
    if wrk := shutil.which("wrk"):
        yield Client("wrk", [wrk, "-t1", f"-c{CONNECTIONS}", f"-d{RUN_S}s"], base_url, wrk_done)
    if ab := shutil.which("ab"):
        yield Client("ab -k", [ab, "-k", "-q", f"-c{CONNECTIONS}", f"-n{AB_REQUESTS}"], base_url, ab_done)


def take_turns(clients: list[Client]) -> Iterator[Sample]:
    """Let the clients load the server with each size in turn, several times over."""
    for _ in range(ROUNDS):
        for size, length in SIZES.items():
            for client in clients:
                yield client.run(size, length)


def report(samples: list[Sample]) -> str:
    """Return the table, and the line of JSON with the worst of the sizes."""
    names = list(dict.fromkeys(sample.client for sample in samples))
    lines = [f"{'response':10}{'client':12}{'us CPU/request':>16}{'requests/s':>13}{'ratio':>9}"]
    ratios: dict[str, list[float]] = {name: [] for name in names}
    own_us: list[float] = []
    for size in SIZES:
        of_size = [sample for sample in samples if sample.size == size]
        own_us.append(median_cost(of_size, "http_load"))
        for name in names:
            cost = median_cost(of_size, name)
            rate = statistics.median(sample.rate_rps for sample in of_size if sample.client == name)
            ratios[name].append(own_us[-1] / cost)
            lines.append(f"{size:10}{name:12}{cost:16.1f}{rate:13,.0f}{ratios[name][-1]:9.2f}")
    lines.append(f"ratio: CPU of http_load to CPU of the client; bars: {MAX_CPU_RATIO:g} and {MAX_CPU_US:g} us")
    summary = {
        "cpu_ratio_vs_wrk": round(max(ratios["wrk"]), 2) if "wrk" in ratios else None,
        "cpu_ratio_vs_ab": round(max(ratios["ab -k"]), 2) if "ab -k" in ratios else None,
        "cpu_us_per_request": round(max(own_us), 2),
    }
    return "\n".join([*lines, json.dumps(summary)])


def median_cost(samples: list[Sample], client: str) -> float:
    """Return a client's CPU time per request in microseconds."""
    return statistics.median(sample.cpu_us_per_request for sample in samples if sample.client == client)


def main() -> None:
    """Measure, and print the report."""
    with running_server() as base_url:
        clients = list(installed_clients(base_url))
        if len(clients) == 1:
            raise SystemExit("neither wrk nor ab is installed; install the package wrk or apache2-utils")
        samples = list(take_turns(clients))
    print(report(samples))  # noqa: T201  # what the program is for


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        asyncio.run(serve())
    elif sys.argv[1:2] == ["http_load"]:
        http_load_once(sys.argv[2], sys.argv[3])
    else:
        main()
