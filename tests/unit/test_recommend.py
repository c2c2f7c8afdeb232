"""The use case, on a simulated host: what is chosen is written and rolled out, and whatever goes wrong is undone."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from records import deployment
from simulated import NotedProgress, SimulatedTarget
from web import serve

from tuner import recommend as use_case
from tuner.errors import HostError, InputError, InterruptedByUserError, LimitError, RestoreError, UnresolvedError
from tuner.interruption import Interruption
from tuner.inventory import Inventory
from tuner.journal import Journal, Unfinished
from tuner.leaving import Actors
from tuner.model import Load, Lock, Verdict
from tuner.recommend import Outcome, Request

# Three instances are best by far, and the host runs two.
CLEAR: Mapping[int, Sequence[float]] = {1: (200, 210, 200), 2: (400, 400, 410), 3: (600, 610, 600)}
NOISY: Mapping[int, Sequence[float]] = {1: (200, 500, 300), 2: (400, 250, 310), 3: (300, 310, 600)}
DEAD: Mapping[int, Sequence[float]] = dict.fromkeys((1, 2, 3), (0, 0, 0))
OWNED = "host_vars/prod1/tuner.yml"
WRITTEN = "---\n# Written by tuner. Change it with: tuner recommend --host prod1\nstrapi_instances: 3\n"
# The search measures upwards first.
UPWARDS = ["trial 1", "trial 2", "trial 3"]


@dataclass
class Run:
    """One run of the use case, on a simulated host, with a real inventory and a real journal below one directory."""

    root: Path
    target: SimulatedTarget
    interruption: Interruption
    progress: NotedProgress
    request: Request

    def go(self, **asked: Any) -> Outcome:
        """Run it, with these fields of the request changed."""
        inventory = Inventory(self.root / "hosts.yml", project_dir=self.root)
        journal = Journal(self.root / "results", "prod1")
        actors = Actors(self.target, inventory, journal, self.interruption, self.progress)
        return use_case.recommend(replace(self.request, **asked), actors)

    def note_left_behind(self) -> Unfinished | None:
        """What the next run would find."""
        return Journal(self.root / "results", "prod1").unfinished()

    def records(self) -> list[str]:
        """Names of what the runs on this host left in its directory of results."""
        return sorted(path.name for path in (self.root / "results/prod1").glob("*"))

    def summary(self) -> dict[str, Any]:
        """What the only run noted of its end."""
        (path,) = (self.root / "results/prod1").glob("*/summary.json")
        found: dict[str, Any] = json.loads(path.read_text())
        return found

    def inventory_files(self) -> dict[str, str]:
        """Every file but the results, with its text."""
        found = [path for path in self.root.rglob("*") if path.is_file() and "results" not in path.parts]
        return {str(path.relative_to(self.root)): path.read_text() for path in found}


Prepare = Callable[..., Run]


@pytest.fixture(scope="module")
def application() -> Iterator[str]:
    """What answers in place of the application, and its address."""
    with serve(lambda _method, path, _body: (200, []) if path.startswith("/api/articles") else (403, "no")) as url:
        yield url


@pytest.fixture
def prepare(tmp_path: Path, application: str) -> Iterator[Prepare]:
    """Prepare a run that tries 1 to 3 instances three times, and writes nothing unless it is asked to."""
    (tmp_path / "hosts.yml").write_text("all:\n  hosts:\n    prod1:\n")
    with Interruption() as interruption:

        def make(throughputs: Mapping[int, Sequence[float]] = CLEAR, **host: Any) -> Run:
            request = Request(
                host="prod1",
                load=Load(paths=("/api/articles?sort=title",), duration_s=8.0),
                requested=(1, 2, 3),
                effort="standard",
                budget_s=None,
                seed=1,
                resume=None,
                tolerance=0.05,
                keep_disturbed=False,
                slo=None,
                rate_rps=None,
                latency_first=False,
                live=False,
                write=False,
                dry_run=False,
            )
            target = SimulatedTarget(application, throughputs, written=tmp_path / OWNED, **host)
            return Run(tmp_path, target, interruption, NotedProgress(), request)

        yield make


def fail(error: BaseException, at: int) -> Callable[[int], None]:
    """What makes the trial of this number fail."""

    def on_trial(number: int) -> None:
        if number == at:
            raise error

    return on_trial


def test_the_chosen_number_is_written_and_rolled_out(prepare: Prepare) -> None:
    run = prepare()
    outcome = run.go(write=True)
    assert outcome.decision is not None
    assert (outcome.decision.verdict, outcome.decision.instances) == (Verdict.CERTIFIED, 3)
    assert run.target.calls[:5] == ["inspect", "check", *UPWARDS]
    assert run.target.calls[-2:] == ["deploy 3", "trial 3"]
    assert all(call.startswith("trial ") for call in run.target.calls[2:-2])
    assert run.target.locks == ["recommend 2", "recommend 3", "released"]
    gate = run.target.loads[-1]
    assert gate.rate_rps == pytest.approx(0.7 * 600, rel=0.05)
    assert gate.duration_s == 5.0
    assert (run.root / OWNED).read_text() == WRITTEN
    assert run.target.running == outcome.running == 3
    assert run.note_left_behind() is None
    summary = run.summary()
    assert (summary["verdict"], summary["running"], summary["written"]["changed"]) == ("certified", 3, True)
    assert Path(outcome.directory) == run.root / "results/prod1" / Path(outcome.directory).name
    rows = (Path(outcome.directory) / "trials.jsonl").read_text().splitlines()
    assert [json.loads(row)["trial"]["throughput_rps"] for row in rows[:3]] == pytest.approx([200, 400, 600])
    use_case.raise_for_verdict(outcome)


def test_without_write_the_host_is_brought_back_and_the_choice_is_told(prepare: Prepare) -> None:
    run = prepare()
    before = run.inventory_files()
    outcome = run.go()
    assert outcome.decision is not None
    assert (outcome.decision.instances, outcome.edit, outcome.running) == (3, None, 2)
    assert run.target.calls[:5] == ["inspect", "check", *UPWARDS]
    assert run.target.calls[-1] == "restore 2"
    assert run.target.running == 2
    assert run.inventory_files() == before
    assert run.note_left_behind() is None


def test_unresolved_brings_the_host_back_and_writes_nothing(prepare: Prepare) -> None:
    run = prepare(NOISY)
    before = run.inventory_files()
    outcome = run.go(write=True)
    assert outcome.decision is not None
    assert outcome.decision.verdict is Verdict.UNRESOLVED
    assert run.target.calls[-1] == "restore 2"
    assert run.inventory_files() == before
    assert run.summary()["written"] is None
    with pytest.raises(UnresolvedError, match="nothing was written; "):
        use_case.raise_for_verdict(outcome)


def test_a_host_on_which_no_candidate_answers_is_brought_back(prepare: Prepare) -> None:
    run = prepare(DEAD)
    outcome = run.go()
    assert run.target.running == 2
    with pytest.raises(LimitError) as caught:
        use_case.raise_for_verdict(outcome)
    assert caught.value.exit_code == 4


@pytest.mark.parametrize("at", [1, 5, 8])
@pytest.mark.parametrize("kind", [HostError, InterruptedByUserError, RuntimeError, SystemExit])
def test_a_failure_in_a_trial_brings_the_host_back(prepare: Prepare, kind: type[BaseException], at: int) -> None:
    error = kind("trial.yml failed")
    run = prepare(on_trial=fail(error, at))
    with pytest.raises(kind) as caught:
        run.go()
    assert caught.value is error
    assert run.target.calls[2:-1][:3] == UPWARDS[:at]
    assert len(run.target.calls) == 2 + at + 1
    assert run.target.calls[-1] == "restore 2"
    assert run.target.running == 2
    assert run.note_left_behind() is None
    assert run.summary() == {"verdict": None, "error": "trial.yml failed"}


def test_an_error_says_how_the_host_was_left(prepare: Prepare) -> None:
    run = prepare(on_trial=fail(HostError("trial.yml failed", remedy="look at the disk"), 1))
    with pytest.raises(HostError) as caught:
        run.go()
    assert (
        str(caught.value) == "trial.yml failed; the host was brought back to what it ran before (2); look at the disk"
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_a_trial_brings_the_host_back(prepare: Prepare, number: signal.Signals) -> None:
    run = prepare(on_trial=lambda at: signal.raise_signal(number) if at == 2 else None)
    with pytest.raises(InterruptedByUserError, match="interrupted") as caught:
        run.go()
    assert run.target.calls == ["inspect", "check", "trial 1", "trial 2", "restore 2"]
    assert run.note_left_behind() is None
    assert caught.value.exit_code == 130


def test_a_signal_in_the_last_trial_is_acted_on_before_anything_is_written(prepare: Prepare) -> None:
    run = prepare(on_trial=lambda at: signal.raise_signal(signal.SIGINT) if at == 8 else None)
    before = run.inventory_files()
    with pytest.raises(InterruptedByUserError):
        run.go(write=True)
    assert run.target.calls[-1] == "restore 2"
    assert run.inventory_files() == before


def test_the_host_is_noted_as_in_use_while_it_is(prepare: Prepare, tmp_path: Path) -> None:
    seen: list[object] = []

    def look(_: int) -> None:
        noted = Journal(tmp_path / "results", "prod1").unfinished()
        seen.append(noted and noted.instances)

    prepare(on_trial=look).go()
    assert len(seen) >= 8
    assert set(seen) == {2}


@pytest.mark.parametrize("own", [None, "strapi_instances: 2  # as it was\n"], ids=["no file", "a file"])
def test_a_failed_roll_out_puts_the_inventory_and_the_host_back(prepare: Prepare, own: str | None) -> None:
    run = prepare(broken=["deploy"])
    if own is not None:
        (run.root / OWNED).parent.mkdir(parents=True)
        (run.root / OWNED).write_text(own)
    before = run.inventory_files()
    with pytest.raises(HostError, match="no space left"):
        run.go(write=True)
    assert run.target.calls[-2:] == ["deploy 3", "restore 2"]
    assert run.inventory_files() == before
    assert (run.root / OWNED).parent.exists() == (own is not None)
    assert run.target.running == 2
    assert run.note_left_behind() is None


def test_a_gate_that_fails_rolls_out_the_old_number_again(prepare: Prepare) -> None:
    run = prepare(failing_at_rate=True)
    (run.root / OWNED).parent.mkdir(parents=True)
    (run.root / OWNED).write_text("strapi_instances: 2  # as it was\n")
    before = run.inventory_files()
    with pytest.raises(
        HostError, match=r"\d+ of \d+ requests failed on prod1 after the roll-out of 3 instances"
    ) as caught:
        run.go(write=True)
    assert run.target.calls[-4:] == ["deploy 3", "trial 3", "deploy 2", "restore 2"]
    assert run.inventory_files() == before
    assert run.target.running == 2
    assert run.target.locks[-3:] == ["recommend 3", "recommend 2, on the way back", "released"]
    assert run.note_left_behind() is None
    assert "the host was brought back to what it ran before (2)" in str(caught.value)


def test_a_lock_that_cannot_be_released_is_said_and_nothing_is_taken_back(prepare: Prepare) -> None:
    run = prepare(broken=["unlock"])
    outcome = run.go(write=True)
    assert (run.root / OWNED).read_text() == WRITTEN
    assert run.target.running == outcome.running == 3
    assert run.note_left_behind() is None
    assert run.progress.warnings == ["prod1 cannot be reached; the host lets go of its lock by itself in a few minutes"]


LOCK = Lock(
    "jane", "laptop", 7, "deploy", "2026-01-01T00:00:00+00:00", 3.0, 1800.0, watchdog=False, stale="", instances=None
)


@pytest.mark.parametrize("asked", [{}, {"dry_run": True}, {"write": True}], ids=["to measure", "dry", "to write"])
def test_a_host_that_somebody_has_locked_is_refused(prepare: Prepare, asked: dict[str, Any]) -> None:
    run = prepare()
    run.target.locked_by = LOCK
    with pytest.raises(InputError, match=r"prod1 is locked by jane on laptop \(pid 7\) since 2026.*, for deploy; wait"):
        run.go(**asked)
    assert not run.target.touched


def test_a_lock_that_was_left_behind_is_left_to_the_host_to_judge(prepare: Prepare) -> None:
    run = prepare()
    run.target.locked_by = replace(LOCK, stale="not renewed for 4000 s")
    with pytest.raises(InputError, match="prod1 is locked by jane"):  # the simulated host takes nothing over
        run.go()
    assert run.target.calls == ["inspect", "check"]


def test_a_lock_that_is_taken_meanwhile_leaves_nothing_behind(prepare: Prepare) -> None:
    run = prepare(broken=["lock"])
    with pytest.raises(InputError, match="prod1 is locked by"):
        run.go()
    assert not run.target.touched
    assert run.note_left_behind() is None


def test_what_was_measured_is_not_lost_with_a_failed_roll_out(prepare: Prepare) -> None:
    run = prepare(broken=["deploy"])
    with pytest.raises(HostError):
        run.go(write=True)
    summary = run.summary()
    assert (summary["verdict"], summary["instances"], summary["running"]) == ("certified", 3, 2)
    assert "no space left" in summary["error"]


def test_two_runs_on_one_host_do_not_meet(prepare: Prepare) -> None:
    run = prepare()
    with Journal(run.root / "results", "prod1").lock(), pytest.raises(InputError) as caught:
        run.go()
    assert str(caught.value).startswith(f"another run measures this host (pid {os.getpid()} since ")
    assert run.target.calls == []
    assert run.go().running == 2


def test_a_file_that_was_changed_meanwhile_is_left_alone(prepare: Prepare, tmp_path: Path) -> None:
    def somebody_writes(at: int) -> None:
        if at == 4:
            (tmp_path / OWNED).parent.mkdir(parents=True)
            (tmp_path / OWNED).write_text("strapi_instances: 7\n")

    run = prepare(on_trial=somebody_writes)
    with pytest.raises(HostError, match=r"tuner\.yml was changed while prod1 was measured, so strapi_instances: 3 was"):
        run.go(write=True)
    assert (run.root / OWNED).read_text() == "strapi_instances: 7\n"
    assert run.target.calls[-1] == "restore 2"


def test_what_a_run_that_was_cut_off_left_is_put_right_first(prepare: Prepare) -> None:
    run = prepare(running=3)
    earlier = Journal(run.root / "results", "prod1")
    earlier.open_run({})
    earlier.touch_host(deployment(instances=1), "lease-1", "compare")
    outcome = run.go()
    assert run.target.calls[:4] == ["restore 1", "inspect", "check", "trial 1"]
    assert outcome.running == run.target.running == 1
    assert "was cut off; bringing the host back to 1 " in run.progress.warnings[0]
    assert run.note_left_behind() is None


def test_what_a_run_that_was_cut_off_had_written_is_taken_back_and_rolled_out(prepare: Prepare) -> None:
    run = prepare(running=3)
    (run.root / OWNED).parent.mkdir(parents=True)
    (run.root / OWNED).write_text("strapi_instances: 2\n")
    before = run.inventory_files()
    inventory = Inventory(run.root / "hosts.yml", project_dir=run.root)
    edit = inventory.plan("prod1", "strapi_instances", 3)
    earlier = Journal(run.root / "results", "prod1")
    earlier.open_run({})
    earlier.touch_host(deployment(instances=2), "lease-1", "recommend")
    earlier.announce_edit(edit)
    inventory.apply(edit)
    run.go()
    assert run.target.calls[:4] == ["restore 2", "deploy 2", "inspect", "check"]
    assert run.target.locks[0] == "released lease-1"
    assert run.inventory_files() == before


def test_a_dry_run_touches_nothing(prepare: Prepare) -> None:
    run = prepare()
    before = run.inventory_files()
    outcome = run.go(dry_run=True)
    assert (outcome.decision, outcome.edit, outcome.directory) == (None, None, "")
    assert run.progress.plans[0].candidates == (1, 2, 3)
    assert run.target.calls == ["inspect", "check"]
    assert run.inventory_files() == before
    assert run.records() == []
    assert use_case.to_summary(outcome)["verdict"] is None
    use_case.raise_for_verdict(outcome)


def test_a_dry_run_leaves_what_a_cut_off_run_left_and_says_so(prepare: Prepare) -> None:
    run = prepare(running=3)
    earlier = Journal(run.root / "results", "prod1")
    earlier.open_run({})
    earlier.touch_host(deployment(instances=1), "lease-1", "compare")
    run.go(dry_run=True)
    assert run.target.calls == ["inspect", "check"]
    assert "without --dry-run, the host is brought back to 1 first" in run.progress.warnings[0]
    assert run.note_left_behind() is not None


def test_a_host_without_the_application_is_refused(prepare: Prepare) -> None:
    run = prepare(running=0)
    with pytest.raises(InputError, match=r"no application 'strapi' runs under pm2 on prod1; deploy it first: ansible"):
        run.go()
    assert run.target.calls == ["inspect"]
    assert run.records() == ["lock"]


def test_workers_that_are_not_online_are_refused(prepare: Prepare) -> None:
    run = prepare()
    run.target.unwell = 1
    with pytest.raises(InputError, match=r"1 of 3 workers of 'strapi' on prod1 are not online; deploy it again"):
        run.go()
    assert run.target.calls == ["inspect"]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"load": Load(paths=("/api/secrets",))}, r"/api/secrets answers 403 \(asked from prod1\), and .*; choose"),
        ({"requested": (1, 9)}, "candidate 9 is above the bound of 8 instances"),
    ],
    ids=["a path that is not readable", "a candidate above a bound"],
)
def test_what_cannot_be_measured_is_refused_before_the_host_is_touched(
    prepare: Prepare, asked: dict[str, Any], message: str
) -> None:
    run = prepare()
    with pytest.raises(InputError, match=message):
        run.go(**asked)
    assert not run.target.touched
    assert run.records() == ["lock"]


def test_a_value_that_cannot_be_written_is_refused_before_the_host_is_looked_at(prepare: Prepare) -> None:
    run = prepare()
    (run.root / "host_vars").mkdir()
    (run.root / "host_vars/prod1.yml").write_text("strapi_instances: '{{ cpus }}'\n")
    with pytest.raises(InputError, match="has a template as the value"):
        run.go(write=True)
    assert run.target.calls == []


@pytest.mark.parametrize("at", [4, 99], ids=["after a failed trial", "after the last trial"])
def test_a_restore_that_fails_is_said_and_the_note_stays_for_the_next_run(prepare: Prepare, at: int) -> None:
    run = prepare(broken=["restore"], on_trial=fail(HostError("trial.yml failed"), at))
    with pytest.raises(RestoreError, match=r"run: ansible-playbook restore\.yml") as caught:
        run.go()
    assert caught.value.exit_code == 6
    noted = run.note_left_behind()
    assert noted is not None
    assert noted.instances == 2


def test_a_disk_that_is_full_does_not_keep_the_host_from_being_brought_back(
    prepare: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise HostError("results cannot be written: No space left on device")

    monkeypatch.setattr(Journal, "append", full)
    monkeypatch.setattr(Journal, "close_run", full)
    run = prepare()
    with pytest.raises(HostError, match="No space left on device"):
        run.go()
    assert run.target.calls == ["inspect", "check", "trial 1", "restore 2"]
    assert run.note_left_behind() is None


def test_a_run_ends_when_its_time_is_over_and_is_unresolved(prepare: Prepare, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("tuner.measuring.time.monotonic", lambda: clock[0])

    def take_time(_: int) -> None:
        clock[0] += 20.0

    run = prepare(on_trial=take_time)
    outcome = run.go(budget_s=70.0)
    assert outcome.decision is not None
    assert outcome.decision.verdict is Verdict.UNRESOLVED
    assert outcome.decision.stop_reason == "the time of 70 s is over"
    # Three trials of 20 s end within 70 s, and a fourth would not.
    assert run.target.calls == ["inspect", "check", *UPWARDS, "restore 2"]


def test_a_run_that_was_interrupted_is_continued_from_its_trials(prepare: Prepare) -> None:
    run = prepare(on_trial=fail(InterruptedByUserError("interrupted"), 6))
    with pytest.raises(InterruptedByUserError):
        run.go(write=True)
    (directory,) = (run.root / "results/prod1").glob("2*")
    outcome = run.go(write=True, resume=directory.name)
    rows = [json.loads(row) for row in (directory / "trials.jsonl").read_text().splitlines()]
    assert [row["trial"]["number"] for row in rows] == list(range(1, len(rows) + 1))
    assert [row["session"] for row in rows[:6]] == [0] * 5 + [1]
    assert outcome.directory == str(directory)
    assert outcome.decision is not None
    assert outcome.decision.instances == 3
    # The three on the way up were not measured again.
    assert len(rows) <= 12
    assert (run.root / OWNED).read_text() == WRITTEN


def test_a_run_that_was_decided_is_continued_without_a_trial(prepare: Prepare) -> None:
    run = prepare()
    measured = run.go()
    calls = len(run.target.calls)
    outcome = run.go(write=True, resume=measured.directory)
    assert run.target.calls[calls:] == ["inspect", "check", "deploy 3", "trial 3"]
    assert outcome.decision is not None
    assert outcome.decision.verdict is Verdict.CERTIFIED


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"requested": (1, 2)}, r"its list of candidates was \[1, 2, 3\], and is \[1, 2\] now; give the options"),
        ({"load": Load(paths=("/api/articles?sort=id",))}, r"its load \(paths\) was .*sort=title.* and is .*sort=id"),
        ({"resume": "yesterday"}, r"'yesterday' is no run of this host; name a directory below "),
    ],
    ids=["other candidates", "another load", "no such run"],
)
def test_a_run_that_measured_something_else_is_not_continued(
    prepare: Prepare, asked: dict[str, Any], message: str
) -> None:
    run = prepare()
    directory = run.go().directory
    calls = len(run.target.calls)
    with pytest.raises(InputError, match=message):
        run.go(**{"resume": directory, **asked})
    assert run.target.calls[calls:] == ["inspect", "check"]


def test_a_run_on_another_host_is_not_continued(prepare: Prepare) -> None:
    run = prepare()
    directory = Path(run.go().directory)
    found = json.loads((directory / "run.json").read_text())
    found["inspection"]["host"] = "prod2"
    (directory / "run.json").write_text(json.dumps(found))
    with pytest.raises(InputError, match="its host was 'prod2', and is 'prod1' now"):
        run.go(resume=directory.name)


def test_trials_of_another_version_are_refused(prepare: Prepare) -> None:
    run = prepare()
    directory = Path(run.go().directory)
    (directory / "trials.jsonl").write_text('{"trial": {"number": 1}}\n')
    with pytest.raises(
        InputError, match=r"was written by another version of tuner, or changed: 0\.phase is missing; start"
    ):
        run.go(resume=directory.name)


def test_the_seed_and_what_each_trial_was_for_are_noted(prepare: Prepare) -> None:
    run = prepare()
    outcome = run.go(seed=77)
    found = json.loads((Path(outcome.directory) / "run.json").read_text())
    assert (found["request"]["seed"], run.summary()["seed"]) == (77, 77)
    rows = [json.loads(row) for row in (Path(outcome.directory) / "trials.jsonl").read_text().splitlines()]
    assert {row["phase"] for row in rows} <= {"search", "limits", "confirm"}
    assert [row["trial"]["number"] for row in rows] == list(range(1, len(rows) + 1))


def disturb(target: SimulatedTarget, *numbers: int) -> None:
    """Let somebody else use a CPU during these trials."""
    undisturbed, count = target.trial, iter(range(1, 1000))

    def trial(candidate: Mapping[str, object], load: Load) -> Any:  # noqa: ANN401 a raw report
        report = undisturbed(candidate, load)
        if next(count) not in numbers:
            return report
        busy = {**report["after"]["host_cpu_s"], "user": 110.0}
        return {**report, "after": {**report["after"], "host_cpu_s": busy}}

    target.trial = trial  # type: ignore[method-assign]  # the same host, with a neighbour


STEADY: Mapping[int, Sequence[float]] = {1: (200, 202, 201), 2: (400, 402, 401), 3: (600, 603, 606)}


def test_a_disturbed_trial_is_measured_again_at_once(prepare: Prepare) -> None:
    run = prepare(STEADY)
    disturb(run.target, 2)
    outcome = run.go()
    assert run.target.calls[2:6] == ["trial 1", "trial 2", "trial 2", "trial 3"]
    assert outcome.decision is not None
    assert [candidate.disturbed for candidate in outcome.decision.candidates] == [0, 1, 0]


def test_a_trial_that_stays_disturbed_is_measured_three_times_and_says_nothing(prepare: Prepare) -> None:
    run = prepare(STEADY)
    disturb(run.target, 2, 3, 4)
    outcome = run.go()
    assert run.target.calls[2:7] == ["trial 1", "trial 2", "trial 2", "trial 2", "trial 3"]
    rows = (Path(outcome.directory) / "trials.jsonl").read_text().splitlines()
    assert [json.loads(row)["trial"]["attempt"] for row in rows[:5]] == [1, 1, 2, 3, 1]
    assert outcome.decision is not None
    assert outcome.decision.instances == 3


def test_disturbed_trials_are_kept_where_that_is_asked_for(prepare: Prepare) -> None:
    run = prepare(STEADY)
    disturb(run.target, *range(2, 100))
    outcome = run.go(keep_disturbed=True)
    assert run.target.calls[2:5] == UPWARDS
    assert outcome.decision is not None
    assert outcome.decision.instances == 3
