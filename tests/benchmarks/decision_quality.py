"""How good and how dear the decision is: right, confidently wrong, trials and simulated time, on random hosts.

    python tests/benchmarks/decision_quality.py --hosts 100 --budgets 1,4,16,64 --raw runs.jsonl

A choice is right when its true throughput is at least 93 % of the best and no smaller count has 97 % or more. For each
CPU budget and kind of noise it prints how often `tuner` was right, confidently wrong (it chose, and was not right) and
unresolved, and the medians of trials and simulated time; then the same for what people do today, on the same hosts.
Hosts of other shapes than those that the decision expects come last (--shapes).

All runs are kept in a file (--raw), one a line, with a hash of the code that decided. What is there already and was
decided by the same code is not run again, so that a later call adds hosts to the cells. It ends in time (--most-s).
--write puts the table of all runs in that file into a Markdown file, --plot draws the growth of trials and time over
the budget.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tuner.errors import InputError
from tuner.simulate import METHODS, simulate
from tuner.simulated_host import CELLS, SHAPES, is_right, random_host

ROOT = Path(__file__).resolve().parents[2]
BUDGETS = (1, 2, 4, 8, 16, 32, 64, 128)
# What a run depends on.
DECIDES = ("curve", "likelihood", "posterior", "search", "limits", "procedure", "simulated_host", "simulate")
CHUNK = 10
# What the decision must reach: by noise the share of right ones, by CPUs the most median trials and minutes.
LEAST_RIGHT = {"quiet": 0.98, "bursty": 0.97}
MOST_WRONG = 0.01
MOST_TRIALS = {1: 12, 2: 12, 4: 12, 8: 24, 16: 24, 32: 32, 64: 36, 128: 44}
MOST_MINUTES = {1: 6, 2: 6, 4: 6, 8: 6, 32: 12, 128: 25}
INTRO = """# Decision quality

How often `tuner` chooses rightly on random simulated hosts, how many trials and how much simulated time that takes,
and the same for what people do today. A choice is right when its true throughput is at least 93 % of the best and no
smaller count has 97 %. Quiet hosts vary by 2 to 3 % from trial to trial, moderate ones by 6 %; on bursty ones 4 to 12 %
of the trials start a burst of one to three that takes 15 to 50 %, a fifth of it unseen; on drifting ones throughput
wanders. A simulated trial measures for 8 s, so that a run with longer trials takes more minutes. Written by
`tests/benchmarks/decision_quality.py`; a later call adds hosts.

"""
HEADER = (
    "| noise | CPUs | method | hosts | right | confidently wrong | unresolved "
    "| trials: median, 90 % | minutes: median, 90 % |\n"
    "|---|---|---|---|---|---|---|---|---|"
)

Run = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """One kind of host and one method."""

    noise: str
    shape: str
    budget: int
    method: str


def code_hash() -> str:
    """A hash of the code that decides, without its comments and documentation."""
    digest = hashlib.sha256()
    for name in DECIDES:
        tree = ast.parse((ROOT / "tuner" / f"{name}.py").read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
                node.body[0] = ast.Pass()
        digest.update(ast.dump(tree).encode())
    return digest.hexdigest()[:12]


def measure(cell: Cell, seeds: Sequence[int], code: str) -> Iterator[Run]:
    """Run one method on some hosts of one cell."""
    for seed in seeds:
        model = random_host(seed, cell.budget, cell.noise, cell.shape)
        (result,) = simulate([model], method=cell.method)
        yield {
            **vars(cell),
            "seed": seed,
            "code": code,
            "verdict": result.verdict,
            "instances": result.instances,
            "right": is_right(model.throughput, result.instances),
            "trials": result.trials,
            "simulated_s": result.simulated_s,
        }


def plan(options: argparse.Namespace) -> list[Cell]:
    """The cells to measure."""
    cells = [Cell(noise, "usual", n, m) for m in options.methods for noise in options.cells for n in options.budgets]
    shaped = [shape for shape in options.shapes if shape != "usual"]
    return cells + [Cell("quiet", shape, n, "tuner") for shape in shaped for n in options.budgets]


def read_runs(path: Path) -> list[Run]:
    """The runs of earlier calls; none when there is no such file."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def add_runs(options: argparse.Namespace, runs: list[Run]) -> None:
    """Run what is missing, some hosts of each cell in turn, so that all cells have as many when the time is over."""
    began, code = time.monotonic(), code_hash()
    done = {(Cell(*(run[field] for field in Cell.__annotations__)), run["seed"]) for run in runs if run["code"] == code}
    with options.raw.open("a", encoding="utf-8") as file:
        for begin in range(options.first, options.first + options.hosts, CHUNK):
            seeds = range(begin, min(begin + CHUNK, options.first + options.hosts))
            for cell in plan(options):
                if time.monotonic() - began > options.most_s:
                    print(f"the time is over at seed {begin}", file=sys.stderr)
                    return
                for run in measure(cell, [seed for seed in seeds if (cell, seed) not in done], code):
                    runs.append(run)
                    file.write(json.dumps(run) + "\n")
                file.flush()


