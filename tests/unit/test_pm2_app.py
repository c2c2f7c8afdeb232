"""pm2_app without pm2: what it reads, what it compares, whom it asks."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from records import PM2_SETTINGS
from support import load_module, run_module

pm2_app = load_module("pm2", "pm2_app")

ENTRY = {"name": "shop", "pid": 4711, "pm_id": 0, "pm2_env": {"status": "online", "args": [], "COLOUR": "red"}}
OTHER = {"name": "blog", "pid": 0, "pm_id": 3, "pm2_env": {"status": "stopped", "motto": "[PM2] \x1b[1m[]"}}
LIST = json.dumps([ENTRY, OTHER])
BANNER = "\n                        -------------\n\n__/\\\\\\__ [PM2] 3.x [pm2.io]\n\n"

# One process of a list, and the ecosystem file's entry that it was started with.
DESIRED: dict[str, Any] = {
    "name": "shop",
    "cwd": "/srv/shop/current",
    "script": "/srv/shop/current/server.js",
    "instances": 2,
    **PM2_SETTINGS,
    "out_file": "/srv/shop/logs/out.log",
    "error_file": "/srv/shop/logs/error.log",
    "node_args": ["--max-semi-space-size=64"],
    "env": {"NODE_ENV": "production", "PORT": "1337", "POOL": 10},
}
RUNNING: dict[str, Any] = {
    "pm_cwd": "/srv/shop/current",
    "pm_exec_path": "/srv/shop/current/server.js",
    "exec_mode": "cluster_mode",
    "instances": 4,
    "wait_ready": True,
    "listen_timeout": 20000,
    "kill_timeout": 5000,
    "min_uptime": 2000,
    "max_restarts": 3,
    "pm_out_log_path": "/srv/shop/logs/out.log",
    "pm_err_log_path": "/srv/shop/logs/error.log",
    "node_args": ["--max-semi-space-size=64"],
    "NODE_ENV": "production",
    "PORT": "1337",
    "POOL": "10",
    "unrelated": "kept",
}


@contextmanager
def child(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits, with these words on its command line."""
    command = [sys.executable, "-c", "print(flush=True); input()", *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.communicate(b"\n")


def make_pm2(home: Path, command: str = "pm2") -> Any:  # noqa: ANN401 the module is imported at run time
    """A pm2 whose directory is `home`."""
    return pm2_app.Pm2(command, str(home), str(home), 1)


def run(capsys: pytest.CaptureFixture[str], **params: object) -> dict[str, Any]:
    """Run the module as Ansible would, and return its whole result."""
    return run_module(pm2_app, {"name": "shop", "node_bin_dir": "/nowhere", **params}, capsys)


@pytest.mark.parametrize(
    "text",
    [
        LIST,
        f"{LIST}\n",
        BANNER + LIST,
        f"[PM2] Spawning PM2 daemon with pm2_home=/srv/[shop]\n[PM2] PM2 Successfully daemonized\n{LIST}",
        f"\x1b[32m[PM2] \x1b[39mApplying\n\x1b[1m[PM2]\x1b[22m []\n{LIST}",
        f"[PM2] stopped\n\x1b[0m{LIST}",
        f"{LIST}\n(node:12) [DEP0174] DeprecationWarning: x [{{}}]\n",
        f"[PM2] list [{{of\n{LIST}",
        f"[{{broken\n{LIST}",
        json.dumps([ENTRY, OTHER], indent=2),
    ],
    ids=[
        "bare",
        "line",
        "banner",
        "daemon",
        "colours",
        "colour-on-the-line",
        "warning-behind",
        "list-like-words",
        "list-like-line",
        "indented",
    ],
)
def test_process_list_is_found_among_other_output(text: str) -> None:
    assert pm2_app.parse_jlist(text) == [ENTRY, OTHER]


@pytest.mark.parametrize("text", ["[]", "[]\n", "[PM2] hello\n[]\n", "\x1b[32m[PM2]\x1b[39m Done\n[ ]"])
def test_an_empty_process_list(text: str) -> None:
    assert pm2_app.parse_jlist(text) == []


@pytest.mark.parametrize(
    "text", ["", "[PM2][ERROR] connect ECONNREFUSED\n", "{}", "[1, 2]", LIST[:-20], LIST[: LIST.index("]") + 1]]
)
def test_output_without_a_process_list_is_an_error(text: str) -> None:
    with pytest.raises(pm2_app.Pm2Error, match="pm2 jlist gave no process list but"):
        pm2_app.parse_jlist(text)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x12",
        b"\x12\x00\x00\x00\xff" + b'j:{"args":[[]]}',  # shorter than it says
        b"\x12\x00\x00\x00\x04" + b"j:[]",
        b"\x12\x00\x00\x00\x0f" + b'j:{"args":[{}]}',
        b"\x12\x00\x00\x00\x10" + b'j:{"args":[[1]]}',
        b"\x12\x00\x00\x00\x11" + b'j:{"error":"no!"}',
    ],
    ids=["nothing", "http", "cut", "short", "list", "object", "numbers", "error"],
)
def test_a_daemon_that_gives_no_list_is_an_error(answer: bytes, tmp_path: Path) -> None:
    with (
        daemon_that_says(answer, tmp_path / "rpc.sock"),
        pytest.raises(ValueError, match=r"an answer|no list|Expecting"),
    ):
        pm2_app.call_daemon(tmp_path / "rpc.sock", "getMonitorData")


