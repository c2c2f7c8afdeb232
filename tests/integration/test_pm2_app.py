"""pm2_app against a real pm2 that runs a small real Node.js server."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
from pathlib import Path
from typing import Any

import pytest
from pm2_sandbox import SERVER, Sandbox, pm2_app

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

DIES_BEFORE_READY = "console.error('cannot open the database'); setTimeout(() => process.exit(1), 1000);\n"
DIES_AFTER_READY = DIES_BEFORE_READY + "process.send('ready');\n"


def pids(result: dict[str, Any]) -> set[int]:
    """The workers that a result has left, which must all be online."""
    assert {worker["status"] for worker in result["workers"]} == {"online"}
    return {worker["pid"] for worker in result["workers"]}


def are_running(found: set[int]) -> bool:
    """Whether each of these processes is there."""
    return all(Path(f"/proc/{pid}").exists() for pid in found)


def did(result: dict[str, Any]) -> tuple[int, int, int, int, bool, bool]:
    """What a result says was done, in the order before, after, started, stopped, reloaded, recreated."""
    assert result["changed"] == any(result[key] for key in ("started", "stopped", "reloaded", "recreated"))
    before, after = result["before"], result["after"]
    return before, after, result["started"], result["stopped"], result["reloaded"], result["recreated"]


def test_two_workers_start_and_a_second_call_leaves_them_alone(sandbox: Sandbox) -> None:
    first = sandbox.done(instances=2)
    assert did(first) == (0, 2, 2, 0, False, False)
    assert len(pids(first)) == 2
    assert are_running(pids(first))
    assert {worker["instance"] for worker in first["workers"]} == {0, 1}
    assert first["port_owner"] is None, "the daemon that listens is our own"
    assert Path(f"/proc/{first['daemon_pid']}").exists()

    second = sandbox.done(instances=2)
    assert did(second) == (2, 2, 0, 0, False, False)
    assert second["differences"] == []
    assert second["workers"] == first["workers"]


def test_scaling_keeps_the_workers_that_may_stay(sandbox: Sandbox) -> None:
    one = sandbox.done(instances=1)
    three = sandbox.done(instances=3)
    assert did(three) == (1, 3, 2, 0, False, False)
    assert len(pids(three)) == 3
    assert pids(one) < pids(three)
    two = sandbox.done(instances=2)
    assert did(two) == (3, 2, 0, 1, False, False)
    assert len(pids(two)) == 2
    assert pids(two) < pids(three)
    assert are_running(pids(two))
    assert not are_running(pids(three))


def test_an_application_of_somebody_else_is_only_scaled(sandbox: Sandbox) -> None:
    before = sandbox.done(instances=1)
    sandbox.settings["env"]["COLOUR"] = "blue"
    result = sandbox.done(instances=2, ecosystem=None)
    assert did(result) == (1, 2, 1, 0, False, False)
    assert pids(before) < pids(result)
    assert sandbox.ask()["environment"]["COLOUR"] == "red"


def test_an_application_that_is_not_there_needs_an_ecosystem_file(sandbox: Sandbox) -> None:
    assert "no ecosystem file says how to start it" in sandbox.refused(instances=1, ecosystem=None)


def test_a_changed_variable_is_reloaded(sandbox: Sandbox) -> None:
    before = sandbox.done(instances=2)
    assert sandbox.ask()["environment"]["COLOUR"] == "red"
    sandbox.settings["env"]["COLOUR"] = "blue"
    result = sandbox.done(instances=2)
    assert did(result) == (2, 2, 0, 0, True, False)
    assert result["differences"] == ["env.COLOUR"]
    assert "blue" not in json.dumps(result["diff"])
    assert not pids(before) & pids(result)
    assert sandbox.ask()["environment"]["COLOUR"] == "blue"
    assert did(sandbox.done(instances=2)) == (2, 2, 0, 0, False, False)


def test_workers_that_come_with_a_changed_variable_have_it(sandbox: Sandbox) -> None:
    sandbox.done(instances=1)
    sandbox.settings["env"]["COLOUR"] = "blue"
    result = sandbox.done(instances=3)
    assert did(result) == (1, 3, 2, 0, True, False)
    assert {sandbox.ask()["environment"]["COLOUR"] for _ in range(9)} == {"blue"}


@pytest.mark.parametrize("arguments", [["--max-old-space-size=300"], "--max-old-space-size=300"])
def test_arguments_of_node_reach_the_workers(arguments: list[str] | str, sandbox: Sandbox) -> None:
    sandbox.done(instances=1)
    sandbox.settings["node_args"] = arguments
    result = sandbox.done(instances=1)
    assert did(result) == (1, 1, 0, 0, True, False)
    assert result["differences"] == ["node_args"]
    assert "--max-old-space-size=300" in sandbox.ask()["arguments"]
    assert did(sandbox.done(instances=1)) == (1, 1, 0, 0, False, False)


def test_reloaded_replaces_every_worker_each_time(sandbox: Sandbox) -> None:
    before = sandbox.done(instances=2, state="reloaded")
    assert did(before) == (0, 2, 2, 0, False, False)
    result = sandbox.done(instances=2, state="reloaded")
    assert did(result) == (2, 2, 0, 0, True, False)
    assert not pids(before) & pids(result)


def test_a_reload_into_what_cannot_boot_is_broken_off_and_leaves_what_serves(sandbox: Sandbox) -> None:
    before = sandbox.done(instances=2)
    sandbox.write("server.js", DIES_BEFORE_READY)
    message = sandbox.refused(state="reloaded", instances=2)
    assert "a new worker ended before it served, and the reload was broken off" in message
    assert "cannot open the database" in message
    assert are_running(pids(before)), "pm2 ends the old workers only when the new ones had their time"
    sandbox.write("server.js", SERVER)
    after = sandbox.done(instances=2)
    assert len(pids(after)) == 2
    assert sandbox.ask()["environment"]["COLOUR"] == "red"


def test_another_node_is_a_new_daemon(sandbox: Sandbox) -> None:
    """Workers run with the daemon's own Node.js, so that a new one needs a new daemon."""
    before = sandbox.done(instances=1)
    node = Path(shutil.which("node") or "").resolve()
    (sandbox.folder / "bin").mkdir()
    shutil.copy2(node, sandbox.folder / "bin" / "node")
    after = sandbox.done(instances=1, node_bin_dir=str(sandbox.folder / "bin"))
    assert did(after) == (1, 1, 1, 0, False, True)
    assert after["differences"] == ["node"]
    assert after["daemon_pid"] != before["daemon_pid"]
    assert Path(f"/proc/{after['workers'][0]['pid']}/exe").readlink() == sandbox.folder / "bin" / "node"
    assert not sandbox.done(instances=1, node_bin_dir=str(sandbox.folder / "bin"))["changed"]


