"""The variable of one host is found and edited where Ansible, asked for real, takes it from."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from host_files import BESIDE_PLAYBOOKS, DIRECTORY, FILE, KEY, OWNED, OWNED_FILE, VAULT_BLOCK, VAULTED

from tuner.errors import InputError, RestoreError
from tuner.inventory import Edit, Inventory

HOSTS = "all:\n  hosts:\n    prod1:\n    prod2:\n"

# name: (files besides inv/hosts.yml, the file that is edited, its text afterwards)
WRITTEN: dict[str, tuple[dict[str, str], str, str]] = {
    "nothing there": ({}, OWNED_FILE, OWNED),
    "an earlier file of the directory loses": (
        {f"{DIRECTORY}/main.yml": "strapi_instances: 2\n"},
        OWNED_FILE,
        OWNED,
    ),
    "a file": ({FILE: "a: 1\n"}, FILE, "a: 1\nstrapi_instances: 3\n"),
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
    "beside the playbooks wins": (
        {FILE: "strapi_instances: 1\n", BESIDE_PLAYBOOKS: "a: 1\nstrapi_instances: 2\n"},
        BESIDE_PLAYBOOKS,
        "a: 1\nstrapi_instances: 3\n",
    ),
    "vault blocks and CRLF": (
        {FILE: f"{VAULT_BLOCK}strapi_instances: 2\n".replace("\n", "\r\n")},
        FILE,
        f"{VAULT_BLOCK}strapi_instances: 3\n".replace("\n", "\r\n"),
    ),
}

# name: (files, what the refusal must say)
REFUSED: dict[str, tuple[dict[str, str], str]] = {
    "a template": ({FILE: "a: 1\nstrapi_instances: '{{ n }}'\n"}, r"prod1\.yml:2 has a template"),
    "host_vars is a file": ({"inv/host_vars": "a: 1\n"}, "host_vars is not a directory"),
    "the owned file is a directory": ({f"{OWNED_FILE}/x.yml": "a: 1\n"}, "not a regular file"),
    "broken YAML of another host": (
        {"inv/host_vars/prod2.yml": "a: 1\nb: c: hunter2\n"},
        r"prod2\.yml:2 is not valid YAML: mapping values are not allowed here$",
    ),
    "broken YAML of a group": (
        {"inv/group_vars/all": "a: 1\n\tb: 2\n"},
        r"group_vars/all:2 is not valid YAML: .*'\\t'",
    ),
    "several documents": ({FILE: "a: 1\n---\nb: 1\n"}, r"prod1\.yml:2 .*another document"),
    "not UTF-8": ({FILE: "a: 1\nb: \udcff\n"}, r"prod1\.yml:2 is not UTF-8"),
    "a list of variables": ({FILE: "- a\n"}, r"Could not process .*prod1\.yml"),
    "encrypted, without a password": ({FILE: VAULTED}, r"vault secrets found; give the vault password"),
}


def build(root: Path, files: dict[str, str], hosts: str = HOSTS) -> Path:
    """Write the files below `root` byte for byte, and return the inventory file."""
    for name, text in {"inv/hosts.yml": hosts, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode(errors="surrogateescape"))
    (root / "playbooks").mkdir(exist_ok=True)
    return root / "inv/hosts.yml"


def inventory(root: Path, files: dict[str, str], *extra_args: str) -> Inventory:
    return Inventory(build(root, files), project_dir=root, extra_args=extra_args)


def snapshot(root: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in root.rglob("*")}


def changed_lines(diff: str) -> list[str]:
    return [row for row in diff.splitlines() if re.match(r"[-+](?!--|\+\+)", row)]


@pytest.mark.parametrize(("files", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_written_safely_is_refused(tmp_path: Path, files: dict[str, str], message: str) -> None:
    subject = inventory(tmp_path, files)
    untouched = snapshot(tmp_path)
    with pytest.raises(InputError, match=message) as caught:
        subject.plan("prod1", KEY, 3)
    assert "\n" not in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert snapshot(tmp_path) == untouched


@pytest.mark.parametrize(("files", "edited", "after"), WRITTEN.values(), ids=WRITTEN.keys())
def test_what_was_written_is_what_ansible_reads_back(
    tmp_path: Path, files: dict[str, str], edited: str, after: str
) -> None:
    subject = inventory(tmp_path, files)
    untouched = snapshot(tmp_path)
    edit = subject.plan("prod1", KEY, 3)
    assert snapshot(tmp_path) == untouched
    subject.apply(edit)
    assert (tmp_path / edited).read_bytes() == after.encode()
    now = snapshot(tmp_path)
    assert {path for path in now if now[path] != untouched.get(path)} == {str(tmp_path / edited)}


def test_an_inventory_file_s_own_value_is_overridden(tmp_path: Path) -> None:
    hosts = "all:\n  hosts:\n    prod1: {strapi_instances: 2}\n"
    subject = Inventory(build(tmp_path, {}, hosts), project_dir=tmp_path)
    edit = subject.plan("prod1", KEY, 3)
    subject.apply(edit)
    assert (tmp_path / OWNED_FILE).read_text() == OWNED
    assert (tmp_path / "inv/hosts.yml").read_text() == hosts


def test_host_vars_of_a_source_directory_are_inside_it(tmp_path: Path) -> None:
    build(
        tmp_path,
        {"inv/west/more.yml": "west:\n  hosts:\n    prod3:\n", "inv/west/host_vars/prod3.yml": "a: 1\n"},
    )
    subject = Inventory(tmp_path / "inv", project_dir=tmp_path)
    assert set(subject.hosts()) == {"prod1", "prod2", "prod3"}
    assert "a" not in subject.host_vars("prod3")  # Ansible reads host_vars of the source itself only
    edit = subject.plan("prod3", KEY, 3)
    assert edit.path == tmp_path / "inv/host_vars/prod3/tuner.yml"
    subject.apply(edit)
    assert subject.host_vars("prod3")[KEY] == 3


@pytest.mark.parametrize("place", ["inv/group_vars/all.yml", FILE, f"{DIRECTORY}/main.yml"])
def test_an_effective_value_is_left_where_it_is(tmp_path: Path, place: str) -> None:
    subject = inventory(tmp_path, {place: "strapi_instances: 3  # as measured\n"})
    untouched = snapshot(tmp_path)
    edit = subject.plan("prod1", KEY, 3)
    subject.apply(edit)
    assert not edit.changed
    assert edit.diff() == ""
    assert snapshot(tmp_path) == untouched


def test_a_link_stays_and_its_target_is_replaced_with_its_mode(tmp_path: Path) -> None:
    subject = inventory(tmp_path, {"shared.yml": "strapi_instances: 2\n"})
    (tmp_path / "shared.yml").chmod(0o640)
    link = tmp_path / FILE
    link.parent.mkdir()
    link.symlink_to(tmp_path / "shared.yml")
    edit = subject.plan("prod1", KEY, 3)
    subject.apply(edit)
    assert edit.path == tmp_path / "shared.yml"
    assert link.is_symlink()
    assert edit.path.read_text() == "strapi_instances: 3\n"
    assert edit.path.stat().st_mode & 0o777 == 0o640


def test_an_encrypted_only_file_is_refused_and_an_encrypted_neighbour_is_not(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("sesame\n")
    unlock = ("--vault-password-file", str(password))
    subject = inventory(tmp_path, {FILE: "strapi_instances: 2\n"}, *unlock)
    vault = Path(sys.executable).with_name("ansible-vault")
    subprocess.run([vault, "encrypt", *unlock, tmp_path / FILE], check=True, capture_output=True)
    with pytest.raises(InputError, match=r"prod1\.yml is encrypted as a whole; with ansible-vault edit"):
        subject.plan("prod1", KEY, 3)

    (tmp_path / DIRECTORY).mkdir()
    neighbour = (tmp_path / FILE).rename(tmp_path / DIRECTORY / "vault.yml")
    untouched = snapshot(tmp_path)
    edit = subject.plan("prod1", KEY, 3)
    assert edit.path == tmp_path / OWNED_FILE
    with pytest.raises(InputError, match=r"stays 2 .* who wins: .*vault\.yml \(encrypted, may hold it\)"):
        subject.apply(edit)
    assert snapshot(tmp_path) == untouched
    assert neighbour.exists()


def test_old_bytes_come_back_when_another_value_wins(tmp_path: Path) -> None:
    subject = inventory(tmp_path, {FILE: "a: 1\r\nstrapi_instances: 2"}, "-e", "strapi_instances=9")
    untouched = snapshot(tmp_path)
    with pytest.raises(InputError, match=r"put back; who wins: the extra variables \(-e\)"):
        subject.apply(subject.plan("prod1", KEY, 3))
    assert snapshot(tmp_path) == untouched


def test_made_directories_go_when_another_value_wins(tmp_path: Path) -> None:
    subject = inventory(tmp_path, {}, "-e", "{strapi_instances: 9}")
    untouched = snapshot(tmp_path)
    with pytest.raises(InputError, match=r"stays 9 with 3 in inv/host_vars/prod1/tuner\.yml"):
        subject.apply(subject.plan("prod1", KEY, 3))
    assert snapshot(tmp_path) == untouched


def test_an_interrupt_during_the_read_back_puts_the_bytes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = inventory(tmp_path, {})
    edit = subject.plan("prod1", KEY, 3)
    untouched = snapshot(tmp_path)

    def interrupted(*_: object, **__: object) -> None:
        assert edit.path.read_text() == OWNED
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        subject.apply(edit)
    assert snapshot(tmp_path) == untouched


def test_bytes_that_cannot_be_put_back_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = inventory(tmp_path, {FILE: "a: 1\n"})
    edit = subject.plan("prod1", KEY, 3)

    def disk_fails(*_: object, **__: object) -> None:
        monkeypatch.setattr(Path, "replace", fails)
        raise KeyboardInterrupt

    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(subprocess, "run", disk_fails)
    with pytest.raises(RestoreError, match=r"No space left.*undo its line `strapi_instances: 3`"):
        subject.apply(edit)


@pytest.mark.parametrize(
    ("path", "text"),
    [(FILE, "a: 2\n"), (f"{DIRECTORY}/main.yml", "a: 1\n"), (BESIDE_PLAYBOOKS, "strapi_instances: 5\n")],
    ids=["the file", "a directory that now wins", "a definition that now wins"],
)
def test_a_change_since_the_plan_is_refused(tmp_path: Path, path: str, text: str) -> None:
    subject = inventory(tmp_path, {FILE: "a: 1\n"})
    edit = subject.plan("prod1", KEY, 3)
    build(tmp_path, {path: text})
    untouched = snapshot(tmp_path)
    with pytest.raises(InputError, match=r"prod1\.yml changed since the edit was planned"):
        subject.apply(edit)
    assert snapshot(tmp_path) == untouched


@pytest.mark.parametrize("host", ["../evil", "/etc/x", "..", ".ssh", "--help", "a b;c", "a\0b", "a\nb: 1", ""])
def test_a_host_name_that_leads_elsewhere_is_refused(tmp_path: Path, host: str) -> None:
    subject = Inventory(build(tmp_path, {}, "all:\n  hosts:\n    '../evil':\n"), project_dir=tmp_path)
    untouched = snapshot(tmp_path)
    with pytest.raises(InputError, match="cannot be the name of a host") as caught:
        subject.plan(host, KEY, 3)
    assert str(caught.value).isprintable()
    assert snapshot(tmp_path) == untouched


def test_a_variable_name_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no name of an Ansible variable"):
        inventory(tmp_path, {}).plan("prod1", "a: 1\nb", 3)


def test_an_unknown_host_is_named_with_the_hosts_that_exist(tmp_path: Path) -> None:
    subject = inventory(tmp_path, {"inv/group_vars/all.yml": "a: 1\n"})
    assert subject.hosts() == ("prod1", "prod2")
    with pytest.raises(InputError) as caught:
        subject.host_vars("prd1")
    said = f"no host 'prd1' in {tmp_path}/inv/hosts.yml; did you mean prod1? its hosts are prod1, prod2"
    assert str(caught.value) == said
    assert caught.value.exit_code == 2


def test_a_broken_inventory_file_is_not_called_empty(tmp_path: Path) -> None:
    subject = Inventory(build(tmp_path, {}, "all:\n  hosts:\n    prod1: {\n"), project_dir=tmp_path)
    with pytest.raises(InputError, match=r"hosts\.yml:4 is not valid YAML: while parsing a flow node"):
        subject.host_vars("prod1")


def test_a_missing_inventory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"inventory .*/nowhere does not exist; give a file or a directory"):
        Inventory(tmp_path / "nowhere", project_dir=tmp_path)


def test_the_project_s_configuration_is_used_unless_the_caller_names_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = "[defaults]\nvault_password_file = password\n"
    files = {"ansible.cfg": config, "password": "sesame\n", FILE: "a: 1\n"}
    subject = inventory(tmp_path, files)
    vault = Path(sys.executable).with_name("ansible-vault")
    unlock = ("--vault-password-file", str(tmp_path / "password"))
    subprocess.run([vault, "encrypt", *unlock, tmp_path / FILE], check=True, capture_output=True)
    monkeypatch.delenv("ANSIBLE_CONFIG", raising=False)
    assert subject.host_vars("prod1") == {"a": 1}
    (tmp_path / "other.cfg").write_text("[defaults]\n")
    monkeypatch.setenv("ANSIBLE_CONFIG", str(tmp_path / "other.cfg"))
    with pytest.raises(InputError, match="vault"):
        Inventory(tmp_path / "inv/hosts.yml", project_dir=tmp_path).hosts()


def test_a_spliced_value_is_a_one_line_diff(tmp_path: Path) -> None:
    before = b"# shop\r\na:   1\r\nstrapi_instances: 2 # two\r\nb: 'Z\xc3\xbcrich'"
    edit = Edit("prod1", KEY, 3, tmp_path / FILE, before, before.replace(b": 2 ", b": 3 "))
    diff = edit.diff()
    assert diff.startswith("--- a/inv/host_vars/prod1.yml\n+++ b/inv/host_vars/prod1.yml\n@@ ")
    assert changed_lines(diff) == ["-strapi_instances: 2 # two", "+strapi_instances: 3 # two"]
    assert diff.endswith(" b: 'Zürich'\n\\ No newline at end of file\n")


def test_a_new_file_s_diff_starts_from_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    edit = Edit("prod1", KEY, 3, tmp_path / OWNED_FILE, None, OWNED.encode())
    assert edit.diff().startswith(f"--- /dev/null\n+++ b/{OWNED_FILE}\n@@ -0,0 +1,3 @@\n+---\n")
    assert replace(edit, before=OWNED.encode()).diff() == ""
