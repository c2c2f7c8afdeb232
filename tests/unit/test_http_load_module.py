"""The load generator as a module: its parameters, its processes and its end."""

from __future__ import annotations

import asyncio
import json
import math
import os
import resource
import sys
import time
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args
from support import ROOT
from truth_server import OK, WAIT_S, Answer, Server, answer_ok, http_load, params, run

# The end of whoever started it


CHILD = """
import json, sys
sys.path.insert(0, sys.argv[1])
from support import load_module
http_load = load_module("load", "http_load")
plan = http_load.make_plan(json.loads(sys.argv[2]))
try:
    print(json.dumps(http_load.run_load(plan, http_load.Lifeline().cut)))
except http_load.AbandonedError as error:
    sys.exit(str(error))
"""
PARENT = """
import subprocess, sys
subprocess.Popen([sys.executable, "-c", *sys.argv[1:]], stdout=subprocess.DEVNULL)
sys.stdin.read()
"""


def arguments_of(server: Server, **changes: object) -> list[str]:
    """Return what a process needs to load such a server."""
    return [CHILD, str(ROOT / "tests"), json.dumps(params(f"http://127.0.0.1:{server.port}", **changes))]


async def run_until_abandoned(command: list[str], *, parent_dies: bool, workers: int) -> bytes:
    """Start a load of a minute, abandon it once it is under way, and return what it said at its end."""
    async with Server(answer_ok) as server:
        arguments = arguments_of(server, duration_s=60.0, workers=workers)
        reader, writer = os.pipe()
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            *command,
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=writer,
            stderr=asyncio.subprocess.PIPE,
        )
        os.close(writer)
        assert process.stdin is not None
        assert process.stderr is not None
        await asyncio.wait_for(server.arrived.wait(), WAIT_S)
        if parent_dies:
            process.stdin.close()
        else:
            os.close(reader)
        said = await asyncio.wait_for(process.stderr.read(), WAIT_S)  # ends when the last process has
        await asyncio.wait_for(process.wait(), WAIT_S)
        if parent_dies:
            os.close(reader)
        await server.until_open(0)
        return said


@pytest.mark.parametrize("workers", [1, 3])
def test_a_load_ends_when_its_parent_dies(workers: int) -> None:
    said = asyncio.run(run_until_abandoned([PARENT], parent_dies=True, workers=workers))
    assert b"whoever started the load is gone" in said


@pytest.mark.parametrize("workers", [1, 3])
def test_a_load_ends_when_nobody_reads_its_output_any_more(workers: int) -> None:
    said = asyncio.run(run_until_abandoned([], parent_dies=False, workers=workers))
    assert b"whoever started the load is gone" in said


def test_workers_end_when_the_process_that_shares_the_load_out_is_killed() -> None:
    async def scenario() -> None:
        async with Server(answer_ok) as server:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                *arguments_of(server, duration_s=60.0, workers=3),
                stdout=asyncio.subprocess.DEVNULL,
            )
            await server.until_open(3)
            process.kill()
            await server.until_open(0)
            await asyncio.wait_for(process.wait(), WAIT_S)

    asyncio.run(scenario())


# Several processes


def run_apart(answer: Answer = answer_ok, **changes: object) -> tuple[dict[str, Any], Server]:
    """Load a server from a process of its own, as a module does, for it may fork."""

    async def scenario() -> tuple[dict[str, Any], Server]:
        async with Server(answer) as server:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", *arguments_of(server, **changes), stdout=asyncio.subprocess.PIPE
            )
            printed, _ = await asyncio.wait_for(process.communicate(), WAIT_S)
            return json.loads(printed), server

    return asyncio.run(scenario())


def test_workers_share_a_count_and_the_connections_exactly() -> None:
    load, server = run_apart(count=1001, connections=7, workers=3)
    assert len(server.arrivals) == load["total"]["ok"] == load["planned"] == 1001
    assert server.connections == 7
    assert (load["workers"], load["connections"], load["unsent"]) == (3, 7, 0)
    assert sum(load["bins"]["ok"]) == sum(count for _, count in load["latency_us"]["histogram"]) == 1001
    assert load["total"]["bytes"] == 1001 * len(OK)


