"""Compare http_load with wrk and h2load: CPU time for each request, and requests per second.

    python tests/benchmarks/load_generator.py
    python tests/benchmarks/load_generator.py --url 'http://127.0.0.1:1337/api/restaurants?populate=*'

It starts a small server of its own with two targets. Both answer 6 kB over kept connections: `fast` at once, so that
the generator is what is busy, and its cost shows; `busy` after a fixed amount of CPU time, so that the server is what
is busy, and every generator should find the same throughput. With --url that address takes the place of `busy`.

The generators take turns, in another order each round, so that a noisy spell hits all of them; ratios are medians of
the ratios within the rounds. What http_load spends before its first request and after its last (starting and stopping
Python, importing Ansible) is left out, for a turn here is much shorter than a real run. The last line is JSON for
whoever watches the figures.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from support import load_module  # found through the line above

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n"
BODY_BYTES = 6_000
FAST, BUSY = "fast", "busy"
BUSY_NS = 300_000
"""CPU time of a `busy` answer: far from a generator's limit, and near what a small Node.js answer takes."""
CONNECTIONS = 100
ROUNDS = 5
SECONDS = 3
GRACE_S = 20
OWN, WRK, H2LOAD = "http_load", "wrk", "h2load"
PACKAGES = {WRK: "wrk", H2LOAD: "nghttp2-client"}
MAX_CPU_RATIO = 1.5
MIN_THROUGHPUT_RATIO = 0.97


@dataclass(frozen=True)
class Sample:
    """What one generator did in one turn."""

    round: int
    target: str
    generator: str
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
        """Answer, after some work where the path asks for it."""
        if data.startswith(b"GET /" + BUSY.encode()):
            until_ns = time.thread_time_ns() + BUSY_NS
            while time.thread_time_ns() < until_ns:
                pass
        if self._transport is not None:
            self._transport.write(HEAD % BODY_BYTES + b"x" * BODY_BYTES)


async def serve() -> None:
    """Serve on a free port until the standard input ends."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Responder, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)  # the parent reads it
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


@contextmanager
def own_targets() -> Iterator[dict[str, str]]:
    """Run the server in a process of its own and give the address of each target."""
    with subprocess.Popen(
        [sys.executable, __file__, "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        if process.stdout is None or process.stdin is None:
            raise RuntimeError("the server has no pipes")
        port = int(process.stdout.readline())
        yield {target: f"http://127.0.0.1:{port}/{target}" for target in (FAST, BUSY)}
        process.stdin.close()
        process.wait(timeout=GRACE_S)


def load_once(url: str, seconds: float) -> None:
    """Run http_load without Ansible around it and print what it measured."""
    http_load = load_module("load", "http_load")
    parts = urlsplit(url)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    plan = http_load.make_plan(
        {
            "base_url": f"{parts.scheme}://{parts.netloc}",
            "requests": [{"path": path}],
            "connections": CONNECTIONS,
            "warmup_s": 0.0,
            "duration_s": seconds,
        }
    )
    before_s = time.process_time()
    load = http_load.run_load(plan, lambda: False)
    cpu_s = time.process_time() - before_s
    done = {name: load["total"][name] for name in ("requests", "errors")}
    rate_rps = load["measured"]["throughput_rps"]
    print(json.dumps({**done, "rate_rps": rate_rps, "cpu_s": cpu_s}))  # as above


@dataclass(frozen=True)
class Done:
    """What a generator says of its turn: requests, those that failed, its rate, and its CPU time if it knows that."""

    requests: int
    errors: int
    rate_rps: float
    cpu_s: float | None = None


def read_own(printed: str) -> Done:
    """Read what load_once() printed."""
    return Done(**json.loads(printed))


def read_wrk(printed: str) -> Done:
    """Read the report of `wrk`."""
    errors = re.search(r"Non-2xx or 3xx responses: (\d+)", printed)
    requests = int(find(r"(\d+) requests in", printed))
    return Done(requests, int(errors[1]) if errors else 0, float(find(r"Requests/sec:\s+([\d.]+)", printed)))


def read_h2load(printed: str) -> Done:
    """Read the report of `h2load`."""
    requests = int(find(r"(\d+) done", printed))
    return Done(requests, requests - int(find(r"(\d+) 2xx", printed)), float(find(r", ([\d.]+) req/s", printed)))


def find(pattern: str, text: str) -> str:
    """Return what a report says at the pattern's group."""
    found = re.search(pattern, text)
    if found is None:
        raise RuntimeError(f"no {pattern!r} in:\n{text}")
    return found[1]


