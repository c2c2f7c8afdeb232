"""What every test shares: where the project is, and how an Ansible module is imported without Ansible."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

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
