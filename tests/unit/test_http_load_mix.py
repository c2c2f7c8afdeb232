"""What the load generator sends: the mix of requests, their bodies, what it expects, and how many."""

from __future__ import annotations

import collections
import json
import math
from pathlib import Path
from typing import Any

import pytest
from truth_server import OK, Arrival, Server, always, errors_of, http_load, params, run

CREATED = b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n"
FAILED = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n"
MOVED = b"HTTP/1.1 301 Moved Permanently\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n"


def targets(server: Server) -> collections.Counter[str]:
    """How often each path reached the server."""
    return collections.Counter(arrival.line.split(" ")[1] for arrival in server.arrivals)


# How many


@pytest.mark.parametrize(("count", "connections"), [(1, 3), (2, 3), (500, 3), (500, 1)])
def test_a_count_is_sent_exactly(count: int, connections: int) -> None:
    load, server = run(count=count, connections=connections)
    assert len(server.arrivals) == load["total"]["ok"] == load["measured"]["ok"] == count
    assert (load["planned"], load["unsent"]) == (count, 0)
    assert sum(load["bins"]["ok"]) == count
    assert (load["warmup_s"], load["mode"], load["seed"]) == (0.0, "closed", 1)
    assert len(load["bins"]["ok"]) == math.ceil(load["duration_s"] / 0.1)


def test_a_count_is_met_without_keep_alive_and_with_errors() -> None:
    async def answer(_server: Server, arrival: Arrival) -> tuple[bytes, bool]:
        return (OK, True) if arrival.number % 10 else (OK[:-1], False)

    load, server = run(answer, count=40, keep_alive=False)
    assert len(server.arrivals) == load["total"]["requests"] == 40
    assert errors_of(load) == {"short_body": 4}


def test_a_file_ends_the_load_early(tmp_path: Path) -> None:
    stop_file = tmp_path / "stop"

    async def answer(_server: Server, arrival: Arrival) -> tuple[bytes, bool]:
        if arrival.number == 50:
            stop_file.touch()
        return OK, True

    load, server = run(answer, stop_file=str(stop_file), warmup_s=0, duration_s=600)
    assert load["total"]["ok"] == load["measured"]["ok"] == len(server.arrivals) >= 50
    assert load["total"]["errors"] == 0
    assert load["duration_s"] < 600


def test_a_load_ends_once_too_much_of_it_fails() -> None:
    async def answer(_server: Server, arrival: Arrival) -> tuple[bytes, bool]:
        return (OK if arrival.number % 10 else FAILED), True

    load, _ = run(answer, max_error_share=0.05, warmup_s=0, duration_s=600)
    assert load["total"]["requests"] >= 100
    assert load["total"]["errors"] > 0.05 * load["total"]["requests"]
    assert load["duration_s"] < 600


def test_a_load_that_ends_within_its_warmup_has_measured_all_of_it() -> None:
    async def answer(_server: Server, _arrival: Arrival) -> tuple[bytes, bool]:
        return FAILED, True

    load, _ = run(answer, max_error_share=0.05, warmup_s=600, duration_s=600)
    assert load["measured"]["errors"] >= 100
    (only,) = load["by_name"].values()
    assert load["measured"]["errors"] == only["measured"]["errors"]
    assert load["warmup_s"] == 0 < load["duration_s"] < 600


def test_a_load_goes_on_while_few_of_it_fail() -> None:
    async def answer(_server: Server, arrival: Arrival) -> tuple[bytes, bool]:
        return (OK if arrival.number % 50 else FAILED), True

    load, _ = run(answer, max_error_share=0.05, count=1000)
    assert load["total"]["requests"] == 1000
    assert 0 < load["total"]["errors"] <= 50


# Weights


def test_weights_are_kept_within_chance_and_drawn_the_same_again() -> None:
    count = 3000
    requests = [{"path": "/a", "weight": 6}, {"path": "/b", "weight": 3}, {"path": "/c", "weight": 1}]
    requests.append({"path": "/never", "weight": 0})
    load, server = run(requests=requests, count=count, seed=7)
    seen = targets(server)
    assert set(seen) == {"/a", "/b", "/c"}
    for path, share in (("/a", 0.6), ("/b", 0.3), ("/c", 0.1)):
        assert load["by_name"][path]["total"]["ok"] == seen[path]
        assert abs(seen[path] - count * share) < 4 * math.sqrt(count * share * (1 - share))
    plan = http_load.make_plan(params("http://h:1", requests=requests, seed=7))
    mix = http_load.draw(plan, 0, 0)
    assert seen == collections.Counter(next(mix).path for _ in range(count))
    other = http_load.draw(http_load.make_plan(params("http://h:1", requests=requests, seed=8)), 0, 0)
    again = http_load.draw(plan, 0, 0)
    assert [next(again).path for _ in range(100)] != [next(other).path for _ in range(100)]


def test_requests_that_share_a_name_are_counted_together() -> None:
    requests = [{"path": "/1", "name": "one"}, {"path": "/2", "name": "one"}, {"path": "/3"}]
    load, _ = run(requests=requests, count=30, connections=1)
    assert {name: part["total"]["ok"] for name, part in load["by_name"].items()} == {"one": 20, "/3": 10}


