"""What a deploy and the runs of tuner leave behind, print and run is searched for each secret."""

from __future__ import annotations

import base64
import contextlib
import json
import secrets
import subprocess
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Self
from urllib.parse import quote

import pytest
from deployed import DeployedHost, make_host
from support import ROOT

pytestmark = [pytest.mark.integration, pytest.mark.timeout(2400)]

# Installed or built from what is public, before any secret is known; too much to read in a test.
PUBLIC = {"node_modules", "nodejs", "dist", ".node-bin"}
SAMPLE_S = 0.02
GENERATED = ("APP_KEYS", "JWT_SECRET", "API_TOKEN_SALT")
# A worker that is told this does not start.
BROKEN = '["--no-such-option"]'
QUICK = ("--candidates", "1-2", "--effort", "quick", "--duration", "2", "--connections", "8", "--keep-disturbed")


def make_secret() -> str:
    """A secret that looks different in a URL and in base64."""
    return f"s3cr/t+{secrets.token_hex(12)}="


def forms(secret: str) -> set[bytes]:
    """A secret as it is, as a part of a URL, of JSON, and of what was made base64 at any place of it."""
    plain = secret.encode()
    # Of each of the three places in a group of bytes, the letters that do not depend on what stands around.
    inner = {base64.b64encode(b"\0" * place + plain)[4 : -4 or None] for place in range(3)}
    return {plain, quote(secret, safe="").encode(), quote(secret).encode(), *inner}


def holds(content: bytes, secret: str) -> bool:
    return any(form in content for form in forms(secret))


class Watched:
    """Looks at every process of the machine and at the temporary files, while something runs.

    Attributes:
        seen: What was in command lines and environments of processes, and in temporary files, by where it was.
    """

    def __init__(self, temporary: Path) -> None:
        self.seen: dict[str, set[bytes]] = {}
        self.modes: dict[str, int] = {}
        self._temporary = temporary
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look_on)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look_on(self) -> None:
        while not self._over.wait(SAMPLE_S):
            for name in ("cmdline", "environ"):
                for path in Path("/proc").glob(f"[0-9]*/{name}"):
                    with contextlib.suppress(OSError):
                        self.seen.setdefault(name, set()).add(path.read_bytes())
            with contextlib.suppress(OSError):
                for path in self._temporary.iterdir():
                    self.modes[path.name] = path.stat().st_mode & 0o777


class Tried:
    """A deployed host, the secrets that it was given, and all that was printed."""

    def __init__(self, host: DeployedHost) -> None:
        self.host = host
        self.secrets = {name: make_secret() for name in ("SHOP_API_KEY", "strapi_database_password", "Authorization")}
        self.temporary = host.root / "t"
        self.printed: dict[str, str] = {}
        self.codes: dict[str, int] = {}
        self.temporary.mkdir()
        variables = {
            "strapi_secrets": {"SHOP_API_KEY": self.secrets["SHOP_API_KEY"]},
            # A worker that cannot start is waited for longer than other tests allow.
            "lease_grace_s": 600,
            "strapi_database_password": self.secrets["strapi_database_password"],
            "load_requests": [
                {"path": "/api/articles", "headers": {"X-Key": f"Bearer {self.secrets['Authorization']}"}},
            ],
        }
        self.variables = host.inventory.parent / "host_vars" / "itest.yml"
        self.variables.parent.mkdir()
        self.variables.write_text(json.dumps(variables))
        self.variables.chmod(0o600)

    @property
    def dotenv(self) -> Path:
        """The one file of the host that is to hold secrets."""
        return self.host.root / "app" / "shared" / ".env"

    def run(self, name: str, *command: str) -> None:
        """Run a command to its end, and keep what it prints."""
        environment = {**self.host.environment(), "TMPDIR": str(self.temporary)}
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1500, check=False
        )
        self.printed[name], self.codes[name] = done.stdout + done.stderr, done.returncode

    def playbook(self, name: str, *arguments: str) -> None:
        """Deploy, with everything shown that Ansible can show."""
        self.run(name, "ansible-playbook", "-vvv", "-i", str(self.host.inventory), "deploy.yml", "--diff", *arguments)

    def tuner(self, name: str, command: str, *options: str) -> None:
        """Run tuner on the host."""
        self.run(name, *self.host.tuner_command(command, *options))

    def generated(self) -> dict[str, str]:
        """The secrets that the role made itself."""
        pairs = (line.split("=", 1) for line in self.dotenv.read_text().splitlines() if "=" in line)
        return {
            name: value.strip("'\"") for name, value in pairs if name in ("APP_KEYS", "JWT_SECRET", "API_TOKEN_SALT")
        }


