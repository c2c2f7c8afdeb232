#!/usr/bin/python
"""Ansible module: which release of an application is the current one, and the way back from it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: strapi_release
short_description: Switch between releases of an application, and back
description:
  - Works on a directory with C(releases/ID), the links C(current) and C(previous), the settings C(shared/.env) and
    C(ecosystem.config.js), and the same two as C(shared/.env.next) and C(ecosystem.next.config.js) where new ones wait.
  - A switch first keeps all of these in C(before/). As long as that directory is there, the switch is unfinished, and
    C(returned) leads back to the last state that was confirmed, also after several unfinished switches.
  - Never looks at the age of a directory to find out what is current.
author: strapi-tuner developers
options:
  root:
    description: Directory of the application.
    type: path
    required: true
  state:
    description:
      - C(info), nothing is changed.
      - C(switched), O(release) is the current one, with the settings that wait where there are any.
      - C(confirmed), the current release serves, and the way back from it is not needed any more.
      - C(returned), everything is as it was before an unfinished switch; without one, nothing changes.
      - C(bad), O(release) is marked as one that does not serve, with O(reason).
      - C(cleaned), only the O(keep) releases used last are left; the current, the previous and O(release) always stay.
    type: str
    choices: [info, switched, confirmed, returned, bad, cleaned]
    default: info
  release:
    description: Name of a release.
    type: str
  reason:
    description: Why a release is bad, in one line.
    type: str
    default: ""
  keep:
    description: How many releases to keep.
    type: int
    default: 5
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
"""

EXAMPLES = r"""
- name: Switch to a release
  strapi_release:
    root: /srv/strapi
    state: switched
    release: 4e5f2c81aa07

- name: See what could be rolled back to
  strapi_release:
    root: /srv/strapi
"""

RETURN = r"""
current:
  description: Name of the current release, or "".
  type: str
  returned: always
previous:
  description: Name of the release that was confirmed before the current one, or "".
  type: str
  returned: always
unfinished:
  description: Whether a switch was made that was neither confirmed nor taken back.
  type: bool
  returned: always
releases:
  description: >-
    The releases that are there, those used last first, each with name, used_at (epoch, 0 for never) and bad (reason).
  type: list
  elements: dict
  returned: always
removed:
  description: Names of the releases that C(cleaned) removed.
  type: list
  elements: str
  returned: always
"""

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

NOTES = ".strapi-tuner.json"
PRIVATE = 0o700


class ReleaseError(Exception):
    """Something that the user must hear about, in one line."""


