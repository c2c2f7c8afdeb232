"""What does a trial cost beside its load? Trials of a deployed application, up and down, and where their time goes.

Run it against a deployed host, over SSH or on this machine:

    python tests/benchmarks/trial_overhead.py --host prod1 --inventory inventories/production

It goes from two instances to one and back, so that every other trial boots a worker, and leaves the count that it
found. The tasks are Ansible's own times; what is left of the wall time is ansible-playbook's start and end, and the
requests that were under way when the load ended. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

from tuner import assembly
from tuner.measuring import VARIABLE
from tuner.model import Load, Trial
from tuner.trials import Setting, to_trial

LOAD_TASK = "Load the application and measure what it answers"
DOWN, UP = 1, 2


def measure(options: argparse.Namespace) -> list[tuple[Trial, dict[str, float]]]:
    """Measure all trials: each with what its tasks took, in seconds."""
    found = []
    with assembly.open_session(options.host, options.inventory, verbose=False) as session:
        before = session.target.inspect()
        load = Load(duration_s=options.duration)
        try:
            for number in range(2 * options.pairs + 1):
                session.interruption.check()
                instances = UP if number % 2 == 0 else DOWN
                began = time.monotonic()
                raw = session.target.trial({VARIABLE: instances}, load)
                setting = Setting(number, number, instances, attempt=1, cpu_budget=before.capacity.cpu_budget)
                trial = to_trial(raw, setting, [], wall_s=time.monotonic() - began)
                if number:  # the first one goes from wherever the host was
                    found.append((trial, raw["task_s"]))
                    print(f"{number:>3}  {instances} instances  {trial.spent}", flush=True)
        finally:
            session.target.restore(before.deployment.instances)
    return found


def report(found: list[tuple[Trial, dict[str, float]]]) -> str:
    """The table of tasks, and the line of JSON: medians in seconds."""
    down = [(trial, tasks) for trial, tasks in found if trial.instances == DOWN]
    loads_s = [trial.spent.measuring_s + trial.spent.settling_s for trial, _ in down]
    lines = [f"a step down, {len(down)} times: median seconds"]
    names = dict.fromkeys(name for _, tasks in down for name in tasks)
    for name in names:
        times = [tasks.get(name, 0.0) for _, tasks in down]
        if name == LOAD_TASK:
            times = [task_s - load_s for task_s, load_s in zip(times, loads_s, strict=True)]
        label = f"{name}, beside the load itself" if name == LOAD_TASK else name
        lines.append(f"{statistics.median(times):>8.2f}  {label[:100]}")
    rest = [trial.wall_s - sum(tasks.values()) for trial, tasks in down]
    lines.append(f"{statistics.median(rest):>8.2f}  start and end of ansible-playbook")
    up = [trial for trial, _ in found if trial.instances == UP]
    summary = {
        "step_down_beside_load_s": round(statistics.median(trial.spent.rest_s for trial, _ in down), 2),
        "step_up_booting_s": round(statistics.median(trial.spent.booting_s for trial in up), 2),
        "step_up_rest_s": round(statistics.median(trial.spent.rest_s for trial in up), 2),
    }
    return "\n".join([*lines, json.dumps(summary)])


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", required=True)
    parser.add_argument("--inventory", type=Path)
    parser.add_argument("--pairs", type=int, default=5, help="steps up and steps down  [default: %(default)s]")
    parser.add_argument("--duration", type=float, default=4.0, help="measured seconds of a trial")
    print(report(measure(parser.parse_args())))


if __name__ == "__main__":
    main()
