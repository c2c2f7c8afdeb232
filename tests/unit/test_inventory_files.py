"""The file to edit is the one that Ansible would take the variable from; what it must hold is spliced."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from host_files import BESIDE_PLAYBOOKS, DIRECTORY, FILE, KEY, OWNED, OWNED_FILE, VAULT_BLOCK, VAULTED

from tuner import inventory_files
from tuner.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

# name: (files, the file to edit, its text afterwards)
PLANNED: dict[str, tuple[dict[str, str], str, str]] = {
    "nothing there": ({}, OWNED_FILE, OWNED),
    "a directory": ({f"{DIRECTORY}/main.yml": "a: 1\n"}, OWNED_FILE, OWNED),
    "an earlier file of the directory loses": (
        {f"{DIRECTORY}/main.yml": "strapi_instances: 2\n"},
        OWNED_FILE,
        OWNED,
    ),
    "the owned file": (
        {OWNED_FILE: f"{OWNED}other: 1  # mine\n".replace(": 3", ": 2")},
        OWNED_FILE,
        f"{OWNED}other: 1  # mine\n",
    ),
    "a file": ({FILE: "a: 1\n"}, FILE, "a: 1\nstrapi_instances: 3\n"),
    "a file without extension": (
        {"inv/host_vars/prod1": "strapi_instances: 2\n"},
        "inv/host_vars/prod1",
        "strapi_instances: 3\n",
    ),
    "a .yaml file": (
        {"inv/host_vars/prod1.yaml": "strapi_instances: 2\n"},
        "inv/host_vars/prod1.yaml",
        "strapi_instances: 3\n",
    ),
    "a directory beside a file wins": (
        {FILE: "strapi_instances: 2\n", f"{DIRECTORY}/main.yml": "a: 1\n"},
        OWNED_FILE,
        OWNED,
    ),
    "a later file of the directory wins": (
        {OWNED_FILE: "strapi_instances: 1\n", f"{DIRECTORY}/vars.yml": "strapi_instances: 2 # why\n"},
        f"{DIRECTORY}/vars.yml",
        "strapi_instances: 3 # why\n",
    ),
    "a nested directory wins": (
        {f"{DIRECTORY}/zone/a.yml": "strapi_instances: 2\n", f"{DIRECTORY}/b.yml": "a: 1\n"},
        f"{DIRECTORY}/zone/a.yml",
        "strapi_instances: 3\n",
    ),
    "hidden and backup files do not count": (
        {
            f"{DIRECTORY}/vars.yml~": "strapi_instances: 9\n",
            f"{DIRECTORY}/.vars.yml": "strapi_instances: 9\n",
        },
        OWNED_FILE,
        OWNED,
    ),
    "beside the playbooks wins": (
        {FILE: "strapi_instances: 1\n", BESIDE_PLAYBOOKS: "a: 1\nstrapi_instances: 2\n"},
        BESIDE_PLAYBOOKS,
        "a: 1\nstrapi_instances: 3\n",
    ),
    "beside the playbooks without it": ({BESIDE_PLAYBOOKS: "a: 1\n"}, OWNED_FILE, OWNED),
    "vault blocks and CRLF": (
        {FILE: f"{VAULT_BLOCK}strapi_instances: 2\n".replace("\n", "\r\n")},
        FILE,
        f"{VAULT_BLOCK}strapi_instances: 3\n".replace("\n", "\r\n"),
    ),
    "a group sets it": ({"inv/group_vars/all.yml": "strapi_instances: 2\n"}, OWNED_FILE, OWNED),
}

# name: (files, what the refusal must say)
REFUSED: dict[str, tuple[dict[str, str], str]] = {
    "a template": ({FILE: "a: 1\nstrapi_instances: '{{ n }}'\n"}, r"prod1\.yml:2 has a template"),
    "a template that wins": (
        {f"{DIRECTORY}/vars.yml": "strapi_instances: '{{ n }}'\n"},
        r"prod1/vars\.yml:1 has a template",
    ),
    "twice": ({FILE: "strapi_instances: 1\nstrapi_instances: 2\n"}, r"more than once \(lines 1, 2\)"),
    "an encrypted value": (
        {FILE: VAULT_BLOCK.replace("db_password", KEY)},
        r"prod1\.yml:1 has a value tagged !vault",
    ),
    "a list": ({FILE: "strapi_instances: [2]\n"}, "has a list or a mapping as the value"),
    "flow style": ({FILE: "{a: 1}\n"}, "flow style"),
    "JSON": (
        {"inv/host_vars/prod1.json": '{"a": 1}'},
        r'prod1\.json is JSON; set it yourself: "strapi_instances": 3',
    ),
    "encrypted as a whole": ({FILE: VAULTED}, r"prod1\.yml is encrypted .* ansible-vault edit"),
    "JSON that wins": (
        {FILE: "a: 1\n", "playbooks/host_vars/prod1.json": '{"strapi_instances": 2}'},
        r"playbooks/host_vars/prod1\.json is JSON",
    ),
}


def planned(root: Path, files: dict[str, str]) -> tuple[Path, bytes]:
    """Write the files below `root`, and return the file to edit for prod1 and its planned bytes."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    directories = (root / "inv/host_vars", root / "playbooks/host_vars")
    path = inventory_files.locate(directories, "prod1", KEY)
    return path, inventory_files.rewritten(path, inventory_files.read(path), "prod1", KEY, 3)


