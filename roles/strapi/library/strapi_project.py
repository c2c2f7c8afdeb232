#!/usr/bin/python
"""Ansible module: what kind of Strapi project a directory holds, and its sources in one archive."""

from __future__ import annotations

DOCUMENTATION = r"""
module: strapi_project
short_description: Look at the sources of a Strapi application, and pack them
description:
  - Finds out what a roll-out must know of a project, from its package.json and its lockfile.
  - Gives a hash of its sources, and on request packs them into an archive that depends on nothing but them.
author: strapi-tuner developers
options:
  path:
    description: Directory of the project, the one that holds package.json, or of the repository that holds it.
    type: path
    required: true
  subdir:
    description: Where below path the project lies, for a repository that holds more than it.
    type: str
    default: ''
  exclude:
    description: >-
      What is no source, with shell wildcards: names, wherever they are, and with a slash in front paths from the
      project's directory.
    type: list
    elements: str
    default: []
  archive:
    description: Where to write the sources as .tar.gz. Without it, nothing is written.
    type: path
attributes:
  check_mode: {support: full}
"""

EXAMPLES = r"""
- name: Look at the project
  strapi_project:
    path: /home/me/shop
    exclude: [node_modules, .git]
  delegate_to: localhost
"""

RETURN = r"""
project:
  description: What the project is.
  type: dict
  returned: always
  contains:
    name: {description: Name in package.json., type: str}
    strapi_version: {description: 'Version of Strapi in the lockfile, or else the range in package.json.', type: str}
    major: {description: Major version of Strapi., type: int}
    typescript: {description: Whether it is compiled., type: bool}
    dist_dir: {description: Where it is compiled to., type: str}
    package_manager: {description: 'npm, yarn-classic, yarn-berry or pnpm, by the lockfile.', type: str}
    package_manager_version: {description: The version that package.json names, or an empty string., type: str}
    lockfile: {description: Name of the lockfile, or an empty string., type: str}
    native_modules: {description: 'Whether packages may have to be compiled, by the lockfile.', type: bool}
    engines_node: {description: The Node.js range that it asks for, or else that its Strapi does., type: str}
    build_script: {description: Whether package.json has a script called build., type: bool}
    own_files: {description: Those of server.js and ecosystem.config.js that the project brings., type: list}
    source_hash: {description: SHA-256 over names, modes and contents of the sources., type: str}
    files: {description: Number of source files., type: int}
"""

import fnmatch
import gzip
import hashlib
import json
import os
import re
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

# Where a project holds several of them, those of the manager that package.json names go first, and then the first
# counts; npm itself prefers npm-shrinkwrap.json.
LOCKFILES = {
    "npm-shrinkwrap.json": "npm",
    "package-lock.json": "npm",
    "yarn.lock": "yarn",
    "pnpm-lock.yaml": "pnpm",
}
PACKAGE_MANAGER = re.compile(r"(npm|yarn|pnpm)@(\d+\.\d+\.\d[\w.-]*)(?:\+.*)?")
YARN_BERRY = re.compile(r"^__metadata:", re.MULTILINE)
# Packages that others depend on in order to be compiled where no binary fits.
COMPILING = re.compile(r"\b(?:prebuild-install|bindings|node-gyp|node-gyp-build|node-pre-gyp|node-addon-api|nan)\b")
# Where each other lockfile says which Strapi it holds; pnpm's says the Node.js range too.
LOCKED_STRAPI = (
    re.compile(r'^"?@strapi/strapi@[^\n]*:\n  version:? "?(?P<version>[^"\n]+)(?P<node>)', re.MULTILINE),
    re.compile(
        r"^  '@strapi/strapi@(?P<version>[^'()\n]+)':\n(?:    [^\n]*\n)*?    engines: \{node: '?(?P<node>[^'},\n]+)",
        re.MULTILINE,
    ),
)
OUT_DIR = re.compile(r"^[^/\n]*\"outDir\"\s*:\s*\"(?:\./)?([^\"]+?)/?\"", re.MULTILINE)
GENERATED_FILES = ("server.js", "ecosystem.config.js")
SUPPORTED_MAJORS = (4, 5)
REMEDY = "set strapi_source (and strapi_source_subdir) to the directory that holds the application's package.json"


class ProjectError(Exception):
    """Why a directory cannot be rolled out, in one line."""


