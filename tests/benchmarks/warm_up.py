"""How long does a cold worker take to reach its speed? Records the throughput of cold and warm workers.

Run it against a deployed host on which nothing else runs:

    python tests/benchmarks/warm_up.py --host demo --output tests/fixtures/series

It loads 1, 2 and 3 instances from the first request on, cold ones for 20 s and warm ones for 12 s, prints where the
warm-up ends by the rule of `tuner.steady`, writes each series into the directory, and leaves the count that it found.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tuner import assembly, steady
from tuner.measuring import VARIABLE
from tuner.model import Load

COLD_S, WARM_S = 20.0, 12.0
BIN_S = 0.1
# From one instance upwards each step boots workers beside warm ones; from three downwards none is booted.
STEPS = (
    ("warm-1", 1, WARM_S),
    ("one-of-2-cold", 2, COLD_S),
    ("warm-2", 2, WARM_S),
    ("one-of-3-cold", 3, COLD_S),
    ("warm-3", 3, WARM_S),
    ("down-to-2", 2, WARM_S),
    ("down-to-1", 1, WARM_S),
    ("two-of-3-cold", 3, COLD_S),
    ("down-from-3-to-1", 1, WARM_S),
)


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", required=True)
    parser.add_argument("--inventory", type=Path)
    parser.add_argument("--output", type=Path, required=True, help="directory of the series")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    with assembly.open_session(options.host, options.inventory, verbose=False) as session:
        before = session.target.inspect().deployment.instances
        try:
            session.target.trial({VARIABLE: 1}, Load(duration_s=WARM_S))
            for name, instances, duration_s in STEPS:
                session.interruption.check()
                load = Load(duration_s=duration_s, warmup_cold_s=0.0, warmup_warm_s=0.0)
                raw = session.target.trial({VARIABLE: instances}, load)
                ok = raw["load"]["bins"]["ok"]
                row = {"instances": instances, "started": raw["applied"]["started"], "width_s": BIN_S, "ok": ok}
                (options.output / f"{name}.json").write_text(json.dumps(row, separators=(",", ":")) + "\n")
                found = steady.measure(ok, width_s=BIN_S, skip_s=0.0)
                levels = [sum(ok[at : at + 20]) / 2 for at in range(0, len(ok) - 19, 20)]
                print(
                    f"{name:<18} begins at {found.cut_s:>4.1f} s{'' if found.settled else ', not settled'}: "
                    f"{found.throughput_rps:.0f} requests/s; each 2 s: {', '.join(f'{level:.0f}' for level in levels)}",
                    flush=True,
                )
        finally:
            session.target.restore(before)


if __name__ == "__main__":
    main()
