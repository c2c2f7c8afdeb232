"""What the tests against real programs share: those programs, installed once for all runs."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from deployed import DeployedHost, make_host
from pm2_sandbox import Sandbox
from support import ROOT


@pytest.fixture(scope="module")
def host() -> Iterator[DeployedHost]:
    """A host on which nothing is deployed yet, one for each file of tests."""
    made = make_host()
    try:
        yield made
    finally:
        made.remove()


@pytest.fixture(scope="session")
def pm2_command() -> Path:
    """The pm2 command, of the version that the role installs, from a cache outside the checkout."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.fail("node and npm are not on the PATH; install Node.js 20 or later to run the integration tests")
    version = yaml.safe_load((ROOT / "roles/pm2/defaults/main.yml").read_text(encoding="utf-8"))["pm2_version"]
    cache = Path(os.environ.get("STRAPI_TUNER_CACHE") or Path.home() / ".cache" / "strapi-tuner")
    folder = cache / f"pm2-{version}"
    folder.mkdir(parents=True, exist_ok=True)
    command = folder / "node_modules" / ".bin" / "pm2"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another run may be installing it at this moment
        if not command.exists():
            arguments = [npm, "install", "--prefix", str(folder), "--no-audit", "--no-fund", f"pm2@{version}"]
            done = subprocess.run(arguments, capture_output=True, check=False, text=True, timeout=300, cwd=folder)
            assert done.returncode == 0, f"pm2 {version} cannot be installed: {done.stderr}"
    return command


@pytest.fixture
def sandbox(pm2_command: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Sandbox]:
    """An application that is not started yet; its pm2 is ended behind the test whatever happens."""
    with tempfile.TemporaryDirectory(prefix="pm2-") as folder:
        box = Sandbox(Path(folder), pm2_command, capsys)
        try:
            yield box
        finally:
            pm2 = box.pm2()
            pid = pm2.daemon_pid()
            said = pm2.run("kill")
            assert pid is None or pm2.daemon_pid() is None, f"pm2 {pid} still runs: {said}"