def test_workers_share_time_and_weights() -> None:
    requests = [{"path": "/a", "weight": 3}, {"path": "/b"}]
    load, server = run_apart(requests=requests, connections=4, workers=2)
    assert load["total"]["ok"] == len(server.arrivals)
    for path in ("/a", "/b"):
        seen = sum(arrival.line == f"GET {path} HTTP/1.1" for arrival in server.arrivals)
        assert load["by_name"][path]["total"]["ok"] == seen
    assert len(load["bins"]["ok"]) == 4
    assert load["duration_s"] == pytest.approx(0.3)


def test_workers_share_a_rate() -> None:
    load, server = run_apart(mode="open", rate=300.0, arrivals="uniform", connections=6, workers=3)
    assert len(server.arrivals) == load["total"]["ok"] == load["planned"] == 120
    assert load["generator"]["send_rate"] == 1.0


def test_a_worker_that_dies_is_a_failure_and_no_smaller_result() -> None:
    code = CHILD.replace("try:", "http_load.LoadRun.run = lambda *_: http_load.os.kill(http_load.os.getpid(), 9)\ntry:")
    code = code.replace("AbandonedError", "LoadError")

    async def scenario() -> tuple[int | None, bytes]:
        async with Server(answer_ok) as server:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", code, *arguments_of(server, workers=2)[1:], stderr=asyncio.subprocess.PIPE
            )
            _, said = await asyncio.wait_for(process.communicate(), WAIT_S)
            return process.returncode, said

    returncode, said = asyncio.run(scenario())
    assert returncode == 1
    assert b"worker 0 died" in said
    assert b"Traceback" not in said


@pytest.mark.parametrize("total", [1, 7, 100])
def test_parts_add_up_and_are_equal_but_for_one(total: int) -> None:
    parts = [http_load.part_of(total, 3, number) for number in range(3)]
    assert sum(parts) == total
    assert max(parts) - min(parts) <= 1


# The module


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"base_url": "ftp://h:1"}, "no http:// or https:// address"),
        ({"base_url": "h:1337"}, "write http://host:port"),
        ({"base_url": "http://h:1/api"}, "paths belong into requests"),
        ({"base_url": "http://h:99999"}, "out of range"),
        ({"requests": []}, "requests is empty"),
        ({"requests": [{"path": "a"}]}, "must begin with /"),
        ({"requests": [{"path": "/a b"}]}, "percent-encoded"),
        ({"requests": [{"path": "/a\r\nX: y"}]}, "percent-encoded"),
        ({"requests": [{"path": "/", "headers": {"A": "b\r\nX: y"}}]}, "line break"),
        ({"requests": [{"path": "/", "headers": {"A b": "c"}}]}, "not valid"),
        ({"requests": [{"path": "/", "headers": {"connection": "close"}}]}, "use keep_alive"),
        ({"connections": 0}, "connections is 0, must be between 1 and 10000"),
        ({"connections": 10_001}, "connections is 10001"),
        ({"duration_s": 0}, "duration_s is 0"),
        ({"duration_s": 601}, "duration_s is 601"),
        ({"warmup_s": -1}, "warmup_s is -1"),
        ({"timeout_s": math.nan}, "timeout_s is nan"),
        ({"rate": 5.0}, "rate is for the open loop"),
        ({"mode": "open"}, "rate is needed"),
        ({"mode": "open", "rate": 0.0}, "rate is 0"),
        ({"mode": "open", "rate": 5.0, "count": 5}, "count is for the closed loop"),
        ({"mode": "open", "rate": 1e6, "duration_s": 100.0}, "plans 100100000 requests"),
        ({"count": 0}, "count is 0"),
        ({"workers": 0}, "workers is 0"),
        ({"workers": 4}, "workers is 4, must be between 1 and 3"),
        ({"requests": [{"path": "/", "method": "CONNECT"}]}, "cannot be sent"),
        ({"requests": [{"path": "/", "method": "GET / HTTP/1.1\r\n"}]}, "cannot be sent"),
        ({"requests": [{"path": "/", "weight": -1}]}, "the weight of '/' is -1"),
        ({"requests": [{"path": "/", "weight": math.inf}]}, "the weight of '/' is inf"),
        ({"requests": [{"path": "/", "weight": 0}]}, "every request has weight 0"),
        ({"requests": [{"path": "/", "expect": [99]}]}, "expect of '/' has 99"),
        ({"requests": [{"path": "/"}] * 1001}, "the number of requests is 1001"),
        ({"requests": [{"path": "/", "headers": {"Content-Length": "5"}}]}, "own business"),
    ],
)
def test_what_cannot_be_run_is_refused_with_a_reason(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(http_load.LoadError, match=message):
        http_load.make_plan({**params("http://h:1"), **changes})


@pytest.mark.parametrize(("ahead_s", "said"), [(-2.5, r"was 2\.5 s ago"), (4000.0, r"is (4000|3999) s ahead")])
def test_a_beginning_that_is_over_or_far_away_is_refused(ahead_s: float, said: str) -> None:
    with pytest.raises(http_load.LoadError, match=f"^start_at {said} by this host's clock; set the clocks"):
        run(start_at=time.time() + ahead_s)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_load_begins_when_it_should_and_not_before(workers: int) -> None:
    start_at = time.time() + 0.4
    load, server = run(start_at=start_at, workers=workers, connections=4)
    assert load["started_at"] > start_at - 0.01
    assert load["total"]["ok"] == len(server.arrivals) > 0


def test_more_connections_than_open_files_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _what: (256, 1024))
    monkeypatch.setattr(resource, "setrlimit", lambda _what, limits: raised.append(limits))
    http_load.allow_files(100)
    assert raised == []
    http_load.allow_files(900)
    assert raised == [(964, 1024)]
    assert http_load.most_connections() == 1024 - 64
    with pytest.raises(http_load.LoadError, match="1000 connections need 1064 open files, the hard limit is 1024"):
        http_load.allow_files(1000)


