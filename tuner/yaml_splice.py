"""Change one integer of a YAML text and not a byte besides it.

Loading and dumping loses comments, quotes, line widths and indentation, so the text is spliced at the marks
of PyYAML's parser. Values are never constructed: a `!vault` block needs no password.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_BOM = "\ufeff"
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_LINE_BREAK = re.compile(r"\r\n|\n|\r")
_BLOCK_STYLES = ("|", ">")
# A parsed text is: stream start, document start, root, ..., document end, stream end.
_ROOT, _DOCUMENT_END = 2, -2


class SpliceError(ValueError):
    """The text cannot be changed safely.

    Attributes:
        reason: Why, as the end of a sentence that starts with the file's name.
        line: Where, counted from 1; 0 for the whole text.
    """

    def __init__(self, reason: str, *, line: int = 0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line


def check(text: str) -> None:
    """Raise SpliceError, with the line and the parser's words, unless `text` is at most one YAML document."""
    _parse(text)


def lines(text: str, key: str) -> tuple[int, ...]:
    """Return the lines, counted from 1, where the top-level mapping of `text` has `key`.

    Raises:
        SpliceError: The text is not YAML, or several documents.
    """
    events = _parse(text)
    return tuple(_line(events[begin]) for begin, _ in _entries(events, key))


def set_int(text: str, key: str, value: int) -> str:
    """Return `text` with `key` of its top-level mapping set to `value`, and nothing else changed.

    An existing integer (or empty value) is replaced in place, else a line is added at the end.

    Raises:
        SpliceError: The text is not one YAML mapping, has the key twice, or has another kind of value there.
    """
    events = _parse(text)
    found = list(_entries(events, key))
    if len(found) > 1:
        places = ", ".join(str(_line(events[begin])) for begin, _ in found)
        raise SpliceError(f"has {key} more than once (lines {places})", line=_line(events[found[-1][0]]))
    after = _replace(text, events[found[0][0] + 1], value) if found else _append(text, events, key, value)
    _verify(events, after, key, value)
    return after


def _verify(before: Sequence[yaml.Event], after: str, key: str, value: int) -> None:
    """Raise SpliceError unless `after` parses to what `before` is, but for `key`, which has `value`."""
    events = _parse(after)
    written = [getattr(events[begin + 1], "value", None) for begin, _ in _entries(events, key)]
    if written != [str(value)] or _others(events, key) != _others(before, key):
        raise SpliceError("would change in other places too (does its last line lack its line end?)")


def _parse(text: str) -> list[yaml.Event]:
    """Return the parser's events of a text that composes: one document, and no undefined alias."""
    try:
        yaml.compose(text, Loader=yaml.SafeLoader)
        return list(yaml.parse(text, Loader=yaml.SafeLoader))
    except yaml.MarkedYAMLError as error:
        said = ", ".join(part for part in (error.context, error.problem) if part)
        mark = error.problem_mark or error.context_mark
        raise SpliceError(f"is not valid YAML: {said}", line=mark.line + 1 if mark else 0) from error
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        raise SpliceError(f"is not valid YAML: {error.reason}", line=before.count("\n") + 1) from error
    except RecursionError as error:
        raise SpliceError("is nested too deeply") from error


def _entries(events: Sequence[yaml.Event], key: str) -> Iterator[tuple[int, int]]:
    """Yield for each top-level `key` the index of its event and the index past its value."""
    if not _is_mapping(events):
        return
    position = _ROOT + 1
    while not isinstance(events[position], yaml.MappingEndEvent):
        end = _after_node(events, _after_node(events, position))
        event = events[position]
        if isinstance(event, yaml.ScalarEvent) and event.value == key:
            yield position, end
        position = end


def _is_mapping(events: Sequence[yaml.Event]) -> bool:
    return len(events) > _ROOT and isinstance(events[_ROOT], yaml.MappingStartEvent)


