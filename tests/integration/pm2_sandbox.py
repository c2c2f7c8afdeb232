"""A small real Node.js server under a real pm2 of its own, as the tests of what works with pm2 use it."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest
from records import PM2_SETTINGS
from support import load_module, run_module

pm2_app = load_module("pm2", "pm2_app")

START_TIMEOUT_S = 30
STABLE_S = 1.0

# Answers with what the tests ask about; ends at once, since nothing is in flight when pm2 tells it to.
SERVER = """
'use strict';
const server = require('node:http').createServer((request, response) => {
  response.setHeader('X-Worker', process.env.NODE_APP_INSTANCE);
  response.end(JSON.stringify({ file: __filename, arguments: process.execArgv, environment: process.env }));
});
server.listen(Number(process.env.PORT), '127.0.0.1', () => process.send('ready'));
process.on('SIGINT', () => process.exit(0));
"""


class Sandbox:
    """One application under a pm2 of its own.

    Attributes:
        folder: Holds the application, its ecosystem file and pm2's own directory. Short, since a socket's path is.
        port: A free port for the application.
        settings: The application's entry of the ecosystem file, as the next call finds it.
    """

    def __init__(self, folder: Path, command: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.command, self.capsys = folder, command, capsys
        self.home = folder / "pm2"
        self.script = self.write("server.js", SERVER)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.port: int = listener.getsockname()[1]
        self.settings: dict[str, Any] = {
            "name": "shop",
            "cwd": str(folder),
            "script": str(self.script),
            "instances": 7,  # the module's own count is what holds
            **PM2_SETTINGS,
            "out_file": str(folder / "out.log"),
            "error_file": str(folder / "error.log"),
            "env": {"PORT": str(self.port), "COLOUR": "red"},
        }

    def write(self, name: str, content: str) -> Path:
        """Write a file of the application."""
        path = self.folder / name
        path.write_text(content, encoding="utf-8")
        return path

    def call(self, *, check: bool = False, **params: object) -> dict[str, Any]:
        """Run the module as Ansible would, and return its whole result."""
        node = shutil.which("node")
        assert node is not None
        ecosystem = self.write("ecosystem.config.js", f"module.exports = {{ apps: [{json.dumps(self.settings)}] }};")
        arguments = {
            "name": "shop",
            "ecosystem": str(ecosystem),
            "pm2": str(self.command),
            "node_bin_dir": str(Path(node).parent),
            "pm2_home": str(self.home),
            "port": self.port,
            "health_url": f"http://127.0.0.1:{self.port}/",
            "start_timeout_s": START_TIMEOUT_S,
            "stable_s": STABLE_S,
            "_ansible_check_mode": check,
            **params,
        }
        given = {key: value for key, value in arguments.items() if value is not None}
        return run_module(pm2_app, given, self.capsys)

    def done(self, **params: Any) -> dict[str, Any]:
        """Run the module, which must succeed, and return what it says."""
        result = self.call(**params)
        assert not result.get("failed"), result.get("msg")
        return result

    def refused(self, **params: Any) -> str:
        """Run the module, which must fail without a traceback, and return the message."""
        result = self.call(**params)
        assert result.get("failed") is True, result
        assert "exception" not in result
        return str(result["msg"])

    def pm2(self) -> Any:  # noqa: ANN401 the module is imported at run time
        """The module's own way to call this pm2."""
        node = shutil.which("node") or ""
        return pm2_app.Pm2(str(self.command), str(self.home), str(Path(node).parent), START_TIMEOUT_S)

    def ask(self) -> dict[str, Any]:
        """What a worker tells of itself."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", "/", headers={"Connection": "close"})
            answer: dict[str, Any] = json.loads(connection.getresponse().read())
        finally:
            connection.close()
        return answer
