"""Where the playbooks are, and the environment in which Ansible runs them."""

from __future__ import annotations

import configparser
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from tuner.errors import InputError

MARKER = Path("playbooks/trial.yml")


def find_project(start: Path | None = None) -> Path:
    """Find the directory that holds playbooks and roles: here, above, or where this package was installed from.

    Raises:
        InputError: When there is none.
    """
    here = (start or Path.cwd()).resolve()
    for directory in (here, *here.parents, Path(__file__).resolve().parent.parent):
        if (directory / MARKER).is_file() and (directory / "ansible.cfg").is_file():
            return directory
    raise InputError(
        f"no playbooks at or above {here}", remedy="run tuner in the checkout that holds deploy.yml and ansible.cfg"
    )


def config_file(project: Path) -> Path:
    """The ansible.cfg that counts: the user's own choice, or the project's."""
    chosen = Path(os.environ.get("ANSIBLE_CONFIG") or project).expanduser()
    return chosen / "ansible.cfg" if chosen.is_dir() else chosen


def default_inventory(project: Path) -> Path:
    """The inventory that Ansible would take without -i.

    Raises:
        InputError: When none is configured.
    """
    if chosen := os.environ.get("ANSIBLE_INVENTORY"):
        return Path(chosen).expanduser()
    config = config_file(project)
    if chosen := _setting(config, "inventory"):
        return config.parent / Path(chosen).expanduser()
    raise InputError("no inventory is configured", remedy="name one with -i")


def ansible_environment(project: Path) -> Mapping[str, str]:
    """Variables with which Ansible finds this project, and behaves as its user configured it."""
    config = config_file(project)
    checking = os.environ.get("ANSIBLE_HOST_KEY_CHECKING") or _setting(config, "host_key_checking") or "True"
    return {
        "ANSIBLE_CONFIG": str(config),
        # ansible-runner would switch it off.
        "ANSIBLE_HOST_KEY_CHECKING": checking,
        # The commands beside this Python first: the virtual environment need not be active.
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        # A result above this many characters would arrive empty.
        "MAX_EVENT_RES": "5000000",
        "ANSIBLE_FORCE_COLOR": "0",
    }


def _setting(config: Path, key: str) -> str:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read(config, encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError) as error:
        raise InputError(f"{config} cannot be read: {error}", remedy="mend it, or set ANSIBLE_CONFIG") from error
    return parser.get("defaults", key, fallback="").strip()
