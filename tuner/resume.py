"""Going on with a run that was stopped: what must be the same, and its trials told again. Pure.

The probability that a choice is right is one given all that was measured, whenever one looks and however often one
stops, so that a run may be stopped and continued at will. What may change in between is how fast the host is as a
whole: trials of another session tell of ratios between counts only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from tuner.errors import InputError
from tuner.model import Inspection, Load, Plan, Spent, Trial, Usage
from tuner.procedure import Procedure
from tuner.trials import CHOOSING, EXTENDED, extend


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
    records: list[Record] = []
    try:
        for line in lines:
            phase, trial = line["phase"], _trial(line["trial"])
            if phase == CHOOSING:
                continue
            if phase.endswith(EXTENDED):
                records[-1] = replace(records[-1], trial=extend(records[-1].trial, trial))
            else:
                records.append(Record(phase, line["session"], trial, int(line["raw"]["load"]["connections"])))
    except (KeyError, IndexError, TypeError) as error:
        raise InputError(
            f"{where} was written by another version of tuner: {error}", remedy="start a new run, without --resume"
        ) from error
    return records


def _trial(found: Mapping[str, Any]) -> Trial:
    parts = {"usage": Usage(**found["usage"]), "spent": Spent(**found["spent"])}
    return Trial(**{**found, **parts, "disturbances": tuple(found["disturbances"])})


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
    earlier = found.get("inspection") or {}
    now = _as_json(asdict(load))
    pairs = [
        ("host", earlier.get("host"), inspection.host),
        ("CPU budget", (earlier.get("capacity") or {}).get("cpu_budget"), inspection.capacity.cpu_budget),
        ("release", (earlier.get("deployment") or {}).get("release"), inspection.deployment.release),
        ("list of candidates", (found.get("plan") or {}).get("candidates"), list(plan.candidates)),
    ]
    before = (found.get("request") or {}).get("load") or {}
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
