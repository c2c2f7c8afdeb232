"""Where the time of a run went."""

from __future__ import annotations

import pytest
from records import trial

from tuner.budget import add_up, complete
from tuner.model import Spent


def test_every_second_of_a_run_is_counted_once() -> None:
    trials = [
        trial(1, 1, 200.0, spent=Spent(measuring_s=8.0, settling_s=2.0, rest_s=2.5)),
        trial(2, 1, 400.0, spent=Spent(measuring_s=7.0, settling_s=11.0, booting_s=4.0, rest_s=2.0)),
    ]
    found = complete(add_up(trials, connections_s=15.0), wall_s=60.0)
    assert (found.measuring_s, found.settling_s, found.booting_s, found.ansible_s) == (15.0, 13.0, 4.0, 4.5)
    assert (found.connections_s, found.around_s) == (15.0, 60.0 - 15 - 36.5)
    assert found.total_s == pytest.approx(60.0)
    assert found.measuring_share == pytest.approx(0.25)


def test_a_run_without_a_trial_measured_nothing() -> None:
    found = complete(add_up([], connections_s=0.0), wall_s=0.0)
    assert (found.total_s, found.measuring_share) == (0.0, 0.0)