def read_package(path: Path) -> dict[str, Any]:
    """Read package.json of a project.

    Raises:
        ProjectError: When it is missing, broken, or not of a Strapi application.
    """
    if not path.is_dir():
        raise ProjectError(f"{path} is no directory; {REMEDY}")
    try:
        package = json.loads((path / "package.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ProjectError(f"{path} is no Strapi application, it has no package.json; {REMEDY}") from None
    except (OSError, ValueError) as error:
        raise ProjectError(f"{path}/package.json cannot be read: {error}") from None
    if not isinstance(package, dict) or "@strapi/strapi" not in section(package, "dependencies"):
        raise ProjectError(
            f"{path} is no Strapi application, its package.json does not depend on @strapi/strapi; {REMEDY}"
        )
    return package


def section(document: Any, name: str) -> dict[str, Any]:  # noqa: ANN401 what JSON holds may be of any type
    """A part of a JSON document that should be a mapping; empty where it is missing or something else."""
    found = document.get(name) if isinstance(document, dict) else None
    return found if isinstance(found, dict) else {}


def named_manager(path: Path, package: dict[str, Any]) -> tuple[str, str]:
    """Name and version of the package manager that package.json asks for; both empty where it names none.

    Raises:
        ProjectError: When it is one that the role does not know, or has no exact version.
    """
    wanted = package.get("packageManager")
    if not wanted:
        return "", ""
    found = PACKAGE_MANAGER.fullmatch(str(wanted))
    if found is None:
        raise ProjectError(
            f"{path}/package.json names the package manager {wanted}, and npm, yarn or pnpm with an exact version is "
            "needed, for example pnpm@10.34.8"
        )
    return found[1], found[2]


def find_lockfile(path: Path, manager: str) -> str:
    """Name of the lockfile that counts, or an empty string."""
    there = [name for name in LOCKFILES if (path / name).is_file()]
    return next((name for name in there if LOCKFILES[name] == manager), there[0] if there else "")


def read_lockfile(path: Path, lockfile: str) -> str:
    """The text of a lockfile, or an empty one where there is none."""
    try:
        return (path / lockfile).read_text(encoding="utf-8") if lockfile else ""
    except (OSError, ValueError) as error:
        raise ProjectError(f"{path / lockfile} cannot be read: {error}") from None


def describe_manager(path: Path, package: dict[str, Any], lockfile: str, lock: str) -> dict[str, str]:
    """Which package manager installs the packages: the lockfile's, in the version that package.json names for it."""
    manager, version = named_manager(path, package)
    if lockfile and LOCKFILES[lockfile] != manager:
        manager, version = LOCKFILES[lockfile], ""
    if manager == "yarn":
        is_berry = bool(YARN_BERRY.search(lock)) if lock else not version.startswith("1.")
        manager = "yarn-berry" if is_berry else "yarn-classic"
        if version and version.startswith("1.") == is_berry:
            raise ProjectError(
                f"{path}/package.json names yarn@{version}, and {path / lockfile} is of another generation of yarn; "
                "write it again with that version"
            )
    return {"package_manager": manager or "npm", "package_manager_version": version}


def locked_strapi(path: Path, lockfile: str, lock: str) -> tuple[str, str]:
    """Version and Node.js range of the Strapi in a lockfile; empty where it does not say.

    Raises:
        ProjectError: When npm's lockfile is no JSON.
    """
    if LOCKFILES.get(lockfile) != "npm":
        found = next(filter(None, (pattern.search(lock) for pattern in LOCKED_STRAPI)), None)
        return (found["version"], found["node"]) if found else ("", "")
    try:
        packages = section(json.loads(lock), "packages")
    except ValueError as error:
        raise ProjectError(f"{path / lockfile} cannot be read: {error}; write it again with npm install") from None
    entry = section(packages, "node_modules/@strapi/strapi")
    return str(entry.get("version") or ""), str(section(entry, "engines").get("node") or "")


def refuse_workspace(root: Path, path: Path) -> None:
    """Refuse a project whose packages are locked further up, together with those of its neighbours.

    Raises:
        ProjectError: When a directory between the repository's and the project's holds a lockfile.
    """
    for parent in path.parents:
        if not parent.is_relative_to(root):
            return
        for name in LOCKFILES:
            if (parent / name).is_file():
                raise ProjectError(
                    f"{path} has no lockfile, and {parent / name} locks its packages with others' (a workspace); "
                    "give it a lockfile of its own, or set strapi_source to a copy that stands alone (see pnpm deploy)"
                )


def dist_dir(path: Path) -> str:
    """Where TypeScript is compiled to, by the `outDir` of tsconfig.json (JSON with comments), or else dist."""
    try:
        found = OUT_DIR.search((path / "tsconfig.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return "dist"
    return found[1] if found else "dist"


def describe(path: Path) -> dict[str, Any]:
    """Find out what a project is, from the files that say so.

    Raises:
        ProjectError: When it is no Strapi application of a version that can be rolled out.
    """
    package = read_package(path)
    lockfile = find_lockfile(path, named_manager(path, package)[0])
    lock = read_lockfile(path, lockfile)
    locked_version, locked_engines = locked_strapi(path, lockfile, lock)
    version = str(locked_version or section(package, "dependencies")["@strapi/strapi"])
    major = re.search(r"\d+", version)
    if major is None or int(major.group()) not in SUPPORTED_MAJORS:
        raise ProjectError(
            f"{path} uses Strapi {version}, and only versions 4 and 5 can be rolled out; upgrade it first"
        )
    engines = section(package, "engines").get("node") or locked_engines
    return {
        "name": str(package.get("name", path.name)),
        "strapi_version": version,
        "major": int(major.group()),
        "typescript": (path / "tsconfig.json").is_file(),
        "dist_dir": dist_dir(path),
        **describe_manager(path, package, lockfile, lock),
        "lockfile": lockfile,
        # Without a lockfile nobody knows.
        "native_modules": not lock or bool(COMPILING.search(lock)),
        "engines_node": str(engines),
        "build_script": "build" in section(package, "scripts"),
        "own_files": [name for name in GENERATED_FILES if (path / name).is_file()],
    }


def is_excluded(relative: str, exclude: list[str]) -> bool:
    """Whether a path is no source: a pattern with a slash in front fits the whole of it, or another its name."""
    name = relative.rsplit("/", 1)[-1]
    return any(fnmatch.fnmatchcase("/" + relative if pattern[:1] == "/" else name, pattern) for pattern in exclude)


def walk_sources(path: Path, exclude: list[str]) -> Iterator[tuple[str, Path]]:
    """The source files and links of a project in a fixed order, each with its name relative to the project."""
    for directory, folders, files in os.walk(path):
        base = Path(directory)
        prefix = "" if base == path else base.relative_to(path).as_posix() + "/"
        links = [name for name in folders if (base / name).is_symlink()]
        folders[:] = sorted(name for name in folders if name not in links and not is_excluded(prefix + name, exclude))
        for name in sorted(files + links):
            # A pipe or a socket is no source, and reading one might never end.
            is_source = (base / name).is_symlink() or (base / name).is_file()
            if is_source and not is_excluded(prefix + name, exclude):
                yield prefix + name, base / name


def is_executable(file: Path) -> bool:
    """Whether its owner may execute a file: the one permission that a source has."""
    return bool(file.stat().st_mode & stat.S_IXUSR)


def hash_sources(sources: list[tuple[str, Path]]) -> str:
    """SHA-256 over the name, the kind, the executable bit and the content of each source.

    Raises:
        ProjectError: When a source cannot be read.
    """
    total = hashlib.sha256()
    for name, file in sources:
        try:
            if file.is_symlink():
                kind, content = "link", os.fsencode(file.readlink())
            else:
                kind, content = "exec" if is_executable(file) else "file", file.read_bytes()
        except OSError as error:
            raise ProjectError(f"{file} cannot be read: {error.strerror}") from None
        total.update(os.fsencode(name) + f"\0{kind}\0{hashlib.sha256(content).hexdigest()}\0".encode())
    return total.hexdigest()


def pack(sources: list[tuple[str, Path]], archive: Path) -> None:
    """Write the sources as .tar.gz, without owners and times, so that equal sources give equal bytes."""
    with (
        archive.open("wb") as raw,
        gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        for name, file in sources:
            entry = tarfile.TarInfo(name)
            if file.is_symlink():
                entry.type, entry.linkname = tarfile.SYMTYPE, str(file.readlink())
                tar.addfile(entry)
                continue
            with file.open("rb") as content:
                entry.size, entry.mode = file.stat().st_size, 0o755 if is_executable(file) else 0o644
                tar.addfile(entry, content)


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "subdir": {"type": "str", "default": ""},
            "exclude": {"type": "list", "elements": "str", "default": []},
            "archive": {"type": "path"},
        },
        supports_check_mode=True,
    )
    root = Path(module.params["path"]).absolute()
    path = root / module.params["subdir"].strip("/")
    archive = module.params["archive"]
    try:
        project = describe(path)
        if not project["lockfile"]:
            refuse_workspace(root, path)
        sources = list(walk_sources(path, module.params["exclude"]))
        project.update(source_hash=hash_sources(sources), files=len(sources))
    except ProjectError as error:
        module.fail_json(msg=str(error))
    if archive and not module.check_mode:
        pack(sources, Path(archive))
    module.exit_json(changed=bool(archive), project=project)


if __name__ == "__main__":
    main()
