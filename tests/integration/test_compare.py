"""Other settings on the real thing: they reach the process, and leave nothing behind. The tests build on each other."""

from __future__ import annotations

import json

import httpx
import pytest
from deployed import HOST, DeployedHost

pytestmark = pytest.mark.integration

LOAD = {
    "load_requests": [{"path": "/api/articles"}],
    "load_connections": 4,
    "load_duration_s": 2,
    "trial_warmup_cold_s": 1,
    "trial_warmup_warm_s": 1,
}

# Writes before the worker says that it is ready: when a trial is over, what it wrote is there.
PROBE = """\
'use strict';
const send = process.send;
process.send = (message, ...rest) => {
  if (message === 'ready') {
    const seen = { path: process.env.ENV_PATH, special: process.env.SPECIAL, arguments: process.execArgv };
    require('node:fs').writeFileSync(%s, JSON.stringify(seen));
  }
  return send.call(process, message, ...rest);
};
"""


def files(host: DeployedHost) -> dict[str, bytes]:
    """What a deploy wrote, and what a trial may have written beside it."""
    folders = (host.root / "app", host.root / "app/shared")
    found = [path for folder in folders for path in folder.glob("*") if path.is_file()]
    found += (host.root / "app/shared").glob(".env*")
    return {str(path.relative_to(host.root)): path.read_bytes() for path in found}


def admin_status(host: DeployedHost) -> int:
    return httpx.get(f"{host.url}/admin", follow_redirects=True, timeout=30).status_code


def test_settings_of_a_trial_reach_the_process(host: DeployedHost) -> None:
    done = host.playbook("deploy.yml")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert admin_status(host) == 200
    before = files(host)
    # Node.js loads it before the application: that it runs shows that the arguments arrived.
    probe, seen = host.root / "probe.js", host.root / "probe.json"
    probe.write_text(PROBE % json.dumps(str(seen)))
    candidate = {
        "trial_tasks": "try",
        "strapi_instances": 1,
        "strapi_serve_admin_panel": False,
        "strapi_node_args": [f"--require={probe}"],
        "strapi_env": {"SPECIAL": "of the trial"},
    }
    done = host.playbook("playbooks/trial.yml", **candidate, **LOAD)
    assert done.returncode == 0, done.stdout[-4000:]
    assert admin_status(host) == 404
    dotenv = host.root / "app/shared/.env.trial"
    worker = json.loads(seen.read_text())
    assert worker == {"path": str(dotenv), "special": "of the trial", "arguments": [f"--require={probe}"]}
    assert dotenv.stat().st_mode & 0o777 == 0o600
    assert "of the trial" in dotenv.read_text()
    assert {name: text for name, text in files(host).items() if name in before} == before


def test_a_restore_brings_the_deployed_settings_back(host: DeployedHost) -> None:
    done = host.playbook("playbooks/restore.yml", strapi_instances=2)
    assert done.returncode == 0, done.stdout[-4000:]
    assert admin_status(host) == 200
    assert host.workers_online() == 2
    listed = json.loads(host.pm2("-s", "jlist"))
    dotenv = f"{host.root}/app/current/.env"
    assert [process["pm2_env"]["ENV_PATH"] for process in listed] == [dotenv, dotenv]
    assert not any(process["pm2_env"].get("node_args") for process in listed)
    assert not [name for name in files(host) if "trial" in name]


def test_compare_says_how_two_settings_differ_and_leaves_the_host_as_it_was(host: DeployedHost) -> None:
    before = files(host)
    done = host.tuner(
        "compare",
        *("--set", "strapi_serve_admin_panel=true", "--set", "strapi_serve_admin_panel=false"),
        *("--effort", "quick", "--duration", "2", "--connections", "20", "--keep-disturbed", "--json"),
        *("--results", str(host.root / "results")),
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["rounds"] == 4
    (difference,) = found["differences"]
    assert difference["interval"][0] < difference["ratio"] < difference["interval"][1]
    assert found["sentence"].endswith("4 rounds.")
    assert [setting["trials"] for setting in found["settings"].values()] == [4, 4]
    assert files(host) == before
    assert admin_status(host) == 200
    assert host.workers_online() == 2
    assert not (host.inventory.parent / "host_vars" / HOST).exists()
