"""How surely do the sensors notice interference? Trials of a deployed application, some of them beside a CPU hog.

Run it against a deployed test host, for example the demo:

    python tests/benchmarks/interference.py --host demo --trials 40

The number of instances stays what it is. It prints a line a trial, a table, and last one JSON line.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tuner import assembly
from tuner.model import Load, Trial, Usage
from tuner.trials import Setting, to_trial

HOG = "while True: pass"


@dataclass(frozen=True)
class Seen:
    """One trial: whether the hog ran, and what the sensors said."""

    hog: bool
    trial: Trial


@contextmanager
def hog(*, on: bool) -> Iterator[None]:
    """A process that uses one CPU as long as this is open."""
    if not on:
        yield
        return
    with subprocess.Popen([sys.executable, "-c", HOG]) as process:
        try:
            yield
        finally:
            process.kill()


def measure(options: argparse.Namespace) -> list[Seen]:
    """Measure all trials, and print each."""
    dice = random.Random(options.seed)
    seen: list[Seen] = []
    with assembly.open_session(options.host, options.inventory, verbose=False) as session:
        found = session.target.inspect()
        instances, budget = found.deployment.instances, found.capacity.cpu_budget
        load = Load(duration_s=options.duration)
        earlier: list[Usage] = []
        for number in range(1, options.trials + 1):
            session.interruption.check()
            # The first trial is what the others are compared with.
            on = number > 1 and dice.random() < options.share
            began = time.monotonic()
            with hog(on=on):
                raw = session.target.trial({"strapi_instances": instances}, load)
            setting = Setting(number, number, instances, attempt=1, cpu_budget=budget)
            trial = to_trial(raw, setting, earlier, wall_s=time.monotonic() - began)
            earlier.append(trial.usage)
            seen.append(Seen(on, trial))
            usage = trial.usage
            print(
                f"{number:>3}  hog {'on ' if on else 'off'}  {trial.throughput_rps:>7.1f} requests/s"
                f"  others {usage.foreign:.2f} CPUs  spin {1000 * (usage.slowest_spin_s or 0):>4.0f} ms"
                f"  steal {usage.steal:.3f}  {'; '.join(trial.disturbances) or 'quiet'}",
                flush=True,
            )
    return seen


def summarise(seen: list[Seen]) -> dict[str, float]:
    """Rates of detections and of false alarms."""
    with_hog = [s for s in seen if s.hog]
    without = [s for s in seen if not s.hog]
    return {
        "trials": len(seen),
        "with_hog": len(with_hog),
        "detected": sum(bool(s.trial.disturbances) for s in with_hog) / max(1, len(with_hog)),
        "false_alarms": sum(bool(s.trial.disturbances) for s in without) / max(1, len(without)),
    }


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", required=True)
    parser.add_argument("--inventory", type=Path)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--share", type=float, default=0.4, help="share of the trials beside the hog")
    parser.add_argument("--duration", type=float, default=4.0, help="measured seconds of a trial")
    parser.add_argument("--seed", type=int, default=1)
    summary = summarise(measure(parser.parse_args()))
    print()
    print(f"{'trials':<16}{summary['trials']:>8.0f}")
    print(f"{'beside the hog':<16}{summary['with_hog']:>8.0f}   detected     {summary['detected']:>6.1%}")
    print(
        f"{'quiet':<16}{summary['trials'] - summary['with_hog']:>8.0f}   false alarms {summary['false_alarms']:>6.1%}"
    )
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