@pytest.fixture(scope="module")
def tried() -> Iterator[tuple[Tried, Watched]]:
    """A host that was deployed to, measured, and on which things went wrong."""
    host = make_host()
    found = Tried(host)
    results = ("--results", str(host.root / "results"))
    broken = ("--set", "strapi_serve_admin_panel=true", "--set", f"strapi_node_args={BROKEN}")
    try:
        with Watched(found.temporary) as watched:
            found.playbook("deploy")
            found.tuner("inspect", "inspect", "--json")
            found.tuner("recommend", "recommend", "-v", "--no-write", *QUICK, *results)
            found.tuner(
                "compare that fails", "compare", "-v", *broken, "--duration", "2", "--connections", "8", *results
            )
            found.tuner("request that fails", "recommend", "-v", "--url", "/nowhere", *results)
            found.playbook("deploy that fails", "-e", json.dumps({"strapi_node_args": ["--no-such-option"]}))
        found.printed["pm2 jlist"] = host.pm2("-s", "jlist")
        yield found, watched
    finally:
        host.remove()


def every_secret(found: Tried) -> dict[str, str]:
    return {**found.secrets, **found.generated()}


def test_everything_went_as_it_was_to(tried: tuple[Tried, Watched]) -> None:
    found, watched = tried
    assert found.codes["deploy"] == 0, found.printed["deploy"][-3000:]
    assert found.codes["inspect"] == 0
    assert found.codes["recommend"] in (0, 3), found.printed["recommend"][-3000:]
    assert found.codes["compare that fails"] == 5, found.printed["compare that fails"][-3000:]
    assert found.codes["request that fails"] == 2
    assert found.codes["deploy that fails"] == 2
    assert "does not serve on itest" in " ".join(found.printed["deploy that fails"].split())
    assert len(every_secret(found)) == 6
    # The search would find what is there.
    assert holds(found.dotenv.read_bytes(), found.secrets["SHOP_API_KEY"])
    assert any(b"server.js" in line for line in watched.seen["cmdline"])
    assert any(b"PM2_HOME" in content for content in watched.seen["environ"])


def leaks(found: Tried, contents: Mapping[str, Iterable[bytes]]) -> list[tuple[str, str]]:
    """Which secret is in which of these contents, by their names."""
    return [
        (place, name)
        for place, pieces in contents.items()
        for name, secret in every_secret(found).items()
        if any(holds(piece, secret) for piece in pieces)
    ]


def test_nothing_that_was_printed_holds_a_secret(tried: tuple[Tried, Watched]) -> None:
    found, _ = tried
    assert leaks(found, {command: [text.encode()] for command, text in found.printed.items()}) == []


def test_no_process_was_given_a_secret_that_others_can_see(tried: tuple[Tried, Watched]) -> None:
    found, watched = tried
    assert leaks(found, watched.seen) == []


def test_secrets_lie_in_the_files_that_are_to_hold_them_and_nowhere_else(tried: tuple[Tried, Watched]) -> None:
    found, _ = tried
    root = found.host.root
    files = [
        path
        for path in root.rglob("*")
        if path.is_file() and not path.is_symlink() and not PUBLIC & set(path.relative_to(root).parts)
    ]
    assert len(files) > 30
    places = {
        str(path.relative_to(root))
        for path in files
        for secret in every_secret(found).values()
        if holds(path.read_bytes(), secret)
    }
    assert places == {"app/shared/.env", "inventory/host_vars/itest.yml"}
    assert found.dotenv.stat().st_mode & 0o777 == 0o600


def test_records_and_temporary_directories_are_for_their_owner_alone(tried: tuple[Tried, Watched]) -> None:
    found, watched = tried
    results = found.host.root / "results"
    records = [results, *results.rglob("*")]
    modes = {(path.is_dir(), path.stat().st_mode & 0o777) for path in records}
    assert modes == {(True, 0o700), (False, 0o600)}
    assert {path.name for path in records} >= {"run.json", "trials.jsonl", "summary.json", "lock"}
    private = {name: mode for name, mode in watched.modes.items() if name.startswith("tuner-")}
    assert private
    assert set(private.values()) == {0o700}
    assert [path.name for path in found.temporary.iterdir() if path.name.startswith("tuner-")] == []
