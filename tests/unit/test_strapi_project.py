"""strapi_project on small projects of each kind, and on directories that are none."""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args
from support import ROOT, load_module

strapi_project = load_module("strapi", "strapi_project")

SAMPLE = ROOT / "roles" / "strapi" / "files" / "sample"
STRAPI = "@strapi/strapi"
LOCK = {
    "lockfileVersion": 3,
    "packages": {f"node_modules/{STRAPI}": {"version": "5.54.0", "engines": {"node": ">=20"}}},
}
OLD_LOCK = {"lockfileVersion": 1, "dependencies": {STRAPI: {"version": "4.1.0"}}}

Files = Mapping[str, "str | dict[str, Any]"]


def plant(root: Path, files: Files) -> Path:
    """Write `files` below `root`, a mapping as JSON."""
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return root


def package(version: str = "^5.0.0", **more: object) -> dict[str, Any]:
    """A package.json of a Strapi application."""
    return {"name": "shop", "dependencies": {STRAPI: version}, **more}


def sources(path: Path, *exclude: str) -> list[tuple[str, Path]]:
    """The sources of a directory."""
    return list(strapi_project.walk_sources(path, list(exclude)))


def hash_of(path: Path) -> str:
    """The hash of all that is in a directory."""
    return str(strapi_project.hash_sources(sources(path)))


def packed(path: Path, archive: Path) -> bytes:
    """The archive of all that is in a directory."""
    strapi_project.pack(sources(path), archive)
    return archive.read_bytes()


def run(capsys: pytest.CaptureFixture[str], **params: object) -> dict[str, Any]:
    """Run the module as Ansible would, and return its whole result."""
    with patch_module_args(dict(params)), pytest.raises(SystemExit):
        strapi_project.main()
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


@pytest.mark.parametrize(
    ("version", "major"),
    [("5.54.0", 5), ("^5.0.0", 5), ("~4.25.1", 4), ("4", 4), (">=4.1 <5", 4), ("v5.1.0", 5), ("5.0.0-beta.1", 5)],
)
def test_version_without_a_lockfile(version: str, major: int, tmp_path: Path) -> None:
    found = strapi_project.describe(plant(tmp_path, {"package.json": package(version)}))
    assert (found["strapi_version"], found["major"]) == (version, major)


def test_a_bare_project(tmp_path: Path) -> None:
    project = plant(tmp_path / "bakery", {"package.json": {"dependencies": {STRAPI: "4.25.1"}}})
    assert strapi_project.describe(project) == {
        "name": "bakery",
        "strapi_version": "4.25.1",
        "major": 4,
        "typescript": False,
        "package_manager": "npm",
        "lockfile": "",
        "engines_node": "",
        "build_script": False,
        "own_files": [],
    }


@pytest.mark.parametrize(
    ("lockfile", "content", "expected"),
    [
        ("package-lock.json", LOCK, ("npm", "5.54.0", ">=20")),
        ("npm-shrinkwrap.json", LOCK, ("npm", "5.54.0", ">=20")),
        ("package-lock.json", OLD_LOCK, ("npm", "^5.0.0", "")),
        ("package-lock.json", {"packages": {}}, ("npm", "^5.0.0", "")),
        ("package-lock.json", {"packages": None}, ("npm", "^5.0.0", "")),
        ("package-lock.json", "[]", ("npm", "^5.0.0", "")),
        ("yarn.lock", '"@strapi/strapi@^5.0.0":\n  version "5.54.0"\n', ("yarn", "^5.0.0", "")),
        ("pnpm-lock.yaml", "lockfileVersion: '9.0'\n", ("pnpm", "^5.0.0", "")),
    ],
)
def test_each_lockfile(
    lockfile: str, content: str | dict[str, Any], expected: tuple[str, str, str], tmp_path: Path
) -> None:
    found = strapi_project.describe(plant(tmp_path, {"package.json": package(), lockfile: content}))
    assert found["lockfile"] == lockfile
    assert (found["package_manager"], found["strapi_version"], found["engines_node"]) == expected


