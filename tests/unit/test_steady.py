"""Warm-up ends where the marginal standard error is least, and throughput is what comes after it."""

from __future__ import annotations

import json
import random
from fractions import Fraction

import pytest
from support import ROOT

from tuner import steady


def brute_force_cut(batches: list[int]) -> int:
    """The least sum((y - mean)^2) / (n - d)^2 that leaves five or more, in exact arithmetic; of equals the first."""
    errors = []
    for cut in range(len(batches) - 4):
        rest = [Fraction(batch) for batch in batches[cut:]]
        mean = sum(rest) / len(rest)
        errors.append((sum((batch - mean) ** 2 for batch in rest) / len(rest) ** 2, cut))
    return min(errors, default=(Fraction(0), 0))[1]


def ramp(steps: int, flat: int, top: int) -> list[int]:
    """Bins of 100 ms that rise in half-second steps from 0 to `top`, and then stay there."""
    return [top * step // steps for step in range(steps) for _ in range(5)] + [top] * 5 * flat


def part(found: steady.Steady) -> tuple[float, float, bool]:
    """Cut, throughput, and whether it settled; rounded to what the tests are about."""
    return round(found.cut_s, 6), round(found.throughput_rps, 6), found.settled


def expected(cut_s: float, throughput_rps: float, *, settled: bool) -> tuple[float, float, bool]:
    return round(cut_s, 6), round(throughput_rps, 6), settled


@pytest.mark.parametrize("seed", range(40))
def test_the_cut_is_that_of_the_definition(seed: int) -> None:
    source = random.Random(seed)
    warmup = [source.randrange(5, 60) for _ in range(source.randrange(12))]
    batches = warmup + [source.randrange(90, 110) for _ in range(source.randrange(2, 25))]
    assert steady.find_cut(batches) == brute_force_cut(batches)


@pytest.mark.parametrize("level", [0, 1, 16.6, 0.1, 1 / 3, 40_000.2])
@pytest.mark.parametrize("length", [2, 7, 16, 35])
def test_a_constant_series_has_no_warm_up(level: float, length: int) -> None:
    assert steady.find_cut([level] * length) == 0


@pytest.mark.parametrize("level", [16.6, 1 / 3, 77.7])
def test_a_ramp_is_cut_where_it_becomes_flat(level: float) -> None:
    series = [level / 4, level / 2, level * 3 / 4] + [level] * 30
    assert steady.find_cut(series) == 3


@pytest.mark.parametrize("batches", [[], [5.0], [1.0, 2.0, 9.0, 9.0]])
def test_too_few_batches_to_tell_are_not_cut(batches: list[float]) -> None:
    assert steady.find_cut(batches) == 0


def test_throughput_is_per_second_and_not_per_bin() -> None:
    assert part(steady.measure([43] * 80, width_s=0.1, skip_s=0)) == expected(0.0, 430.0, settled=True)
    assert steady.measure([43] * 80, width_s=0.5, skip_s=0).throughput_rps == pytest.approx(86.0)


def test_planned_warm_up_is_left_out_whatever_it_holds() -> None:
    found = steady.measure([999] * 20 + [43] * 80, width_s=0.1, skip_s=2.0)
    assert part(found) == expected(2.0, 430.0, settled=True)


def test_a_warm_up_longer_than_planned_is_left_out_too() -> None:
    found = steady.measure([5] * 20 + ramp(steps=4, flat=12, top=40), width_s=0.1, skip_s=2.0)
    assert part(found) == expected(4.0, 400.0, settled=True)


def test_a_series_that_rises_to_its_end_is_not_settled_and_its_second_half_counts() -> None:
    # 16 half seconds of 0, 1, 4, ..., 225 responses in each tenth: the last eight have 64 to 225, 137.5 in the mean.
    found = steady.measure([step**2 for step in range(16) for _ in range(5)], width_s=0.1, skip_s=0)
    assert part(found) == expected(4.0, 1375.0, settled=False)


def test_few_steady_series_are_called_unsettled() -> None:
    source = random.Random(7)
    series = [[source.gauss(100, 5) for _ in range(16)] for _ in range(1000)]
    assert sum(steady.find_cut(batches) > 8 for batches in series) < 200


def test_a_step_in_the_second_half_is_not_settled() -> None:
    assert not steady.measure([10] * 50 + [40] * 30, width_s=0.1, skip_s=0).settled


def test_a_stall_while_measuring_counts() -> None:
    # Sixteen half seconds of 38 or 42 responses in each tenth, 640 in all, and the thirteenth lost its 38.
    bins = [ok for _ in range(8) for ok in (38,) * 5 + (42,) * 5]
    bins[60:65] = [0] * 5
    assert part(steady.measure(bins, width_s=0.1, skip_s=0)) == expected(0.0, 10 * 602 / 16, settled=True)


def test_a_stall_early_in_a_steady_series_counts_too() -> None:
    # The marginal standard error is least after the third half second, which lost 25 of its 38 responses in each tenth.
    bins = [ok for _ in range(8) for ok in (38,) * 5 + (42,) * 5]
    bins[10:15] = [13] * 5
    assert steady.find_cut([sum(bins[at : at + 5]) / 5 for at in range(0, 80, 5)]) == 3
    assert part(steady.measure(bins, width_s=0.1, skip_s=0)) == expected(0.5, 10 * (640 - 38 - 25) / 15, settled=True)


@pytest.mark.parametrize("level", [16.6, 1 / 3, 77.7])
def test_rounding_does_not_hide_where_the_level_is_reached(level: float) -> None:
    bins = [share * level for share in (0.25, 0.5, 0.75) for _ in range(5)] + [level] * 150
    assert steady.measure(bins, width_s=0.1, skip_s=0).cut_s == pytest.approx(1.5)  # type: ignore[arg-type]  # no counts, for the rounding


def test_the_last_bins_that_fill_no_batch_are_left_out() -> None:
    assert steady.measure([40] * 40 + [0] * 4, width_s=0.1, skip_s=0).throughput_rps == pytest.approx(400.0)


@pytest.mark.parametrize("bins", [[], [40] * 4, [40] * 24], ids=["empty", "under a batch", "under one after warm-up"])
def test_a_series_without_a_batch_has_no_throughput(bins: list[int]) -> None:
    found = steady.measure(bins, width_s=0.1, skip_s=2.0)
    assert (found.throughput_rps, found.settled) == (0.0, False)


def recorded(name: str) -> list[int]:
    """Responses in each tenth of a second, as a real Strapi gave them; tests/fixtures/series/README.md has the rest."""
    found: list[int] = json.loads((ROOT / "tests/fixtures/series" / f"{name}.json").read_text())["ok"]
    return found


def per_second(bins: list[int]) -> float:
    return 10 * sum(bins) / len(bins)


def test_a_cold_worker_s_first_seconds_are_left_out() -> None:
    bins = recorded("cold-1")
    found = steady.measure(bins, width_s=0.1, skip_s=0)
    # 50, 98, 186 and 136 requests/s in the first half seconds, and 170 to 330 in all but the last two of the others.
    assert part(found) == expected(2.0, per_second(bins[20:]), settled=True)


@pytest.mark.parametrize("name", ["cold-2", "one-of-2-cold", "one-of-3-cold"])
def test_a_worker_that_is_still_warming_up_after_twenty_seconds_is_not_settled(name: str) -> None:
    bins = recorded(name)
    found = steady.measure(bins, width_s=0.1, skip_s=0)
    assert not found.settled
    # What counts begins where the level of the second half was first reached.
    assert 5.0 <= found.cut_s <= 10.0
    assert found.throughput_rps == pytest.approx(per_second(bins[100:]), rel=0.05)


def test_a_slow_spell_of_warm_workers_is_no_warm_up() -> None:
    bins = recorded("warm-2")
    # 408, then 466 to 620 for two seconds, then 312 to 364 for two and a half: the rule alone would begin after those.
    assert steady.find_cut([sum(bins[at : at + 5]) / 5 for at in range(0, 120, 5)]) == 12
    assert part(steady.measure(bins, width_s=0.1, skip_s=0)) == expected(0.5, per_second(bins[5:]), settled=True)


@pytest.mark.parametrize("name", ["warm-1", "down-to-1"])
def test_warm_workers_lose_no_more_than_a_second(name: str) -> None:
    bins = recorded(name)
    found = steady.measure(bins, width_s=0.1, skip_s=0)
    assert found.settled
    assert found.cut_s <= 1.0
    assert found.throughput_rps == pytest.approx(per_second(bins), rel=0.05)


@pytest.mark.parametrize("name", ["down-to-2", "down-from-3-to-1"])
def test_a_series_that_drifts_through_its_whole_length_is_not_settled(name: str) -> None:
    assert not steady.measure(recorded(name), width_s=0.1, skip_s=0).settled


def test_silence_is_a_throughput_of_nothing() -> None:
    assert part(steady.measure([0] * 80, width_s=0.1, skip_s=0)) == expected(0.0, 0.0, settled=True)
