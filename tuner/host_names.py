"""Which names of hosts are taken: those that name a directory, and that Ansible reads as one host. Pure.

In the place of a host, Ansible takes `a:b` and `a,b` for two of them, and `@file` for those that a file names.
"""

from __future__ import annotations

import ipaddress
import re

from tuner.errors import InputError
from tuner.wording import quoted

PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,249}")


def check_host_name(host: str) -> None:
    """Refuse a name that could lead elsewhere.

    Raises:
        InputError: When it is neither letters, digits, `.`, `-` and `_`, nor an address of IP version 6.
    """
    if not PLAIN.fullmatch(host) and not _is_address(host):
        raise InputError(
            f"{quoted(host)} cannot be the name of a host",
            remedy="name it with letters, digits, dots, hyphens and underscores",
        )


def _is_address(host: str) -> bool:
    try:
        return "%" not in host and ipaddress.ip_address(host).version == 6  # noqa: PLR2004 that of the Internet Protocol
    except ValueError:
        return False
