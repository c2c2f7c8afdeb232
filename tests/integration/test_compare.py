"""Other settings on the real thing: they reach the process, and leave nothing behind. The tests build on each other."""

from __future__ import annotations

import json
from pathlib import Path

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


def files(host: DeployedHost) -> dict[str, bytes]:
    """What a deploy wrote, and what a trial may have written beside it."""
    folders = (host.root / "app", host.root / "app/shared")
    found = [path for folder in folders for path in folder.glob("*") if path.is_file()]
    found += (host.root / "app/shared").glob(".env*")
    return {str(path.relative_to(host.root)): path.read_bytes() for path in found}


def workers(host: DeployedHost) -> list[int]:
    """Process ids of the workers."""
    return [process["pid"] for process in json.loads(host.pm2("-s", "jlist")) if process["name"] == "strapi"]


def admin_status(host: DeployedHost) -> int:
    return httpx.get(f"{host.url}/admin", follow_redirects=True, timeout=30).status_code


def test_settings_of_a_trial_reach_the_process(host: DeployedHost) -> None:
    done = host.playbook("deploy.yml")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert admin_status(host) == 200
    before = files(host)
    candidate = {
        "trial_tasks": "try",
        "strapi_instances": 1,
        "strapi_serve_admin_panel": False,
        "strapi_node_args": ["--max-semi-space-size=32"],
        "strapi_env": {"SPECIAL": "of the trial"},
    }
    done = host.playbook("playbooks/trial.yml", **candidate, **LOAD)
    assert done.returncode == 0, done.stdout[-4000:]
    assert admin_status(host) == 404
    (pid,) = workers(host)
    assert b"--max-semi-space-size=32" in Path(f"/proc/{pid}/cmdline").read_bytes()
    dotenv = host.root / "app/shared/.env.trial"
    assert f"ENV_PATH={dotenv}".encode() in Path(f"/proc/{pid}/environ").read_bytes()
    assert dotenv.stat().st_mode & 0o777 == 0o600
    assert "of the trial" in dotenv.read_text()
    assert {name: text for name, text in files(host).items() if name in before} == before


def test_a_restore_brings_the_deployed_settings_back(host: DeployedHost) -> None:
    done = host.playbook("playbooks/restore.yml", strapi_instances=2)
    assert done.returncode == 0, done.stdout[-4000:]
    assert admin_status(host) == 200
    pids = workers(host)
    assert len(pids) == 2
    for pid in pids:
        assert b"--max-semi-space-size" not in Path(f"/proc/{pid}/cmdline").read_bytes()
        assert b"ENV_PATH=" not in Path(f"/proc/{pid}/environ").read_bytes()
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