# Methods and bodies


@pytest.mark.parametrize(
    ("body", "arrives", "content_type"),
    [
        ("naïve\r\n\r\n{{ text }}", "naïve\r\n\r\n{{ text }}".encode(), None),
        ({"data": {"title": "ü", "tags": [1, None]}}, '{"data": {"title": "ü", "tags": [1, null]}}'.encode(), "json"),
        ([], b"[]", "json"),
        (0, b"0", "json"),
        ("x" * 3_000_000, b"x" * 3_000_000, None),
        (None, b"", None),
    ],
)
def test_a_body_arrives_byte_for_byte(body: object, arrives: bytes, content_type: str | None) -> None:
    load, server = run(
        always(CREATED, keep=True), requests=[{"path": "/", "method": "POST", "body": body}], count=4, connections=2
    )
    assert errors_of(load) == {}
    for arrival in server.arrivals:
        assert arrival.body == arrives
        assert arrival.headers["content-length"] == str(len(arrives))
        assert arrival.headers.get("content-type") == (content_type and "application/json")


def test_every_method_is_sent_and_own_content_type_wins() -> None:
    methods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PURGE"]
    headers = {"content-type": "application/merge-patch+json"}
    requests: list[dict[str, Any]] = [{"path": "/", "method": method, "name": method} for method in methods]
    requests.append({"path": "/", "method": "PATCH", "name": "merge", "body": {}, "headers": headers})
    load, server = run(always(b"HTTP/1.1 204 No Content\r\n\r\n", keep=True), requests=requests, count=9, connections=1)
    assert [arrival.line.split(" ")[0] for arrival in server.arrivals] == [*methods, "PATCH"]
    assert server.arrivals[-1].headers["content-type"] == headers["content-type"]
    assert load["total"]["status_counts"] == {"204": 9}
    assert server.connections == 1


@pytest.mark.parametrize(
    ("method", "repeated"),
    [("GET", True), ("HEAD", True), ("PUT", True), ("DELETE", True), ("POST", False), ("PATCH", False)],
)
def test_only_what_may_be_done_twice_is_sent_again(method: str, *, repeated: bool) -> None:
    async def answer(_server: Server, arrival: Arrival) -> tuple[bytes, bool]:
        return (b"", False) if arrival.on_connection == 1 else (b"HTTP/1.1 204 No Content\r\n\r\n", True)

    load, server = run(answer, requests=[{"path": "/", "method": method}], count=2, connections=1)
    if repeated:
        assert (load["total"]["ok"], load["total"]["retried"], len(server.arrivals)) == (2, 1, 3)
        assert errors_of(load) == {}
    else:
        assert (load["total"]["ok"], load["total"]["retried"], len(server.arrivals)) == (1, 0, 2)
        assert errors_of(load) == {"reset": 1}


def test_an_answer_before_the_body_was_sent_costs_the_connection() -> None:
    async def refuse(reader_paused: Server, arrival: Arrival) -> tuple[bytes, bool]:
        raise AssertionError((reader_paused, arrival))  # the head alone is never given to it

    too_large = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n"

    class EarlyServer(Server):
        async def _read(self, reader: Any, connection: int, on_connection: int) -> Arrival:  # noqa: ANN401 as the server has it
            await reader.readuntil(b"\r\n\r\n")
            self.writers[connection].write(too_large)
            await reader.read()  # what the client has still sent, until it closes
            return await super()._read(reader, connection, on_connection)

    load, server = run(
        refuse,
        server_class=EarlyServer,
        requests=[{"path": "/", "method": "PUT", "body": "x" * 30_000_000}],
        count=2,
        connections=1,
        timeout_s=2.0,
    )
    assert load["total"]["status_counts"] == {"413": 2}
    assert server.connections == 2


# What is expected


def test_redirects_are_not_followed_and_are_errors_unless_expected() -> None:
    load, server = run(always(MOVED, keep=True), count=6)
    assert errors_of(load) == {"status": 6}
    assert set(targets(server)) == {"/"}
    load, _ = run(always(MOVED, keep=True), requests=[{"path": "/", "expect": [301, 404]}], count=6)
    assert errors_of(load) == {}
    assert load["total"]["ok"] == 6


def test_an_expectation_excludes_other_successes_and_names_keep_their_own_errors() -> None:
    requests = [{"path": "/a", "expect": [201]}, {"path": "/b"}]
    load, _ = run(requests=requests, count=10, connections=1)
    assert errors_of(load) == {"status": 5}
    assert load["error_samples"] == {"status": "/a: 200"}
    parts = {name: (part["total"]["ok"], part["total"]["errors"]) for name, part in load["by_name"].items()}
    assert parts == {"/a": (0, 5), "/b": (5, 0)}


def test_json_of_the_result_has_only_finite_numbers() -> None:
    load, _ = run(count=3)
    json.dumps(load, allow_nan=False)
