"""The callback that keeps packed modules from one playbook of a run to the next."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tuner.ansible_target import AnsibleTarget
from tuner.errors import HostError
from tuner.interruption import Interruption

ROOT = Path(__file__).resolve().parents[2]
PLAYBOOK = """
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.ping:
      register: answer
      failed_when: answer.ping != 'pong'

    - name: Report
      ansible.builtin.debug:
        msg: "{{ answer }}"
"""
INVENTORY = (
    "all: {hosts: {prod1: {ansible_connection: local, ansible_python_interpreter: '{{ ansible_playbook_python }}'}}}"
)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with one playbook, which runs one module."""
    monkeypatch.delenv("ANSIBLE_CONFIG", raising=False)
    monkeypatch.setenv("ANSIBLE_HOME", str(tmp_path / "ansible"))
    shutil.copytree(ROOT / "playbooks/callback_plugins", tmp_path / "playbooks/callback_plugins")
    (tmp_path / "playbooks/unlock.yml").write_text(PLAYBOOK)
    (tmp_path / "ansible.cfg").write_text("[defaults]\n")
    (tmp_path / "hosts.yml").write_text(INVENTORY)
    return tmp_path


def run(project: Path, packed: str) -> None:
    """Run the playbook, which fails where the module does."""
    target = AnsibleTarget(project, project / "hosts.yml", "prod1", Interruption(), packed=packed)
    target.unlock()


def test_what_one_playbook_has_packed_is_there_for_the_next(project: Path, tmp_path: Path) -> None:
    packed = tmp_path / "packed"
    packed.mkdir()
    run(project, str(packed))
    (module,) = [path for path in packed.glob("*ping*") if path.suffix != ".lock"]
    seen = module.stat()
    run(project, str(packed))
    assert (module.stat().st_ino, module.stat().st_mtime_ns) == (seen.st_ino, seen.st_mtime_ns)
    # It is what the second playbook ran: with another one in its place, that cannot.
    module.write_bytes(b"nothing that can be read")
    with pytest.raises(HostError, match="failed on prod1"):
        run(project, str(packed))


@pytest.mark.parametrize("packed", ["", "/nowhere/at/all"])
def test_without_a_place_for_them_all_is_as_ever(project: Path, packed: str) -> None:
    run(project, packed)