class Releases:
    """The releases below one directory, and which of them is the current one."""

    def __init__(self, root: Path) -> None:
        self.directory = root / "releases"
        self.before = root / "before"
        self.links = {name: root / name for name in ("current", "previous")}
        # Each with the place where its successor waits.
        self.settings = {
            root / "shared" / ".env": root / "shared" / ".env.next",
            root / "ecosystem.config.js": root / "ecosystem.next.config.js",
        }

    def linked(self, name: str) -> str:
        """The release that a link leads to, or "" where there is none."""
        try:
            return self.links[name].readlink().name
        except OSError:
            return ""

    def notes(self, release: str) -> dict[str, Any]:
        """What is noted about a release; empty for one that was never used."""
        try:
            found = json.loads((self.directory / release / NOTES).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def note(self, release: str, **values: Any) -> None:
        """Add to what is noted about a release."""
        path = self.directory / release / NOTES
        replace(path, json.dumps({**self.notes(release), **values}, indent=2) + "\n")

    def listed(self) -> list[dict[str, Any]]:
        """All releases, those used last first."""
        try:
            names = sorted(entry.name for entry in self.directory.iterdir() if entry.is_dir())
        except FileNotFoundError:
            return []
        found = []
        for name in names:
            notes = self.notes(name)
            found.append({"name": name, "used_at": int(notes.get("used_at", 0)), "bad": str(notes.get("bad", ""))})
        return sorted(found, key=lambda release: (-release["used_at"], release["name"]))

    def require(self, release: str | None) -> str:
        """The name of a release that is there.

        Raises:
            ReleaseError: When it is not.
        """
        names = [found["name"] for found in self.listed()]
        if not release or release not in names:
            there = ", ".join(names) or "none"
            raise ReleaseError(f"there is no release {release!r} in {self.directory}; there are: {there}")
        return release

    def differences(self, release: str) -> list[str]:
        """What a switch to a release would change: the link, the names of settings."""
        changed = [] if self.linked("current") == release else ["current"]
        waiting = {path: content(successor) for path, successor in self.settings.items()}
        return changed + [path.name for path, text in waiting.items() if text not in (None, content(path))]

    def switch(self, release: str) -> None:
        """Make a release the current one, with the settings that wait; `returned` leads back."""
        self.keep_state()
        for path, successor in self.settings.items():
            if successor.exists():
                successor.replace(path)
        link(self.links["current"], self.directory / release)

    def discard_waiting(self) -> None:
        """Remove settings that waited and are no different from those that count."""
        for successor in self.settings.values():
            successor.unlink(missing_ok=True)

    def keep_state(self) -> None:
        """Keep links and settings as they are now; what an unfinished switch has kept stays instead."""
        if self.before.is_dir():
            return
        unready = self.before.with_name("before.part")
        shutil.rmtree(unready, ignore_errors=True)
        unready.mkdir(mode=PRIVATE)
        for path in self.settings:
            if path.exists():
                shutil.copy2(path, unready / path.name)
        for name, path in self.links.items():
            if path.is_symlink():
                (unready / name).symlink_to(path.readlink())
        unready.replace(self.before)

    def confirm(self) -> None:
        """The current release serves: remember it as used, and the one before it as the one to roll back to."""
        release = self.require(self.linked("current"))
        earlier = self.before / "current"
        if earlier.is_symlink() and earlier.readlink().name != release:
            link(self.links["previous"], earlier.readlink())
        self.note(release, used_at=int(time.time()), bad="")
        shutil.rmtree(self.before, ignore_errors=True)

    def return_back(self) -> None:
        """Put links and settings back as they were before the switch."""
        for path in self.settings:
            kept = self.before / path.name
            if kept.exists():
                copy = path.with_name(f"{path.name}.part")
                shutil.copy2(kept, copy)
                copy.replace(path)
            else:
                path.unlink(missing_ok=True)
        for name, path in self.links.items():
            kept = self.before / name
            if kept.is_symlink():
                link(path, kept.readlink())
            else:
                path.unlink(missing_ok=True)
        shutil.rmtree(self.before)

    def superfluous(self, keep: int, release: str | None) -> list[str]:
        """The releases that may go."""
        wanted = {self.linked("current"), self.linked("previous"), release}
        wanted |= {(self.before / name).readlink().name for name in self.links if (self.before / name).is_symlink()}
        listed = [found["name"] for found in self.listed()]
        used = [found["name"] for found in self.listed() if found["used_at"]]
        protected = [name for name in listed if name in wanted]
        others = [name for name in used if name not in wanted]
        kept = protected + others[: max(0, keep - len(protected))]
        return [name for name in listed if name not in kept]


def content(path: Path) -> bytes | None:
    """What a file holds, or None where there is none."""
    try:
        return path.read_bytes()
    except OSError:
        return None


def replace(path: Path, text: str) -> None:
    """Write a file at once."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def link(path: Path, target: Path) -> None:
    """Make a link, or lead it elsewhere, at once."""
    part = path.with_name(f"{path.name}.part")
    part.unlink(missing_ok=True)
    part.symlink_to(target)
    part.replace(path)


def act(releases: Releases, options: dict[str, Any], *, check_mode: bool) -> dict[str, Any]:
    """Bring the asked state about, or say in check mode whether that would change anything.

    Raises:
        ReleaseError: When the state cannot be had.
    """
    state, release = options["state"], options["release"]
    if state in ("switched", "bad") and not check_mode:
        releases.require(release)
    differences = releases.differences(release) if state == "switched" else []
    removed = releases.superfluous(options["keep"], release) if state == "cleaned" else []
    changed = {
        "switched": bool(differences),
        "returned": releases.before.is_dir(),
        "bad": True,
        "cleaned": bool(removed),
        # No change of its own: it ends what the switch began.
        "confirmed": False,
    }.get(state, False)
    if not check_mode and (changed or state == "confirmed"):
        carry_out(releases, options, removed)
    if not check_mode and state == "switched":
        releases.discard_waiting()
    return {"changed": changed, "differences": differences, "removed": removed}


def carry_out(releases: Releases, options: dict[str, Any], removed: list[str]) -> None:
    """Do what `act` has found to be necessary."""
    state, release = options["state"], options["release"]
    if state == "switched":
        releases.switch(release)
    elif state == "confirmed" and releases.before.is_dir():
        releases.confirm()
    elif state == "returned":
        releases.return_back()
    elif state == "bad":
        releases.note(release, bad=options["reason"] or "no reason given")
    for name in removed:
        shutil.rmtree(releases.directory / name)


def describe(current: str, settings: list[str]) -> str:
    """One side of the diff: names alone, since settings may be private."""
    return f"current: {current or 'none'}\n" + "".join(f"{name}: changed\n" for name in settings)


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "required": True},
            "state": {
                "type": "str",
                "choices": ["info", "switched", "confirmed", "returned", "bad", "cleaned"],
                "default": "info",
            },
            "release": {"type": "str"},
            "reason": {"type": "str", "default": ""},
            "keep": {"type": "int", "default": 5},
        },
        required_if=[("state", "switched", ["release"]), ("state", "bad", ["release"])],
        supports_check_mode=True,
    )
    releases = Releases(Path(module.params["root"]))
    before = releases.linked("current")
    try:
        result = act(releases, module.params, check_mode=module.check_mode)
    except ReleaseError as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg=f"{error.filename}: {os.strerror(error.errno or 0)}")
    after = module.params["release"] if module.params["state"] == "switched" else releases.linked("current")
    module.exit_json(
        **result,
        current=releases.linked("current"),
        previous=releases.linked("previous"),
        unfinished=releases.before.is_dir(),
        releases=releases.listed(),
        diff={
            "before": describe(before, []),
            "after": describe(after, [name for name in result["differences"] if name != "current"]),
        },
    )


if __name__ == "__main__":
    main()