def test_a_service_without_its_daemon_is_said_and_no_other_daemon_is_started(sandbox: Sandbox) -> None:
    message = sandbox.refused(instances=1, service="pm2-shop")
    assert "systemctl start pm2-shop" in message
    assert sandbox.pm2().daemon_pid() is None


def test_an_answer_of_another_release_is_no_answer(sandbox: Sandbox) -> None:
    script = SERVER.replace("response.end", "response.setHeader('X-Release', 'old'); response.end")
    sandbox.write("server.js", script)
    assert sandbox.done(instances=1, release="old")["after"] == 1
    assert "of release new" in sandbox.refused(state="reloaded", instances=1, release="new", start_timeout_s=3)


def test_a_changed_script_is_recreated(sandbox: Sandbox) -> None:
    sandbox.done(instances=2)
    other = sandbox.write("other.js", SERVER)
    sandbox.settings["script"] = str(other)
    result = sandbox.done(instances=2)
    assert did(result) == (2, 2, 2, 0, False, True)
    assert result["differences"] == ["script"]
    assert sandbox.ask()["file"] == str(other)
    assert did(sandbox.done(instances=2)) == (2, 2, 0, 0, False, False)


def test_separate_logs_are_no_difference(sandbox: Sandbox) -> None:
    sandbox.settings["merge_logs"] = False
    sandbox.done(instances=2)
    result = sandbox.done(instances=2)
    assert result["differences"] == []
    assert did(result) == (2, 2, 0, 0, False, False)


