"""Trials one after the other: connections are chosen once, and what did not settle is extended once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from simulated import NotedProgress, raw_report

from tuner.errors import HostError
from tuner.interruption import Interruption
from tuner.journal import Journal
from tuner.measuring import VARIABLE, Measuring
from tuner.model import Load, Report, Trial
from tuner.resume import read_records

Answer = Callable[[int, Load], dict[str, Any]]
Make = Callable[..., tuple[Measuring, "Host"]]


class Host:
    """A simulated host that answers each load as a function says."""

    def __init__(self, answer: Answer) -> None:
        self.asked: list[tuple[int, Load]] = []
        self._answer = answer

    def trial(self, candidate: Mapping[str, object], load: Load) -> Report:
        """Report what the function says; see tuner.target.Target."""
        instances = int(str(candidate[VARIABLE]))
        self.asked.append((instances, load))
        return self._answer(instances, load)


def rising(instances: int, _: Load) -> dict[str, Any]:
    """A report whose throughput rises to its end."""
    report = raw_report(instances, 100.0)
    report["load"]["bins"]["ok"] = [step**2 // 20 for step in range(100)]
    return report


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Make the trials of one run on a host with two CPUs."""
    with Interruption() as interruption:

        def build(answer: Answer, load: Load) -> tuple[Measuring, Host]:
            host, journal = Host(answer), Journal(tmp_path, "prod1")
            journal.open_run({})
            return Measuring(host, journal, interruption, NotedProgress(), load, 2.0, 2), host  # type: ignore[arg-type]  # what trials need of a target

        yield build


def phases(directory: Path) -> list[str]:
    (path,) = directory.glob("prod1/*/trials.jsonl")
    return [json.loads(row)["phase"] for row in path.read_text().splitlines()]


def measure(measuring: Measuring, instances: int = 2) -> Trial:
    return measuring.measure({VARIABLE: instances}, instances, round_number=1, left=1, phase="search")


def then(first: Answer, rest: Answer) -> Answer:
    """A host that answers its first load in one way, and all later ones in another."""
    answers = iter([first])

    def answer(instances: int, load: Load) -> dict[str, Any]:
        return next(answers, rest)(instances, load)

    return answer


def flat(instances: int, _: Load) -> dict[str, Any]:
    """A report with a throughput of 400 from its start to its end."""
    return raw_report(instances, 400.0)


