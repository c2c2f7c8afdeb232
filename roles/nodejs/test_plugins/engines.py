"""Jinja test `satisfies_engines`: does a Node.js version fit a package.json `engines` range?"""

from __future__ import annotations

import re
from collections.abc import Callable

from ansible.errors import AnsibleFilterError

try:
    from semantic_version import NpmSpec, Version
except ImportError:  # the tests of Ansible run where Ansible runs, which may lack our packages
    NpmSpec = Version = None


def satisfies_engines(version: str, engines: str) -> bool:
    """Whether `version` (`v20.20.2` or `20.20.2`) lies in the npm range `engines`; an empty range takes any version.

    Raises:
        AnsibleFilterError: When either cannot be read, or the library that reads them is missing.
    """
    if NpmSpec is None:
        raise AnsibleFilterError("the Python package semantic-version is missing beside ansible; install it with pip")
    # npm allows blanks and a v between an operator and its version, the library does not.
    squeezed = re.sub(r"(>=|<=|>|<|=|~|\^)\s*v?", r"\1", engines.strip()) or "*"
    try:
        return Version(version.strip().lstrip("v")) in NpmSpec(squeezed)
    except ValueError as error:
        raise AnsibleFilterError(f"engines range {engines!r} or version {version!r} cannot be read: {error}") from error


class TestModule:
    """The plugin, as Ansible looks it up."""

    def tests(self) -> dict[str, Callable[[str, str], bool]]:
        """Name the tests of this file."""
        return {"satisfies_engines": satisfies_engines}
