"""Going on with a run that was stopped: what must be the same, and its trials told again. Pure.

The probability that a choice is right is one given all that was measured, whenever one looks and however often one
stops, so that a run may be stopped and continued at will. What may change in between is how fast the host is as a
whole: trials of another session tell of ratios between counts only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict  # pydantic takes that of the standard library from Python 3.12 on

from tuner.errors import InputError
from tuner.model import Inspection, Load, Plan, Trial
from tuner.procedure import Procedure
from tuner.trials import CHOOSING, EXTENDED
from tuner.validation import in_words
from tuner.wording import printable


@dataclass(frozen=True)
class Record:
    """A trial as it lies on disk: what it was for, the session in which it was measured, and its connections."""

    phase: str
    session: int
    trial: Trial
    connections: int


def read_records(lines: Sequence[Mapping[str, Any]], where: str) -> list[Record]:
    """Read the trials of a run.

    Args:
        lines: The lines of `trials.jsonl`.
        where: What an error calls the file.

    Raises:
        InputError: When they are not what this version writes.
    """
    try:
        found = LINES.validate_python(lines)
    except ValidationError as error:
        raise _other_version(where, in_words(error)) from error
    records: list[Record] = []
    for line in found:
        phase, trial = line["phase"], line["trial"]
        if phase == CHOOSING:
            continue
        if phase.endswith(EXTENDED):
            if not records:
                raise _other_version(where, "it begins with the second part of a trial")
            records[-1] = replace(records[-1], trial=trial)
        else:
            records.append(Record(phase, line["session"], trial, line["raw"]["load"]["connections"]))
    return records


def _other_version(where: str, reason: str) -> InputError:
    return InputError(
        f"{where} was written by another version of tuner, or changed: {reason}",
        remedy="start a new run, without --resume",
    )


def _check_trial(trial: Trial) -> Trial:
    # Loads that only choose the number of connections have the number 0.
    counts = (trial.throughput_rps, trial.requests, trial.errors, trial.booted, trial.wall_s, trial.number)
    if min(counts) < 0 or trial.instances < 1 or trial.errors > trial.requests:
        raise ValueError("a trial of less than nothing")
    return replace(
        trial,
        limited_by=printable(trial.limited_by),
        disturbances=tuple(printable(reason) for reason in trial.disturbances),
    )


class _Load(TypedDict):
    connections: Annotated[int, Field(ge=1)]


class _Raw(TypedDict):
    load: _Load


class _Line(TypedDict):
    phase: str
    session: Annotated[int, Field(ge=0)]
    trial: Annotated[Trial, AfterValidator(_check_trial)]
    raw: _Raw


class _Inspection(TypedDict):
    host: str
    capacity: dict[str, Any]
    deployment: dict[str, Any]


class _Request(TypedDict):
    load: dict[str, Any]


class _Run(TypedDict):
    inspection: _Inspection
    plan: dict[str, Any]
    request: _Request


RUN: TypeAdapter[Any] = TypeAdapter(_Run)
LINES: TypeAdapter[list[_Line]] = TypeAdapter(list[_Line], config=ConfigDict(allow_inf_nan=False))


def check_same(found: Mapping[str, Any], inspection: Inspection, load: Load, plan: Plan) -> None:
    """Refuse to go on with a run that measured something else.

    Args:
        found: What `run.json` holds.
        inspection: The host and the application as they are now.
        load: The load that was asked for now.
        plan: The candidates of now.

    Raises:
        InputError: When host, application, load or candidates differ; says in what.
    """
    try:
        RUN.validate_python(found)
    except ValidationError as error:
        raise _other_version("run.json", in_words(error)) from error
    earlier = found["inspection"]
    now = _as_json(asdict(load))
    pairs = [
        ("host", earlier.get("host"), inspection.host),
        ("CPU budget", earlier["capacity"].get("cpu_budget"), inspection.capacity.cpu_budget),
        ("release", earlier["deployment"].get("release"), inspection.deployment.release),
        ("list of candidates", found["plan"].get("candidates"), list(plan.candidates)),
    ]
    before = found["request"]["load"]
    pairs += [(f"load ({name.removesuffix('_s')})", before.get(name), value) for name, value in now.items()]
    for name, was, is_now in pairs:
        if was != is_now:
            raise InputError(
                f"that run cannot be continued: its {name} was {was!r}, and is {is_now!r} now",
                remedy="give the options that it had, or start a new run without --resume",
            )


def replay(records: Sequence[Record], procedure: Procedure) -> None:
    """Tell a procedure the trials of earlier sessions, and that another one begins."""
    session = 0
    for record in records:
        if record.phase == "slo":  # the objective is measured anew for whatever is chosen
            continue
        if record.session != session:
            procedure.resume()
            session = record.session
        procedure.next()
        procedure.phase, procedure.round = record.phase, record.trial.round
        procedure.note(record.trial)
    procedure.resume()


def _as_json(value: Any) -> Any:  # noqa: ANN401 whatever JSON can hold
    return json.loads(json.dumps(value))