def line(cell: Cell, runs: Sequence[Run]) -> str:
    """The runs of one cell as a line of a Markdown table."""
    count = len(runs)
    sure = [run for run in runs if run["verdict"] != "unresolved"]
    right = sum(run["right"] for run in sure)
    trials, minutes = sorted(run["trials"] for run in runs), sorted(run["simulated_s"] / 60 for run in runs)
    late = min(count - 1, round(0.9 * count))
    columns = (
        cell.noise if cell.shape == "usual" else f"{cell.noise}, {cell.shape}",
        str(cell.budget),
        cell.method,
        str(count),
        f"{right / count:.1%}",
        f"{(len(sure) - right) / count:.1%}",
        f"{1 - len(sure) / count:.1%}",
        f"{median(trials):.0f}, {trials[late]}",
        f"{median(minutes):.1f}, {minutes[late]:.1f}",
    )
    return f"| {' | '.join(columns)} |"


def by_cell(runs: Sequence[Run]) -> dict[Cell, list[Run]]:
    """The runs of each cell, in the order of the table."""
    groups: dict[Cell, list[Run]] = {}
    for run in runs:
        groups.setdefault(Cell(*(run[field] for field in Cell.__annotations__)), []).append(run)
    kinds, shapes, methods = list(CELLS), list(SHAPES), list(METHODS)

    def place(cell: Cell) -> tuple[int, int, int, int]:
        return methods.index(cell.method), shapes.index(cell.shape), kinds.index(cell.noise), cell.budget

    return {cell: groups[cell] for cell in sorted(groups, key=place)}


def table(runs: Sequence[Run]) -> str:
    """All runs as a Markdown table."""
    return "\n".join([HEADER, *(line(cell, mine) for cell, mine in by_cell(runs).items())])


def missed(runs: Sequence[Run]) -> list[str]:
    """What of the bars the tuner does not reach on the usual hosts, as sentences."""
    found = []
    for cell, mine in by_cell(runs).items():
        if (cell.method, cell.shape) != ("tuner", "usual"):
            continue
        sure = [run for run in mine if run["verdict"] != "unresolved"]
        right = sum(run["right"] for run in sure)
        minutes, trials = median(run["simulated_s"] / 60 for run in mine), median(run["trials"] for run in mine)
        where = f"{cell.noise}, {cell.budget} CPUs ({len(mine)} hosts)"
        if (share := right / len(mine)) < LEAST_RIGHT.get(cell.noise, 0.0):
            found.append(f"{where}: {share:.1%} right, and {LEAST_RIGHT[cell.noise]:.0%} are wanted")
        if (share := (len(sure) - right) / len(mine)) > MOST_WRONG:
            found.append(f"{where}: {share:.1%} confidently wrong, and {MOST_WRONG:.0%} is allowed")
        if cell.noise == "quiet" and trials > MOST_TRIALS[cell.budget]:
            found.append(f"{where}: {trials:.0f} median trials, and {MOST_TRIALS[cell.budget]} are wanted")
        if cell.noise == "quiet" and minutes > MOST_MINUTES.get(cell.budget, minutes):
            found.append(f"{where}: {minutes:.1f} median minutes, and {MOST_MINUTES[cell.budget]} are wanted")
    return found


