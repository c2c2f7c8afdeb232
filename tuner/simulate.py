"""The use case `simulate`: the decision, and what people do today, on hosts whose truth is known."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from importlib import import_module
from statistics import fmean, median
from typing import Any

from tuner.errors import InputError
from tuner.model import Verdict
from tuner.procedure import Procedure
from tuner.search import Costs, Search
from tuner.simulated_host import MEASURE_S, WARM_S, HostModel, Noise, SimulatedHost, is_right
from tuner.wording import printable

# How often the method of the article measures each count.
ARTICLE_RUNS = 3
# TPE gets as many trials as the tuner's median for that many CPUs.
OPTUNA_TRIALS = ((4, 12), (16, 24), (32, 32), (64, 36))
OPTUNA_TRIALS_BEYOND = 44
MOST_COUNT = 4096
TOLERANCE = 0.05


@dataclass(frozen=True)
class SimulatedResult:
    """What came of one run on one host.

    Attributes:
        name: The host.
        verdict: How sure it is; `chosen` for the methods that do not say.
        instances: The chosen count; with `unresolved` the likeliest one, which would not be written.
        trials: Trials measured, repeated ones too.
        simulated_s: What they took on the simulated clock.
        stop_reason: Why the run ended.
    """

    name: str
    verdict: str
    instances: int | None
    trials: int
    simulated_s: float
    stop_reason: str

    def to_json(self) -> dict[str, Any]:
        """The result as one line of output."""
        return asdict(self)


@dataclass(frozen=True)
class Summary:
    """All runs together.

    Attributes:
        runs: Number of runs.
        right: Share of runs with a right choice that was not left unresolved, 0 to 1.
        confidently_wrong: Share that chose and was not right.
        unresolved: Share that did not choose.
        trials: Median number of trials.
        simulated_s: Median simulated time.
    """

    runs: int
    right: float
    confidently_wrong: float
    unresolved: float
    trials: float
    simulated_s: float

    def sentence(self) -> str:
        """The summary for a person."""
        runs = "1 run" if self.runs == 1 else f"{self.runs} runs"
        return (
            f"{runs}: {self.right:.1%} right, {self.confidently_wrong:.1%} confidently wrong, "
            f"{self.unresolved:.1%} unresolved; median {self.trials:.0f} trials, {self.simulated_s / 60:.1f} min"
        )


def run_tuner(host: SimulatedHost, seed: int) -> SimulatedResult:
    """The procedure of `recommend`."""
    model = host.model
    costs = Costs(boot_s=model.boot_s, cold_s=model.warmup_s, warm_s=WARM_S, measure_s=MEASURE_S)
    search = Search(model.counts, model.cpu_budget, current=model.current, tolerance=TOLERANCE, seed=seed, costs=costs)
    procedure = Procedure(search, model.counts, model.current, tolerance=TOLERANCE, memory_bytes=sys.maxsize)
    while (instances := procedure.next()) is not None:
        procedure.note(host.trial(instances))
    decision = procedure.decision()
    return _result(host, decision.guess, decision.stop_reason, decision.verdict)


def run_article(host: SimulatedHost, _: int) -> SimulatedResult:
    """Each count in turn, three runs, the best mean."""
    means = {n: fmean(host.trial(n).throughput_rps for _ in range(ARTICLE_RUNS)) for n in host.model.counts}
    best = max(means, key=lambda count: means[count])
    return _result(host, best, f"{ARTICLE_RUNS} runs of each count")


def run_vcpus(host: SimulatedHost, _: int) -> SimulatedResult:
    """As many instances as CPUs, unmeasured; the nearest count that may be tried."""
    nearest = min(host.model.counts, key=lambda count: (abs(count - host.model.cpu_budget), count))
    return _result(host, nearest, "one instance for each CPU")


def run_max(host: SimulatedHost, _: int) -> SimulatedResult:
    """As many instances as may be tried, unmeasured."""
    return _result(host, max(host.model.counts), "the most instances")


def run_optuna(host: SimulatedHost, seed: int) -> SimulatedResult:
    """Optuna's TPE sampler, and the best trial that it saw.

    Raises:
        InputError: When optuna is not installed.
    """
    try:
        optuna = import_module("optuna")  # a development dependency, and slow to import
    except ImportError as error:
        raise InputError("the method optuna needs the package optuna", remedy="pip install optuna") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    counts = host.model.counts
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
    trials = next((n for cpus, n in OPTUNA_TRIALS if host.model.cpu_budget <= cpus), OPTUNA_TRIALS_BEYOND)
    study.optimize(
        lambda trial: host.trial(counts[trial.suggest_int("place", 0, len(counts) - 1)]).throughput_rps,
        n_trials=trials,
    )
    return _result(host, counts[study.best_params["place"]], f"{trials} trials were measured")


METHODS: Mapping[str, Callable[[SimulatedHost, int], SimulatedResult]] = {
    "tuner": run_tuner,
    "article": run_article,
    "vcpus": run_vcpus,
    "max": run_max,
    "optuna": run_optuna,
}


def _result(host: SimulatedHost, instances: int | None, stop_reason: str, verdict: str = "chosen") -> SimulatedResult:
    return SimulatedResult(
        name=host.model.name,
        verdict=str(verdict),
        instances=instances,
        trials=host.trials,
        simulated_s=round(host.clock_s, 3),
        stop_reason=stop_reason,
    )


def simulate(hosts: Iterable[HostModel], *, method: str = "tuner", runs: int = 1) -> Iterator[SimulatedResult]:
    """Run a method on simulated hosts.

    Args:
        hosts: The hosts.
        method: A key of `METHODS`.
        runs: Runs on each host, each with its own random numbers.

    Yields:
        One result for each host and run.

    Raises:
        InputError: When there is no such method, or it needs something that is not installed.
    """
    if method not in METHODS:
        raise InputError(f"method {method!r} is unknown", remedy=f"choose one of {', '.join(METHODS)}")
    if runs < 1:
        raise InputError(f"{runs} runs are none", remedy="ask for 1 or more (--runs)")
    for host in hosts:
        for run in range(runs):
            yield METHODS[method](SimulatedHost(host, run), host.seed + run)


def summarise(hosts: Sequence[HostModel], results: Sequence[SimulatedResult], *, tolerance: float = 0.05) -> Summary:
    """Compare results with the truth.

    Args:
        hosts: The hosts in the order of the results; each has as many results in a row as there were runs.
        results: At least one.
        tolerance: Throughput one is willing to give up, 0 to 1.

    Raises:
        InputError: When there is nothing to summarise.
    """
    if not results or not hosts:
        raise InputError("there are no hosts", remedy="write one JSON object a line")
    runs = len(results) // len(hosts)
    sure = [result.verdict != Verdict.UNRESOLVED for result in results]
    right = [
        is_right(hosts[place // runs].throughput, result.instances, tolerance) for place, result in enumerate(results)
    ]
    count = len(results)
    return Summary(
        runs=count,
        right=sum(s and r for s, r in zip(sure, right, strict=True)) / count,
        confidently_wrong=sum(s and not r for s, r in zip(sure, right, strict=True)) / count,
        unresolved=1 - sum(sure) / count,
        trials=median(result.trials for result in results),
        simulated_s=median(result.simulated_s for result in results),
    )


def parse_hosts(lines: Iterable[str]) -> Iterator[HostModel]:
    """Read hosts, one JSON object a line; empty lines are skipped.

    Raises:
        InputError: When a line is not what it should be; names the line and the key.
    """
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"line {number}: is no JSON ({error})", remedy="write one JSON object a line") from error
        yield parse_host(found, f"line {number}")


def parse_host(found: object, where: str) -> HostModel:
    """Read one host.

    Args:
        found: What JSON gave.
        where: What errors call it, such as `line 3`.

    Raises:
        InputError: When something is not what it should be; names the key.
    """
    if not isinstance(found, dict):
        raise InputError(f"{where}: is no object", remedy="write one JSON object a line")
    known = {field.name for field in fields(HostModel)}
    _refuse_unknown(found, known, where, "")
    throughput = _throughput(found.get("throughput"), where)
    budget = _number(found, "cpu_budget", where, low=0.01, high=MOST_COUNT)
    current = _number(found, "current", where, default=1, low=0, high=MOST_COUNT, whole=True)
    return HostModel(
        name=_text(found.get("name", where), where),
        cpu_budget=budget,
        current=int(current),
        throughput=throughput,
        noise=_noise(found.get("noise", {}), where),
        warmup_s=_number(found, "warmup_s", where, default=10.0, low=0, high=3600),
        boot_s=_number(found, "boot_s", where, default=3.0, low=0, high=3600),
        seed=int(_number(found, "seed", where, default=0, low=0, high=2**63 - 1, whole=True)),
    )


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise InputError(f"{where}: name is {value!r}, which is no text", remedy='write "name": "h1"')
    return printable(value)


def _throughput(value: object, where: str) -> dict[int, float]:
    if not isinstance(value, dict) or not value:
        raise InputError(
            f"{where}: throughput is {value!r}, which maps no count to a rate",
            remedy='write "throughput": {"1": 410.0, "2": 790.0}',
        )
    rates: dict[int, float] = {}
    for key in value:
        if not key.isascii() or not key.isdigit() or not 1 <= int(key[:9]) <= MOST_COUNT or len(key) > len("4096"):
            raise InputError(
                f"{where}: throughput.{key} is no instance count", remedy=f"use whole numbers from 1 to {MOST_COUNT}"
            )
        if int(key) in rates:
            raise InputError(f"{where}: throughput.{key} is there twice", remedy="say each count once")
        rates[int(key)] = _number(value, key, where, within="throughput.", low=1e-6, high=1e12)
    return dict(sorted(rates.items()))


def _noise(value: object, where: str) -> Noise:
    if not isinstance(value, dict):
        raise InputError(f"{where}: noise is {value!r}, which is no object", remedy='write "noise": {"cv": 0.03}')
    _refuse_unknown(value, {field.name for field in fields(Noise)}, where, "noise.")

    def number(key: str, high: float, *, low: float = 0.0) -> float:
        return _number(value, key, where, within="noise.", default=getattr(Noise, key), low=low, high=high)

    trials = _number(
        value, "burst_trials", where, within="noise.", default=Noise.burst_trials, low=1, high=1000, whole=True
    )
    return Noise(
        cv=number("cv", 2.0),
        drift_sd=number("drift_sd", 2.0),
        drift_rho=number("drift_rho", 0.9999),
        burst_rate=number("burst_rate", 1.0),
        burst_depth=number("burst_depth", 0.99),
        burst_trials=int(trials),
        burst_visible=number("burst_visible", 1.0),
    )


def _refuse_unknown(found: Mapping[str, object], known: set[str], where: str, within: str) -> None:
    for key in found:
        if key not in known:
            raise InputError(f"{where}: {within}{key} is no key", remedy=f"the keys are {', '.join(sorted(known))}")


def _number(  # noqa: PLR0913 each is one property of a number
    found: Mapping[str, object],
    key: str,
    where: str,
    *,
    low: float,
    high: float,
    default: float | None = None,
    within: str = "",
    whole: bool = False,
) -> float:
    value = found.get(key, default)
    if value is None:
        raise InputError(f"{where}: {within}{key} is missing", remedy=f"write a number from {low:g} to {high:g}")
    kind = "whole number" if whole else "number"
    remedy = f"write a {kind} from {low:g} to {high:g}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{where}: {within}{key} is {value!r}, which is no {kind}", remedy=remedy)
    if not low <= value <= high:  # what is not a number fails this too
        raise InputError(f"{where}: {within}{key} is {value!r}, which is out of range", remedy=remedy)
    if whole and value != int(value):
        raise InputError(f"{where}: {within}{key} is {value!r}, which is no {kind}", remedy=remedy)
    return float(value) if not whole else int(value)