def test_npm_prefers_its_shrinkwrap(tmp_path: Path) -> None:
    other = {"packages": {f"node_modules/{STRAPI}": {"version": "5.1.0"}}}
    files = {"package.json": package(), "package-lock.json": LOCK, "npm-shrinkwrap.json": other}
    found = strapi_project.describe(plant(tmp_path, files))
    assert (found["lockfile"], found["strapi_version"]) == ("npm-shrinkwrap.json", "5.1.0")


@pytest.mark.parametrize(
    ("engines", "expected"),
    [
        ({"node": ">=18 <=22"}, ">=18 <=22"),
        ({"npm": ">=6"}, ">=20"),
        ({"node": ""}, ">=20"),
        (None, ">=20"),
        (["node >= 18"], ">=20"),
    ],
)
def test_engines_of_the_project_go_before_those_of_strapi(engines: object, expected: str, tmp_path: Path) -> None:
    files = {"package.json": package(engines=engines), "package-lock.json": LOCK}
    assert strapi_project.describe(plant(tmp_path, files))["engines_node"] == expected


def test_typescript_scripts_and_own_files(tmp_path: Path) -> None:
    files: Files = {
        "package.json": package(scripts={"build": "strapi build"}),
        "tsconfig.json": "{}",
        "server.js": "",
        "ecosystem.config.js": "",
        "config/server.js": "",
    }
    found = strapi_project.describe(plant(tmp_path, files))
    assert found["typescript"] is True
    assert found["build_script"] is True
    assert found["own_files"] == ["server.js", "ecosystem.config.js"]


