"""Candidates stay within what the host, its memory and its database bear, and each bound says why."""

from __future__ import annotations

import math

import pytest
from records import GIB, capacity, deployment

from tuner import candidates
from tuner.errors import InputError
from tuner.model import BYTES_PER_MIB, Bound

GOOD_LISTS = {
    "1": (1,),
    "1-4": (1, 2, 3, 4),
    "3,1,2": (1, 2, 3),
    "1-3,2-4,8": (1, 2, 3, 4, 8),
    " 1 - 2 , 4 ": (1, 2, 4),
    "2-2": (2,),
    "0012": (12,),
}
BAD_LISTS = {
    "": "'an empty entry' is no instance count",
    " ": "'an empty entry' is no instance count",
    "1,,2": "'an empty entry' is no instance count",
    "1,": "'an empty entry' is no instance count",
    "a": "'a' is no instance count",
    "-1": "'-1' is no instance count",
    "1-": "'1-' is no instance count",
    "1.5": "'1.5' is no instance count",
    "12345": "'12345' is no instance count",
    "1 2": "'1 2' is no instance count",
    "1-2-3": "'1-2-3' is no instance count",
    "max": "'max' is no instance count",
    "0": "'0' is no range of instance counts from 1 upwards",
    "0-2": "'0-2' is no range of instance counts from 1 upwards",
    "1,4-1": "'4-1' is no range of instance counts from 1 upwards",
}

# CPU budget: (the largest default candidate, the bound of what may be asked for)
BUDGETS = {0.5: (3, 4), 1: (3, 4), 2: (4, 8), 2.5: (5, 12), 4: (6, 16), 8: (10, 32), 16: (20, 64), 64: (80, 256)}


def limits(bounds: tuple[Bound, ...]) -> list[int]:
    return [bound.limit for bound in bounds]


@pytest.mark.parametrize(("text", "counts"), GOOD_LISTS.items())
def test_a_list_of_counts_is_read(text: str, counts: tuple[int, ...]) -> None:
    assert candidates.parse_counts(text) == counts


@pytest.mark.parametrize(("text", "reason"), BAD_LISTS.items())
def test_what_is_no_list_of_counts_is_refused_with_an_example(text: str, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        candidates.parse_counts(text)
    assert caught.value.message == f"candidates {text!r}: {reason}"
    assert caught.value.remedy == "write whole numbers such as 1-4 or 1,2,4"


@pytest.mark.parametrize(("budget", "top", "limit"), [(cpus, *rest) for cpus, rest in BUDGETS.items()])
def test_default_candidates_are_all_up_to_a_few_more_than_the_cpus(budget: float, top: int, limit: int) -> None:
    plan = candidates.plan(capacity(budget), deployment())
    assert plan.candidates == tuple(range(1, top + 1))
    assert limits(plan.bounds) == [top, limit]
    assert plan.bounds[0].reason == f"{top - math.ceil(budget)} more than the CPUs; ask for more with --candidates"
    assert candidates.plan(capacity(budget), deployment(), requested=(limit,)).candidates == (limit,)


def test_what_runs_now_is_a_candidate_unless_a_bound_forbids_it() -> None:
    assert candidates.plan(capacity(2), deployment(instances=6)).candidates == (1, 2, 3, 4, 6)
    assert candidates.plan(capacity(2), deployment(instances=9)).candidates == (1, 2, 3, 4)


def test_no_instance_at_all_is_no_candidate() -> None:
    assert candidates.plan(capacity(2), deployment(instances=0)).candidates == (1, 2, 3, 4)


def test_requested_candidates_take_the_place_of_the_default_ones() -> None:
    assert candidates.plan(capacity(2), deployment(), requested=(2, 8)).candidates == (2, 8)


def test_a_requested_candidate_above_a_bound_is_refused_with_the_bound_s_reason() -> None:
    with pytest.raises(InputError) as caught:
        candidates.plan(capacity(2), deployment(), requested=(1, 9))
    assert str(caught.value) == (
        "candidate 9 is above the bound of 8 instances: 4 for each of 2 CPUs; ask for candidates up to 8"
    )


def test_sqlite_allows_one_instance_unless_the_inventory_says_otherwise() -> None:
    alone = candidates.plan(capacity(4), deployment(database_client="sqlite"))
    assert alone.candidates == (1,)
    assert limits(alone.bounds) == [1, 6, 16]
    assert "strapi_sqlite_multi_process" in alone.bounds[0].reason
    shared = deployment(database_client="sqlite", sqlite_multi_process=True, database_connections=20)
    assert candidates.plan(capacity(4), shared).candidates == (1, 2, 3, 4, 5, 6)


def test_memory_bounds_by_what_a_worker_has_had_and_what_it_may_grow_to() -> None:
    # 0.85 x 2048 MiB = 1740.8 MiB; 1.3 x 400 MiB = 520 MiB; 3 of them are 1560 MiB, 4 are 2080 MiB.
    host = capacity(4, memory_limit_bytes=2 * GIB)
    plan = candidates.plan(host, deployment(worker_peak_bytes=400 * BYTES_PER_MIB))
    assert plan.bounds[0] == Bound(3, "85% of 2,048 MiB memory at 520 MiB an instance")
    assert plan.candidates == (1, 2, 3)


def test_memory_for_less_than_one_worker_still_leaves_one() -> None:
    host = capacity(2, memory_total_bytes=256 * BYTES_PER_MIB)
    plan = candidates.plan(host, deployment(worker_peak_bytes=GIB))
    assert plan.candidates == (1,)


def test_connections_bound_with_room_for_a_reload() -> None:
    # 9 pools of 10 fit, and 2 instances of them are for a reload.
    plan = candidates.plan(capacity(8), deployment(database_connections=97))
    assert plan.bounds[0] == Bound(7, "97 database connections at 10 an instance, less 2 instances for a reload")
    assert plan.candidates == (1, 2, 3, 4, 5, 6, 7)


def test_too_few_connections_still_leave_one_instance() -> None:
    plan = candidates.plan(capacity(2), deployment(database_connections=5))
    assert plan.candidates == (1,)


@pytest.mark.parametrize("pool_max", [0, -1])
def test_a_pool_without_a_size_bounds_nothing(pool_max: int) -> None:
    found = deployment(database_connections=97, database_pool_max=pool_max)
    assert limits(candidates.find_bounds(capacity(2), found)) == [8]


def test_bounds_come_with_the_tightest_first() -> None:
    host = capacity(4, memory_limit_bytes=2 * GIB)
    found = deployment(worker_peak_bytes=400 * BYTES_PER_MIB, database_connections=97)
    assert limits(candidates.find_bounds(host, found)) == [3, 7, 16]
