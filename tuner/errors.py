"""The errors that end a command: one base, an exit code each, and what the user can do."""

from __future__ import annotations

from tuner.wording import printable


class TunerError(Exception):
    """A command cannot go on.

    Args:
        message: What is wrong and the value that was seen.
        remedy: What the user can do; may be empty.

    Attributes:
        exit_code: The exit code of the process that this error ends.
        aftermath: How the host was left, once that is known.
    """

    exit_code: int = 5
    aftermath: str = ""

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        parts = (" ".join(part.split()).rstrip(".") for part in (self.message, self.aftermath, self.remedy))
        return printable("; ".join(part for part in parts if part))


class InputError(TunerError):
    """Wrong usage or input; nothing was touched."""

    exit_code = 2


class LockedError(InputError):
    """Somebody else holds the lock of the host; nothing was touched."""

    def __init__(self, message: str) -> None:
        super().__init__(message, remedy="wait for its end; if nobody is there any more: tuner restore --break-lock")


class UnresolvedError(TunerError):
    """The measurements do not tell the candidates apart; nothing was written."""

    exit_code = 3


class LimitError(TunerError):
    """No candidate keeps the SLO, memory or error limit."""

    exit_code = 4


class HostError(TunerError):
    """A host or Ansible failed; the original setting was restored."""

    exit_code = 5


class RestoreError(TunerError):
    """The original state could not be restored; the remedy says what to run."""

    exit_code = 6


class InterruptedByUserError(TunerError):
    """The user stopped the command; the original setting was restored."""

    exit_code = 130
