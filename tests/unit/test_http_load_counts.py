"""What the load generator counts: its histogram, its recorder, and the size of its result."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from typing import Any

import pytest
from truth_server import http_load, params

# The histogram


def sparse(values: list[int]) -> list[list[int]]:
    return http_load.merge_histograms([[[http_load.bucket_of(value), 1]] for value in values])  # type: ignore[no-any-return]  # a module without types


def test_every_value_is_within_half_a_percent_of_its_bucket_and_buckets_keep_the_order() -> None:
    edges = [value for bit in range(45) for value in (2**bit - 1, 2**bit, 2**bit + 1)]
    values = sorted({*range(2000), *edges, *(int(1.0137**power) for power in range(2200))})
    indices = [http_load.bucket_of(value) for value in values]
    assert indices == sorted(indices)
    for value, index in zip(values, indices, strict=True):
        assert abs(http_load.bucket_middle(index) - value) <= value * 0.005
    assert sorted({http_load.bucket_of(value) for value in range(5000)}) == list(range(http_load.bucket_of(4999) + 1))


@pytest.mark.parametrize("spread", [0.1, 1.0, 2.5])
def test_percentiles_are_within_one_percent_of_the_exact_ones(spread: float) -> None:
    rng = random.Random(7)
    values = [int(rng.lognormvariate(math.log(2e6), spread)) + 1 for _ in range(20_000)]
    histogram = sparse(values)
    ordered = sorted(values)
    for percent in (0.1, 1, 25, 50, 90, 95, 99, 99.9, 100):
        exact = ordered[math.ceil(round(len(ordered) * percent / 100, 6)) - 1] / 1000  # nearest rank
        assert http_load.percentile_us(histogram, percent) == pytest.approx(exact, rel=0.01)


def test_nearest_rank_of_small_samples() -> None:
    histogram = [[value, 1] for value in range(1, 101)]  # exact below 256 ns
    assert http_load.percentile_us(histogram, 50) == 0.05
    assert http_load.percentile_us(histogram, 99) == 0.099
    assert http_load.percentile_us(histogram, 99.9) == 0.1
    assert http_load.percentile_us([[5, 999], [6, 1]], 99.9) == 0.005
    assert http_load.percentile_us([], 50) is None


def test_merged_histograms_are_the_histogram_of_all_samples() -> None:
    rng = random.Random(3)
    first, second = ([rng.randrange(1, 10**9) for _ in range(500)] for _ in range(2))
    assert http_load.merge_histograms([sparse(first), sparse(second)]) == sparse(first + second)
    assert http_load.merge_histograms([]) == []


# The recorder


def request() -> Any:  # noqa: ANN401  # a class of a module that is imported by its path
    return http_load.make_request({"path": "/a"}, "h", keep_alive=True)


def outcome_of(recorder: Any, **changes: object) -> Any:  # noqa: ANN401  # as above
    """Return what a worker hands over that counted this."""
    nothing = dict.fromkeys(("planned", "planned_measured", "unsent", "unsent_measured"), 0)
    return http_load.Outcome(
        **{
            "started_at": recorder.started_at,
            "measured_ns": recorder.measured_ns,
            "total_ns": recorder.end_ns - recorder.start_ns,
            "phases": [recorder.warmup, recorder.measured, recorder.after],
            "bins_ok": recorder.bins_ok,
            "bins_errors": recorder.bins_errors,
            "cpu_s": [recorder.cpu_s],
            "lags": recorder.lags,
            "max_lag_ns": recorder.max_lag_ns,
            "busy_ns": recorder.busy_ns,
            **nothing,
            "error_samples": recorder.error_samples,
            "connected": True,
            **changes,
        }
    )


def begun(warmup_s: float, duration_s: float) -> tuple[Any, Callable[[float], int]]:
    """Return a recorder that has begun, and a function from seconds of its run to its clock."""
    recorder = http_load.Recorder(warmup_s, duration_s)
    recorder.begin(5_000_000_000)
    return recorder, lambda second: recorder.start_ns + round(second * 1e9)


def test_what_happens_goes_to_its_bin_and_phase_however_late_it_is_looked_at() -> None:
    recorder, at = begun(0.25, 0.3)
    for second in (0.05, 0.24, 0.26, 0.45, 0.549, 0.56, 7.0):
        recorder.success(0, at(second), 1000, 10, 200)
    recorder.failure(0, at(8), 1000, "reset", "")
    recorder.advance(at(9))
    assert recorder.bins_ok == [1, 0, 2, 0, 1, 1]
    assert recorder.bins_errors == [0] * 6
    assert [tallies[0].requests for tallies in (recorder.warmup, recorder.measured, recorder.after)] == [2, 3, 3]


def test_a_run_without_warm_up_measures_from_its_first_moment() -> None:
    recorder, at = begun(0.0, 0.2)
    recorder.success(0, at(0.0), 1000, 10, 200)
    recorder.bad_status(request(), at(0.1), 1000, 10, 500)
    recorder.advance(at(0.2))
    assert (recorder.bins_ok, recorder.bins_errors) == ([1, 0], [0, 1])
    assert recorder.measured[0].requests == 2
    assert recorder.warmup[0].requests == 0


def test_a_run_may_end_before_its_time() -> None:
    recorder, at = begun(0.0, 600)
    recorder.success(0, at(0.05), 1000, 10, 200)
    recorder.success(0, at(0.25), 1000, 10, 200)
    recorder.stop(at(0.25))
    assert recorder.bins_ok == [1, 0, 1]
    assert recorder.measured_ns == 250_000_000
    assert (recorder.measured[0].ok, recorder.after[0].ok) == (2, 0)


def test_time_in_use_is_counted_in_the_measured_window_only() -> None:
    recorder, at = begun(1.0, 2.0)
    for connections, second in ((0, 0.5), (2, 1.5), (1, 2.0), (4, 5.0)):
        recorder.busy(connections, at(second))
    assert recorder.busy_ns / 1e9 == pytest.approx(2 * 0.5 + 1 * 0.5 + 4 * 1.0)


# Several workers


def recorded(seed: int, names: int = 2) -> Any:  # noqa: ANN401  # as above
    """Return a recorder of a second of pretended responses and errors."""
    rng = random.Random(seed)
    recorder = http_load.Recorder(0.2, 0.8, names)
    recorder.begin(0)
    for number in range(1000):
        name = rng.randrange(names)
        if rng.random() < 0.1:
            recorder.failure(name, number * 1_000_000, 5, rng.choice(http_load.ERROR_KINDS), f"worker {seed}")
        else:
            latency_ns = rng.randrange(1, 10**8)
            recorder.success(name, number * 1_000_000, latency_ns, rng.randrange(900), rng.choice([200, 201]))
        recorder.lag(number * 1_000_000, rng.randrange(10**6))
    recorder.retry(0, 999_000_000)
    recorder.stop(1_100_000_000)
    return recorder


def test_what_a_worker_hands_over_arrives_unchanged() -> None:
    outcome = outcome_of(recorded(1))
    plan = http_load.make_plan(params("http://h:1", requests=[{"path": "/a"}, {"path": "/b"}]))
    arrived = http_load.Outcome.unpack(json.loads(outcome.pack()))
    assert http_load.make_report(plan, arrived) == http_load.make_report(plan, outcome)


def test_outcomes_add_up_exactly() -> None:
    first, second = recorded(1), recorded(2)
    parts = [outcome_of(first, cpu_s=[0.5], planned=7), outcome_of(second, cpu_s=[0.25], planned=5)]
    whole = http_load.Outcome.sum(parts)
    plan = http_load.make_plan(params("http://h:1", requests=[{"path": "/a"}, {"path": "/b"}], workers=2))
    load = http_load.make_report(plan, whole)
    loads = [http_load.make_report(plan, part) for part in parts]
    for phase in ("measured", "total"):
        for count in ("requests", "ok", "errors", "retried", "bytes"):
            assert load[phase][count] == sum(part[phase][count] for part in loads)
        for count in ("errors_by_kind", "status_counts"):
            assert load[phase][count] == {key: sum(p[phase][count][key] for p in loads) for key in load[phase][count]}
    assert load["bins"]["ok"] == [sum(pair) for pair in zip(*(part["bins"]["ok"] for part in loads), strict=True)]
    histograms = [part["latency_us"]["histogram"] for part in loads]
    assert load["latency_us"]["histogram"] == http_load.merge_histograms(histograms)
    assert load["latency_us"]["max"] == max(part["latency_us"]["max"] for part in loads)
    assert load["generator"]["cpu_share"] == pytest.approx(0.5 / load["duration_s"], abs=1e-4), "the busiest one's"
    assert load["generator"]["cpu_s"] == 0.75
    assert load["planned"] == 12
    assert load["generator"]["schedule_lag_us"]["count"] == sum(
        part["generator"]["schedule_lag_us"]["count"] for part in loads
    )


def test_names_add_up_to_the_whole() -> None:
    plan = http_load.make_plan(params("http://h:1", requests=[{"path": "/a"}, {"path": "/b"}]))
    load = http_load.make_report(plan, outcome_of(recorded(4)))
    names = load["by_name"].values()
    assert set(load["by_name"]) == {"/a", "/b"}
    for phase in ("measured", "total"):
        assert sum(name[phase]["requests"] for name in names) == load[phase]["requests"]
    parts = [http_load.decode_histogram(name["latency_us"]["histogram"]) for name in names]
    assert http_load.merge_histograms(parts) == load["latency_us"]["histogram"]


# The result


def test_a_histogram_as_text_is_the_same_histogram() -> None:
    rng = random.Random(9)
    for histogram in ([], [[0, 1]], [[127, 128], [128, 16_384]], sparse([rng.randrange(10**9) for _ in range(3000)])):
        assert http_load.decode_histogram(http_load.encode_histogram(histogram)) == histogram


def test_the_result_of_a_minute_with_ten_names_stays_below_200_kilobytes() -> None:
    # At worst every bucket up to the timeout of 10 s is in use, with counts of five digits and more.
    rng = random.Random(1)
    recorder = http_load.Recorder(10, 60, 10)
    recorder.begin(0)
    buckets = range(http_load.bucket_of(10 * 10**9) + 1)
    for tally in recorder.measured:
        tally.counts = {bucket: rng.randrange(10_000, 100_000) for bucket in buckets}
        tally.ok = sum(tally.counts.values())
    recorder.stop(70 * 10**9)
    recorder.bins_ok = [rng.randrange(10_000) for _ in recorder.bins_ok]
    paths = [f"/api/restaurants?pagination[page]={number}&populate=*" for number in range(10)]
    requests = [{"path": path} for path in paths]
    plan = http_load.make_plan(params("http://h:1", requests=requests, warmup_s=10, duration_s=60))
    size = len(json.dumps(http_load.make_report(plan, outcome_of(recorder))))
    assert 100_000 < size < 200_000


# Whether to believe it


@pytest.mark.parametrize(
    ("cpu_share", "send_rate", "lag_us", "p50_us", "words"),
    [
        (0.90, 1.0, 900.0, 2_000.0, ""),
        (0.91, 1.0, 900.0, 2_000.0, "91% of a core"),
        (0.10, 0.989, 900.0, 2_000.0, "98.9% of the planned requests"),
        (0.10, 1.0, 1_001.0, 2_000.0, "1 ms or more after its time"),
        (0.10, 1.0, 1_999.0, 20_000.0, ""),
        (0.10, 1.0, 2_001.0, 20_000.0, "2 ms are the most"),
        (0.10, None, None, None, ""),
    ],
)
def test_a_result_that_the_generator_limited_is_refused(
    cpu_share: float, send_rate: float | None, lag_us: float | None, p50_us: float | None, words: str
) -> None:
    plan = http_load.make_plan(params("http://h:1", mode="open", rate=100.0))
    reason = http_load.refused_reason(plan, cpu_share, send_rate, lag_us, p50_us)
    assert words in reason
    assert bool(words) == bool(reason)
