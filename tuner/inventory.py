"""Finds and edits the place in an Ansible inventory where one variable of one host lives.

Which files count, and in which order, follows Ansible's `host_group_vars` plugin; what is effective is what
`ansible-inventory` says.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import re
import shutil
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner import inventory_files, yaml_splice
from tuner.errors import InputError, RestoreError
from tuner.host_names import check_host_name
from tuner.wording import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_ANSIBLE_TIMEOUT_S = 300  # a dynamic inventory may ask a slow cloud API
_SEARCH_LIMIT_BYTES = 1_000_000  # larger files are no hand-written variables
_HOSTS_SHOWN = 20


@dataclass(frozen=True)
class Edit:
    """One planned change of one file.

    Attributes:
        host: The host whose variable is set.
        variable: The variable's name.
        value: Its new value.
        path: The file to write, symbolic links resolved.
        before: Its bytes when the change was planned; None if it did not exist.
        after: Its bytes after the change.
    """

    host: str
    variable: str
    value: int
    path: Path
    before: bytes | None
    after: bytes

    @property
    def changed(self) -> bool:
        """Whether there is anything to write."""
        return (self.before or b"") != self.after

    def diff(self) -> str:
        """Return the change as a unified diff, or "" if there is none."""
        if not self.changed:
            return ""
        name = _short(self.path)
        source = "/dev/null" if self.before is None else f"a/{name}"
        found = difflib.unified_diff(_rows(self.before or b""), _rows(self.after), source, f"b/{name}")
        ended = (row if row.endswith("\n") else f"{row}\n\\ No newline at end of file\n" for row in found)
        return "".join(ended)


class Inventory:
    """An inventory as `ansible-playbook` of the project would see it.

    Args:
        source: The inventory file or directory.
        project_dir: The directory with `ansible.cfg` and `playbooks/`.
        extra_args: Further arguments of `ansible-inventory`, such as those that unlock vaults.

    Raises:
        InputError: `source` does not exist, or is neither a file nor a directory.
    """

    def __init__(self, source: Path, *, project_dir: Path, extra_args: Sequence[str] = ()) -> None:
        self.source = source.absolute()
        try:
            mode = self.source.stat().st_mode
        except OSError as error:
            missing = isinstance(error, FileNotFoundError)
            reason = "does not exist" if missing else f"cannot be read: {error.strerror}"
            raise InputError(
                f"inventory {self.source} {reason}", remedy="give a file or a directory with -i"
            ) from error
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # Ansible would wait for a pipe
            raise InputError(
                f"inventory {self.source} is no file and no directory", remedy="give a file or a directory with -i"
            )
        self._project_dir = project_dir.absolute()
        self._extra_args = tuple(extra_args)
        directory = self.source if self.source.is_dir() else self.source.parent
        playbooks = self._project_dir / "playbooks"
        self._playbooks = playbooks if playbooks.is_dir() else self._project_dir
        self._host_vars = directory / "host_vars"
        self._rival_host_vars = self._playbooks / "host_vars"
        self._listing: dict[str, Any] | None = None

    def hosts(self) -> tuple[str, ...]:
        """Return the names of all hosts.

        Raises:
            InputError: Ansible cannot read the inventory.
        """
        listing = self._list()
        groups = (group.get("hosts", ()) for name, group in listing.items() if name != "_meta")
        names = [host for hosts in groups for host in hosts]
        return tuple(dict.fromkeys([*names, *listing["_meta"]["hostvars"]]))

    def host_vars(self, host: str) -> Mapping[str, Any]:
        """Return the effective variables of `host`, templates unexpanded and vault values encrypted.

        Raises:
            InputError: There is no such host, or Ansible cannot read the inventory.
        """
        names = self.hosts()
        if host not in names:
            raise self._unknown(host, names)
        found: Mapping[str, Any] = self._list()["_meta"]["hostvars"].get(host, {})
        return found

    def plan(self, host: str, variable: str, value: int) -> Edit:
        """Return the edit that gives `variable` of `host` the effective value `value`; write nothing.

        Raises:
            InputError: The host is unknown, or the value cannot be written safely; says where and why.
        """
        _check_names(host, variable)
        self._listing = None  # the files may have changed since they were listed
        effective = self.host_vars(host).get(variable)
        with _as_input_error(f"{variable} of {host} cannot be set"):
            path = self._place(host, variable)
            before = inventory_files.read(path)
            if _is_int(effective, value):
                return Edit(host, variable, value, path, before, before or b"")
            inventory_files.check_writable(path)
            after = inventory_files.rewritten(path, before, host, variable, value)
            return Edit(host, variable, value, path, before, after)

    def apply(self, edit: Edit) -> None:
        """Write `edit`, let Ansible read it back, and put the old bytes back if another value wins.

        Raises:
            InputError: The file changed since it was planned, cannot be written, or does not win.
            RestoreError: The old bytes could not be put back.
        """
        if not edit.changed:
            return
        self._listing = None
        with _as_input_error(f"{edit.path} cannot be written"):
            moved = self._place(edit.host, edit.variable) != edit.path
            if moved or inventory_files.read(edit.path) != edit.before:
                raise InputError(f"{edit.path} changed since the edit was planned", remedy="run again")
            missing = [parent for parent in edit.path.parents if not parent.exists()]
            try:
                for parent in reversed(missing):
                    parent.mkdir()
                inventory_files.replace(edit.path, edit.after)
                self._check_effective(edit)
            except BaseException:  # an interrupt must not leave a value that nobody checked
                _put_back(edit, missing)
                raise

    def revert(self, edit: Edit) -> None:
        """Take back an edit that was applied.

        Raises:
            RestoreError: The old bytes could not be put back.
        """
        if edit.changed:
            # Directories that were made for a new file go with it; rmdir leaves those that hold something.
            _put_back(edit, (edit.path.parent, edit.path.parent.parent) if edit.before is None else ())
        self._listing = None

    def _place(self, host: str, variable: str) -> Path:
        return inventory_files.locate((self._host_vars, self._rival_host_vars), host, variable)

    def _check_effective(self, edit: Edit) -> None:
        effective = self._ansible(f"--host={edit.host}").get(edit.variable)
        if _is_int(effective, edit.value):
            return
        shown = effective if isinstance(effective, int) else "no integer"
        winners = [place for path, place in self._places(edit.host, edit.variable) if path != edit.path]
        if any(edit.variable in argument for argument in self._extra_args):
            winners.append("the extra variables (-e)")
        raise InputError(
            f"{edit.variable} of {edit.host} stays {shown} with {edit.value} in {_short(edit.path)}, "
            f"which was put back; who wins: {', '.join(winners) or 'not found'}",
            remedy="change it there, or remove it",
        )

    def _places(self, host: str, variable: str) -> Iterator[tuple[Path, str]]:
        """Yield each file that may name the variable for `host`, resolved, and the place as `file:line`."""
        pattern = re.compile(rf"[^#]*(?<![\w-]){re.escape(variable)}[\"']?\s*[:=]")
        own = [*self._source_files(), *self._group_files()]
        for directory in (self._host_vars, self._rival_host_vars):
            own += inventory_files.load_order(directory, host, owned=False)
        for path in dict.fromkeys(own):
            data = _peek(path)
            if data.startswith(inventory_files.VAULTED):
                yield path.resolve(), f"{_short(path)} (encrypted, may hold it)"
                continue
            for number, row in enumerate(data.decode(errors="replace").split("\n"), start=1):
                if pattern.match(row):
                    yield path.resolve(), f"{_short(path)}:{number}"

    def _source_files(self) -> list[Path]:
        if not self.source.is_dir():
            return [self.source]
        variables = {self.source / "host_vars", self.source / "group_vars"}
        return [path for path in sorted(self.source.rglob("*")) if variables.isdisjoint(path.parents)]

    def _group_files(self) -> list[Path]:
        directories = (self._host_vars.with_name("group_vars"), self._playbooks / "group_vars")
        return [path for directory in directories for path in sorted(directory.rglob("*"))]

    def _host_files(self) -> list[Path]:
        directories = (self._host_vars, self._rival_host_vars)
        return [path for directory in directories for path in sorted(directory.rglob("*"))]

    def _list(self) -> dict[str, Any]:
        if self._listing is None:
            self._listing = self._ansible("--list")
        return self._listing

    def _ansible(self, *arguments: str) -> dict[str, Any]:
        command = [_tool(), "-i", str(self.source), "--playbook-dir", str(self._playbooks)]
        command += [*arguments, *self._extra_args]
        try:
            done = subprocess.run(  # noqa: S603 - no shell; every argument is the user's own
                command,
                env=self._environment(),
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=_ANSIBLE_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            said = f"took over {_ANSIBLE_TIMEOUT_S} s on {self.source}"
            raise InputError(f"ansible-inventory {said}") from error
        except OSError as error:
            raise InputError(f"ansible-inventory cannot be run: {error}") from error
        if done.returncode == 0:
            with contextlib.suppress(ValueError):  # with -v, lines of talk come before the JSON
                found: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
                return found
        raise self._unreadable(done.stderr)

    def _environment(self) -> dict[str, str]:
        environment = {**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_INVENTORY_EXPORT": "0"}
        config = self._project_dir / "ansible.cfg"
        if config.is_file():
            environment.setdefault("ANSIBLE_CONFIG", str(config))
        return environment

    def _unreadable(self, stderr: str) -> InputError:
        variable_files = [*self._group_files(), *self._host_files()]
        broken = _first_broken(variable_files, (".yml", ".yaml", "")) or self._broken_source()
        if broken:
            return broken
        said = re.search(r"(?:\[ERROR\]:|ERROR!) *(.*)", stderr)
        message = said[1] if said else "it gave no reason"
        remedy = "give the vault password file or id" if "vault" in message else "run ansible-inventory --list"
        return InputError(f"ansible-inventory cannot read {self.source}: {message.rstrip(' .')}", remedy=remedy)

    def _broken_source(self) -> InputError | None:
        return _first_broken(self._source_files(), (".yml", ".yaml"))

    def _hosts_of(self, group: str) -> list[str]:
        found = self._list().get(group, {})
        below = [host for child in found.get("children", ()) for host in self._hosts_of(child)]
        return list(dict.fromkeys([*found.get("hosts", ()), *below]))

    def _unknown(self, host: str, names: Sequence[str]) -> InputError:
        broken = self._broken_source()  # Ansible only warns of an inventory file that it cannot read
        if broken:
            return broken
        if host in self._list():
            hosts = self._hosts_of(host)
            remedy = f"name one of its hosts: {', '.join(hosts[:_HOSTS_SHOWN])}" if hosts else "it has no hosts"
            return InputError(f"{host!r} is a group in {self.source} and no host", remedy=remedy)
        near = difflib.get_close_matches(host, names, n=1)
        meant = f"did you mean {near[0]}? " if near else ""
        rest = f" and {len(names) - _HOSTS_SHOWN} more" if len(names) > _HOSTS_SHOWN else ""
        known = f"its hosts are {', '.join(names[:_HOSTS_SHOWN])}{rest}" if names else "it has no hosts"
        return InputError(f"no host {quoted(host)} in {self.source}", remedy=meant + known)


def _first_broken(paths: Sequence[Path], suffixes: Sequence[str]) -> InputError | None:
    """Return the error of the first file that is not YAML; Ansible does not always name it."""
    for path in paths:
        data = _peek(path) if path.suffix in suffixes else b""
        try:
            if not data.startswith(inventory_files.VAULTED):
                yaml_splice.check(inventory_files.text(path, data))
        except yaml_splice.SpliceError as error:
            return inventory_files.refusal(path, error)
        except InputError as error:
            return error
    return None


def _peek(path: Path) -> bytes:
    """Return the bytes of a file that a person may have written, else nothing."""
    with contextlib.suppress(OSError):
        if path.is_file() and path.stat().st_size <= _SEARCH_LIMIT_BYTES:
            return path.read_bytes()
    return b""


def _check_names(host: str, variable: str) -> None:
    """Refuse names that would lead out of host_vars, or out of a comment, when they are written."""
    check_host_name(host)
    if not (variable.isascii() and variable.isidentifier()):
        raise InputError(f"{variable!r} is no name of an Ansible variable")


def _is_int(found: object, value: int) -> bool:
    return type(found) is int and found == value


def _short(path: Path) -> str:
    """Return the path from the working directory, else from the directory that holds host_vars."""
    if path.is_relative_to(Path.cwd()):
        return str(path.relative_to(Path.cwd()))
    parts = path.parts
    start = parts.index("host_vars") - 1 if "host_vars" in parts else -1
    return str(Path(*parts[start:]))


def _rows(data: bytes) -> list[str]:
    return re.findall(r"[^\n]*\n|[^\n]+", data.decode())


def _tool() -> str:
    beside = Path(sys.executable).with_name("ansible-inventory")
    found = str(beside) if beside.exists() else shutil.which("ansible-inventory")
    if not found:
        raise InputError("ansible-inventory is not installed", remedy="pip install ansible-core")
    return found


@contextlib.contextmanager
def _as_input_error(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise InputError(f"{what}: {error.strerror}{where}") from error


def _put_back(edit: Edit, created: Sequence[Path]) -> None:
    """Undo what was written of `edit`, unless somebody else has written since; remove `created`."""
    try:
        if edit.path.exists() and edit.path.read_bytes() == edit.after:
            if edit.before is None:
                edit.path.unlink()
            else:
                inventory_files.replace(edit.path, edit.before)
    except OSError as error:
        raise RestoreError(
            f"{edit.path} could not be put back: {error.strerror}",
            remedy=f"undo its line `{edit.variable}: {edit.value}` yourself",
        ) from error
    for directory in created:
        with contextlib.suppress(OSError):  # it was not made, or somebody uses it now
            directory.rmdir()
