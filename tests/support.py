"""What every test shares: where the project is, and how an Ansible module is imported and run without Ansible."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from ansible.module_utils.common import warnings as module_warnings
from ansible.module_utils.testing import patch_module_args

ROOT = Path(__file__).resolve().parent.parent


def load_module(role: str, name: str) -> ModuleType:
    """Import the Ansible module `name` from the library of `role` as a plain Python module."""
    return load_file(ROOT / "roles" / role / "library" / f"{name}.py")


def load_file(path: Path) -> ModuleType:
    """Import a file as a Python module of its name."""
    name = path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up here
    spec.loader.exec_module(module)
    return module


def run_module(module: ModuleType, params: Mapping[str, object], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Run an Ansible module in this process as Ansible would, and return its whole result."""
    module_warnings._global_warnings.clear()  # noqa: SLF001 of the module before: its process would have ended
    with patch_module_args(dict(params)), pytest.raises(SystemExit):
        module.main()
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result