def page(runs: Sequence[Run], plot: Path | None) -> str:
    """The table with what it means, in Markdown."""
    lines = missed(runs)
    bars = "".join(f"- {line}\n" for line in lines) or "None, on the hosts below.\n"
    image = f"![Growth of trials and time with the CPUs]({plot.name})\n\n" if plot else ""
    return f"{INTRO}{image}What is wanted and not reached:\n\n{bars}\n{table(runs)}\n"


def draw(runs: Sequence[Run], path: Path) -> None:
    """Draw the median trials and time over the CPU budget."""
    import_module("matplotlib").use("Agg")  # only a plot needs it
    plt = import_module("matplotlib.pyplot")
    figure, axes = plt.subplots(1, 2, figsize=(10, 4))
    groups = by_cell(runs)
    for noise in CELLS:
        mine = {cell: found for cell, found in groups.items() if cell == Cell(noise, "usual", cell.budget, "tuner")}
        budgets = [cell.budget for cell in mine]
        axes[0].plot(budgets, [median(run["trials"] for run in found) for found in mine.values()], "o-", label=noise)
        minutes = [median(run["simulated_s"] for run in found) / 60 for found in mine.values()]
        axes[1].plot(budgets, minutes, "o-", label=noise)
    for axis, label in zip(axes, ("median trials", "median simulated minutes"), strict=True):
        axis.set_xscale("log", base=2)
        axis.set_xticks(BUDGETS, [str(budget) for budget in BUDGETS])
        axis.set_xlabel("CPU budget")
        axis.set_ylabel(label)
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
        axis.legend()
    figure.tight_layout()
    figure.savefig(path)


def listed(known: Sequence[str]) -> Callable[[str], list[str]]:
    """A parser of comma-separated names, each of them known; `all` is all of them."""

    def parse_names(text: str) -> list[str]:
        names = list(known) if text == "all" else [name for name in text.split(",") if name]
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
        return names

    return parse_names


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=50, help="hosts in each cell; 0 adds none to those in --raw")
    parser.add_argument("--first", type=int, default=0, help="seed of the first host")
    parser.add_argument("--budgets", type=lambda text: [int(part) for part in text.split(",")], default=list(BUDGETS))
    parser.add_argument("--cells", type=listed(list(CELLS)), default=list(CELLS))
    parser.add_argument("--methods", type=listed(list(METHODS)), default=["tuner"])
    parser.add_argument("--shapes", type=listed(list(SHAPES)), default=[])
    parser.add_argument("--most-s", type=float, default=1800.0, help="begin no further cell after so many seconds")
    parser.add_argument("--raw", type=Path, required=True, help="file of all runs, one JSON object a line")
    parser.add_argument("--write", type=Path, help="Markdown file for the table")
    parser.add_argument("--plot", type=Path, help="image file for the growth over the budget")
    return parser.parse_args(arguments)


def main() -> int:
    """Measure and print."""
    options = parse()
    runs = read_runs(options.raw)
    try:
        add_runs(options, runs)
    except InputError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    code = code_hash()
    current = [run for run in runs if run["code"] == code]
    print(table(current), *missed(current), sep="\n")
    if len(current) < len(runs):
        print(f"{len(runs) - len(current)} runs were decided by other code and are left out.", file=sys.stderr)
    if options.write:
        options.write.write_text(page(current, options.plot), encoding="utf-8")
    if options.plot:
        draw(current, options.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
