"""How good and how dear the decision is: right, confidently wrong, trials and simulated time, on random hosts.

    python tests/benchmarks/decision_quality.py --hosts 100 --budgets 1,4,16,64

A choice is right when its true throughput is at least 93 % of the best and no smaller count has 97 % or more. For each
CPU budget and kind of noise it prints how often `tuner` was right, confidently wrong (it chose, and was not right) and
unresolved, and the medians of trials and simulated time; then the same for what people do today, on the same hosts.
Hosts of other shapes than those that the decision expects come last (--shapes). It ends in time (--most-s): what was
not begun by then is left out, and said to be. --write puts the tables into a Markdown file, --plot draws the growth
of trials and time over the budget (needs matplotlib).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tuner.errors import InputError
from tuner.simulate import METHODS, Summary, simulate, summarise
from tuner.simulated_host import CELLS, SHAPES, random_host

BUDGETS = (1, 2, 4, 8, 16, 32, 64, 128)
HEADER = (
    "| hosts | CPUs | method | right | confidently wrong | unresolved | median trials | median simulated time |\n"
    "|---|---|---|---|---|---|---|---|"
)


@dataclass(frozen=True)
class Row:
    """One cell of the benchmark."""

    cell: str
    shape: str
    budget: int
    method: str
    summary: Summary

    def line(self) -> str:
        """The cell as a line of a Markdown table."""
        found = self.summary
        kind = self.cell if self.shape == "usual" else f"{self.cell}, {self.shape}"
        return (
            f"| {kind} | {self.budget} | {self.method} | {found.right:.1%} | {found.confidently_wrong:.1%} "
            f"| {found.unresolved:.1%} | {found.trials:.0f} | {found.simulated_s / 60:.1f} min |"
        )


def measure(planned: tuple[str, str, int, str], *, hosts: int, first: int) -> Row:
    """Run one method on the hosts of one cell, as `plan` has it."""
    cell, shape, budget, method = planned
    models = [random_host(first + number, budget, cell, shape) for number in range(hosts)]
    return Row(cell, shape, budget, method, summarise(models, list(simulate(models, method=method))))


def plan(options: argparse.Namespace) -> Iterator[tuple[str, str, int, str]]:
    """The cells to measure, the most important first."""
    for cell in options.cells:
        for budget in options.budgets:
            yield cell, "usual", budget, "tuner"
    for method in options.methods:
        if method != "tuner":
            for cell in options.cells:
                for budget in options.budgets:
                    yield cell, "usual", budget, method
    for shape in options.shapes:
        if shape != "usual":
            for budget in options.budgets:
                yield "quiet", shape, budget, "tuner"


def listed(known: Sequence[str]) -> Callable[[str], list[str]]:
    """A parser of comma-separated names, each of them known; `all` is all of them."""

    def parse(text: str) -> list[str]:
        names = list(known) if text == "all" else [name for name in text.split(",") if name]
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
        return names

    return parse


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=50, help="hosts in each cell")
    parser.add_argument("--first", type=int, default=0, help="seed of the first host")
    parser.add_argument("--budgets", type=lambda text: [int(part) for part in text.split(",")], default=list(BUDGETS))
    parser.add_argument("--cells", type=listed(list(CELLS)), default=list(CELLS))
    parser.add_argument("--methods", type=listed(list(METHODS)), default=["article", "vcpus", "max"])
    parser.add_argument("--shapes", type=listed(list(SHAPES)), default=[])
    parser.add_argument("--most-s", type=float, default=1800.0, help="begin no further cell after so many seconds")
    parser.add_argument("--write", type=Path, help="Markdown file for the tables")
    parser.add_argument("--plot", type=Path, help="image file for the growth over the budget")
    options = parser.parse_args(arguments)
    if options.hosts < 1:
        parser.error("--hosts must be 1 or more")
    return options


def draw(rows: Sequence[Row], path: Path) -> None:
    """Draw the median trials and time over the CPU budget."""
    import_module("matplotlib").use("Agg")  # only a plot needs it
    plt = import_module("matplotlib.pyplot")
    figure, axes = plt.subplots(1, 2, figsize=(10, 4))
    for cell in dict.fromkeys(row.cell for row in rows):
        mine = [row for row in rows if (row.cell, row.shape, row.method) == (cell, "usual", "tuner")]
        budgets = [row.budget for row in mine]
        axes[0].plot(budgets, [row.summary.trials for row in mine], marker="o", label=cell)
        axes[1].plot(budgets, [row.summary.simulated_s / 60 for row in mine], marker="o", label=cell)
    for axis, label in zip(axes, ("median trials", "median simulated minutes"), strict=True):
        axis.set_xscale("log", base=2)
        axis.set_xlabel("CPU budget")
        axis.set_ylabel(label)
        axis.set_ylim(bottom=0)
        axis.legend()
    figure.tight_layout()
    figure.savefig(path)


def main() -> int:
    """Measure and print."""
    options = parse()
    began, rows, left_out = time.monotonic(), [], 0
    print(HEADER, flush=True)
    for planned in plan(options):
        if time.monotonic() - began > options.most_s:
            left_out += 1
            continue
        try:
            row = measure(planned, hosts=options.hosts, first=options.first)
        except InputError as error:
            print(error, file=sys.stderr)
            return error.exit_code
        rows.append(row)
        print(row.line(), flush=True)
    note = f"{options.hosts} hosts a cell, seeds from {options.first}; {time.monotonic() - began:.0f} s."
    if left_out:
        note += f" {left_out} cells were left out: the time was over."
    print(note)
    if options.write:
        options.write.write_text("\n".join([HEADER, *(row.line() for row in rows), "", note, ""]), encoding="utf-8")
    if options.plot:
        draw(rows, options.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
