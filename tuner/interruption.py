"""Ctrl-C and SIGTERM, noted and acted on where a run can be left in order."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Self

from tuner.errors import InterruptedByUserError

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """While this context is open, a signal is only noted: who runs something asks, and stops it.

    A second signal changes nothing, so that it cannot stop the restore that the first one asked for.
    """

    def __init__(self) -> None:
        self._requested = False
        self._previous: dict[signal.Signals, object] = {}

    def __enter__(self) -> Self:
        for number in SIGNALS:
            self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # what signal() gave is what it takes

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self._requested = True

    def requested(self) -> bool:
        """Whether the user asked to stop."""
        return self._requested

    def check(self) -> None:
        """Raise when the user asked to stop.

        Raises:
            InterruptedByUserError: When they did.
        """
        if self._requested:
            raise InterruptedByUserError("interrupted")
