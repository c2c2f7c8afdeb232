"""What a tuner that is killed leaves on the controller: nothing that runs, and nothing for long that lies about."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import psutil

PR_SET_PDEATHSIG = 1  # linux/prctl.h
PREFIX = "tuner"


@cache  # once in a process: what is registered cannot be taken back
def end_children_with_this_process() -> None:
    """See to it that the kernel kills what this process starts with os.fork, such as ansible-playbook, when it ends.

    ansible-playbook would go on alone, and wait for ever for workers that its terminal took with it. The thread that
    starts a process must not end before it. Only Linux can do this; elsewhere nothing happens.
    """
    if sys.platform != "linux":
        return
    starter = 0
    prctl: Callable[[int, int], int] = ctypes.CDLL(None, use_errno=True).prctl

    def in_starter() -> None:
        nonlocal starter
        starter = os.getpid()

    def in_child() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        # It may have ended before the kernel knew.
        if os.getppid() != starter:
            os._exit(1)

    os.register_at_fork(before=in_starter, after_in_child=in_child)


def private_directory() -> tempfile.TemporaryDirectory[str]:
    """Make a directory that nobody else may read, and that a later tuner can tell to be abandoned."""
    return tempfile.TemporaryDirectory(prefix=f"{PREFIX}-{os.getpid()}-")


def remove_abandoned_directories() -> None:
    """Remove the private directories of this user's tuners that run no more."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}-*-*"):
        found = re.fullmatch(rf"{PREFIX}-(\d+)-\w+", path.name)
        if not found or psutil.pid_exists(int(found[1])) or path.is_symlink() or not path.is_dir():
            continue
        if path.stat().st_uid == os.getuid():
            shutil.rmtree(path, ignore_errors=True)