def test_own_files_are_those_at_the_top(tmp_path: Path) -> None:
    files: Files = {
        "package.json": package(),
        "config/server.js": "",
        "src/tsconfig.json": "",
    }
    found = strapi_project.describe(plant(tmp_path, files))
    assert (found["own_files"], found["typescript"]) == ([], False)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "it has no package.json"),
        ("", "/package.json cannot be read: Expecting value"),
        ("{", "/package.json cannot be read: Expecting property name"),
        ("[]", "does not depend on @strapi/strapi"),
        ("{}", "does not depend on @strapi/strapi"),
        ({"dependencies": None}, "does not depend on @strapi/strapi"),
        ({"dependencies": [STRAPI]}, "does not depend on @strapi/strapi"),
        ({"dependencies": {"express": "^5.0.0"}}, "does not depend on @strapi/strapi"),
        ({"devDependencies": {STRAPI: "^5.0.0"}}, "does not depend on @strapi/strapi"),
        (package("3.6.8"), "uses Strapi 3.6.8, and only versions 4 and 5"),
        (package("^6.0.0"), "uses Strapi ^6.0.0, and only versions 4 and 5"),
        (package("54.0.0"), "uses Strapi 54.0.0, and only versions 4 and 5"),
        (package("latest"), "uses Strapi latest, and only versions 4 and 5"),
    ],
)
def test_what_is_no_project_is_said(
    content: str | dict[str, Any] | None, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plant(tmp_path, {} if content is None else {"package.json": content})
    result = run(capsys, path=str(tmp_path))
    assert result["failed"] is True
    assert reason in result["msg"]
    assert str(tmp_path) in result["msg"]
    assert "exception" not in result


def test_a_path_that_is_no_directory_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = plant(tmp_path, {"shop.tar.gz": ""}) / "shop.tar.gz"
    for path in (file, tmp_path / "missing"):
        result = run(capsys, path=str(path))
        assert result["msg"].startswith(f"{path} is no directory; set strapi_source"), result


def test_a_broken_lockfile_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plant(tmp_path, {"package.json": package(), "package-lock.json": "<<<<<<< HEAD\n"})
    message = run(capsys, path=str(tmp_path))["msg"]
    assert message.startswith(f"{tmp_path / 'package-lock.json'} cannot be read: ")
    assert message.endswith("write it again with npm install")


def test_sources_in_a_fixed_order_without_what_is_excluded(tmp_path: Path) -> None:
    names = [
        ".env",
        ".git/config",
        "a/b.js",
        "a.js",
        "config/.env",
        "public/uploads/photo.jpg",
        "public/uploads/thumbs/photo.jpg",
        "public/robots.txt",
        "src/api/public/uploads/x",
        "src/node_modules/x/index.js",
        "z.log",
    ]
    plant(tmp_path, dict.fromkeys(reversed(names), ""))
    found = sources(tmp_path, ".git", "node_modules", ".env", "/public/uploads/*", "*.log")
    assert [name for name, _ in found] == ["a.js", "a/b.js", "public/robots.txt", "src/api/public/uploads/x"]
    assert [file for _, file in found] == [tmp_path / name for name, _ in found]
    assert [name for name, _ in sources(tmp_path, "*")] == []


def test_a_pattern_with_a_slash_in_front_holds_at_the_top_only(tmp_path: Path) -> None:
    plant(tmp_path, dict.fromkeys(["build/index.html", "src/api/build/routes/build.js"], ""))
    assert [name for name, _ in sources(tmp_path, "/build")] == ["src/api/build/routes/build.js"]


def test_an_excluded_link_and_empty_directories_are_no_sources(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "node_modules").symlink_to("/somewhere")
    assert sources(tmp_path, "node_modules") == []


@pytest.mark.timeout(20)
def test_a_pipe_is_no_source(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert hash_of(tmp_path) == hash_of(plant(tmp_path / "empty", {}))


def test_the_hash_depends_on_the_sources_alone(tmp_path: Path) -> None:
    files: Files = {"a.js": "1", "b/c.js": "2", "b/d.js": "3"}
    first = plant(tmp_path / "first", files)
    second = plant(tmp_path / "second", dict(reversed(list(files.items()))))
    os.utime(second / "a.js", (0, 0))
    os.utime(second / "b", (0, 0))
    assert hash_of(first) == hash_of(second)
    assert hash_of(first) == hash_of(first)


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o664, 0o654, 0o645])
def test_permissions_of_others_are_not_hashed_and_not_packed(mode: int, tmp_path: Path) -> None:
    one, two = plant(tmp_path / "one", {"a.sh": "1"}), plant(tmp_path / "two", {"a.sh": "1"})
    (one / "a.sh").chmod(0o644)
    (two / "a.sh").chmod(mode)
    assert hash_of(one) == hash_of(two)
    assert packed(one, tmp_path / "one.tgz") == packed(two, tmp_path / "two.tgz")


def test_the_hash_changes_with_each_part_of_a_source(tmp_path: Path) -> None:
    variants: dict[str, Files] = {
        "base": {"a.js": "1", "b.js": "2"},
        "content": {"a.js": "1", "b.js": "3"},
        "name": {"a.js": "1", "c.js": "2"},
        "folder": {"a.js": "1", "b.js/b.js": "2"},
        "swapped": {"a.js": "2", "b.js": "1"},
        "missing": {"a.js": "1"},
        "joined": {"a.js": "12", "b.js": ""},
        "more": {"a.js": "1", "b.js": "2", "c.js": ""},
        "mode": {"a.js": "1", "b.js": "2"},
        "link": {"a.js": "1"},
        "other-link": {"a.js": "1"},
    }
    for name, files in variants.items():
        plant(tmp_path / name, files)
    (tmp_path / "mode/b.js").chmod(0o755)
    (tmp_path / "link/b.js").symlink_to("2")
    (tmp_path / "other-link/b.js").symlink_to("3")
    hashes = {name: hash_of(tmp_path / name) for name in variants}
    assert len(set(hashes.values())) == len(variants), hashes