def test_check_mode_says_what_it_would_send_and_no_secret(capsys: pytest.CaptureFixture[str]) -> None:
    headers = {"Authorization": "Bearer t0ps3cret", "DNT": "1"}
    requests = [
        {"path": "/a", "headers": headers},
        {"path": "/login", "method": "POST", "body": {"user": "/login", "password": "s3cr3t-word"}, "weight": 2},
    ]
    arguments = {"base_url": "http://127.0.0.1:1", "requests": requests}
    with patch_module_args({**arguments, "_ansible_check_mode": True}), pytest.raises(SystemExit) as end:
        http_load.main()
    assert end.value.code == 0
    printed = capsys.readouterr().out
    result = json.loads(printed)
    assert result["changed"] is False
    first, second = result["would_send"]
    assert first["headers"] == ["Authorization", "DNT"]
    assert second == {
        "name": "/login",
        "method": "POST",
        "path": "/login",
        "weight": 2.0,
        "headers": [],
        "body_bytes": len('{"user": "/login", "password": "s3cr3t-word"}'),
    }, "a word of a body hides nothing else"
    assert "t0ps3cret" not in printed
    assert "s3cr3t-word" not in printed
    assert result["invocation"]["module_args"]["connections"] == 100, "a header of 1 hides no number"


def test_a_refusal_shows_no_secret(capsys: pytest.CaptureFixture[str]) -> None:
    requests = [
        {"path": "bad", "method": "POST", "body": "s3cr3t-word", "headers": {"Authorization": "Bearer t0ps3cret"}}
    ]
    with patch_module_args({"base_url": "http://h:1", "requests": requests}), pytest.raises(SystemExit) as end:
        http_load.main()
    printed = capsys.readouterr().out
    assert end.value.code == 1
    assert "must begin with /" in json.loads(printed)["msg"]
    assert "s3cr3t-word" not in printed
    assert "t0ps3cret" not in printed


def test_requests_do_not_show_their_headers_and_bodies() -> None:
    item = {"path": "/", "headers": {"Cookie": "t0ps3cret"}, "body": "s3cr3t-word"}
    request = http_load.make_request(item, "h", keep_alive=True)
    assert b"t0ps3cret" in request.wire
    assert request.wire.endswith(b"s3cr3t-word")
    assert "t0ps3cret" not in repr(request)
    assert "s3cr3t-word" not in repr(request)
