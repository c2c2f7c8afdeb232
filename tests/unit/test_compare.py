"""The use case compare: which setting wins and by how much, on a simulated host that is left as it was."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from simulated import NotedProgress, SimulatedTarget, raw_report
from web import serve

from tuner import compare as use_case
from tuner import report
from tuner.compare import CompareRequest, Comparison
from tuner.errors import HostError, InputError, UnresolvedError
from tuner.interruption import Interruption
from tuner.inventory import Inventory
from tuner.journal import Journal
from tuner.leaving import Actors
from tuner.model import Load, Report
from tuner.settings import parse_variants

PANEL = ("strapi_serve_admin_panel=true", "strapi_serve_admin_panel=false")


class SetTarget(SimulatedTarget):
    """A simulated host whose throughput depends on whether the panel is served."""

    rates: Mapping[bool, Sequence[float]]
    fails_at: int | None = None

    def trial(self, candidate: Mapping[str, object], load: Load) -> Report:
        """Report the next rate of this setting; see tuner.target.Target."""
        assert candidate["trial_tasks"] == "try"
        assert candidate["strapi_instances"] == 2
        assert load.warmup_warm_s == load.warmup_cold_s
        served = candidate["strapi_serve_admin_panel"]
        assert isinstance(served, bool)
        number = sum(call == f"panel {served}" for call in self.calls)
        self.calls.append(f"panel {served}")
        if len([call for call in self.calls if call.startswith("panel")]) == self.fails_at:
            raise HostError("trial.yml failed")
        return raw_report(2, self.rates[served][number])


Go = Callable[..., Comparison]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[tuple[SetTarget, Go]]:
    """A host, and what compares settings on it."""
    (tmp_path / "hosts.yml").write_text("all:\n  hosts:\n    prod1:\n")
    with serve(lambda *_: (200, [])) as url, Interruption() as interruption:
        target = SetTarget(url, {}, written=tmp_path / "none")
        request = CompareRequest(
            host="prod1",
            load=Load(paths=("/",), connections=100),
            variants=parse_variants(PANEL),
            rounds=4,
            budget_s=None,
            keep_disturbed=False,
            live=False,
        )

        def go(**asked: Any) -> Comparison:
            inventory = Inventory(tmp_path / "hosts.yml", project_dir=tmp_path)
            journal = Journal(tmp_path / "results", "prod1")
            actors = Actors(target, inventory, journal, interruption, NotedProgress())
            return use_case.compare(replace(request, **asked), actors)

        yield target, go


def test_settings_that_do_not_differ_are_said_to_with_their_interval(host: tuple[SetTarget, Go]) -> None:
    target, go = host
    target.rates = {True: (400.0, 410.0, 400.0, 400.0), False: (390.0, 400.0, 400.0, 400.0)}
    found = go()
    (difference,) = found.differences
    assert difference.winner == ""
    assert difference.interval[0] < 0 < difference.interval[1]
    assert found.sentence.startswith(
        "no difference between strapi_serve_admin_panel=true and strapi_serve_admin_panel=false: -1."
    )
    assert "at 95%; 4 rounds." in found.sentence
    # Turning order, and the host as it was at the end.
    turns = ["panel True", "panel False", "panel False", "panel True"]
    assert target.calls == ["inspect", "check", *turns, *turns, "restore 2"]
    use_case.raise_for_outcome(found)
    json.dumps(use_case.to_summary(found), allow_nan=False)


def test_settings_that_may_differ_by_much_are_not_said_to_be_equal(host: tuple[SetTarget, Go]) -> None:
    target, go = host
    target.rates = {True: (400.0, 410.0, 400.0, 330.0), False: (440.0, 390.0, 410.0, 390.0)}
    found = go()
    assert found.differences[0].winner == ""
    assert found.sentence.startswith(
        "strapi_serve_admin_panel=true and strapi_serve_admin_panel=false cannot be told apart: +"
    )


def test_the_better_setting_wins_by_so_much(host: tuple[SetTarget, Go]) -> None:
    target, go = host
    target.rates = {True: (400.0, 410.0, 400.0, 390.0), False: (440.0, 450.0, 440.0, 430.0)}
    found = go()
    (difference,) = found.differences
    assert difference.winner == PANEL[1]
    assert difference.ratio == pytest.approx(0.1, abs=0.003)
    assert found.sentence.startswith(f"{PANEL[1]} wins over {PANEL[0]}: {PANEL[1]} +")
    text = io.StringIO()
    report.print_comparison(report.make_console(file=text), found)
    assert "prod1 runs 2 instances with the settings it had." in text.getvalue()
    assert "strapi_serve_admin_panel=false" in text.getvalue()


@pytest.mark.parametrize("at", [1, 5])
def test_a_failure_brings_the_host_back(host: tuple[SetTarget, Go], at: int) -> None:
    target, go = host
    target.rates = {True: (400.0,) * 4, False: (400.0,) * 4}
    target.fails_at = at
    with pytest.raises(HostError, match="the host was brought back to what it ran before"):
        go()
    assert target.calls[-1] == "restore 2"


def test_too_little_time_is_unresolved(host: tuple[SetTarget, Go]) -> None:
    target, go = host
    target.rates = {True: (400.0,) * 4, False: (400.0,) * 4}
    found = go(budget_s=1.0)
    assert (found.differences, found.rounds) == ((), 0)
    with pytest.raises(UnresolvedError, match="measure 3 rounds or more"):
        use_case.raise_for_outcome(found)
    assert target.calls == ["inspect", "check", "restore 2"]


def test_a_host_that_does_not_run_the_application_is_refused(host: tuple[SetTarget, Go]) -> None:
    target, go = host
    target.running = 0
    with pytest.raises(InputError, match="no application 'strapi' runs"):
        go()
    assert target.calls == ["inspect"]
