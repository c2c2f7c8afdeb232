"""A real run told again from its records: the same counts are asked for, and the same decision is made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from simulated import NotedProgress, SimulatedTarget
from support import ROOT

from tuner import decide, measuring, resume
from tuner.interruption import Interruption
from tuner.journal import Journal
from tuner.measuring import Measuring
from tuner.model import HostCapacity, Load
from tuner.procedure import Procedure
from tuner.search import EFFORTS, Search

RUNS = sorted(path for path in (ROOT / "tests/fixtures/runs").iterdir() if path.is_dir())


def read(path: Path) -> Any:  # noqa: ANN401 whatever JSON can hold
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_a_run_told_again_asks_and_decides_the_same(run: Path, tmp_path: Path) -> None:
    found, summary = read(run / "run.json"), read(run / "summary.json")
    request, inspection = found["request"], found["inspection"]
    capacity = HostCapacity(**inspection["capacity"])
    running = inspection["deployment"]["instances"]
    load = Load(**{**request["load"], "paths": tuple(request["load"]["paths"])})
    lines = [json.loads(line) for line in (run / "trials.jsonl").read_text(encoding="utf-8").splitlines()]
    search = Search(
        tuple(found["plan"]["candidates"]),
        capacity.cpu_budget,
        current=running,
        tolerance=request["tolerance"],
        seed=request["seed"],
        costs=measuring.costs_of(load, measuring.TRIAL_OVERHEAD_S),
        effort=EFFORTS[request["effort"]],
    )
    procedure = Procedure(
        search,
        tuple(found["plan"]["candidates"]),
        running,
        tolerance=request["tolerance"],
        memory_bytes=capacity.memory_bytes,
        keep_disturbed=request["keep_disturbed"],
    )
    # Only for what trials cost, which the search plans by.
    target = SimulatedTarget("", {}, written=tmp_path / "none")
    journal = Journal(tmp_path, "prod1")
    measured = Measuring(target, journal, Interruption(), NotedProgress(), load, capacity.cpu_budget, running)
    for record in resume.read_records(lines, str(run)):
        assert procedure.next() == record.trial.instances
        assert (procedure.phase, procedure.round) == (record.phase, record.trial.round)
        search.costs = measured.costs()
        measured.trials.append(record.trial)
        procedure.note(record.trial)
    assert procedure.next() is None
    decision = decide.decide(procedure, measured.trials, tolerance=request["tolerance"], seed=request["seed"])
    told = json.loads(json.dumps({"verdict": decision.verdict, "instances": decision.instances}))
    assert told == {name: summary[name] for name in told}
    assert decision.sentence == summary["sentence"]
    assert decision.probability == pytest.approx(summary["probability"])