def test_absent_removes_the_application(sandbox: Sandbox) -> None:
    ended = pids(sandbox.done(instances=2))
    result = sandbox.done(state="absent")
    assert did(result) == (2, 0, 0, 2, False, False)
    assert result["workers"] == []
    assert not any(Path(f"/proc/{pid}").exists() for pid in ended)
    assert did(sandbox.done(state="absent")) == (0, 0, 0, 0, False, False)


@pytest.mark.parametrize("state", ["info", "absent"])
def test_a_look_starts_no_daemon(state: str, sandbox: Sandbox) -> None:
    result = sandbox.done(state=state)
    assert did(result) == (0, 0, 0, 0, False, False)
    assert (result["daemon_pid"], result["workers"]) == (None, [])
    assert not (sandbox.home / "pm2.pid").exists()


def test_info_leaves_not_even_a_directory(sandbox: Sandbox) -> None:
    sandbox.done(state="info")
    assert not sandbox.home.exists()


def test_info_shows_what_runs(sandbox: Sandbox) -> None:
    started = sandbox.done(instances=2)
    result = sandbox.done(state="info")
    assert did(result) == (2, 2, 0, 0, False, False)
    assert result["workers"] == started["workers"]
    assert result["daemon_pid"] == started["daemon_pid"]


def test_the_daemon_tells_what_its_command_tells(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox.done(instances=2)
    pm2 = sandbox.pm2()

    def said(listed: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{key: value for key, value in entry.items() if key != "monit"} for entry in listed]  # that moves

    asked = pm2_app.call_daemon(sandbox.home / pm2_app.DAEMON_SOCKET, pm2_app.LIST_METHOD)
    assert len(asked) == 2
    assert said(asked) == said(pm2_app.parse_jlist(pm2.run("-s", "jlist")))
    with pytest.raises(ValueError, match="no list"):
        pm2_app.call_daemon(sandbox.home / pm2_app.DAEMON_SOCKET, "getVersion")
    monkeypatch.setattr(pm2_app, "DAEMON_SOCKET", "elsewhere.sock")
    assert said(pm2.listed()) == said(asked)


def test_a_taken_port_is_refused_with_its_holder(sandbox: Sandbox) -> None:
    with socket.create_server(("127.0.0.1", sandbox.port)):
        message = sandbox.refused(instances=1)
    assert f"port {sandbox.port} is taken by" in message
    assert f"(pid {os.getpid()})" in message
    assert not (sandbox.home / "pm2.pid").exists()


@pytest.mark.parametrize(
    ("script", "max_restarts", "reason"),
    [
        (DIES_BEFORE_READY, 3, "a worker failed each time it was started; state: errored"),
        (DIES_AFTER_READY, 100, "workers restarted within 3 s after they were ready"),
    ],
    ids=["before-ready", "after-ready"],
)
def test_an_application_that_dies_is_said_with_its_last_words(
    script: str, max_restarts: int, reason: str, sandbox: Sandbox
) -> None:
    sandbox.write("server.js", script)
    sandbox.settings["max_restarts"] = max_restarts
    message = sandbox.refused(instances=1, health_url=None, stable_s=3.0)
    assert reason in message
    first, *lines = message.splitlines()
    assert first.startswith("shop: ")
    assert lines[0] == f"  last lines of {sandbox.folder / 'error.log'}:"
    assert lines[-1].endswith("cannot open the database")


def test_the_last_words_are_found_where_pm2_keeps_them(sandbox: Sandbox) -> None:
    sandbox.write("server.js", DIES_BEFORE_READY)
    for name in ("out_file", "error_file", "merge_logs"):
        del sandbox.settings[name]
    message = sandbox.refused(instances=1, health_url=None)
    assert f"last lines of {sandbox.home / 'logs' / 'shop-error-0.log'}:" in message
    assert message.endswith("cannot open the database")


def test_a_crash_loop_that_was_there_before_is_said(sandbox: Sandbox) -> None:
    sandbox.settings["max_restarts"] = 100
    sandbox.done(instances=1, health_url=None)
    sandbox.write("server.js", DIES_AFTER_READY)
    os.kill(sandbox.done(state="info")["workers"][0]["pid"], signal.SIGKILL)
    assert "restarted within 3 s" in sandbox.refused(instances=1, health_url=None, stable_s=3.0)


def test_stopped_and_killed_workers_are_repaired_before_scaling_down(sandbox: Sandbox) -> None:
    before = sandbox.done(instances=3)
    stopped, killed, _ = before["workers"]
    sandbox.pm2().run("stop", str(stopped["pm_id"]))
    os.kill(killed["pid"], signal.SIGKILL)
    result = sandbox.done(instances=2)
    assert did(result) == (3, 2, 0, 1, True, False)
    assert result["differences"] == ["worker status"]
    assert len(pids(result)) == 2
    assert not pids(result) & {worker["pid"] for worker in before["workers"]}


def test_check_mode_predicts_a_start_and_starts_nothing(sandbox: Sandbox) -> None:
    result = sandbox.done(check=True, instances=2)
    assert did(result) == (0, 2, 2, 0, False, False)
    assert (result["daemon_pid"], result["workers"]) == (None, [])
    assert not sandbox.home.exists()


def test_check_mode_predicts_every_change_and_makes_none(sandbox: Sandbox) -> None:
    before = sandbox.done(instances=2)
    same = dict(sandbox.settings)
    found = [
        sandbox.done(check=True, instances=3),
        sandbox.done(check=True, instances=1),
        sandbox.done(check=True, instances=2, state="reloaded"),
        sandbox.done(check=True, state="absent"),
    ]
    sandbox.settings = same | {"env": same["env"] | {"COLOUR": "blue"}}
    found.append(sandbox.done(check=True, instances=2))
    sandbox.settings = same | {"script": str(sandbox.write("other.js", SERVER))}
    found.append(sandbox.done(check=True, instances=3))
    assert [did(result) for result in found] == [
        (2, 3, 1, 0, False, False),
        (2, 1, 0, 1, False, False),
        (2, 2, 0, 0, True, False),
        (2, 0, 0, 2, False, False),
        (2, 2, 0, 0, True, False),
        (2, 3, 3, 0, False, True),
    ]
    assert {json.dumps(result["workers"]) for result in found} == {json.dumps(before["workers"])}


def test_nothing_of_the_caller_reaches_the_application(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLERS_TOKEN", "do not pass me on")
    monkeypatch.setenv("COLOUR", "green")
    sandbox.done(instances=1)
    environment = sandbox.ask()["environment"]
    assert "CALLERS_TOKEN" not in environment
    assert environment["COLOUR"] == "red"


def test_a_broken_ecosystem_file_is_said_with_its_error(sandbox: Sandbox) -> None:
    path = sandbox.write("broken.config.js", "module.exports = { apps: colours };\n")
    message = sandbox.refused(instances=1, ecosystem=str(path))
    assert message == f"{path} cannot be read: ReferenceError: colours is not defined"


@pytest.mark.parametrize(
    "content", ["console.log('hello'); module.exports = { apps: [] };\n", "module.exports = {};\n"]
)
def test_an_ecosystem_file_without_the_application_is_said(content: str, sandbox: Sandbox) -> None:
    path = sandbox.write("empty.config.js", content)
    message = sandbox.refused(instances=1, ecosystem=str(path))
    assert message == f"{path} describes no application called shop"
