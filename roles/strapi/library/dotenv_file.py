#!/usr/bin/python
"""Ansible module: a .env file that holds given values, and secrets that are generated once and kept."""

from __future__ import annotations

DOCUMENTATION = r"""
module: dotenv_file
short_description: Keep a private .env file
description:
  - Sets the values that it is given, and generates secrets that are not there yet. A secret that is there is never
    changed, since sessions and tokens made with it would become invalid.
  - Other lines and comments stay as they are.
  - Shows names only, never a value, in results and diffs.
author: strapi-tuner developers
options:
  path:
    description: The file.
    type: path
    required: true
  values:
    description: Values to set that are no secrets. A value of null removes the name.
    type: dict
    default: {}
  secrets:
    description: Values to set that Ansible must not show. A value of null removes the name.
    type: dict
    default: {}
  generate:
    description: Names of secrets to generate where they are missing or empty, with the number of parts that each has.
    type: dict
    default: {}
  mode:
    description: Permissions of the file.
    type: str
    default: "0600"
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
"""

EXAMPLES = r"""
- name: Keep the application's secrets
  dotenv_file:
    path: /srv/strapi/shared/.env
    values:
      DATABASE_CLIENT: sqlite
    generate:
      APP_KEYS: 4
      JWT_SECRET: 1
"""

RETURN = r"""
generated:
  description: Names of the secrets that were generated.
  type: list
  elements: str
  returned: always
updated:
  description: Names of the values that were added, changed or removed.
  type: list
  elements: str
  returned: always
digest:
  description: Keyed hash of the file's content, which changes when a value does and tells nothing of it.
  type: str
  returned: always
"""

import base64
import hashlib
import hmac
import os
import re
import secrets
import tempfile
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

SECRET_BYTES = 16
# One setting as dotenv reads it: a value in quotes may go on over several lines, and # begins a comment elsewhere.
LINE = re.compile(
    r"""^[^\S\n]*(?:export[^\S\n]+)?([\w.-]+)(?:[^\S\n]*=|:(?=\s))[^\S\n]*"""
    r"""('(?:\\'|[^'])*'|"(?:\\"|[^"])*"|`(?:\\`|[^`])*`|[^#\n]*)[^\S\n]*(?:\#.*)?$""",
    re.MULTILINE,
)
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
SAFE = re.compile(r"[A-Za-z0-9_./:@%+,=-]*")
BARE = re.compile(r"[^\s#'\"`](?:[^#\r\n]*[^\s#])?")


class DotenvError(Exception):
    """A value that cannot be written, in one line."""


def quote(name: str, value: str) -> str:
    """Write a value so that dotenv reads back exactly it.

    dotenv knows no escape for a quote inside its own kind of quotes. Single quotes and backticks are literal, but for a
    backslash before the closing one, and for carriage returns, which it drops everywhere; double ones expand escapes.

    Raises:
        DotenvError: When no kind of quotes can hold it.
    """
    if SAFE.fullmatch(value):
        return value
    if not value.endswith("\\") and "\r" not in value:
        for mark in ("'", "`"):
            if mark not in value:
                return f"{mark}{value}{mark}"
    if '"' not in value and "\\" not in value:
        return '"' + value.replace("\n", "\\n").replace("\r", "\\r") + '"'
    if BARE.fullmatch(value):
        return value
    raise DotenvError(
        f"the value of {name} holds quotes, backslashes or line ends in a way that a .env file cannot express; "
        "choose another"
    )


def generate_secret(parts: int) -> str:
    """A new secret of so many random parts of 128 bits, in base64, joined by commas, as Strapi's own generator does."""
    return ",".join(base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode() for _ in range(parts))


def split_settings(text: str) -> list[str]:
    """The lines of a file, where a value that goes on over several lines is one with them."""
    lines = []
    position = 0
    while position < len(text):
        match = LINE.match(text, position)
        end = match.end() if match else text.find("\n", position)
        lines.append(text[position:end] if end >= 0 else text[position:])
        position += len(lines[-1]) + 1
    return lines


def find_line(lines: list[str], name: str) -> int | None:
    """Index of the last line that sets a name (the last one wins), or None."""
    found = None
    for index, line in enumerate(lines):
        match = LINE.match(line)
        if match and match.group(1) == name:
            found = index
    return found


def set_value(lines: list[str], name: str, value: str | None) -> bool:
    """Set, add or remove one value in place; say whether that changed anything."""
    index = find_line(lines, name)
    if value is None:
        if index is None:
            return False
        lines[:] = [line for line in lines if not ((match := LINE.match(line)) and match.group(1) == name)]
        return True
    text = f"{name}={quote(name, value)}"
    if index is None:
        lines.append(text)
        return True
    if lines[index] == text:
        return False
    lines[index] = text
    return True


def merge(text: str, values: dict[str, Any], generate: dict[str, int]) -> tuple[str, list[str], list[str]]:
    """Work out the new content of a file.

    Args:
        text: Its content now.
        values: Values to set; None removes.
        generate: Names of secrets, with the number of their parts.

    Returns:
        The new content, the names updated, the names generated.

    Raises:
        DotenvError: When a name or a value cannot be written.
    """
    lines = split_settings(text)
    for name in [*values, *generate]:
        if not NAME.fullmatch(name):
            raise DotenvError(f"{name!r} is no name of an environment variable; use letters, digits and underscores")
    updated = [name for name, value in values.items() if set_value(lines, name, as_text(value))]
    generated = []
    for name, parts in generate.items():
        index = find_line(lines, name)
        match = LINE.match(lines[index]) if index is not None else None
        if match is None or not match.group(2).strip().strip("'\"`"):
            set_value(lines, name, generate_secret(int(parts)))
            generated.append(name)
    return "".join(f"{line}\n" for line in lines), updated, generated


def as_text(value: Any) -> str | None:  # noqa: ANN401 a value of YAML may be of any type
    """A YAML value as an environment variable holds it."""
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def write_private(path: Path, text: str, mode: int) -> None:
    """Replace a file at once, never readable by others in between."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "values": {"type": "dict", "default": {}},
            "secrets": {"type": "dict", "default": {}, "no_log": True},
            "generate": {"type": "dict", "default": {}},
            "mode": {"type": "str", "default": "0600"},
            "dest": {"type": "path"},
        },
        supports_check_mode=True,
    )
    path, mode = Path(module.params["path"]), int(module.params["mode"], 8)
    try:
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        values = {**module.params["values"], **module.params["secrets"]}
        after, updated, generated = merge(before, values, module.params["generate"])
    except (DotenvError, OSError, UnicodeDecodeError) as error:
        module.fail_json(msg=f"{path}: {error}")
    loose = path.exists() and path.stat().st_mode & 0o777 != mode
    changed = after != before or not path.exists() or loose
    dest = Path(module.params["dest"] or path)
    if (changed or dest != path) and not module.check_mode:
        try:
            write_private(dest, after, mode)
        except OSError as error:
            module.fail_json(msg=f"{dest} cannot be written: {error.strerror}")
    names = "".join(f"{name}: (set)\n" for name in updated) + "".join(f"{name}: (generated)\n" for name in generated)
    digest = hmac.new(b"strapi-tuner .env", after.encode(), hashlib.sha256).hexdigest()
    module.exit_json(
        changed=changed, updated=updated, generated=generated, digest=digest[:16], diff={"before": "", "after": names}
    )


if __name__ == "__main__":
    main()
