"""satisfies_engines against what npm's own semver says of the same ranges."""

from __future__ import annotations

import runpy

import pytest
from ansible.errors import AnsibleFilterError
from support import ROOT

PLUGIN = runpy.run_path(str(ROOT / "roles" / "nodejs" / "test_plugins" / "engines.py"))
satisfies_engines = PLUGIN["satisfies_engines"]

VERSIONS = (
    "16.20.2 18.0.0 18.20.8 20.0.0 20.9.0 20.20.2 21.0.0 22.20.0 23.1.0 24.0.0 26.5.1 27.0.0".split()  # noqa: SIM905 a list to be read
)

# A range, and the first and last of each run of those versions that npm's semver 7 takes.
RANGES = {
    ">=20.0.0 <=26.x.x": ["20.0.0..26.5.1"],
    ">=18.0.0 <=22.x.x": ["18.0.0..22.20.0"],
    "^18 || ^20": ["18.0.0..18.20.8", "20.0.0..20.20.2"],
    "^18||^20": ["18.0.0..18.20.8", "20.0.0..20.20.2"],
    "18.x": ["18.0.0..18.20.8"],
    "18.*": ["18.0.0..18.20.8"],
    ">= 20": ["20.0.0..27.0.0"],
    "  >=20  ": ["20.0.0..27.0.0"],
    ">=v20": ["20.0.0..27.0.0"],
    "v20": ["20.0.0..20.20.2"],
    "20 - 22": ["20.0.0..22.20.0"],
    "20.x - 22.x": ["20.0.0..22.20.0"],
    ">=20 <23 || >=24": ["20.0.0..22.20.0", "24.0.0..27.0.0"],
    ">20": ["21.0.0..27.0.0"],
    "> 20": ["21.0.0..27.0.0"],
    "<20": ["16.20.2..18.20.8"],
    "<=22": ["16.20.2..22.20.0"],
    "20": ["20.0.0..20.20.2"],
    "20.9.0": ["20.9.0..20.9.0"],
    "= 20.9.0": ["20.9.0..20.9.0"],
    "~20.9": ["20.9.0..20.9.0"],
    "~ 20.9": ["20.9.0..20.9.0"],
    "^ 20.9": ["20.9.0..20.20.2"],
    "*": ["16.20.2..27.0.0"],
    "x": ["16.20.2..27.0.0"],
    "": ["16.20.2..27.0.0"],
    "  ": ["16.20.2..27.0.0"],
    ">=28": [],
}


@pytest.mark.parametrize("engines", RANGES)
def test_range(engines: str) -> None:
    runs = [run.split("..") for run in RANGES[engines]]
    expected = [
        version for first, last in runs for version in VERSIONS[VERSIONS.index(first) : VERSIONS.index(last) + 1]
    ]
    assert [version for version in VERSIONS if satisfies_engines(version, engines)] == expected


@pytest.mark.parametrize("version", ["v20.20.2", "20.20.2", "v20.20.2\n", " 20.20.2"])
def test_a_version_as_node_prints_it(version: str) -> None:
    assert satisfies_engines(version, "^20") is True
    assert satisfies_engines(version, "^22") is False


@pytest.mark.parametrize("engines", ["nonsense", "node 20", ">>20", "lts/*", "latest", "20 ||| 22", "> ="])
def test_a_range_that_cannot_be_read_is_said(engines: str) -> None:
    with pytest.raises(AnsibleFilterError, match="cannot be read"):
        satisfies_engines("20.20.2", engines)


@pytest.mark.parametrize("version", ["", "v20", "twenty", "20.20"])
def test_a_version_that_cannot_be_read_is_said(version: str) -> None:
    with pytest.raises(AnsibleFilterError, match="cannot be read"):
        satisfies_engines(version, "*")


def test_a_missing_library_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(satisfies_engines.__globals__, "NpmSpec", None)
    with pytest.raises(AnsibleFilterError, match="semantic-version is missing"):
        satisfies_engines("20.20.2", "*")


def test_ansible_finds_it_by_its_name() -> None:
    assert PLUGIN["TestModule"]().tests() == {"satisfies_engines": satisfies_engines}
