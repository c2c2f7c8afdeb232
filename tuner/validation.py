"""What pydantic found wrong with some data, in the words of the other errors. Pure."""

from __future__ import annotations

from pydantic import ValidationError

from tuner.wording import quoted


def in_words(error: ValidationError) -> str:
    """The first thing that is wrong with some data, as `name.of.field: why, and not VALUE`."""
    first = error.errors(include_url=False, include_context=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "missing":
        return f"{where} is missing"
    reason = first["msg"].removeprefix("Value error, ")
    if first["type"] != "value_error":
        reason = f"{reason[:1].lower()}{reason[1:]}, and not {quoted(first['input'])}"
    return f"{where}: {reason}" if where else reason
