"""The variable files of one host: which there are, in Ansible's order, and how they are read and replaced."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from typing import TYPE_CHECKING

from tuner import yaml_splice
from tuner.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OWNED = "tuner.yml"
EXTENSIONS = ("", ".yml", ".yaml", ".json")  # Ansible's order; the first that exists is the host's
VAULTED = b"$ANSIBLE_VAULT"


def load_order(base: Path, host: str, *, owned: bool = True) -> tuple[Path, ...]:
    """Return the files that Ansible loads for a host, the winner last.

    Args:
        base: A `host_vars` directory; need not exist.
        host: The host's name.
        owned: Whether the tuner's file is to be in its place even if it does not exist yet: in the host's
            directory, or in one to be made if the host has nothing.
    """
    for extension in EXTENSIONS:
        path = base / f"{host}{extension}"
        if path.is_dir():
            return tuple(_directory_order(path, OWNED if owned else None))
        if path.exists() or path.is_symlink():  # a link to nothing is for `_real_path` to refuse
            return (path,)
    return (base / host / OWNED,) if owned else ()


def _directory_order(directory: Path, extra: str | None = None) -> Iterator[Path]:
    names = {path.name for path in directory.iterdir()} | ({extra} if extra else set())
    for name in sorted(names):
        path = directory / name
        if name.startswith(".") or name.endswith("~"):
            continue
        if path.is_dir() and not path.suffix:
            yield from _directory_order(path)
        elif name == extra or (path.is_file() and path.suffix in EXTENSIONS):
            yield path


def locate(directories: tuple[Path, Path], host: str, variable: str) -> Path:
    """Return the file to edit, symbolic links resolved: the last one loaded that defines the variable.

    If only files that lose against the host's own file define it, that is the one; it may not exist yet.

    Args:
        directories: The `host_vars` of the inventory, and the one beside the playbooks, which wins.
        host: The host's name, safe as a file's name.
        variable: The variable's name.

    Raises:
        InputError: A file that may win cannot be read, or the place is no file.
    """
    ours, theirs = directories
    files = load_order(ours, host)
    owned = {ours / f"{host}{extension}" / OWNED for extension in EXTENSIONS}
    own = next((path for path in files if path in owned), files[0])
    rivals = files[files.index(own) + 1 :]
    if theirs.resolve() != ours.resolve():
        rivals += load_order(theirs, host, owned=False)
    winners = [path for path in rivals if _defines(path, variable)]
    return _real_path(winners[-1] if winners else own)


def rewritten(path: Path, before: bytes | None, host: str, variable: str, value: int) -> bytes:
    """Return what the file must hold for the variable to have the value; nothing else is changed.

    Raises:
        InputError: The file is encrypted, JSON, or cannot be changed safely.
    """
    if before is None:
        return _owned_file(host, variable, value)
    remedy = f"set it yourself: {variable}: {value}"
    if before.startswith(VAULTED):
        raise InputError(f"{path} is encrypted as a whole", remedy=f"with ansible-vault edit, {remedy}")
    if path.suffix == ".json":
        raise InputError(f"{path} is JSON", remedy=f'set it yourself: "{variable}": {value}')
    try:
        return yaml_splice.set_int(text(path, before), variable, value).encode()
    except yaml_splice.SpliceError as error:
        raise refusal(path, error, remedy) from error


def refusal(path: Path, error: yaml_splice.SpliceError, remedy: str = "") -> InputError:
    """Return the error that says which line of which file is in the way."""
    where = f"{path}:{error.line}" if error.line else str(path)
    return InputError(f"{where} {error.reason}", remedy=remedy)


def _real_path(path: Path) -> Path:
    """Return the path with symbolic links resolved; raise InputError for what is there but no file."""
    if path.is_file():
        return path.resolve()
    if path.is_symlink():
        raise InputError(f"{path} is a symbolic link to no file", remedy="remove it, or make its target")
    if path.exists():
        raise InputError(f"{path} is not a regular file")
    return path.resolve()


def read(path: Path) -> bytes | None:
    """Return the file's bytes, or None if there is none."""
    return path.read_bytes() if path.exists() else None


def text(path: Path, data: bytes) -> str:
    """Return the file's text with its line ends and byte order mark; raise InputError if it is not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path}:{line} is not UTF-8", remedy="save it as UTF-8") from error


def _defines(path: Path, variable: str) -> bool:
    if not path.is_file():
        return False  # Ansible does not load it either
    data = path.read_bytes()
    if data.startswith(VAULTED):
        return False  # the read-back will tell
    content = text(path, data)
    if path.suffix == ".json":
        with contextlib.suppress(ValueError):
            return variable in json.loads(content)
        return False
    try:
        return bool(yaml_splice.lines(content, variable))
    except yaml_splice.SpliceError as error:
        raise refusal(path, error) from error


def _owned_file(host: str, variable: str, value: int) -> bytes:
    command = f"tuner recommend --host {host}"
    return f"---\n# Written by tuner. Change it with: {command}\n{variable}: {value}\n".encode()


def check_writable(path: Path) -> None:
    """Raise InputError unless the file could be replaced, or made together with its directories."""
    directory = next(parent for parent in path.parents if parent.exists())
    if not directory.is_dir():
        raise InputError(f"{directory} is not a directory, so {path.name} cannot be made below it")
    for needed in (directory, path) if path.exists() else (directory,):
        if not os.access(needed, os.W_OK):
            raise InputError(f"{needed} is not writable", remedy="give yourself the right to write it")


def replace(path: Path, data: bytes) -> None:
    """Put `data` in the place of the file in one step, durable, with the old file's mode and owner."""
    old = path.stat() if path.exists() else None
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")  # hidden: Ansible skips it
    try:
        with temporary.open("xb") as stream:
            if old:
                os.fchown(stream.fileno(), old.st_uid, old.st_gid)
                os.fchmod(stream.fileno(), old.st_mode & 0o7777)
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
