"""After a roll-out: does the application serve what it served before, without errors and without restarts?"""

from __future__ import annotations

from dataclasses import replace

from tuner.errors import HostError
from tuner.leaving import Actors, noted
from tuner.model import Decision, Load
from tuner.trials import Setting, to_trial

GATE_S = 5.0
# Of what the host could do with this count: a schedule that it can keep.
SHARE = 0.7
MOST_ERRORS = 0.001


def require_serving(decision: Decision, load: Load, actors: Actors) -> None:
    """Send a short load at a rate that the chosen count has shown to bear, and see it answered.

    Args:
        decision: What was chosen, and what it was measured to do.
        load: The load of the trials.
        actors: Who does the work.

    Raises:
        HostError: When requests fail, a worker was started anew, or others run than were chosen.
        InterruptedByUserError: When the user stopped the run meanwhile.
    """
    instances = decision.instances or 0
    measured = next(row.throughput_rps for row in decision.candidates if row.instances == instances)
    rate = SHARE * measured
    actors.progress.step(f"Seeing {instances} instances serve {rate:.0f} requests/s")
    gentle = replace(load, rate_rps=rate, duration_s=GATE_S, warmup_cold_s=load.warmup_warm_s)
    with noted(f"gate {instances} instances", actors):
        raw = actors.target.trial({"strapi_instances": instances}, gentle)
    trial = to_trial(raw, Setting(0, 0, instances, 1, float(instances)), [], wall_s=GATE_S)
    host = raw["host"]
    if trial.restarts:
        raise HostError(
            f"{trial.restarts} workers were started anew on {host} after the roll-out of {instances} instances"
        )
    if not trial.requests or trial.errors > MOST_ERRORS * trial.requests:
        kinds = ", ".join(f"{count} {kind}" for kind, count in trial.errors_by_kind.items() if count)
        raise HostError(
            f"{trial.errors} of {trial.requests} requests failed on {host} after the roll-out of {instances} instances"
            + (f" ({kinds})" if kinds else "")
        )