def warming(instances: int, _: Load) -> dict[str, Any]:
    """A report whose throughput rises until 6.5 of its 8 s are over, up to 400."""
    report = raw_report(instances, 400.0)
    report["load"]["bins"]["ok"] = [min(40, max(0, step - 20) * 40 // 65) for step in range(100)]
    return report


def test_a_trial_that_did_not_settle_is_measured_on_as_one_series(make: Make, tmp_path: Path) -> None:
    measuring, host = make(then(warming, flat), Load(duration_s=8.0))
    found = measure(measuring)
    assert [load.duration_s for _, load in host.asked] == [8.0, 8.0]
    assert (found.settled, found.extended, found.throughput_rps) == (True, True, 400.0)
    assert measuring.trials == [found]
    assert phases(tmp_path) == ["search", "search, extended"]
    # Of 10 s and 10 s of load, 8.5 s came before the steady level, and 2 s were planned to warm up once more.
    assert (found.spent.settling_s, found.spent.measuring_s) == pytest.approx((10.5, 9.5))


def test_what_was_steady_at_the_end_of_the_first_part_counts(make: Make) -> None:
    def slower(instances: int, _: Load) -> dict[str, Any]:
        return raw_report(instances, 390.0)

    found = measure(make(then(warming, slower), Load(duration_s=8.0))[0])
    assert 390.0 < found.throughput_rps < 400.0


def test_an_extended_trial_is_read_back_as_it_was(make: Make, tmp_path: Path) -> None:
    found = measure(make(then(warming, flat), Load(duration_s=8.0))[0])
    (path,) = tmp_path.glob("prod1/*/trials.jsonl")
    (record,) = read_records([json.loads(row) for row in path.read_text().splitlines()], str(path))
    assert record.trial == found


def test_a_trial_that_never_settles_is_extended_once_and_says_so(make: Make) -> None:
    def rising_on(instances: int, _: Load) -> dict[str, Any]:
        report = raw_report(instances, 100.0)
        report["load"]["bins"]["ok"] = [(step + 80) ** 2 // 20 for step in range(100)]
        return report

    measuring, host = make(then(rising, rising_on), Load(duration_s=8.0))
    found = measure(measuring)
    assert (found.settled, found.extended, len(host.asked)) == (False, True, 2)


def test_failures_before_an_extension_still_count(make: Make) -> None:
    def failing(instances: int, load: Load) -> dict[str, Any]:
        report = rising(instances, load)
        report["load"]["measured"] = {"requests": 100, "errors": 3, "errors_by_kind": {"timeout": 3}}
        report["after"]["workers"] = report["after"]["workers"][:1]
        return report

    found = measure(make(then(failing, flat), Load(duration_s=8.0))[0])
    assert (found.errors, found.errors_by_kind, found.restarts, found.requests) == (3, {"timeout": 3}, 1, 3300)


def test_a_disturbed_trial_is_not_extended_since_it_is_repeated(make: Make) -> None:
    def answer(instances: int, load: Load) -> dict[str, Any]:
        report = rising(instances, load)
        report["load"]["generator"]["refused_reason"] = "the generator used 95% of a core"
        return report

    measuring, host = make(answer, Load(duration_s=8.0))
    assert (measure(measuring).extended, len(host.asked)) == (False, 1)


def test_a_trial_that_was_broken_off_for_its_failures_is_not_extended(make: Make) -> None:
    def broken_off(instances: int, load: Load) -> dict[str, Any]:
        report = rising(instances, load)
        report["load"] |= {"warmup_s": 0.0, "duration_s": 0.7}
        report["load"]["bins"]["ok"] = [40] * 7
        report["load"]["measured"] = {"requests": 300, "errors": 20, "errors_by_kind": {"reset": 20}}
        return report

    measuring, host = make(broken_off, Load(duration_s=8.0))
    found = measure(measuring)
    assert (found.extended, found.errors, len(host.asked)) == (False, 20, 1)


def test_a_trial_that_settled_is_not_extended(make: Make, tmp_path: Path) -> None:
    measuring, host = make(lambda instances, _: raw_report(instances, 400.0), Load())
    assert (measure(measuring).extended, len(host.asked)) == (False, 1)
    assert phases(tmp_path) == ["search"]


def test_connections_are_chosen_once_with_a_worker_for_each_cpu(make: Make, tmp_path: Path) -> None:
    rates = {64: 300.0, 128: 400.0, 256: 410.0}

    def answer(instances: int, load: Load) -> dict[str, Any]:
        assert load.connections is not None
        return raw_report(instances, rates[load.connections])

    measuring, host = make(answer, Load(connections=None, duration_s=8.0))
    measuring.choose_connections((1, 2, 3))
    assert [(instances, load.connections, load.duration_s) for instances, load in host.asked] == [
        (2, 64, 4.0),
        (2, 128, 4.0),
        (2, 256, 4.0),
    ]
    assert isinstance(measuring.progress, NotedProgress)
    assert measuring.progress.notes == ["Every trial gets 128 connections: 256 give +2.5%."]
    assert (measuring.running, measuring.trials, measuring.load.duration_s) == (2, [], 8.0)
    measure(measuring, 1)
    assert host.asked[-1][1].connections == 128
    assert phases(tmp_path) == ["connections"] * 3 + ["search"]


def test_connections_that_were_asked_for_are_left_alone(make: Make) -> None:
    measuring, host = make(lambda instances, _: raw_report(instances, 400.0), Load(connections=7))
    measuring.choose_connections((1, 2))
    assert (host.asked, measuring.load.connections, measuring.choice) == ([], 7, None)


def test_a_host_that_fails_meanwhile_is_no_choice(make: Make) -> None:
    def answer(_instances: int, _load: Load) -> dict[str, Any]:
        raise HostError("trial.yml failed")

    measuring, _ = make(answer, Load(connections=None))
    with pytest.raises(HostError):
        measuring.choose_connections((1, 2))
    assert measuring.load.connections is None
