"""How counts, shares and lists of them are written in sentences. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

LONGEST_LIST = 4
# Of texts that others made.
LONGEST_TEXT = 2000
# Of a value that is quoted in an error.
LONGEST_VALUE = 80
SECONDS_AS_SUCH = 90


def plural(count: int, noun: str) -> str:
    """`1 trial`, `2 trials`."""
    return f"1 {noun}" if count == 1 else f"{count} {noun}s"


def instances(count: int) -> str:
    """`1 instance`, `2 instances`."""
    return plural(count, "instance")


def listed(counts: Sequence[int]) -> str:
    """`1`, `1 and 2`, `1, 2 and 4`; many as `1 to 9`."""
    if len(counts) > LONGEST_LIST:
        return f"{counts[0]} to {counts[-1]}"
    return " and ".join([", ".join(map(str, counts[:-1])), str(counts[-1])]) if len(counts) > 1 else str(counts[0])


def share(value: float) -> str:
    """A share as it was given: `5%`, `2.5%`."""
    return f"{100 * value:.12g}%"


def signed(log_ratio: float) -> str:
    """A log ratio as `+1.3%`."""
    return f"{math.expm1(log_ratio):+.1%}"


def percent(log_ratio: float) -> str:
    """The size of a log ratio as `1.3%`."""
    return f"{math.expm1(abs(log_ratio)):.1%}"


def duration(seconds: float) -> str:
    """Seconds as `40 s` or `4 min`."""
    return f"{seconds:.0f} s" if seconds < SECONDS_AS_SUCH else f"{seconds / 60:.0f} min"


def printable(text: str, most: int = LONGEST_TEXT) -> str:
    """Text of others, safe to show: what is no printable character is escaped, and what is beyond so many cut off."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[:most])
    return shown if len(text) <= most else f"{shown}... ({len(text)} characters)"


def quoted(value: object) -> str:
    """A value as Python writes it, for an error; a long one is cut off."""
    text = repr(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}... ({len(text)} characters)"