def test_a_daemon_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        pm2_app.call_daemon(tmp_path / "rpc.sock", "getMonitorData")


def test_a_daemon_is_asked_as_its_own_client_does(tmp_path: Path) -> None:
    entries = json.dumps({"args": [[ENTRY, OTHER]]}).encode()
    answer = b"\x12" + (len(entries) + 2).to_bytes(4, "big") + b"j:" + entries + b"\x00\x00\x00\x09s:tuner:0"
    with daemon_that_says(answer, tmp_path / "rpc.sock") as heard:
        assert pm2_app.call_daemon(tmp_path / "rpc.sock", "getMonitorData") == [ENTRY, OTHER]
    assert heard == [
        b'\x12\x00\x00\x00\x3cj:{"type": "call", "method": "getMonitorData", "args": [{}]}\x00\x00\x00\x09s:tuner:0'
    ]


@contextmanager
def daemon_that_says(answer: bytes, path: Path) -> Iterator[list[bytes]]:
    """Somebody who listens on a socket, reads what one client asks, answers, and hangs up."""
    heard: list[bytes] = []

    def serve() -> None:
        client, _ = listener.accept()
        with client:
            heard.append(client.recv(4096))
            client.sendall(answer)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = threading.Thread(target=serve)
        thread.start()
        yield heard
        thread.join()


def test_worker_from_a_full_entry() -> None:
    env = {"NODE_APP_INSTANCE": 2, "status": "online", "restart_time": 1, "pm_uptime": 1700000000123}
    worker = pm2_app.as_worker({"pid": 4711, "pm_id": 5, "name": "shop", "pm2_env": env})
    assert worker == pm2_app.Worker(
        pid=4711, pm_id=5, instance=2, status="online", restarts=1, started_ms=1700000000123
    )


@pytest.mark.parametrize(
    "entry", [{"pm_id": 1}, {"pm_id": 1, "pid": None, "pm2_env": None}, {"pm_id": 1, "pm2_env": {}}]
)
def test_worker_from_an_entry_with_nothing_in_it(entry: dict[str, Any]) -> None:
    assert pm2_app.as_worker(entry) == pm2_app.Worker(
        pid=0, pm_id=1, instance=0, status="unknown", restarts=0, started_ms=0
    )


@pytest.mark.parametrize(
    ("pid", "status", "alive"),
    [
        (os.getpid(), "online", True),
        (os.getpid(), "launching", False),
        (0, "online", False),
        (2**22 + 1, "online", False),
    ],
)
def test_a_worker_lives_when_it_is_online_and_its_process_is_there(pid: int, status: str, *, alive: bool) -> None:
    worker = pm2_app.Worker(pid=pid, pm_id=0, instance=0, status=status, restarts=0, started_ms=0)
    assert worker.is_alive() is alive


