"""probe_release.js on a real Node.js: what serves is told from what does not, and nothing is left running."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support import ROOT

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

PROBE = ROOT / "roles" / "strapi" / "files" / "probe_release.js"
LIMIT_S = 5

SERVES = """
'use strict';
const fs = require('node:fs');
const server = require('node:http').createServer((request, response) => {
  response.setHeader('X-Release', process.env.STRAPI_RELEASE);
  response.writeHead(request.url === '/_health' ? Number(process.env.STATUS) : 404).end();
});
server.listen(Number(process.env.PORT), process.env.HOST, () => process.send('ready'));
fs.writeFileSync('seen.json', JSON.stringify({ ...process.env, pid: process.pid, execArgv: process.execArgv }));
process.on('SIGTERM', () => process.exit(0));
"""
NEVER_READY = "process.on('SIGTERM', () => process.exit(0)); setInterval(() => {}, 1000);"


def probe(folder: Path, script: str, *, release: str = "a1", **settings: Any) -> dict[str, Any]:
    """Probe a release with this server.js, as the role does."""
    (folder / "server.js").write_text(script, encoding="utf-8")
    env = {"STRAPI_RELEASE": "a1", "STATUS": "204", **settings.pop("env", {})}
    app = {"name": "shop", "node_args": ["--max-semi-space-size=8"], "env": env, **settings}
    ecosystem = folder / "ecosystem.next.config.js"
    ecosystem.write_text(f"module.exports = {{ apps: [{json.dumps(app)}] }};", encoding="utf-8")
    asked = {
        "ecosystem": str(ecosystem),
        "name": "shop",
        "directory": str(folder),
        "release": release,
        "dotenv": str(folder / ".env.next"),
        "limit_s": LIMIT_S,
        "end_limit_s": LIMIT_S,
    }
    node = shutil.which("node")
    assert node is not None
    done = subprocess.run(
        [node, "-", json.dumps(asked)], input=PROBE.read_text(), capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr == ""
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_a_release_that_serves_is_ended_again(tmp_path: Path) -> None:
    found = probe(tmp_path, SERVES)
    assert (found["ok"], found["reason"], found["log"]) == (True, "", [])
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert seen["execArgv"] == ["--max-semi-space-size=8"]
    assert seen["ENV_PATH"] == str(tmp_path / ".env.next")
    assert seen["HOST"] == "127.0.0.1"
    assert not Path(f"/proc/{seen['pid']}").exists()


@pytest.mark.parametrize(
    ("script", "settings", "reason"),
    [
        ("throw new Error('no such table');", {}, "it ended with exit code 1 before it was ready"),
        (NEVER_READY, {}, f"it was not ready within {LIMIT_S} s"),
        (SERVES, {"env": {"STATUS": "503"}}, "its health check answers with status 503"),
        (SERVES, {"release": "b2"}, "its health check is answered by release a1"),
        (SERVES, {"node_args": ["--no-such-option"]}, "it ended with exit code 9 before it was ready"),
        (SERVES, {"name": "other"}, "describes no application called shop"),
    ],
    ids=["dies", "never-ready", "unwell", "other-release", "bad-argument", "other-name"],
)
def test_what_does_not_serve_is_said(script: str, settings: dict[str, Any], reason: str, tmp_path: Path) -> None:
    found = probe(tmp_path, script, **settings)
    assert not found["ok"]
    assert reason in found["reason"]


def test_the_last_words_come_with_it(tmp_path: Path) -> None:
    found = probe(tmp_path, "console.log('booting'); throw new Error('no such table');")
    assert found["log"][0] == "booting"
    assert any("no such table" in line for line in found["log"])
