"""The main job on the real thing: deploy, measure, write back, deploy again. The tests build on each other in order."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator

import httpx
import psutil
import pytest
from deployed import HOST, DeployedHost, changed_tasks, make_host
from strict_load import StrictLoad
from support import ROOT

pytestmark = pytest.mark.integration

# So wide that any two candidates are within it, whatever else this machine does: the smallest is the right choice.
TOLERANCE = "90%"
QUICK = (
    *("--candidates", "1-2", "--effort", "quick", "--duration", "2", "--connections", "20"),
    *("--tolerance", TOLERANCE, "--keep-disturbed"),
)
INTERRUPT_LIMIT_S = 60


@pytest.fixture(scope="module")
def host() -> Iterator[DeployedHost]:
    made = make_host()
    try:
        done = made.playbook("deploy.yml")
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
        yield made
    finally:
        made.remove()


def results(host: DeployedHost) -> tuple[str, str]:
    return "--results", str(host.root / "results")


def test_deploy_runs_the_number_of_the_inventory(host: DeployedHost) -> None:
    assert host.workers_online() == 2
    assert httpx.get(f"{host.url}/_health").status_code == 204
    articles = httpx.get(f"{host.url}/api/articles")
    assert articles.status_code == 200, articles.text


def test_secrets_are_private_and_not_in_the_process_list(host: DeployedHost) -> None:
    dotenv = host.root / "app" / "shared" / ".env"
    assert dotenv.stat().st_mode & 0o777 == 0o600
    secrets = [line.split("=", 1)[1] for line in dotenv.read_text().splitlines() if line.startswith(("APP_", "JWT_"))]
    assert len(secrets) == 2
    listing = host.pm2("-s", "jlist")
    assert not [secret for secret in secrets if secret in listing]


def test_second_deploy_changes_nothing(host: DeployedHost) -> None:
    done = host.playbook("deploy.yml")
    assert done.returncode == 0, done.stdout[-2000:]
    assert changed_tasks(done.stdout) == 0


def test_seed_tops_up_rather_than_doubling(host: DeployedHost) -> None:
    for count, added in ((40, "40 were added"), (50, "10 were added"), (50, "none were added")):
        done = host.tuner("seed", "--count", str(count))
        assert done.returncode == 0, done.stderr
        assert added in done.stdout
    total = httpx.get(f"{host.url}/api/articles").json()["meta"]["pagination"]["total"]
    assert total == 50


def test_inspect_tells_the_host_and_the_application(host: DeployedHost) -> None:
    done = host.tuner("inspect", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["deployment"]["instances"] == 2
    assert found["deployment"]["url"] == host.url
    assert 0 < found["capacity"]["cpu_budget"] <= found["capacity"]["cpus_online"]


def test_no_write_leaves_host_and_inventory_as_they_were(host: DeployedHost) -> None:
    done = host.tuner("recommend", "--no-write", "--json", *QUICK, *results(host))
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["instances"] == 1
    assert summary["written"] is None
    assert [candidate["instances"] for candidate in summary["candidates"]] == [1, 2]
    assert sum(candidate["trials"] for candidate in summary["candidates"]) >= 6
    assert host.workers_online() == 2
    assert not host.written.exists()


def test_two_load_hosts_send_one_load_together(host: DeployedHost) -> None:
    variables = host.root / "inventory" / "group_vars" / "strapi.yml"
    variables.parent.mkdir()
    variables.write_text(f"load_from: [{HOST}, localhost]\nstrapi_url: {host.url}\n")
    try:
        done = host.tuner(
            "recommend", "--no-write", *QUICK, "--budget", "30s", "--results", str(host.root / "together")
        )
    finally:
        variables.unlink()
    # Cut short, so that no verdict is expected of it: the raw trials tell.
    assert done.returncode in (0, 3), done.stderr
    (records,) = host.root.glob("together/*/*/trials.jsonl")
    raw = json.loads(records.read_text().splitlines()[0])["raw"]
    assert raw["hosts"] == [HOST, "localhost"]
    assert [load["connections"] for load in raw["loads"]] == [10, 10]
    assert raw["load"]["connections"] == 20
    assert raw["load"]["total"]["ok"] == sum(load["total"]["ok"] for load in raw["loads"]) > 0
    assert [sum(pair) for pair in zip(*(load["bins"]["ok"] for load in raw["loads"]), strict=True)] == raw["load"][
        "bins"
    ]["ok"]
    assert min(load["total"]["ok"] for load in raw["loads"]) > 0
    assert host.workers_online() == 2


def test_interrupt_during_a_trial_leaves_the_original_count(host: DeployedHost) -> None:
    command = host.tuner_command("recommend", *QUICK, *results(host))
    with subprocess.Popen(
        command, cwd=ROOT, env=host.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            # The first trial runs one instance, so that by the second one the host has left its original count.
            if line.startswith("trial 2 of about"):
                break
        assert process.poll() is None, "it ended before the second trial"
        assert host.workers_online() == 1 or host.workers_online() == 2
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=INTERRUPT_LIMIT_S)
    assert process.returncode == 130, errors
    assert "brought back" in errors
    assert host.workers_online() == 2
    assert not host.written.exists()


def run_to_trial(host: DeployedHost, command: list[str], trial: int) -> subprocess.Popen[str]:
    """Start a run in a process group of its own, and return once a trial of it has begun."""
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=host.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    assert process.stderr is not None
    # The first trial runs one instance, so that by the second one the host has left its original count.
    assert any(line.startswith(f"trial {trial} of about") for line in process.stderr), process.poll()
    return process


def kill_group(process: subprocess.Popen[str]) -> None:
    """End a run and all that it has started here, with no chance to put anything right."""
    with process:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def test_a_host_whose_run_was_killed_brings_itself_back(host: DeployedHost) -> None:
    process = run_to_trial(host, host.tuner_command("recommend", *QUICK, *results(host)), 2)
    watchdog = psutil.Process(int((host.root / "lock" / "held" / "watchdog.pid").read_text()))
    kill_group(process)
    watchdog.wait(INTERRUPT_LIMIT_S * 2)
    assert host.workers_online() == 2
    assert not (host.root / "lock" / "held").exists()
    assert (
        "its holder is gone: the application runs in 2 instances again" in (host.root / "app/pm2/lease.log").read_text()
    )
    status = json.loads(host.tuner("status", "--json", *results(host)).stdout)
    assert (status["hosts"][0]["instances"], status["hosts"][0]["lock"]) == (2, "")
    assert status["hosts"][0]["unfinished"].startswith("the recommend of ")
    done = host.tuner("restore", *results(host))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{HOST} runs 2 instances again, as before the recommend of ")
    assert host.workers_online() == 2
    assert host.tuner("restore", *results(host)).stdout.startswith(f"Nothing is to be restored on {HOST}")


def test_a_run_that_was_killed_is_taken_back_at_once_where_its_records_are(host: DeployedHost) -> None:
    kill_group(run_to_trial(host, host.tuner_command("recommend", *QUICK, *results(host)), 2))
    elsewhere = ("--results", str(host.root / "elsewhere"))
    refused = host.tuner("recommend", "--no-write", *QUICK, *elsewhere)
    assert refused.returncode == 2
    assert re.search(rf"{HOST} is locked by \w+ on \S+ \(pid \d+\) since .*, for recommend; wait", refused.stderr)
    deploy = host.playbook("deploy.yml")
    assert deploy.returncode == 2
    assert re.search(r"the host is locked by .*, for recommend", deploy.stdout)
    done = host.tuner("restore", *results(host))
    assert done.returncode == 0, done.stderr
    assert host.workers_online() == 2
    assert not (host.root / "lock" / "held").exists()


def test_of_a_deploy_and_two_runs_at_once_one_works_and_the_others_are_told_who_does(host: DeployedHost) -> None:
    commands = [
        ["ansible-playbook", "-i", str(host.inventory), "deploy.yml"],
        *(
            host.tuner_command("recommend", "--no-write", *QUICK, "--results", str(host.root / name))
            for name in ("one", "two")
        ),
    ]
    many = [
        subprocess.Popen(
            command, cwd=ROOT, env=host.environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for command in commands
    ]
    outputs = [one.communicate()[0] for one in many]
    codes = [one.returncode for one in many]
    assert 0 in codes, outputs
    for code, output in zip(codes, outputs, strict=True):
        assert code == 0 or re.search(r"is locked by \w+ on \S+ \(pid \d+\) since ", output), output
    assert len([code for code in codes if code]) >= 1
    assert host.workers_online() == 2
    assert not (host.root / "lock" / "held").exists()


def test_recommend_writes_the_number_and_runs_it(host: DeployedHost) -> None:
    done = host.tuner("recommend", *QUICK, *results(host))
    assert done.returncode == 0, done.stderr
    assert "+strapi_instances: 1" in done.stdout
    assert host.written.read_text().splitlines()[-1] == "strapi_instances: 1"
    effective = host.run("ansible-inventory", "-i", str(host.inventory), "--host", HOST)
    assert json.loads(effective.stdout)["strapi_instances"] == 1
    assert host.workers_online() == 1


def test_deploy_after_it_changes_nothing(host: DeployedHost) -> None:
    done = host.playbook("deploy.yml")
    assert changed_tasks(done.stdout) == 0
    assert host.workers_online() == 1


def change_app(host: DeployedHost, state: str, instances: int) -> None:
    """Reload or scale the application as the role does."""
    arguments = {
        "name": "strapi",
        "state": state,
        "instances": instances,
        "ecosystem": f"{host.root}/app/ecosystem.config.js",
        "node_bin_dir": f"{host.root}/nodejs/bin",
        "pm2": f"{host.root}/pm2/node_modules/.bin/pm2",
        "pm2_home": f"{host.root}/app/pm2",
        "health_url": f"{host.url}/_health",
        "stable_s": 0,
    }
    done = host.run(*host.module("pm2_app", arguments))
    assert done.returncode == 0, done.stdout


def load_while(host: DeployedHost, *steps: tuple[str, int]) -> StrictLoad:
    """Keep the application under load while it goes through these steps."""
    with StrictLoad(host.url, "/api/articles?pagination[pageSize]=5", connections=20) as load:
        load.await_answers(50)
        for state, instances in steps:
            change_app(host, state, instances)
        load.await_answers(50)
    return load


def test_reload_under_load_loses_no_request(host: DeployedHost) -> None:
    change_app(host, "present", 2)
    load = load_while(host, ("reloaded", 2))
    assert load.errors == []


def test_scaling_under_load_loses_no_request(host: DeployedHost) -> None:
    load = load_while(host, ("present", 3), ("present", 1))
    assert load.errors == []
    assert host.workers_online() == 1