def test_an_archive_holds_the_sources_and_nothing_of_the_host(tmp_path: Path) -> None:
    project = plant(tmp_path / "shop", {"a.js": "1", "b/c.sh": "2", "b/ü.txt": "3", "empty": ""})
    (project / "b/c.sh").chmod(0o750)
    (project / "to-file").symlink_to("b/c.sh")
    (project / "to-folder").symlink_to("b")
    (project / "broken").symlink_to("../nowhere")
    first = packed(project, tmp_path / "first.tgz")
    os.utime(project / "a.js", (0, 0))
    assert packed(project, tmp_path / "second.tgz") == first

    with tarfile.open(tmp_path / "first.tgz") as tar:
        entries = tar.getmembers()
        tar.extractall(tmp_path / "out", filter="tar")
    assert [entry.name for entry in entries] == ["a.js", "broken", "empty", "to-file", "to-folder", "b/c.sh", "b/ü.txt"]
    assert {(entry.uid, entry.gid, entry.uname, entry.gname, entry.mtime) for entry in entries} == {(0, 0, "", "", 0)}
    assert {entry.name: entry.mode for entry in entries if entry.isfile()} == {
        "a.js": 0o644,
        "empty": 0o644,
        "b/c.sh": 0o755,
        "b/ü.txt": 0o644,
    }
    out = tmp_path / "out"
    assert hash_of(out) == hash_of(project)
    assert {name: file.read_bytes() for name, file in sources(out) if not file.is_symlink()} == {
        "a.js": b"1",
        "empty": b"",
        "b/c.sh": b"2",
        "b/ü.txt": b"3",
    }
    links = {name: str((out / name).readlink()) for name in ("to-file", "to-folder", "broken")}
    assert links == {"to-file": "b/c.sh", "to-folder": "b", "broken": "../nowhere"}


def test_hard_links_are_files_like_others(tmp_path: Path) -> None:
    copies = plant(tmp_path / "copies", {"a.js": "1", "b.js": "1"})
    linked = plant(tmp_path / "linked", {"a.js": "1"})
    (linked / "b.js").hardlink_to(linked / "a.js")
    assert packed(linked, tmp_path / "linked.tgz") == packed(copies, tmp_path / "copies.tgz")


def test_a_name_that_is_no_text_is_a_name_all_the_same(tmp_path: Path) -> None:
    project = tmp_path / "shop"
    project.mkdir()
    Path(os.fsdecode(os.fsencode(project) + b"/caf\xe9.txt")).write_text("x", encoding="utf-8")
    (project / "link").symlink_to(os.fsdecode(b"caf\xe9.txt"))
    packed(project, tmp_path / "shop.tgz")
    with tarfile.open(tmp_path / "shop.tgz") as tar:
        tar.extractall(tmp_path / "out", filter="tar")
    assert hash_of(tmp_path / "out") == hash_of(project)
    assert (tmp_path / "out" / "link").read_text(encoding="utf-8") == "x"


def test_the_sample_application(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive = tmp_path / "sample.tgz"
    result = run(capsys, path=str(SAMPLE), exclude=["node_modules", "/public/uploads/*"], archive=str(archive))
    assert result["changed"] is True
    project = result["project"]
    assert (project["major"], project["package_manager"], project["typescript"]) == (5, "npm", False)
    assert project["strapi_version"].startswith("5.")
    assert ">=20" in project["engines_node"]
    with tarfile.open(archive) as tar:
        names = tar.getnames()
    assert project["files"] == len(names)
    assert "package.json" in names
    assert "public/uploads/.gitkeep" not in names


def test_a_look_and_check_mode_write_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project = plant(tmp_path / "shop", {"package.json": package()})
    look = run(capsys, path=str(project))
    assert (look["changed"], look["project"]["files"]) == (False, 1)
    check = run(capsys, path=str(project), archive=str(tmp_path / "shop.tgz"), _ansible_check_mode=True)
    assert check["changed"] is True
    assert check["project"] == look["project"]
    assert not (tmp_path / "shop.tgz").exists()
