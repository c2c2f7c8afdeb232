"""What is left of a host when something goes wrong in a run? Faults at random moments of real runs, and their outcome.

Run it as root against a deployed test host, a container of podman that nobody else uses:

    python tests/benchmarks/faults.py --host prod1 --inventory molecule/default/inventory \
        --container strapi-tuner-prod1 --runs 50 killed --runs 3 "ssh cut"

Each run is `tuner recommend --no-write`, and the fault strikes between its first trial and its end. A run that goes on
as if nothing had happened is interrupted after a minute. Then the host is left alone until it runs what it ran before,
all workers online and answering, its lock gone; what that took counts from the fault, or from the interruption. A
client asks for a page all the while, 20 times a second on a connection of its own, and counts what it did
not get. At the end of each: the inventory must have the same bytes, and `tuner restore` must find the journal in order.
The table has a row for each fault, and the last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

# Found through the line above.
from booted_host import LIMIT_S, PM2_HOME, Client, Place, Run, find_application, fingerprint, is_as_it_was

from tuner.errors import UnresolvedError

BEGIN_LIMIT_S = 120.0
WORKERS_KILLED = 5
# A run that goes on for longer after a fault was not stopped by it.
GOES_ON_S = 60.0
# How long a run goes on after its first trial has begun; faults strike within that.
SPAN_S = 40.0

# Lets a fault strike, for as long as it is open.
Fault = Callable[[Place, Run], AbstractContextManager[None]]


def at_once(strike: Callable[[Place, Run], None]) -> Fault:
    """A fault that is over once it has struck."""

    def fault(place: Place, run: Run) -> AbstractContextManager[None]:
        strike(place, run)
        return nullcontext()

    return fault


def kill_tuner(_: Place, run: Run) -> None:
    """The tuner is gone at once; what it had started goes on."""
    run.process.kill()


def kill_group(_: Place, run: Run) -> None:
    """The tuner and all that it had started on the controller are gone at once."""
    for process in psutil.Process(run.process.pid).children(recursive=True):
        process.kill()
    run.process.kill()


def kill_playbook(_: Place, run: Run) -> None:
    """ansible-playbook is gone at once."""
    for process in psutil.Process(run.process.pid).children(recursive=True):
        if any("ansible-playbook" in part for part in process.cmdline()[:3]):
            process.kill()
            return


@contextmanager
def cut_ssh(place: Place, _: Run) -> Iterator[None]:
    """The network is gone, and comes back when the tuner has given up."""
    place.network("down")
    try:
        yield
    finally:
        place.network("up")


def kill_daemon(place: Place, _: Run) -> None:
    """pm2's daemon is gone at once, and with it the connections that it hands to the workers."""
    place.inside("kill", "-KILL", *place.pid_of("PM2 v.*God Daemon"))


def kill_database(place: Place, _: Run) -> None:
    """Every process of PostgreSQL is gone at once."""
    place.inside("systemctl", "kill", "--signal=KILL", "postgresql@15-main.service")


def kill_worker(place: Place, run: Run) -> None:
    """Workers are gone at once, one after the other, those that pm2 starts in their place too."""
    known: set[str] = set()
    deadline = time.monotonic() + LIMIT_S
    while len(known) < WORKERS_KILLED and not run.has_ended() and time.monotonic() < deadline:
        # Whom pm2 has started since; each look takes a tenth of a second.
        for pid in [pid for pid in place.pid_of("server.js") if pid not in known][:1]:
            place.inside("kill", "-KILL", pid)
            known.add(pid)


def reboot(place: Place, _: Run) -> None:
    """The host is started anew."""
    subprocess.run(["podman", "restart", "--time", "5", place.container], check=True, capture_output=True)


def interrupt(_: Place, run: Run) -> None:
    """The user presses Ctrl-C."""
    run.process.send_signal(signal.SIGINT)


def interrupt_twice(_: Place, run: Run) -> None:
    """The user presses Ctrl-C, and again while the host is brought back."""
    run.process.send_signal(signal.SIGINT)
    run.said[Run.RESTORING].wait(LIMIT_S)
    run.process.send_signal(signal.SIGINT)


def terminate(_: Place, run: Run) -> None:
    """SIGTERM, as a service manager would."""
    run.process.send_signal(signal.SIGTERM)


@contextmanager
def fill_controller(place: Place, _: Run) -> Iterator[None]:
    """The disk of the records is full until the tuner has ended."""
    filling = place.results / "filling"
    with filling.open("wb") as file:
        try:
            while True:
                file.write(bytes(65536))
                file.flush()
        except OSError:
            pass
    try:
        yield
    finally:
        filling.unlink()


@contextmanager
def fill_host(place: Place, _: Run) -> Iterator[None]:
    """The disk of pm2 and of the lease is full until the tuner has ended."""
    place.inside("sh", "-c", f"cat /dev/zero > {PM2_HOME}/filling")
    try:
        yield
    finally:
        place.inside("rm", f"{PM2_HOME}/filling")


FAULTS: dict[str, Fault] = {
    "killed": at_once(kill_tuner),
    "group killed": at_once(kill_group),
    "playbook killed": at_once(kill_playbook),
    "ssh cut": cut_ssh,
    "pm2 killed": at_once(kill_daemon),
    "database killed": at_once(kill_database),
    "worker killed": at_once(kill_worker),
    "host restarted": at_once(reboot),
    "Ctrl-C": at_once(interrupt),
    "Ctrl-C twice": at_once(interrupt_twice),
    "SIGTERM": at_once(terminate),
    "controller's disk full": fill_controller,
    "host's disk full": fill_host,
}


