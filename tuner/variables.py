"""The variables of a host on which tuner itself depends, checked before anything is asked of the host. Pure."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, NotRequired

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict  # pydantic takes that of the standard library from Python 3.12 on

from tuner.errors import InputError
from tuner.validation import in_words
from tuner.wording import quoted

COUNT = re.compile(r"[1-9][0-9]{0,3}")


@with_config(ConfigDict(extra="forbid", strict=True))
class Request(TypedDict):
    """One entry of load_requests, as http_load takes it."""

    path: Annotated[str, Field(pattern=r"^/[\x21-\x7e]*$")]
    method: NotRequired[Annotated[str, Field(pattern=r"^[A-Z]+$")]]
    name: NotRequired[str]
    headers: NotRequired[dict[str, Any]]
    body: NotRequired[Any]
    expect: NotRequired[list[Annotated[int, Field(ge=200, le=599)]]]
    weight: NotRequired[Annotated[float, Field(ge=0, allow_inf_nan=False)]]


REQUESTS: TypeAdapter[Any] = TypeAdapter(list[Request])


def check_variables(host: str, variables: Mapping[str, Any]) -> None:
    """Refuse values with which no deploy and no trial could work.

    Args:
        host: Whose they are.
        variables: As the inventory has them; what is a template or encrypted is only known to Ansible, and passes.

    Raises:
        InputError: When one cannot be used.
    """
    instances = variables.get("strapi_instances", 1)
    if not _is_hidden(instances) and (isinstance(instances, bool) or not COUNT.fullmatch(str(instances))):
        raise InputError(
            f"strapi_instances of {host} is {quoted(instances)} in the inventory, and no whole number of 1 or more",
            remedy="write one there, or remove it",
        )
    grace_s = variables.get("lease_grace_s", 1)
    if isinstance(grace_s, bool) or not isinstance(grace_s, int | float) or not 0 < grace_s < math.inf:
        raise InputError(
            f"lease_grace_s of {host} is {quoted(grace_s)} in the inventory, and no number of seconds",
            remedy="write one there, or remove it",
        )
    requests = variables.get("load_requests") or []
    if _is_hidden(requests):
        return
    try:
        REQUESTS.validate_python(requests)
    except ValidationError as error:
        raise InputError(
            f"load_requests of {host} in the inventory: {in_words(error)}",
            remedy="write a list of requests such as - path: /api/articles?sort=title",
        ) from error


def _is_hidden(value: object) -> bool:
    """Whether there is something in it that Ansible alone can read."""
    text = json.dumps(value, default=str)
    return "{{" in text or "{%" in text or "__ansible_vault" in text
