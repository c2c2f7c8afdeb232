"""Variables for a playbook, written so that Ansible takes every text in them as it is and never as a template. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml


class _Plain(str):
    """A text that is no template."""

    __slots__ = ()


class _Dumper(yaml.SafeDumper):
    """Writes texts with the tag that keeps Ansible from templating them."""

    def ignore_aliases(self, _data: Any) -> bool:  # noqa: ANN401 the overridden method's own signature
        """Write what comes twice twice."""
        return True


_Dumper.add_representer(_Plain, lambda dumper, text: dumper.represent_scalar("!unsafe", str(text), style='"'))


def dump(variables: Mapping[str, object]) -> str:
    """The variables as a file for `-e @file`.

    A path or a setting may hold `{{ }}`, wherever it was copied from; Ansible would run what is in it.
    """
    return yaml.dump(_as_plain(dict(variables)), Dumper=_Dumper, allow_unicode=True)


def _as_plain(value: object) -> object:
    if isinstance(value, str):
        return _Plain(value)
    if isinstance(value, Mapping):
        return {name: _as_plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_as_plain(inner) for inner in value]
    return value
