"""What the roles say of their variables: specifications equal defaults, and defaults that belong together agree."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import ROOT

ROLES = sorted(path.name for path in (ROOT / "roles").iterdir() if path.is_dir())
FALLBACK = re.compile(r"\b(\w+) \| default\('([^']*)'\)")
TYPES: dict[str, type | tuple[type, ...]] = {
    "str": str,
    "path": str,
    "int": int,
    "float": (int, float),
    "bool": bool,
    "list": list,
    "dict": dict,
    "raw": object,
}


def read(path: Path) -> dict[str, Any]:
    """A YAML file, empty where there is none."""
    loaded = yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else None
    return dict(loaded or {})


def defaults_of(role: str) -> dict[str, Any]:
    """Every variable of a role that has a default, with it."""
    return read(ROOT / "roles" / role / "defaults" / "main.yml")


def options_of(role: str) -> dict[str, dict[str, Any]]:
    """The options of a role's entry point, as specified."""
    specification = read(ROOT / "roles" / role / "meta" / "argument_specs.yml")
    options: dict[str, dict[str, Any]] = specification["argument_specs"]["main"].get("options", {})
    return options


@pytest.mark.parametrize("role", ROLES)
def test_defaults_are_those_of_the_specification(role: str) -> None:
    options = options_of(role)
    assert defaults_of(role) == {name: option["default"] for name, option in options.items() if "default" in option}
    undecided = [name for name, option in options.items() if bool(option.get("required")) == ("default" in option)]
    assert undecided == [], "an option is either required or has a default"


@pytest.mark.parametrize("role", ROLES)
def test_a_default_has_its_options_type(role: str) -> None:
    options = options_of(role)
    wrong = {
        name: value
        for name, value in defaults_of(role).items()
        if "{{" not in str(value)
        and (
            not isinstance(value, TYPES[options[name]["type"]])
            or (isinstance(value, bool) and options[name]["type"] != "bool")
            or value not in options[name].get("choices", [value])
        )
    }
    assert wrong == {}


@pytest.mark.parametrize("role", ROLES)
def test_variables_begin_with_the_name_of_their_role(role: str) -> None:
    assert [name for name in options_of(role) if not name.startswith(f"{role}_")] == []


def test_fallbacks_are_the_defaults_of_the_role_that_owns_the_variable() -> None:
    owned = {name: value for role in ROLES for name, value in defaults_of(role).items()}
    fallbacks = {
        (user, variable): value
        for user, text in owned.items()
        for variable, value in FALLBACK.findall(str(text))
        if variable in owned
    }
    assert set(fallbacks) >= {
        ("pm2_node_bin_dir", "nodejs_dir"),
        ("strapi_node_bin_dir", "nodejs_dir"),
        ("strapi_pm2_command", "pm2_dir"),
    }
    assert fallbacks == {(user, variable): owned[variable] for user, variable in fallbacks}
