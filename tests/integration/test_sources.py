"""A project comes as a directory, an archive or a git repository, and makes the same release whichever it is."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path

import httpx
import pytest
from deployed import DeployedHost
from support import ROOT

pytestmark = pytest.mark.integration

SAMPLE = ROOT / "roles" / "strapi" / "files" / "sample"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("archive") / "shop-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        tar.add(SAMPLE, "shop-1.0")
    return path


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bare repository of the sample, as a git server holds it."""
    base = tmp_path_factory.mktemp("git")
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.com"]
    steps = (
        ["git", "init", "--quiet", "--initial-branch=main", "work"],
        ["git", "-C", "work", f"--work-tree={SAMPLE}", "add", "."],
        ["git", "-C", "work", *identity, "commit", "--quiet", "--message=Sample"],
        ["git", "clone", "--quiet", "--bare", "work", "shop.git"],
    )
    for step in steps:
        subprocess.run(step, cwd=base, check=True, capture_output=True)
    return base / "shop.git"


def running_release(host: DeployedHost) -> str:
    return httpx.get(f"{host.url}/_health").headers["X-Release"]


def test_archive_and_repository_make_the_same_release(host: DeployedHost, archive: Path, repository: Path) -> None:
    done = host.playbook("deploy.yml", strapi_source=str(archive), strapi_source_strip=1, strapi_instances=1)
    assert done.returncode == 0, done.stdout[-3000:]
    release = running_release(host)
    assert host.workers_online() == 1
    done = host.playbook("deploy.yml", strapi_source=str(repository), strapi_source_version="main", strapi_instances=1)
    assert done.returncode == 0, done.stdout[-3000:]
    assert running_release(host) == release
    assert [path.name for path in (host.root / "app" / "releases").iterdir()] == [release]
