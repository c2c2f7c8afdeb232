"""What of the database's variables reaches .env, and how connections are shared out. No host is touched."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import ROOT

pytestmark = pytest.mark.integration

# Each case is a host of the inventory with variables of its own, so that one run of Ansible evaluates all of them.
PLAYBOOK = """\
- hosts: all
  gather_facts: false
  vars_files: ["{root}/roles/strapi/vars/main.yml"]
  tasks:
    - ansible.builtin.set_fact:
        answer: "{{{{ dict(plain=__strapi_dotenv, secret=__strapi_dotenv_secrets, share=__strapi_pool_share) }}}}"
    - ansible.builtin.copy:
        content: "{{{{ dict(groups['all'] | zip(groups['all'] | map('extract', hostvars, 'answer'))) | to_json }}}}"
        dest: "{folder}/answers.json"
        mode: "0600"
      run_once: true
"""

POSTGRES = {"strapi_database_client": "postgres"}
AUTO = {**POSTGRES, "strapi_database_pool_max": "auto"}
CASES: dict[str, dict[str, Any]] = {
    "sqlite": {"strapi_database_password": "left over"},
    "postgres": {
        **POSTGRES,
        "strapi_database_host": "db.example.com",
        "strapi_database_name": "shop",
        "strapi_database_username": "keeper",
        "strapi_database_password": "hunter2",
        "strapi_env": {"DATABASE_SCHEMA": "own", "EXTRA": "1"},
        "strapi_secrets": {"SMTP_PASSWORD": "x"},
    },
    "mysql": {"strapi_database_client": "mysql", "strapi_database_ssl": True},
    "unasked": {**AUTO, "strapi_database_max_connections": 23, "strapi_instances": 2},
}
# The server allows so many, for so many instances on so many hosts: what each pool may hold, worked out by hand
# (allowed over instances + 2 on each host, rounded down, at least 1 and at most 10).
SHARED_OUT = [
    (97, 2, 1, 10),
    (97, 8, 1, 9),
    (97, 30, 1, 3),
    (97, 8, 3, 3),
    (17, 2, 1, 4),
    (97, 46, 1, 2),
    (97, 96, 1, 1),
    (5, 8, 2, 1),
]
CASES |= {
    f"auto-{allowed}-{instances}-{hosts}": {
        **AUTO,
        "strapi_instances": instances,
        "strapi_database_hosts": hosts,
        "__strapi_database_seen": {"allowed": allowed},
    }
    for allowed, instances, hosts, _ in SHARED_OUT
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What the role makes of each case."""
    folder = tmp_path_factory.mktemp("variables")
    (folder / "group_vars").mkdir()
    # Below the hosts' variables, as a role's defaults are.
    shutil.copy(ROOT / "roles/strapi/defaults/main.yml", folder / "group_vars" / "all.yml")
    hosts = {name: {"ansible_connection": "local", **variables} for name, variables in CASES.items()}
    (folder / "hosts.yml").write_text(yaml.safe_dump({"strapi": {"hosts": hosts}}))
    (folder / "playbook.yml").write_text(PLAYBOOK.format(root=ROOT, folder=folder))
    done = subprocess.run(
        [str(Path(sys.executable).parent / "ansible-playbook"), "-i", "hosts.yml", "playbook.yml"],
        cwd=folder,
        env={**os.environ, "ANSIBLE_HOME": str(folder), "ANSIBLE_PYTHON_INTERPRETER": sys.executable},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, dict[str, Any]] = json.loads((folder / "answers.json").read_text())
    return found


def test_sqlite_needs_a_file_and_nothing_else(answers: dict[str, dict[str, Any]]) -> None:
    assert answers["sqlite"]["plain"] == {"DATABASE_CLIENT": "sqlite", "DATABASE_FILENAME": ".tmp/data.db"}
    assert answers["sqlite"]["secret"] == {}


def test_postgres_in_the_names_that_strapis_own_config_reads(answers: dict[str, dict[str, Any]]) -> None:
    assert answers["postgres"]["plain"] == {
        "DATABASE_CLIENT": "postgres",
        "DATABASE_HOST": "db.example.com",
        "DATABASE_PORT": 5432,
        "DATABASE_NAME": "shop",
        "DATABASE_USERNAME": "keeper",
        "DATABASE_SSL": False,
        "DATABASE_SCHEMA": "own",
        "DATABASE_POOL_MIN": 2,
        "DATABASE_POOL_MAX": 10,
        "EXTRA": "1",
    }
    assert answers["postgres"]["secret"] == {"DATABASE_PASSWORD": "hunter2", "SMTP_PASSWORD": "x"}


def test_mysql_has_its_own_port_and_no_schema(answers: dict[str, dict[str, Any]]) -> None:
    plain = answers["mysql"]["plain"]
    assert (plain["DATABASE_PORT"], plain["DATABASE_SSL"]) == (3306, True)
    assert "DATABASE_SCHEMA" not in plain


@pytest.mark.parametrize(("allowed", "instances", "hosts", "pool"), SHARED_OUT)
def test_auto_shares_the_connections_out(
    allowed: int, instances: int, hosts: int, pool: int, answers: dict[str, dict[str, Any]]
) -> None:
    answer = answers[f"auto-{allowed}-{instances}-{hosts}"]
    assert answer["plain"]["DATABASE_POOL_MAX"] == pool
    assert answer["plain"]["DATABASE_POOL_MIN"] == min(2, pool)
    assert int(answer["share"]) == (instances + 2) * hosts


def test_auto_before_anybody_was_asked_believes_the_inventory(answers: dict[str, dict[str, Any]]) -> None:
    assert answers["unasked"]["plain"]["DATABASE_POOL_MAX"] == (23 - 3) // 4


def test_all_hosts_of_the_inventory_share_a_server_that_is_elsewhere(answers: dict[str, dict[str, Any]]) -> None:
    instances = 1  # the default where no CPUs were counted
    assert int(answers["postgres"]["share"]) == (instances + 2) * len(CASES)
    assert int(answers["mysql"]["share"]) == instances + 2
