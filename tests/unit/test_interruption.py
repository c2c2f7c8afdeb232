"""Ctrl-C and SIGTERM are noted while something runs, and mean what they meant before afterwards."""

from __future__ import annotations

import signal

import pytest

from tuner.errors import InterruptedByUserError
from tuner.interruption import SIGNALS, Interruption


def handlers() -> list[object]:
    return [signal.getsignal(number) for number in SIGNALS]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_noted_and_acted_on_when_asked(number: signal.Signals) -> None:
    with Interruption() as interruption:
        interruption.check()
        assert not interruption.requested()
        signal.raise_signal(number)
        assert interruption.requested()
        with pytest.raises(InterruptedByUserError) as caught:
            interruption.check()
    assert caught.value.exit_code == 130


def test_further_signals_change_nothing() -> None:
    with Interruption() as interruption:
        for number in (signal.SIGINT, signal.SIGINT, signal.SIGTERM):
            signal.raise_signal(number)
        assert interruption.requested()


def test_handlers_are_put_back() -> None:
    before = handlers()
    with Interruption():
        assert handlers() != before
    assert handlers() == before


def test_handlers_are_put_back_after_an_error() -> None:
    before = handlers()
    with pytest.raises(ValueError, match="inside"), Interruption():
        raise ValueError("inside")
    assert handlers() == before


def test_a_signal_afterwards_does_what_it_did_before() -> None:
    with Interruption() as interruption:
        pass
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert not interruption.requested()