@pytest.mark.parametrize(
    ("desired", "running", "expected"),
    [
        ({}, {}, ([], [])),
        ({"env": {"PORT": "1338", "NODE_ENV": "production"}}, {}, (["env.PORT"], [])),
        ({"env": {"HOST": "127.0.0.1", "NEW": ""}}, {"HOST": "0.0.0.0"}, (["env.NEW"], ["env.HOST"])),  # noqa: S104 a value, no socket
        ({"env": {"POOL": 10}}, {}, ([], [])),
        ({"env": {"NEW": ""}}, {}, (["env.NEW"], [])),
        ({"env": None}, {}, ([], [])),
        ({"node_args": []}, {}, (["node_args"], [])),
        ({"node_args": ["--inspect"]}, {}, (["node_args"], [])),
        ({"node_args": ["--inspect"]}, {"node_args": None}, (["node_args"], [])),
        ({"node_args": []}, {"node_args": None}, ([], [])),
        ({"node_args": "--inspect --trace-gc"}, {"node_args": ["--inspect", "--trace-gc"]}, ([], [])),
        ({"node_args": "--inspect"}, {}, (["node_args"], [])),
        ({"listen_timeout": 60000}, {}, (["listen_timeout"], [])),
        ({"kill_timeout": 1}, {}, (["kill_timeout"], [])),
        ({"min_uptime": 1}, {"min_uptime": None}, (["min_uptime"], [])),
        ({"max_restarts": 4}, {}, (["max_restarts"], [])),
        ({"wait_ready": False}, {}, (["wait_ready"], [])),
        ({"cwd": "/srv/shop/releases/1"}, {}, ([], ["cwd"])),
        ({"script": "/srv/shop/current/main.js"}, {}, ([], ["script"])),
        ({"script": "/srv/shop/server.js"}, {"pm_exec_path": "/srv/shop/server-2.js"}, ([], ["script"])),
        ({"exec_mode": "fork"}, {}, ([], ["exec_mode"])),
        ({"exec_mode": "cluster_mode"}, {}, ([], [])),
        ({"exec_mode": "cluster"}, {"exec_mode": "fork_mode"}, ([], ["exec_mode"])),
        ({"out_file": "/var/log/out.log"}, {}, ([], ["out_file"])),
        ({"error_file": "/var/log/error.log"}, {}, ([], ["error_file"])),
        ({}, {"pm_err_log_path": "/srv/shop/logs/error-3.log"}, ([], [])),
        ({"out_file": "/x/out"}, {"pm_out_log_path": "/x/out-12"}, ([], [])),
        ({"out_file": "/x/out-1.log"}, {"pm_out_log_path": "/x/out-1.log"}, ([], [])),
        ({"out_file": "/x-1/out.log"}, {"pm_out_log_path": "/x/out.log"}, ([], ["out_file"])),
        ({"instances": 9}, {}, ([], [])),
        ({"cwd": "/x", "env": {"A": "1"}, "max_restarts": 1}, {}, (["max_restarts", "env.A"], ["cwd"])),
    ],
)
def test_differences(desired: dict[str, Any], running: dict[str, Any], expected: tuple[list[str], list[str]]) -> None:
    assert pm2_app.find_differences(DESIRED | desired, {"pm2_env": RUNNING | running}) == expected


def test_a_setting_that_the_ecosystem_file_does_not_name_is_no_difference() -> None:
    assert pm2_app.find_differences({"name": "shop"}, {"pm2_env": RUNNING}) == ([], [])


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_the_owner_of_a_port_is_told(family: socket.AddressFamily) -> None:
    address = "127.0.0.1" if family == socket.AF_INET else "::1"
    name = Path("/proc/self/comm").read_text(encoding="utf-8").strip()
    with socket.create_server((address, 0), family=family) as listener:
        port = listener.getsockname()[1]
        assert pm2_app.find_port_owner(port, None) == {"pid": os.getpid(), "name": name}
        assert pm2_app.find_port_owner(port, os.getppid()) == {"pid": os.getpid(), "name": name}
        assert pm2_app.find_port_owner(port, os.getpid()) is None, "our own daemon is no stranger"
    assert pm2_app.find_port_owner(port, None) is None


def test_a_connection_is_no_listener() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as connection,
    ):
        assert pm2_app.find_port_owner(connection.getsockname()[1], None) is None


def test_an_owner_that_the_system_does_not_show_is_still_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pm2_app, "holder_of", lambda _: None)  # as for a process of another user
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert pm2_app.find_port_owner(listener.getsockname()[1], None) == {"pid": None, "name": None}


class Answers(BaseHTTPRequestHandler):
    """Answers as its path asks for: the status, and behind a slash the worker."""

    def do_GET(self) -> None:
        """Answer one request."""
        _, status, *worker = self.path.split("/")
        self.send_response(int(status))
        if worker:
            self.send_header("X-Worker", worker[0])
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Keep the test's output clean."""


@pytest.fixture
def server() -> Iterator[str]:
    """Address of a small server on loopback."""
    with HTTPServer(("127.0.0.1", 0), Answers) as http_server:
        thread = threading.Thread(target=http_server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{http_server.server_port}"
        http_server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/204/3", "3"),
        ("/200/0", "0"),
        ("/299/12", "12"),
        ("/200", ""),
        ("/200/2?deep=true", "2?deep=true"),
        ("/500/3", None),
        ("/301/3", None),
        ("/404", None),
    ],
)
def test_health_is_a_good_answer_and_who_gave_it(path: str, answer: str | None, server: str) -> None:
    assert pm2_app.ask_health(server + path) == answer


def test_health_of_a_port_where_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert pm2_app.ask_health(f"http://127.0.0.1:{port}/") is None


def test_health_of_something_that_speaks_no_http() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def chat() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"220 mail.example.org ESMTP\r\n")

        thread = threading.Thread(target=chat)
        thread.start()
        assert pm2_app.ask_health(f"http://127.0.0.1:{listener.getsockname()[1]}/") is None
        thread.join()


def test_daemon_pid_of_a_running_daemon(tmp_path: Path) -> None:
    with child("PM2 v7.0.4: God Daemon") as process:
        (tmp_path / "pm2.pid").write_text(f"{process.pid}\n", encoding="utf-8")
        assert make_pm2(tmp_path).daemon_pid() == process.pid


