"""After a roll-out: does the application serve what it served before, without errors and without restarts?"""

from __future__ import annotations

from dataclasses import replace

from tuner.errors import HostError
from tuner.leaving import Actors, noted
from tuner.model import Load
from tuner.trials import Setting, to_trial
from tuner.wording import instances as in_words
from tuner.wording import plural

GATE_S = 5.0
# Of what the host could do with this count: a schedule that it can keep.
SHARE = 0.7
MOST_ERRORS = 0.001


def require_serving(instances: int, rate_rps: float, load: Load, actors: Actors) -> None:
    """Send a short load at a rate that the chosen count has shown to bear, and see it answered.

    Args:
        instances: The chosen count.
        rate_rps: The rate, in requests per second.
        load: The load of the trials.
        actors: Who does the work.

    Raises:
        HostError: When requests fail, a worker died, or others run than were chosen.
        InterruptedByUserError: When the user stopped the run meanwhile.
    """
    actors.progress.step(f"Seeing {in_words(instances)} serve {rate_rps:.0f} requests/s")
    gentle = replace(load, rate_rps=rate_rps, duration_s=GATE_S, warmup_cold_s=load.warmup_warm_s)
    with noted(f"gate {in_words(instances)}", actors):
        raw = actors.target.trial({"strapi_instances": instances}, gentle)
    trial = to_trial(raw, Setting(0, 0, instances, 1, float(instances)), [], wall_s=GATE_S)
    host = raw["host"]
    if trial.restarts:
        raise HostError(
            f"{plural(trial.restarts, 'worker')} died on {host} after the roll-out of {in_words(instances)}"
        )
    if not trial.requests or trial.errors > MOST_ERRORS * trial.requests:
        kinds = ", ".join(f"{count} {kind}" for kind, count in trial.errors_by_kind.items() if count)
        raise HostError(
            f"{trial.errors} of {trial.requests} requests failed on {host} after the roll-out of {in_words(instances)}"
            + (f" ({kinds})" if kinds else "")
        )
