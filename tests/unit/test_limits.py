"""What a candidate must keep: error rates against an exact test, memory, restarts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from records import GIB, trial
from scipy.stats import binomtest

from tuner import limits


@pytest.mark.parametrize(("errors", "requests"), [(0, 1), (0, 3000), (1, 5000), (13, 12_000), (500, 500)])
def test_bounds_of_the_error_rate_are_those_of_an_exact_test(errors: int, requests: int) -> None:
    low, high = limits.error_rate_bounds(errors, requests)
    exact = binomtest(errors, requests).proportion_ci(0.90, method="exact")  # 5 % at either end
    assert low == pytest.approx(exact.low)
    assert high == pytest.approx(exact.high)


def test_as_many_requests_as_said_show_that_an_error_rate_is_small_enough() -> None:
    needed = limits.requests_needed()
    assert needed == 2995
    assert limits.find_unproven([trial(1, 1, 400.0, requests=needed)]) == ""
    assert limits.find_unproven([trial(1, 1, 400.0, requests=needed - 1)]) == (
        "0 of 2,994 requests failed, so that up to 0.10% may, and 0.1% is allowed"
    )
    assert limits.find_unproven([]).startswith("0 of 0 requests failed, so that up to 100.00% may")


# What makes a candidate unfit: fields of one of its trials, and the reason.
UNFIT: dict[str, tuple[dict[str, Any], str]] = {
    "errors": ({"errors": 25}, "0.21% of the requests failed"),
    "restarts": ({"restarts": 1}, "a worker died under load"),
    "memory": ({"rss_bytes": 6 * GIB}, "6,144 MiB are more than 85% of the memory"),
    "no throughput": ({"throughput_rps": 0.0, "latency_ms": {}}, "requests were not answered"),
    "no request": ({"throughput_rps": 0.0, "requests": 0}, "requests were not answered"),
}


@pytest.mark.parametrize(("fields", "reason"), UNFIT.values(), ids=UNFIT.keys())
def test_a_candidate_that_breaks_a_limit_is_unfit(fields: dict[str, Any], reason: str) -> None:
    found = [trial(3, 1, 399.0), trial(3, 2, 399.0), trial(3, 3, **{"throughput_rps": 399.0, **fields})]
    assert limits.find_unfit(found, 7 * GIB) == reason


def test_limits_that_are_just_kept_are_kept() -> None:
    # 85 % of 10 GiB are 8.5 GiB; 13 errors of 12,000 requests may still be a rate of 0.1 %.
    found = [trial(1, 1, 400.0), trial(1, 2, 400.0), trial(1, 3, 400.0, errors=13, rss_bytes=8 * GIB + GIB // 2)]
    assert limits.find_unfit(found, 10 * GIB) == ""
    assert limits.find_unproven(found)


def test_disturbed_trials_without_an_error_are_proof_too() -> None:
    half = limits.requests_needed() // 2 + 1
    disturbed = trial(1, 1, 400.0, requests=half, disturbances=("somebody else",))
    assert limits.find_unproven([trial(1, 2, 400.0, requests=half)])
    assert limits.find_unproven([disturbed, trial(1, 2, 400.0, requests=half)]) == ""


def test_errors_of_a_disturbed_trial_tell_nothing_beside_an_undisturbed_one() -> None:
    disturbed = trial(1, 1, 90.0, errors=400, disturbances=("somebody else",))
    assert limits.find_unfit([disturbed], 64 * GIB) == "10.00% of the requests failed"
    assert limits.find_unfit([disturbed, trial(1, 2, 400.0)], 64 * GIB) == ""


def test_a_worker_that_died_in_a_disturbed_trial_did_die() -> None:
    disturbed = replace(trial(1, 1, 400.0), restarts=1, disturbances=("somebody else",))
    assert limits.find_unfit([disturbed, trial(1, 2, 400.0)], 64 * GIB) == "a worker died under load"
