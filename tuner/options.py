"""What an option may be: click's own types let nan, underscores and the digits of other scripts through."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import click

WHOLE = re.compile(r"[+-]?\d{1,18}", re.ASCII)
DECIMAL = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d{1,3})?", re.ASCII | re.IGNORECASE)
TIME = re.compile(r"(\d{1,9}(?:\.\d+)?)\s*([smh]?)", re.ASCII)
SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600}
LONGEST_S = 7 * 24 * 3600


class Whole(click.IntRange):
    """A whole number within a range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401 click's own signature
        """Read it."""
        if not isinstance(value, int) and not WHOLE.fullmatch(str(value).strip()):
            self.fail(f"{value!r} is no whole number", param, ctx)
        return super().convert(value, param, ctx)


class Connections(Whole):
    """A number of connections, or `auto`, which is None."""

    name = "number or auto"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401 click's own signature
        """Read it."""
        return None if value == "auto" else super().convert(value, param, ctx)


class Real(click.FloatRange):
    """A number within a range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401 click's own signature
        """Read it."""
        if not isinstance(value, float) and not DECIMAL.fullmatch(str(value).strip()):
            self.fail(f"{value!r} is no number", param, ctx)
        return super().convert(value, param, ctx)


class Percentage(click.ParamType[float]):
    """A share written as `5%` or `0.05`, between 0 and 1 and neither of them."""

    name = "percentage"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:  # noqa: ANN401 click's own signature
        """Read it."""
        if isinstance(value, float):
            return value
        text = str(value).strip()
        number = text.removesuffix("%").strip()
        share = float(number) if DECIMAL.fullmatch(number) else math.nan
        share = share / 100 if text.endswith("%") else share
        if not 0 < share < 1:
            self.fail(f"{value!r} is no share between 0 and 100%; write for example 5%", param, ctx)
        return share


class Duration(click.ParamType[float]):
    """A time written as `90s`, `10m`, `1.5h` or in plain seconds, of a week at most."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:  # noqa: ANN401 click's own signature
        """Read it."""
        found = TIME.fullmatch(str(value).strip())
        seconds = float(found[1]) * SECONDS[found[2]] if found else 0.0
        if not 0 < seconds <= LONGEST_S:
            self.fail(f"{value!r} is no time up to a week; write for example 90s or 10m", param, ctx)
        return seconds


class SomePath(click.Path):
    """A path; the empty one, which an unset variable of a script leaves, would be the working directory."""

    def __init__(self, *, file_okay: bool = True) -> None:
        super().__init__(file_okay=file_okay, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401 click's own signature
        """Read it."""
        if not str(value):
            self.fail("the path is empty", param, ctx)
        return super().convert(value, param, ctx)