def _after_node(events: Sequence[yaml.Event], position: int) -> int:
    depth = 0
    while True:
        event = events[position]
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        position += 1
        if depth == 0:
            return position


def _replace(text: str, event: yaml.Event, value: int) -> str:
    if not isinstance(event, yaml.ScalarEvent):
        kind = "an alias (*)" if isinstance(event, yaml.AliasEvent) else "a list or a mapping"
        raise SpliceError(f"has {kind} as the value", line=_line(event))
    reason = _not_integer(event)
    if reason:
        raise SpliceError(reason, line=_line(event))
    start, end = _span(event)
    gap = " " if start == end else ""  # `key:` without a value ends right behind its colon
    return f"{text[:start]}{gap}{value}{text[end:]}"


def _not_integer(event: yaml.ScalarEvent) -> str:
    """Say why the scalar at `event` must not be replaced; empty if it may be."""
    if event.anchor:
        return "has an anchor (&) on the value, which other values may repeat"
    if event.tag:
        return f"has a value tagged {event.tag}"
    if "{{" in event.value or "{%" in event.value:
        return "has a template as the value"
    if _is_empty(event) or (_INTEGER.fullmatch(event.value) and event.style not in _BLOCK_STYLES):
        return ""
    return "has a value that is not a plain integer"


def _append(text: str, events: Sequence[yaml.Event], key: str, value: int) -> str:
    column = _column(events)
    position = len(text)
    if len(events) > _ROOT:
        end = events[_DOCUMENT_END]
        if isinstance(end, yaml.DocumentEndEvent) and end.explicit:
            position, _ = _span(end)  # before the `...`
    head, tail = text[:position], text[position:]
    breaks = _LINE_BREAK.findall(text)
    line_break = breaks[-1] if breaks else "\n"
    gap = "" if head in ("", _BOM) or head.endswith(("\n", "\r")) else line_break
    return f"{head}{gap}{' ' * column}{key}: {value}{line_break}{tail}"


def _column(events: Sequence[yaml.Event]) -> int:
    """Return the indentation of the top-level keys; raise SpliceError where no line can be added."""
    if len(events) <= _ROOT:
        return 0
    root = events[_ROOT]
    if isinstance(root, yaml.MappingStartEvent):
        if root.flow_style:
            raise SpliceError("is written in flow style ({...}), to which no line can be added", line=_line(root))
        return _start(root).column
    if isinstance(root, yaml.ScalarEvent) and _is_empty(root):
        return 0
    raise SpliceError("is not a mapping of variables", line=_line(root))


def _others(events: Sequence[yaml.Event], key: str) -> list[tuple[object, ...]]:
    """Return a fingerprint of the top-level mapping without `key`."""
    if not _is_mapping(events):
        return []
    skipped = {index for begin, end in _entries(events, key) for index in range(begin, end)}
    inner = range(_ROOT + 1, len(events) - 3)
    return [_fingerprint(events[index]) for index in inner if index not in skipped]


def _fingerprint(event: yaml.Event) -> tuple[object, ...]:
    value = getattr(event, "value", None)
    tag = getattr(event, "tag", None)
    if tag == "!vault" and value is not None:
        value = value.rstrip("\n")  # a line end behind the ciphertext means nothing
    return type(event), getattr(event, "anchor", None), tag, getattr(event, "implicit", None), value


def _is_empty(event: yaml.ScalarEvent) -> bool:
    start, end = _span(event)
    return start == end


def _span(event: yaml.Event) -> tuple[int, int]:
    """Return where the event's text starts and ends, in characters of the whole text."""
    return _start(event).index, _mark(event.end_mark).index


def _line(event: yaml.Event) -> int:
    return _start(event).line + 1


def _start(event: yaml.Event) -> yaml.Mark:
    return _mark(event.start_mark)


def _mark(mark: object) -> yaml.Mark:
    if not isinstance(mark, yaml.Mark):  # pragma: no cover - the pure Python parser marks every event
        raise TypeError("an event of the YAML parser carries no mark")
    return mark
