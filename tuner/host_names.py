"""Which names of hosts are taken: those that name a directory, and that Ansible reads as one host. Pure.

In the place of a host, Ansible takes `a:b` and `a,b` for two of them, and `@file` for those that a file names.
"""

from __future__ import annotations

import ipaddress
import re

from tuner.errors import InputError
from tuner.wording import quoted

PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,249}")


def is_host_name(name: str) -> bool:
    """Whether it is made of letters, digits, `.`, `-` and `_`, or an address of IP version 6."""
    return bool(PLAIN.fullmatch(name)) or _is_address(name)


def check_host_name(host: str) -> None:
    """Refuse a name that could lead elsewhere.

    Raises:
        InputError: When it is none that is_host_name knows.
    """
    if not is_host_name(host):
        raise InputError(
            f"{quoted(host)} cannot be the name of a host",
            remedy="name it with letters, digits, dots, hyphens and underscores",
        )


def _is_address(host: str) -> bool:
    try:
        return "%" not in host and ipaddress.ip_address(host).version == 6  # noqa: PLR2004 that of the Internet Protocol
    except ValueError:
        return False