@dataclass(frozen=True)
class Seen:
    """What came of one fault.

    Attributes:
        fault: Its name.
        at_s: When it struck, from the first trial on, in seconds.
        exit_code: How the run ended; negative where a signal ended it.
        restored_s: When the host ran again what it had run, from the fault on; None where it did not.
        went_on: Whether the run went on after the fault.
        sent: Requests of the client.
        lost: Those that got no good answer.
        wrong: What was not as it should be, or "".
    """

    fault: str
    at_s: float
    exit_code: int | None
    restored_s: float | None
    went_on: bool
    sent: int
    lost: int
    wrong: str


def strike(place: Place, name: str, at_s: float, url: str, instances: int) -> Seen | None:
    """Start a run, let a fault strike, and see what comes of it; None where the run had ended before."""
    before = fingerprint(place.inventory)
    command = place.tuner(
        *("recommend", "--no-write", "--candidates", "1-3", "--duration", "2", "--connections", "20"),
        *("--effort", "thorough", "--keep-disturbed", "--live"),
    )
    with Client(url) as client, Run(command) as run:
        if not run.said[Run.BEGUN].wait(BEGIN_LIMIT_S):
            raise SystemExit(f"no trial has begun within {BEGIN_LIMIT_S:g} s")
        if run.ends_within(at_s):
            if run.process.returncode in (0, UnresolvedError.exit_code):
                return None
            raise SystemExit(f"a run ended with {run.process.returncode} before anything struck: {run.last}")
        struck = time.monotonic()
        with FAULTS[name](place, run):
            went_on, restored_s = not run.ends_within(GOES_ON_S), None
            if went_on:
                struck = time.monotonic()
                interrupt(place, run)
                run.ends_within(LIMIT_S)
        while restored_s is None and time.monotonic() < struck + LIMIT_S:
            # A look takes half a second, most of it that of pm2.
            if run.ends_within(1.0) and is_as_it_was(place, url, instances):
                restored_s = time.monotonic() - struck
    wrong = [] if restored_s is not None else ["not as it was"]
    if fingerprint(place.inventory) != before:
        wrong.append("the inventory is another")
    done = subprocess.run(place.tuner("restore"), capture_output=True, text=True, check=False)
    if done.returncode or list(place.results.glob("*/unfinished.json")):
        wrong.append(f"restore: {done.stderr.strip()}")
    elif not is_as_it_was(place, url, instances):
        wrong.append("not as it was after restore")
    counted = (client.sent, client.lost)
    return Seen(name, at_s, run.process.returncode, restored_s, went_on, *counted, "; ".join(wrong))


def table(seen: list[Seen]) -> str:
    """A row for each fault."""
    form = "{:<24} {:>5} {:>7} {:>9} {:>9} {:>8} {:>8} {:>6} {:>10}  {}"
    names = ("fault", "times", "went on", "restored", "median s", "worst s", "asked", "lost", "exit codes", "wrong")
    lines = [form.format(*names)]
    for name in dict.fromkeys(one.fault for one in seen):
        rows = [one for one in seen if one.fault == name]
        times = [one.restored_s for one in rows if one.restored_s is not None]
        codes = ",".join(str(code) for code in sorted({one.exit_code for one in rows if one.exit_code is not None}))
        lines.append(
            form.format(
                name,
                len(rows),
                sum(one.went_on for one in rows),
                len(times),
                f"{statistics.median(times):.1f}" if times else "-",
                f"{max(times):.1f}" if times else "-",
                sum(one.sent for one in rows),
                sum(one.lost for one in rows),
                codes,
                "; ".join(sorted({one.wrong for one in rows if one.wrong})) or "-",
            )
        )
    return "\n".join(lines)


def main() -> None:
    """Let faults strike, and print what came of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--host", required=True)
    parser.add_argument("--inventory", type=Path, required=True)
    parser.add_argument("--container", required=True)
    parser.add_argument("--runs", nargs=2, action="append", metavar=("TIMES", "FAULT"), required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--raw", type=Path, help="file that gets one JSON object for each fault")
    options = parser.parse_args()
    draw = random.Random(options.seed)
    url, instances = find_application(options.host, options.inventory)
    seen: list[Seen] = []
    with tempfile.TemporaryDirectory(prefix="faults-") as folder, ExitStack() as afterwards:
        results = Path(folder) / "results"
        results.mkdir()
        place = Place(options.host, options.inventory.absolute(), options.container, results)
        wanted = {name for _, name in options.runs}
        if "controller's disk full" in wanted:  # nothing but the records is on it
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(results)], check=True)
            afterwards.callback(subprocess.run, ["umount", str(results)], check=True)
        if "host's disk full" in wanted:
            afterwards.enter_context(place.small_disk())
        for times, name in options.runs:
            left = int(times)
            while left:
                one = strike(place, name, draw.uniform(0, SPAN_S), url, instances)
                if one is None:
                    print(f"the run had ended before {name} could strike; once more", flush=True)
                    continue
                left -= 1
                seen.append(one)
                print(f"{len(seen):>3} {one}", flush=True)
                if options.raw:
                    with options.raw.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(one.__dict__) + "\n")
    print(table(seen))
    print(json.dumps({"faults": len(seen), "wrong": sum(bool(one.wrong) for one in seen)}))


if __name__ == "__main__":
    main()