@pytest.mark.parametrize(("files", "edited", "after"), PLANNED.values(), ids=PLANNED.keys())
def test_the_place_that_wins_is_edited(tmp_path: Path, files: dict[str, str], edited: str, after: str) -> None:
    assert planned(tmp_path, files) == (tmp_path / edited, after.encode())


@pytest.mark.parametrize(("files", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_changed_safely_is_refused(tmp_path: Path, files: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        planned(tmp_path, files)
    assert "\n" not in str(caught.value)


def test_one_host_vars_for_inventory_and_playbooks_is_no_rival_of_itself(tmp_path: Path) -> None:
    (tmp_path / "prod1").mkdir()
    (tmp_path / "prod1/main.yml").write_text("strapi_instances: 2\n")
    place = inventory_files.locate((tmp_path, tmp_path), "prod1", KEY)
    assert place == tmp_path / "prod1/tuner.yml"


@pytest.mark.parametrize("name", ["prod1", "prod1.yml", "prod1/tuner.yml"])
def test_a_link_to_nothing_is_refused(tmp_path: Path, name: str) -> None:
    link = tmp_path / name
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(tmp_path / "later.yml")
    with pytest.raises(InputError, match="is a symbolic link to no file"):
        inventory_files.locate((tmp_path, tmp_path / "none"), "prod1", KEY)


def test_a_link_in_a_circle_is_refused(tmp_path: Path) -> None:
    (tmp_path / "prod1.yml").symlink_to(tmp_path / "prod1.yml")
    with pytest.raises(InputError, match="is a symbolic link to no file"):
        inventory_files.locate((tmp_path, tmp_path / "none"), "prod1", KEY)


def test_a_replaced_file_keeps_its_mode_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "prod1.yml"
    path.write_text("old")
    path.chmod(0o604)
    inventory_files.replace(path, b"new")
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o7777 == 0o604
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_file_or_directory_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "prod1.yml"
    path.write_text("a: 1\n")
    path.chmod(0o400)
    with pytest.raises(InputError, match=r"prod1\.yml is not writable"):
        inventory_files.check_writable(path)
    tmp_path.chmod(0o500)
    with pytest.raises(InputError, match=rf"{tmp_path} is not writable"):
        inventory_files.check_writable(tmp_path / "prod2/tuner.yml")


def test_a_failed_replacement_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "prod1.yml"
    path.write_text("old")

    def fails(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("os.fsync", fails)
    with pytest.raises(OSError, match="Input/output error"):
        inventory_files.replace(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