@pytest.mark.parametrize("content", [None, "", "pm2\n", "0\n", "-1\n", "stale", "foreign"])
def test_daemon_pid_of_a_daemon_that_does_not_run(content: str | None, tmp_path: Path) -> None:
    with child() as foreign, subprocess.Popen([shutil.which("true") or "true"]) as ended:
        ended.wait()
        known = {"stale": str(ended.pid), "foreign": str(foreign.pid)}
        if content is not None:
            (tmp_path / "pm2.pid").write_text(known.get(content, content), encoding="utf-8")
        assert make_pm2(tmp_path).daemon_pid() is None


def test_without_a_daemon_pm2_is_never_called(tmp_path: Path) -> None:
    assert make_pm2(tmp_path, command="/nowhere/pm2").processes("shop") == []


def test_the_processes_of_one_application(tmp_path: Path) -> None:
    (tmp_path / "list").write_text(LIST, encoding="utf-8")
    command = tmp_path / "pm2"
    command.write_text(f'#!/bin/sh\necho "[PM2] $*"\ncat {tmp_path}/list\n', encoding="utf-8")
    command.chmod(0o755)
    with child("PM2") as process:
        (tmp_path / "pm2.pid").write_text(str(process.pid), encoding="utf-8")
        pm2 = make_pm2(tmp_path, command=str(command))
        assert pm2.processes("shop") == [ENTRY]
        assert pm2.processes("nobody") == []


def test_pm2_gets_nothing_of_the_callers_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLERS_TOKEN", "do not pass me on")
    output = make_pm2(tmp_path, command=shutil.which("env") or "env").run()
    names = {line.split("=", 1)[0] for line in output.splitlines()}
    assert names == {"PATH", "HOME", "PM2_HOME", "LANG", "PM2_DISCRETE_MODE", "PM2_CONCURRENT_ACTIONS"}
    assert f"PM2_HOME={tmp_path}" in output.splitlines()


@pytest.mark.parametrize(
    ("content", "count", "expected"),
    [
        ("a\nb\nc\n", 2, "\n  last lines of {path}:\n  b\n  c"),
        ("a\nb", 5, "\n  last lines of {path}:\n  a\n  b"),
        ("", 5, ""),
        (None, 5, ""),
    ],
)
def test_last_lines(content: str | None, count: int, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "error.log"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    assert pm2_app.last_lines(str(path), count) == expected.format(path=path)


def test_last_lines_of_no_log_and_of_a_binary_one(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"\xff\xfe")
    assert pm2_app.last_lines(None) == ""
    assert pm2_app.last_lines(str(tmp_path)) == ""
    assert pm2_app.last_lines(str(tmp_path / "log")) == f"\n  last lines of {tmp_path / 'log'}:\n  \ufffd\ufffd"


def test_a_lock_that_another_holds_is_waited_for_and_said(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with pm2_app.one_at_a_time(home, 0):
        assert home.stat().st_mode & 0o777 == 0o700
    with (home / "pm2_app.lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(pm2_app.Pm2Error, match="did not end within 0 s"), pm2_app.one_at_a_time(home, 0):
            pass
        fcntl.flock(other, fcntl.LOCK_UN)
        with pm2_app.one_at_a_time(home, 0), pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.parametrize("count", [0, -1])
def test_no_instances_at_all_is_refused(count: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = run(capsys, instances=count, pm2_home=str(tmp_path / "home"))
    assert result["failed"] is True
    assert f"instances is {count}" in result["msg"]
    assert "state: absent" in result["msg"]
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("state", ["present", "reloaded"])
def test_the_number_of_instances_is_needed(state: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = run(capsys, state=state, pm2_home=str(tmp_path / "home"))
    assert result["failed"] is True
    assert "instances" in result["msg"]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("{folder}/pm2", "there is no pm2 at {folder}/pm2; install it"),
        ("{folder}", "{folder} cannot be run: Permission"),
    ],
    ids=["missing", "not-executable"],
)
def test_a_pm2_that_cannot_be_run_is_said(
    command: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with child("PM2") as process:
        (tmp_path / "pm2.pid").write_text(str(process.pid), encoding="utf-8")
        path = command.format(folder=tmp_path)
        result = run(capsys, state="info", pm2=path, pm2_home=str(tmp_path))
    assert result["failed"] is True
    assert result["msg"].startswith(message.format(folder=tmp_path))
    assert "exception" not in result


def test_a_missing_node_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = run(capsys, instances=1, ecosystem=str(tmp_path / "x.js"), pm2_home=str(tmp_path / "home"))
    assert result["failed"] is True
    assert result["msg"].startswith("node is not in node_bin_dir; set nodejs_dir")
