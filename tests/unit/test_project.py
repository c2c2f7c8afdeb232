"""The project is found from where the user stands, and Ansible behaves as its user configured it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from support import ROOT

from tuner import project
from tuner.errors import InputError


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANSIBLE_CONFIG", "ANSIBLE_INVENTORY", "ANSIBLE_HOST_KEY_CHECKING"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A project with a configuration that names an inventory."""
    found = tmp_path / "checkout"
    (found / "playbooks/deep").mkdir(parents=True)
    (found / "playbooks/trial.yml").write_text("---\n")
    (found / "ansible.cfg").write_text("[defaults]\ninventory = inventories/prod\n")
    return found


def test_the_project_is_here_or_above(checkout: Path) -> None:
    assert project.find_project(checkout) == checkout
    assert project.find_project(checkout / "playbooks/deep") == checkout


def test_elsewhere_it_is_where_the_package_was_installed_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert project.find_project() == ROOT


def test_playbooks_without_a_configuration_are_no_project(checkout: Path) -> None:
    (checkout / "ansible.cfg").unlink()
    assert project.find_project(checkout) == ROOT


def test_no_project_at_all_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(project, "__file__", str(tmp_path / "site-packages/tuner/project.py"))
    with pytest.raises(InputError, match=f"no playbooks at or above {tmp_path}; run tuner in the checkout"):
        project.find_project(tmp_path)


def test_the_project_s_configuration_counts_unless_the_user_names_one(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert project.config_file(checkout) == checkout / "ansible.cfg"
    monkeypatch.setenv("ANSIBLE_CONFIG", str(tmp_path / "own.cfg"))
    assert project.config_file(checkout) == tmp_path / "own.cfg"
    # As Ansible does: a directory stands for the file in it, ~ for home, and an empty variable for none.
    monkeypatch.setenv("ANSIBLE_CONFIG", str(tmp_path))
    assert project.config_file(checkout) == tmp_path / "ansible.cfg"
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ANSIBLE_CONFIG", "~/own.cfg")
    assert project.config_file(checkout) == tmp_path / "own.cfg"
    monkeypatch.setenv("ANSIBLE_CONFIG", "")
    assert project.config_file(checkout) == checkout / "ansible.cfg"


def test_the_default_inventory_is_the_configuration_s_and_relative_to_it(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert project.default_inventory(checkout) == checkout / "inventories/prod"
    (checkout / "ansible.cfg").write_text("[defaults]\ninventory = /etc/hosts.yml\n")
    assert project.default_inventory(checkout) == Path("/etc/hosts.yml")
    monkeypatch.setenv("HOME", str(tmp_path))
    (checkout / "ansible.cfg").write_text("[defaults]\ninventory = ~/hosts.yml\n")
    assert project.default_inventory(checkout) == tmp_path / "hosts.yml"


def test_the_environment_s_inventory_wins_and_is_relative_to_where_the_user_stands(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ANSIBLE_INVENTORY", "mine.yml")
    assert project.default_inventory(checkout).absolute() == tmp_path / "mine.yml"


def test_no_inventory_is_refused(checkout: Path) -> None:
    (checkout / "ansible.cfg").write_text("[defaults]\n")
    with pytest.raises(InputError, match="no inventory is configured; name one with -i"):
        project.default_inventory(checkout)


@pytest.mark.parametrize(
    "content", [b"inventory = x\n", b"[defaults]\ninventory = \xff\n"], ids=["no section", "UTF-8"]
)
def test_a_configuration_that_cannot_be_read_is_refused_in_one_line(checkout: Path, content: bytes) -> None:
    (checkout / "ansible.cfg").write_bytes(content)
    with pytest.raises(InputError, match=r"ansible\.cfg cannot be read: .*; mend it, or set ANSIBLE_CONFIG") as caught:
        project.default_inventory(checkout)
    assert "\n" not in str(caught.value)


def test_host_keys_are_checked_unless_the_user_says_otherwise(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def checking() -> str:
        return project.ansible_environment(checkout)["ANSIBLE_HOST_KEY_CHECKING"]

    assert checking() == "True"
    (checkout / "ansible.cfg").write_text("[defaults]\nhost_key_checking = False\n")
    assert checking() == "False"
    monkeypatch.setenv("ANSIBLE_HOST_KEY_CHECKING", "yes")
    assert checking() == "yes"


def test_ansible_gets_the_configuration_and_the_commands_of_this_python(checkout: Path) -> None:
    environment = project.ansible_environment(checkout)
    assert environment["ANSIBLE_CONFIG"] == str(checkout / "ansible.cfg")
    assert environment["PATH"].split(os.pathsep)[0] == str(Path(sys.executable).parent)
    assert all(isinstance(value, str) for value in environment.values())
