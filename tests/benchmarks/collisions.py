"""What becomes of a host when others are at work on it, use it, or when what was chosen does not serve there?

Run it as root against a deployed test host with two instances or more, a container of podman that nobody else uses, and
with an inventory that may be written:

    python tests/benchmarks/collisions.py --host prod1 --inventory copy-of-the-inventory --container strapi-tuner-prod1

It starts two runs of tuner and a deploy at the same moment, takes a killed deploy's lock, runs tuner while others have
connections open, and kills a worker in the gate after a roll-out. A client asks for a page all the while. Each case
says how the commands ended and what they said; then the host must run what it ran, and the inventory have the same
bytes.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

# Found through the line above.
from booted_host import LIMIT_S, Client, Place, Run, find_application, fingerprint, is_as_it_was

from tuner.errors import HostError, InputError

ROOT = Path(__file__).resolve().parents[2]
QUICK = ("--candidates", "1-2", "--duration", "2", "--connections", "20", "--effort", "quick", "--live")
OTHERS = 12
# Open at once when the load of the gate is under way; the client has one now and then.
GATE_CONNECTIONS = 3
HELD_BY = re.compile(r"is locked by \w+ on \S+ \(pid \d+\) since [^;\n]*")

# What a command ended with and said, and how it should have ended.
Said = list[tuple[str, str]]
Case = Callable[[Place, str], Said]


def deploy(place: Place, *options: str) -> list[str]:
    """The command line of a deploy."""
    playbook = Path(sys.executable).parent / "ansible-playbook"
    return [str(playbook), "-i", str(place.inventory), "--limit", place.host, str(ROOT / "deploy.yml"), *options]


def start(command: Sequence[str]) -> subprocess.Popen[str]:
    """Start a command in a session of its own, so that all of it can be killed."""
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def end(name: str, process: subprocess.Popen[str]) -> tuple[str, str]:
    """Wait for the end of a command: its name with its exit code, and who it says holds the lock, or its last line."""
    output = process.communicate(timeout=LIMIT_S)[0]
    held = HELD_BY.search(output)
    last = (output.strip().splitlines() or [""])[-1]
    return f"{name} ended with {process.returncode}", held.group() if held else last


def three_at_once(place: Place, _: str) -> Said:
    """Two runs and a deploy begin at the same moment."""
    run = place.tuner("recommend", "--no-write", *QUICK)
    other = [part if part != str(place.results) else f"{place.results}-other" for part in run]
    many = {"run": start(run), "other run": start(other), "deploy": start(deploy(place))}
    said = [end(name, process) for name, process in many.items()]
    done = [words for words, line in said if words.endswith(" 0")]
    if not done:
        raise SystemExit(f"nobody was done: {said}")
    for words, line in said:
        if words not in done and not HELD_BY.match(line):
            raise SystemExit(f"{words}, and does not say who holds the lock: {line}")
    return said


def deploy_killed(place: Place, _: str) -> Said:
    """A deploy is killed under its lock; the next one is refused, and may break it."""
    first = start(deploy(place))
    deadline = time.monotonic() + LIMIT_S
    while not place.is_locked():  # each look takes a tenth of a second
        if first.poll() is not None or time.monotonic() > deadline:
            raise SystemExit("the deploy ended before its lock was seen")
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    said = [
        end("next deploy", start(deploy(place))),
        end("run", start(place.tuner("recommend", "--no-write", *QUICK))),
        end("deploy that breaks the lock", start(deploy(place, "--extra-vars", "lease_break=true"))),
    ]
    codes = [words.rpartition(" ")[2] for words, _ in said]
    if codes[0] == "0" or codes[1] != str(InputError.exit_code) or codes[2] != "0":
        raise SystemExit(f"not as promised: {said}")
    return said


def in_use(place: Place, url: str) -> Said:
    """Others have connections open, and nobody has said that this is known."""
    parts = urlsplit(url)
    with ExitStack() as others:
        for _ in range(OTHERS):
            others.enter_context(socket.create_connection((parts.hostname or "", parts.port or 80)))
        said = [end("run without --live", start(place.tuner("recommend", "--no-write", *QUICK[:-1])))]
    if not said[0][0].endswith(f" {InputError.exit_code}"):
        raise SystemExit(f"not refused: {said}")
    return said


def gate_fails(place: Place, url: str) -> Said:
    """A worker dies under the load with which the chosen number is seen serving, once it was written and rolled out."""
    objective = ("--objective", "latency", "--rate", "60", "--slo", "p99=5s")
    with Run(place.tuner("recommend", *QUICK, *objective)) as run:
        run.said[Run.GATE].wait(LIMIT_S)
        while place.connections(url) < GATE_CONNECTIONS:  # as above
            if run.has_ended():
                raise SystemExit(f"there was no gate: {run.last}")
        place.inside("kill", "-KILL", place.pid_of("server.js")[0])
    if run.process.returncode != HostError.exit_code:
        raise SystemExit(f"the gate let it pass: {run.process.returncode}, {run.last}")
    return [(f"run ended with {run.process.returncode}", run.last)]


CASES: dict[str, Case] = {
    "two runs and a deploy at once": three_at_once,
    "a deploy was killed": deploy_killed,
    "others use the application": in_use,
    "a worker dies in the gate": gate_fails,
}


@contextmanager
def left_alone(place: Place, url: str, instances: int) -> Iterator[None]:
    """Whatever happens inside, the host must come to run what it ran, and the inventory must not change."""
    before = fingerprint(place.inventory)
    yield
    deadline = time.monotonic() + LIMIT_S
    while not is_as_it_was(place, url, instances):  # half a second
        if time.monotonic() > deadline:
            raise SystemExit("the host is not as it was")
    if fingerprint(place.inventory) != before:
        raise SystemExit("the inventory is another")


def main() -> None:
    """Go through all cases, and print what was said."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--host", required=True)
    parser.add_argument("--inventory", type=Path, required=True)
    parser.add_argument("--container", required=True)
    parser.add_argument("--case", action="append", choices=list(CASES), help="only these  [default: all]")
    options = parser.parse_args()
    url, instances = find_application(options.host, options.inventory)
    with tempfile.TemporaryDirectory(prefix="collisions-") as folder:
        place = Place(options.host, options.inventory.absolute(), options.container, Path(folder) / "results")
        for name in options.case or CASES:
            began = time.monotonic()
            with Client(url) as client, left_alone(place, url, instances):
                said = CASES[name](place, url)
            print(f"{name}: {time.monotonic() - began:.0f} s, {client.sent} requests of the client, {client.lost} lost")
            for words, line in said:
                print(f"    {words}: {line}")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
