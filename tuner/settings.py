"""Settings to compare, as a user writes them: role variables that a trial can apply. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

import yaml

from tuner.errors import InputError
from tuner.wording import quoted

# Role variables that reach the process without a new release; trial.yml applies them as a deploy would. Not among them
# is strapi_process_env: pm2 keeps a variable that its file has no more, so that a name could not be taken away again.
APPLICABLE = (
    "strapi_instances",
    "strapi_serve_admin_panel",
    "strapi_node_args",
    "strapi_database_pool_max",
    "strapi_env",
)
FEWEST = 2
# A comma separates variables where a name and = follow it; others belong to a value.
SEPARATOR = re.compile(r",(?=\s*[A-Za-z_][A-Za-z0-9_]*=)")


@dataclass(frozen=True)
class Variant:
    """One setting.

    Attributes:
        name: As the user wrote it.
        variables: Role variables with their values.
    """

    name: str
    variables: Mapping[str, object]


def parse_variants(texts: Sequence[str]) -> tuple[Variant, ...]:
    """Read settings, such as `strapi_serve_admin_panel=false` or `strapi_instances=2,strapi_database_pool_max=5`.

    Raises:
        InputError: When one cannot be read or applied, two are the same, or there are fewer than two.
    """
    variants = tuple(Variant(text.strip(), _variables(text)) for text in texts)
    if len(variants) < FEWEST:
        raise InputError("there is nothing to compare with", remedy="give --set twice or more often")
    for place, variant in enumerate(variants):
        if any(variant.variables == other.variables for other in variants[:place]):
            raise InputError(f"--set {variant.name} is there twice", remedy="give each setting once")
    return variants


def _variables(text: str) -> dict[str, object]:
    found: dict[str, object] = {}
    for part in SEPARATOR.split(text):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not name:
            raise InputError(f"--set {quoted(text)}: {quoted(part.strip())} sets nothing", remedy="write name=value")
        if name not in APPLICABLE:
            near = get_close_matches(name, APPLICABLE, n=1, cutoff=0.8)
            hint = f"did you mean {near[0]}? " if near else ""
            raise InputError(
                f"--set {quoted(text)}: {quoted(name)} cannot be compared",
                remedy=f"{hint}what can be is {', '.join(APPLICABLE)}",
            )
        if name in found:
            raise InputError(f"--set {quoted(text)}: {name} is there twice", remedy="say it once")
        try:
            found[name] = yaml.safe_load(value)
        except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date that is none
            raise InputError(
                f"--set {quoted(text)}: the value of {name} is no YAML", remedy="quote it, or write a plain value"
            ) from error
        _check_type(text, name, found[name])
    return found


MOST_COUNT = 9999
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _is_count(value: object) -> bool:
    return type(value) is int and 1 <= value <= MOST_COUNT


def _is_arguments(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(entry, str) and entry.isprintable() for entry in value)


def _is_environment(value: object) -> bool:
    return isinstance(value, dict) and all(
        isinstance(name, str) and NAME.fullmatch(name) and isinstance(entry, str | int | float | bool | None)
        for name, entry in value.items()
    )


# For each variable whether a value can be applied, and in words what can.
KINDS: Mapping[str, tuple[Callable[[object], bool], str]] = {
    "strapi_instances": (_is_count, f"a whole number from 1 to {MOST_COUNT}"),
    "strapi_serve_admin_panel": (lambda value: isinstance(value, bool), "true or false"),
    "strapi_node_args": (_is_arguments, 'a list of texts such as ["--max-semi-space-size=64"]'),
    "strapi_database_pool_max": (_is_count, f"a whole number from 1 to {MOST_COUNT}"),
    "strapi_env": (_is_environment, "a mapping such as {NAME: value}"),
}


def _check_type(text: str, name: str, value: object) -> None:
    can_be_applied, words = KINDS[name]
    if not can_be_applied(value):
        raise InputError(f"--set {quoted(text)}: {name} is {quoted(value)}", remedy=f"write {words}")
