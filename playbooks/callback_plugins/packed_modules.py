"""Ansible callback: the modules that one playbook of a run has packed are there for the next one.

Ansible packs each module with all that it imports, which takes a fifth of a second, and keeps it for one playbook. A
run of tuner is a playbook after the other with the same few modules.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from ansible import constants
from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: packed_modules
type: aggregate
short_description: Share packed modules between the playbooks of a run
description:
  - Keeps the modules that Ansible packs in the directory that E(STRAPI_TUNER_PACKED_MODULES) names.
  - Does nothing where that is not set, as when a playbook is run by hand.
"""

VARIABLE = "STRAPI_TUNER_PACKED_MODULES"
# Where a playbook looks for what it has packed, in its own temporary directory (ansible.executor.module_common). Should
# that change, it packs its modules as ever.
WHERE = "ansiballz_cache"


class CallbackModule(CallbackBase):  # type: ignore[misc]  # Ansible has no types
    """Does its work when it is made, before the first task, and sees no event."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "packed_modules"

    def __init__(self) -> None:
        super().__init__()
        directory = os.environ.get(VARIABLE)
        if directory and Path(directory).is_dir():
            with suppress(OSError):
                (Path(constants.DEFAULT_LOCAL_TMP) / WHERE).symlink_to(directory)
