"""A real host for the tests: this machine, with the sample application deployed below one short directory."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support import ROOT

CACHE = Path(os.environ.get("STRAPI_TUNER_CACHE") or Path.home() / ".cache" / "strapi-tuner")
BIN = Path(sys.executable).parent
HOST = "itest"
# A first build installs 1 400 packages and compiles one of them.
DEPLOY_LIMIT_S = 1500
# Where everything else runs at the same time, a trial can take minutes.
COMMAND_LIMIT_S = 800


def free_port() -> int:
    """A TCP port on loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class DeployedHost:
    """The inventory and the directory of one test host."""

    root: Path
    port: int

    @property
    def inventory(self) -> Path:
        """The inventory file."""
        return self.root / "inventory" / "hosts.yml"

    @property
    def written(self) -> Path:
        """Where tuner writes for this host."""
        return self.root / "inventory" / "host_vars" / HOST / "tuner.yml"

    @property
    def url(self) -> str:
        """Address of the application."""
        return f"http://127.0.0.1:{self.port}"

    def environment(self) -> dict[str, str]:
        """Environment of the commands: Ansible's own files below the directory too."""
        return {
            **os.environ,
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_HOME": str(self.root / "ansible"),
        }

    def run(self, *command: str, limit_s: float = COMMAND_LIMIT_S) -> subprocess.CompletedProcess[str]:
        """Run a command in the project to its end."""
        return subprocess.run(
            command, cwd=ROOT, env=self.environment(), capture_output=True, text=True, timeout=limit_s, check=False
        )

    def playbook(self, name: str, **variables: object) -> subprocess.CompletedProcess[str]:
        """Run a playbook of the project on this host."""
        extra = ["-e", json.dumps(variables)] if variables else []
        return self.run("ansible-playbook", "-i", str(self.inventory), name, *extra, limit_s=DEPLOY_LIMIT_S)

    def module(self, name: str, arguments: dict[str, Any]) -> list[str]:
        """The command that runs one module on this host and prints its result as one line of JSON."""
        return ["ansible", "-i", str(self.inventory), HOST, "-m", name, "-a", json.dumps(arguments), "--one-line"]

    def tuner_command(self, command: str, *options: str) -> list[str]:
        """The command line of tuner on this host."""
        return [sys.executable, "-m", "tuner", command, "--host", HOST, "-i", str(self.inventory), *options]

    def tuner(self, command: str, *options: str) -> subprocess.CompletedProcess[str]:
        """Run tuner on this host to its end."""
        return self.run(*self.tuner_command(command, *options))

    def pm2(self, *arguments: str) -> str:
        """Ask this host's pm2, as an administrator would."""
        environment = {
            "PATH": f"{self.root}/nodejs/bin:/usr/bin:/bin",
            "HOME": str(self.root),
            "PM2_HOME": str(self.root / "app" / "pm2"),
            "PM2_DISCRETE_MODE": "true",
        }
        command = [str(self.root / "pm2/node_modules/.bin/pm2"), *arguments]
        done = subprocess.run(
            command, env=environment, cwd="/", capture_output=True, text=True, timeout=COMMAND_LIMIT_S, check=False
        )
        return done.stdout

    def workers_online(self) -> int:
        """How many workers of the application pm2 has online."""
        processes = json.loads(self.pm2("-s", "jlist"))
        return sum(p["name"] == "strapi" and p["pm2_env"]["status"] == "online" for p in processes)

    def remove(self) -> None:
        """Stop the application and its pm2, and remove the directory."""
        if (self.root / "app" / "pm2" / "pm2.pid").exists():
            self.pm2("kill")
        shutil.rmtree(self.root)


def make_host() -> DeployedHost:
    """Write the inventory of a test host; nothing is deployed yet."""
    # Short: the sockets in pm2's directory may have paths of about a hundred characters only.
    root = Path(tempfile.mkdtemp(prefix="tuner-"))
    host = DeployedHost(root, free_port())
    host.inventory.parent.mkdir()
    host.inventory.write_text(
        f"""\
strapi:
  hosts:
    {HOST}:
      ansible_connection: local
      ansible_python_interpreter: "{{{{ ansible_playbook_python }}}}"
  vars:
    ansible_remote_tmp: {root}/ansible/tmp
    ansible_async_dir: {root}/ansible/async
    strapi_user: ""
    lease_dir: {root}/lock
    lease_grace_s: 10
    nodejs_dir: {root}/nodejs
    pm2_dir: {root}/pm2
    pm2_npm_cache: {CACHE}/npm
    strapi_source: {ROOT}/roles/strapi/files/sample
    strapi_root: {root}/app
    strapi_build_cache: {CACHE}/builds
    strapi_npm_cache: {CACHE}/npm
    strapi_host: 127.0.0.1
    strapi_port: {host.port}
    strapi_sqlite_multi_process: true
    strapi_instances: 2
    load_requests:
      - path: /api/articles?pagination[pageSize]=5
"""
    )
    return host


def changed_tasks(output: str) -> int:
    """The number of changed tasks that Ansible's recap tells."""
    found = re.search(rf"^{HOST}\s.*\bchanged=(\d+)", output, re.MULTILINE)
    assert found is not None, output[-2000:]
    return int(found.group(1))