@dataclass(frozen=True)
class Generator:
    """A load generator: its name, what to run (the address follows), and what reads its output."""

    name: str
    command: list[str]
    read: Callable[[str], Done]

    def run(self, round_number: int, target: str, url: str, seconds: float) -> Sample:
        """Let it load the target for one turn."""
        before_s = children_cpu_s()
        ran = subprocess.run(
            [*self.command, url], capture_output=True, text=True, check=True, timeout=seconds + GRACE_S
        )
        cpu_s = children_cpu_s() - before_s
        done = self.read(ran.stdout)
        if done.errors:
            raise RuntimeError(f"{self.name}: {done.errors} of {done.requests} requests to {url} failed")
        cpu_us = (cpu_s if done.cpu_s is None else done.cpu_s) / done.requests * 1e6
        return Sample(round_number, target, self.name, cpu_us, done.rate_rps)


def children_cpu_s() -> float:
    """Return the CPU time of all processes that were run and waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def installed_generators(seconds: int) -> Iterator[Generator]:
    """Find the generators of this machine, http_load first; what is missing is said."""
    yield Generator(OWN, [sys.executable, __file__, "--seconds", str(seconds), "--load"], read_own)
    options = {
        WRK: ["-t1", f"-c{CONNECTIONS}", f"-d{seconds}s"],
        H2LOAD: ["--h1", "-t1", f"-c{CONNECTIONS}", f"-D{seconds}"],
    }
    readers = {WRK: read_wrk, H2LOAD: read_h2load}
    for name, arguments in options.items():
        if path := shutil.which(name):
            yield Generator(name, [path, *arguments], readers[name])
        else:
            print(f"{name} is missing, so nothing is compared with it: install {PACKAGES[name]}")


def take_turns(generators: list[Generator], targets: dict[str, str], rounds: int, seconds: int) -> Iterator[Sample]:
    """Let every generator load every target, in another order each round."""
    for number in range(rounds):
        first = number % len(generators)
        for target, url in targets.items():
            for generator in generators[first:] + generators[:first]:
                yield generator.run(number, target, url, seconds)


def ratio(samples: list[Sample], target: str, other: str, value: Callable[[Sample], float]) -> float | None:
    """Return the median, over the rounds, of a figure of http_load's to that of another generator's."""
    of_target = [sample for sample in samples if sample.target == target]
    own, others = (
        {sample.round: value(sample) for sample in of_target if sample.generator == name} for name in (OWN, other)
    )
    return round(statistics.median(own[number] / others[number] for number in others), 3) if others else None


def cpu_of(sample: Sample) -> float:
    """Return the cost of a request."""
    return sample.cpu_us_per_request


def rate_of(sample: Sample) -> float:
    """Return the throughput."""
    return sample.rate_rps


def report(samples: list[Sample]) -> str:
    """Return the table, and the line of JSON."""
    targets = list(dict.fromkeys(sample.target for sample in samples))
    lines = [f"{'target':8}{'generator':12}{'us CPU/request':>16}{'requests/s':>13}{'cpu ratio':>11}{'rate ratio':>12}"]
    for target in targets:
        for name in dict.fromkeys(sample.generator for sample in samples):
            mine = [sample for sample in samples if (sample.target, sample.generator) == (target, name)]
            cost, rate = (statistics.median(map(value, mine)) for value in (cpu_of, rate_of))
            ratios = (ratio(samples, target, name, value) for value in (cpu_of, rate_of))
            cells = "".join(f"{cell:{width}.3f}" for cell, width in zip(ratios, (11, 12), strict=True))
            lines.append(f"{target:8}{name:12}{cost:16.1f}{rate:13,.0f}{cells}")
    costly, limited = targets[0], targets[-1]
    lines.append(
        f"ratio: http_load to the generator of the line; to be reached: CPU {MAX_CPU_RATIO:g} at most ({costly}), "
        f"rate {MIN_THROUGHPUT_RATIO:g} at least ({limited})"
    )
    summary = {
        "cpu_ratio_vs_wrk": ratio(samples, costly, WRK, cpu_of),
        "throughput_ratio_vs_wrk": ratio(samples, limited, WRK, rate_of),
        "throughput_ratio_vs_h2load": ratio(samples, limited, H2LOAD, rate_of),
    }
    return "\n".join([*lines, json.dumps(summary)])


def read_arguments() -> argparse.Namespace:
    """Return what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--url", help="what to load in place of the busy target")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="turns of each generator  [default: %(default)s]")
    parser.add_argument("--seconds", type=int, default=SECONDS, help="length of a turn  [default: %(default)s]")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--load", metavar="URL", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Measure, and print the report."""
    arguments = read_arguments()
    if arguments.serve:
        asyncio.run(serve())
        return
    if arguments.load:
        load_once(arguments.load, float(arguments.seconds))
        return
    generators = list(installed_generators(arguments.seconds))
    if len(generators) == 1:
        raise SystemExit("there is nothing to compare http_load with")
    with own_targets() as own:
        targets = {FAST: own[FAST], "url": arguments.url} if arguments.url else own
        samples = list(take_turns(generators, targets, arguments.rounds, arguments.seconds))
    print(report(samples))  # what the program is for


if __name__ == "__main__":
    main()
