"""The use case simulate: its input, its methods, its summary."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from tuner import simulate
from tuner.errors import InputError
from tuner.simulate import SimulatedResult, parse_hosts, summarise
from tuner.simulated_host import HostModel, Noise, random_host

LINE = {
    "name": "h1",
    "cpu_budget": 4,
    "current": 1,
    "throughput": {"1": 410.0, "2": 790.0, "3": 1010.0, "4": 1100.0, "5": 1090.0, "6": 1060.0},
    "noise": {
        "cv": 0.03,
        "drift_sd": 0.01,
        "drift_rho": 0.9,
        "burst_rate": 0.05,
        "burst_depth": 0.3,
        "burst_trials": 2,
        "burst_visible": 0.8,
    },
    "warmup_s": 10,
    "boot_s": 3,
    "seed": 7,
}


def changed(**changes: object) -> str:
    return json.dumps({**LINE, **changes})


def without(*keys: str) -> dict[str, Any]:
    return {key: value for key, value in LINE.items() if key not in keys}


def test_a_whole_line_is_read() -> None:
    (host,) = parse_hosts([json.dumps(LINE)])
    assert host == HostModel(
        name="h1",
        cpu_budget=4.0,
        current=1,
        throughput={1: 410.0, 2: 790.0, 3: 1010.0, 4: 1100.0, 5: 1090.0, 6: 1060.0},
        noise=Noise(0.03, 0.01, 0.9, 0.05, 0.3, 2, 0.8),
        warmup_s=10.0,
        boot_s=3.0,
        seed=7,
    )


def test_missing_keys_take_quiet_defaults_and_empty_lines_are_skipped() -> None:
    few = without("name", "current", "noise", "warmup_s", "boot_s", "seed")
    (host,) = parse_hosts(["", json.dumps(few), "  \n"])
    assert host.name == "line 2"
    assert (host.current, host.noise, host.warmup_s, host.boot_s) == (1, Noise(), 10.0, 3.0)
    assert (host.noise.drift_sd, host.noise.burst_rate) == (0.0, 0.0)


def test_a_host_survives_the_way_through_json() -> None:
    model = random_host(1, 8, "bursty")
    assert list(parse_hosts([json.dumps(model.to_json())])) == [model]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 1: is no JSON"),
        ("[1]", "line 1: is no object"),
        (json.dumps(without("throughput")), "line 1: throughput is None"),
        (json.dumps(without("cpu_budget")), "line 1: cpu_budget is missing"),
        (changed(throughput={}), "line 1: throughput is {}"),
        (changed(throughput={"0": 1.0}), "line 1: throughput.0 is no instance count"),
        (changed(throughput={"1.5": 1.0}), "line 1: throughput.1.5 is no instance count"),
        (changed(throughput={"²": 1.0}), "line 1: throughput.² is no instance count"),
        (changed(throughput={"1": 1.0, "01": 2.0}), "line 1: throughput.01 is there twice"),
        (changed(throughput={"1": 0}), "line 1: throughput.1 is 0, which is out of range"),
        (changed(throughput={"1": "fast"}), "line 1: throughput.1 is 'fast', which is no number"),
        (changed(throughput={"1": float("nan")}), "line 1: throughput.1 is nan, which is out of range"),
        (changed(cpu_budget=0), "line 1: cpu_budget is 0, which is out of range"),
        (changed(cpu_budget=True), "line 1: cpu_budget is True, which is no number"),
        (changed(current=1.5), "line 1: current is 1.5, which is no whole number"),
        (changed(seed=float("inf")), "line 1: seed is inf, which is out of range"),
        (changed(noise=[]), r"line 1: noise is \[\], which is no object"),
        (changed(noise={"cv": -0.1}), "line 1: noise.cv is -0.1, which is out of range"),
        (changed(noise={"drift_rho": 1.0}), "line 1: noise.drift_rho is 1.0, which is out of range"),
        (changed(noise={"depth": 0.1}), "line 1: noise.depth is no key"),
        (changed(bootS=3), "line 1: bootS is no key"),
        (changed(name=3), "line 1: name is 3, which is no text"),
        (changed(boot_s=-1), "line 1: boot_s is -1, which is out of range"),
    ],
)
def test_a_wrong_line_is_named_with_its_key(line: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        list(parse_hosts([line]))
    assert caught.value.exit_code == 2
    assert caught.value.remedy


def test_the_number_of_the_wrong_line_is_said() -> None:
    with pytest.raises(InputError, match="line 3: boot_s"):
        list(parse_hosts([json.dumps(LINE), "", changed(boot_s=None)]))


def test_the_methods_of_today_do_what_people_do() -> None:
    hosts = [random_host(1, 4, "quiet")]
    (article,) = simulate.simulate(hosts, method="article")
    assert article.trials == 18
    (vcpus,) = simulate.simulate(hosts, method="vcpus")
    assert (vcpus.instances, vcpus.trials, vcpus.simulated_s) == (4, 0, 0.0)
    (most,) = simulate.simulate(hosts, method="max")
    assert (most.instances, most.verdict) == (6, "chosen")


def test_optuna_is_asked_for_only_when_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(InputError, match="needs the package optuna"):
        list(simulate.simulate([random_host(1, 4, "quiet")], method="optuna"))


def test_the_tuner_s_result_is_one_line_and_the_same_again() -> None:
    hosts = [random_host(1, 4, "quiet")]
    results = list(simulate.simulate(hosts, runs=2))
    assert results == list(simulate.simulate(hosts, runs=2))
    line = json.loads(json.dumps(results[0].to_json()))
    assert list(line) == ["name", "verdict", "instances", "trials", "simulated_s", "stop_reason"]
    assert line["verdict"] in {"certified", "resolved", "unresolved"}
    assert line["trials"] >= 8
    assert line["simulated_s"] > 10 * line["trials"]


@pytest.mark.parametrize(("options", "message"), [({"method": "guess"}, "'guess' is unknown"), ({"runs": 0}, "0 runs")])
def test_what_cannot_be_asked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        list(simulate.simulate([], **options))


def test_a_summary_counts_right_wrong_and_unresolved() -> None:
    (host,) = parse_hosts([json.dumps(LINE)])
    results = [
        SimulatedResult("h1", verdict, instances, trials, 60.0 * trials, "")
        for verdict, instances, trials in [
            ("certified", 4, 6),
            ("resolved", 3, 8),
            ("unresolved", 4, 30),
            ("resolved", 4, 10),
        ]
    ]
    found = summarise([host], results)
    assert (found.right, found.confidently_wrong, found.unresolved) == (0.5, 0.25, 0.25)
    assert (found.trials, found.simulated_s) == (9, 540)
    assert found.sentence() == (
        "4 runs: 50.0% right, 25.0% confidently wrong, 25.0% unresolved; median 9 trials, 9.0 min"
    )
    with pytest.raises(InputError, match="no hosts"):
        summarise([], [])
