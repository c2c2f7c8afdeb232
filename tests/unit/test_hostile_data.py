"""What comes from users and hosts is data to Ansible: real playbooks run here, and nothing in it is run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ansible_runner
import pytest
from support import ROOT

from tuner import extra_vars
from tuner.ansible_target import AnsibleTarget
from tuner.interruption import Interruption

CONFIG = "[defaults]\ninventory = hosts.yml\n"
INVENTORY = """\
all:
  hosts:
    prod1: {ansible_connection: local, ansible_python_interpreter: "{{ ansible_playbook_python }}"}
"""
PLAYBOOK = """\
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.set_fact:
        kept: "{{ load_requests[0].path | default('') }}"
      when: load_requests is defined
    - name: Report
      ansible.builtin.debug:
        msg:
          requests: "{{ load_requests | default([]) | map('combine', {'weight': 1}) }}"
          kept: "{{ kept | default('') }}"
          setting: "{{ strapi_env | default({}) | to_json }}"
          checking: "{{ lookup('ansible.builtin.config', 'HOST_KEY_CHECKING') }}"
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with one playbook, which reports what it was given."""
    for name in ("ANSIBLE_CONFIG", "ANSIBLE_INVENTORY", "ANSIBLE_HOST_KEY_CHECKING"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ANSIBLE_HOME", str(tmp_path / "ansible"))
    (tmp_path / "playbooks").mkdir()
    (tmp_path / "playbooks/trial.yml").write_text(PLAYBOOK)
    (tmp_path / "ansible.cfg").write_text(CONFIG)
    (tmp_path / "hosts.yml").write_text(INVENTORY)
    return tmp_path


def run(project: Path, variables: dict[str, Any]) -> Any:  # noqa: ANN401 whatever JSON can hold
    target = AnsibleTarget(project, project / "hosts.yml", "prod1", Interruption())
    return target._run("trial.yml", variables)  # noqa: SLF001 what all its methods go through


def test_paths_and_settings_are_no_templates(project: Path) -> None:
    hostile = f"/{{{{ lookup('pipe', 'touch {project}/owned') }}}}{{% for x in y %}}\x1b[31m$(touch {project}/owned)"
    found = run(project, {"load_requests": [{"path": hostile}], "strapi_env": {"NAME": hostile}})
    assert found["requests"] == [{"path": hostile, "weight": 1}]
    assert found["kept"] == hostile
    assert json.loads(found["setting"]) == {"NAME": hostile}
    assert not (project / "owned").exists()


def test_what_is_no_text_stays_what_it_is() -> None:
    text = extra_vars.dump({"a": 1, "b": 1.5, "c": True, "d": None, "e": [1, {"f": False}], "g": ()})
    assert text == "a: 1\nb: 1.5\nc: true\nd: null\ne:\n- 1\n- f: false\ng: []\n"


@pytest.mark.parametrize(
    ("config", "environment", "checked"),
    [("", {}, True), ("host_key_checking = False\n", {}, False), ("", {"ANSIBLE_HOST_KEY_CHECKING": "False"}, False)],
    ids=["by default", "not by the configuration", "not by the environment"],
)
def test_host_keys_are_checked_as_the_user_configured_it(
    project: Path, monkeypatch: pytest.MonkeyPatch, config: str, environment: dict[str, str], *, checked: bool
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    (project / "ansible.cfg").write_text(CONFIG + config)
    assert run(project, {})["checking"] is checked


def test_what_a_playbook_is_given_is_for_its_owner_alone_and_gone_afterwards(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes: dict[Path, int] = {}
    real = ansible_runner.run

    def look(**options: Any) -> Any:  # noqa: ANN401 ansible-runner's own
        private = Path(options["private_data_dir"])
        modes.update({path: path.stat().st_mode & 0o777 for path in (private, *private.rglob("*"))})
        return real(**options)

    monkeypatch.setattr(ansible_runner, "run", look)
    run(project, {})
    (private, *_) = modes
    assert modes == {private: 0o700, private / "env": 0o700, private / "env/extravars": 0o600}
    assert not private.exists()


def test_the_project_s_own_configuration_leaves_host_keys_checked() -> None:
    assert "host_key_checking" not in (ROOT / "ansible.cfg").read_text(encoding="utf-8")
