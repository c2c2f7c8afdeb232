"""The course of a run: limits are proven before a choice, and the incumbent stays where nothing is better."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from records import GIB, trial
from support import ROOT

from tuner.model import Trial, Verdict
from tuner.procedure import PAIRS, Procedure
from tuner.search import Search, SearchDecision

Rates = Mapping[int, float]
Change = Callable[[int, int], dict[str, object]]


def no_change(_count: int, _number: int) -> dict[str, object]:
    return {}


def run(
    rates: Rates,
    *,
    incumbent: int,
    change: Change = no_change,
    noise: float = 0.01,
    seed: int = 1,
    **more: Any,
) -> tuple[SearchDecision, list[tuple[str, int]], Procedure]:
    """Run a procedure on a host with these true rates; `change` alters the fields of a trial by count and number."""
    counts = more.pop("candidates", tuple(sorted(rates)))
    procedure = Procedure(
        Search(counts, 2.0, current=incumbent, seed=seed),
        counts,
        incumbent,
        tolerance=0.05,
        memory_bytes=64 * GIB,
        **more,
    )
    random, course = np.random.default_rng(seed), []
    while (count := procedure.next()) is not None:
        course.append((procedure.phase, count))
        assert len(course) < 150
        rate = rates[count] * float(np.exp(noise * random.standard_normal()))
        fields: dict[str, object] = {"throughput_rps": rate, **change(count, len(course))}
        procedure.note(made(count, procedure.round, fields))
    return procedure.decision(), course, procedure


def made(count: int, round_number: int, fields: dict[str, object]) -> Trial:
    rate = fields.pop("throughput_rps")
    assert isinstance(rate, float)
    return trial(count, round_number, rate, **fields)


def phases(course: list[tuple[str, int]]) -> list[str]:
    return list(dict.fromkeys(phase for phase, _ in course))


def test_a_choice_that_is_better_beyond_doubt_needs_no_confirmation() -> None:
    decision, course, _ = run({1: 210.0, 2: 420.0, 3: 421.0, 4: 415.0}, incumbent=1)
    assert decision.instances == 2
    assert phases(course) == ["search"]


def test_a_choice_that_is_near_the_incumbent_is_compared_with_it_in_turns() -> None:
    decision, course, _ = run({1: 210.0, 2: 418.0, 3: 421.0, 4: 410.0}, incumbent=3)
    assert decision.instances == 2
    confirmed = [count for phase, count in course if phase == "confirm"]
    assert confirmed.count(2) == confirmed.count(3) > 0
    # Whichever ran last is the first of the next pair.
    pairs = [confirmed[begin : begin + 2] for begin in range(0, len(confirmed), 2)]
    assert all(sorted(pair) == [2, 3] for pair in pairs)
    assert all(one[1] == two[0] for one, two in pairwise(pairs))


def test_an_incumbent_that_is_no_candidate_is_compared_all_the_same() -> None:
    rates = {1: 210.0, 2: 418.0, 3: 421.0, 6: 350.0}
    decision, course, _ = run(rates, incumbent=6, candidates=(1, 2, 3))
    assert decision.instances == 2
    assert [count for phase, count in course if phase == "confirm"].count(6) == PAIRS


def test_an_incumbent_that_turns_out_better_in_turns_stays() -> None:
    def worse_later(count: int, number: int) -> dict[str, object]:
        return {"throughput_rps": 330.0 + number % 3} if count == 2 and number > 8 else {}

    decision, course, _ = run({1: 210.0, 2: 420.0, 6: 421.0}, incumbent=6, candidates=(1, 2), change=worse_later)
    assert decision.instances is None
    assert decision.verdict is Verdict.UNRESOLVED
    assert ("confirm", 6) in course
    assert "6 will stay" in decision.sentence or "possible" in decision.sentence


def test_a_choice_that_varies_far_more_than_the_rest_is_not_made() -> None:
    def unstable(count: int, number: int) -> dict[str, object]:
        return {"throughput_rps": (330.0, 520.0, 400.0, 610.0)[number % 4]} if count == 2 else {}

    decision, _, _ = run({1: 210.0, 2: 420.0, 3: 300.0}, incumbent=3, change=unstable)
    assert decision.instances is None
    assert "from trial to trial, where " in decision.sentence
    assert decision.sentence.endswith("usual here: 3 will stay.")


def test_the_error_rate_of_the_choice_is_known_before_it_is_chosen() -> None:
    few: Change = lambda _count, _number: {"requests": 300}  # noqa: E731 one line says it
    decision, course, _ = run({1: 210.0, 2: 420.0}, incumbent=1, change=few)
    assert phases(course)[:2] == ["search", "limits"]
    assert 300 * sum(count == 2 for _, count in course) >= 2995
    assert decision.instances == 2


def test_too_few_requests_to_know_the_error_rate_are_said_with_what_would_do() -> None:
    decision, course, _ = run({1: 210.0, 2: 420.0}, incumbent=1, change=lambda _count, _number: {"requests": 20})
    assert decision.verdict is Verdict.UNRESOLVED
    assert "2 instances would be right, but 0 of " in decision.sentence
    assert "2,995 requests of each candidate (--duration)" in decision.remedy
    assert sum(phase == "limits" for phase, _ in course) == 8


def test_a_choice_with_some_errors_gives_way_to_one_without() -> None:
    def failing(count: int, _number: int) -> dict[str, object]:
        return {"errors": 4} if count == 2 else {}

    decision, _, procedure = run({1: 210.0, 2: 420.0, 3: 421.0}, incumbent=1, change=failing)
    assert decision.instances == 3
    assert "of the requests failed" in procedure.unfit[2] or "requests failed, so that" in procedure.unfit[2]


def test_a_candidate_whose_worker_dies_is_measured_no_more() -> None:
    def dying(count: int, _number: int) -> dict[str, object]:
        return {"restarts": 1} if count == 3 else {}

    decision, course, procedure = run({1: 210.0, 2: 420.0, 3: 600.0}, incumbent=1, change=dying)
    assert (decision.instances, procedure.unfit) == (2, {3: "a worker died under load"})
    assert [count for _, count in course].count(3) == 1


def test_one_disturbed_trial_with_errors_rules_nothing_out() -> None:
    def first(count: int, number: int) -> dict[str, object]:
        return {"errors": 3000, "disturbances": ("somebody else",)} if (count, number) == (2, 2) else {}

    decision, course, procedure = run({1: 210.0, 2: 420.0, 3: 421.0}, incumbent=1, change=first)
    assert (decision.instances, procedure.unfit) == (2, {})
    assert [count for _, count in course][:4] == [1, 2, 2, 3]


def test_candidates_that_never_answer_are_all_unfit() -> None:
    decision, course, _ = run({1: 1.0, 2: 1.0}, incumbent=1, change=lambda *_: {"throughput_rps": 0.0, "requests": 0})
    assert decision.verdict is Verdict.UNFIT
    assert len(course) == 2


def test_one_candidate_is_measured_until_its_limits_are_known() -> None:
    decision, course, _ = run({1: 210.0}, incumbent=1)
    assert (decision.verdict, decision.instances) == (Verdict.CERTIFIED, 1)
    assert course == [("limits", 1)]


def test_a_run_in_which_most_stayed_disturbed_is_unresolved_unless_they_are_kept() -> None:
    def noisy(_count: int, number: int) -> dict[str, object]:
        return {"disturbances": ("somebody else",)} if number % 5 else {}

    decision, _, _ = run({1: 210.0, 2: 420.0}, incumbent=1, change=noisy)
    assert (decision.verdict, decision.instances) == (Verdict.UNRESOLVED, None)
    assert "disturbed by something else, also when repeated" in decision.sentence
    assert "--keep-disturbed" in decision.remedy
    kept, _, _ = run({1: 210.0, 2: 420.0}, incumbent=1, change=noisy, keep_disturbed=True)
    assert kept.instances == 2


def test_a_run_that_is_stopped_is_unresolved_with_the_reason() -> None:
    procedure = Procedure(Search((1, 2), 2.0, current=1), (1, 2), 1, tolerance=0.05, memory_bytes=64 * GIB)
    assert procedure.next() == 1
    procedure.note(trial(1, 1, 210.0))
    procedure.stop("the time is over")
    assert procedure.next() is None
    decision = procedure.decision()
    assert (decision.verdict, decision.stop_reason) == (Verdict.UNRESOLVED, "the time is over")


@pytest.mark.parametrize("seed", range(5))
def test_equal_candidates_leave_the_smallest(seed: int) -> None:
    decision, _, _ = run({1: 400.0, 2: 400.0, 3: 400.0}, incumbent=2, noise=0.02, seed=seed)
    assert decision.instances in (1, None)


def test_a_recorded_run_of_a_real_host_is_decided_again() -> None:
    lines = (ROOT / "tests/fixtures/runs/sample-on-2-cpus.jsonl").read_text().splitlines()
    procedure = Procedure(Search((1, 2, 3), 2.0, current=2), (1, 2, 3), 2, tolerance=0.05, memory_bytes=24 * GIB)
    for found in map(json.loads, lines):
        procedure.next()
        procedure.phase, procedure.round = "search", found.pop("round")
        count, rate = found.pop("instances"), found.pop("throughput_rps")
        disturbances = tuple(found.pop("disturbances"))
        procedure.note(trial(count, procedure.round, rate, disturbances=disturbances, **found))
    decision = procedure.decision()
    # 2 instances have 20 % more than 3, and 66 % more than 1.
    assert (decision.verdict, decision.instances) == (Verdict.CERTIFIED, 2)
    assert procedure.next() is None
