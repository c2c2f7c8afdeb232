"""Seeding tops a collection up to a number of entries, against a server that behaves as Strapi's REST API does."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from asked import Application
from web import serve

from tuner.errors import InputError, InterruptedByUserError
from tuner.seed import BATCH, seed

PATH = "/api/articles"


class Collection:
    """What the server holds and how it answers.

    Args:
        present: Number of entries there are.
        read: Status of an answer to GET.
        create: Status of an answer to POST.
    """

    def __init__(self, present: int = 0, *, read: int = 200, create: int = 201) -> None:
        self.entries: list[dict[str, str]] = [{"title": f"There {number}"} for number in range(present)]
        self._read = read
        self._create = create

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, object]:
        """Answer one request."""
        if path.partition("?")[0] != PATH:
            return 404, {"data": None, "error": {"status": 404, "name": "NotFoundError"}}
        status = self._read if method == "GET" else self._create
        if status >= 400:
            return status, {"data": None, "error": {"status": status, "name": "ForbiddenError"}}
        if method == "POST":
            self.entries.append(json.loads(body)["data"])
            return status, {"data": self.entries[-1]}
        return status, {"data": self.entries[:1], "meta": {"pagination": {"total": len(self.entries)}}}


@contextmanager
def strapi(present: int = 0, *, read: int = 200, create: int = 201) -> Iterator[tuple[Application, Collection]]:
    collection = Collection(present, read=read, create=create)
    with serve(collection.answer) as url:
        yield Application(url), collection


def ignore(_done: int, _total: int) -> None:
    """Progress that nobody looks at."""


def test_an_empty_collection_is_filled_with_entries_that_differ() -> None:
    with strapi() as (application, collection):
        assert seed(application, PATH, 30, ignore) == 30
    assert sorted(entry["title"] for entry in collection.entries) == sorted(f"Article {n}" for n in range(1, 31))
    assert all(400 < len(entry["content"]) < 800 for entry in collection.entries)
    assert len({entry["content"] for entry in collection.entries}) > 1


def test_a_collection_is_topped_up_and_not_doubled() -> None:
    with strapi(present=12) as (application, collection):
        assert seed(application, PATH, 20, ignore) == 8
        assert len(collection.entries) == 20
        assert seed(application, PATH, 20, ignore) == 0
        assert seed(application, PATH, 5, ignore) == 0
        assert len(collection.entries) == 20


def test_progress_counts_from_what_is_there_to_what_should_be() -> None:
    told: list[tuple[int, int]] = []
    with strapi(present=3) as (application, _):
        seed(application, PATH, 9, lambda done, total: told.append((done, total)))
    assert told == [(3, 9), (9, 9)]


def test_many_entries_are_added_in_batches_and_none_twice() -> None:
    told: list[int] = []
    with strapi() as (application, collection):
        assert seed(application, PATH, BATCH + 1, lambda done, _: told.append(done)) == BATCH + 1
    assert told == [0, BATCH, BATCH + 1]
    assert len({entry["title"] for entry in collection.entries}) == BATCH + 1


def test_an_interrupt_noted_by_the_progress_ends_it() -> None:
    def stop(done: int, _total: int) -> None:
        if done == BATCH:
            raise InterruptedByUserError("interrupted")

    with strapi() as (application, collection):
        with pytest.raises(InterruptedByUserError):
            seed(application, PATH, 1000, stop)
        assert len(collection.entries) == BATCH


@pytest.mark.parametrize("status", [403, 404, 500])
def test_a_collection_that_cannot_be_read_is_refused(status: int) -> None:
    with (
        strapi(read=status) as (application, _),
        pytest.raises(InputError, match=rf"answers {status}, and seeding needs to read .*; allow find and create for"),
    ):
        seed(application, PATH, 3, ignore)


@pytest.mark.parametrize("status", [400, 403, 500])
def test_entries_that_cannot_be_created_are_said_in_one_sentence(status: int) -> None:
    with strapi(create=status) as (application, _), pytest.raises(InputError) as caught:
        seed(application, PATH, 30, ignore)
    assert re.match(rf"POST http://[\d.:]+{PATH} answers {status}; ", str(caught.value))
    assert str(caught.value).endswith(
        "allow create for the public role, or seed a collection with the fields title and content"
    )


def test_another_path_is_not_found() -> None:
    with strapi() as (application, _), pytest.raises(InputError, match=r"/api/pages.* answers 404"):
        seed(application, "/api/pages", 3, ignore)


@pytest.mark.parametrize("body", ["<html>", [], {"meta": {}}, {"meta": {"pagination": {"total": None}}}])
def test_what_is_no_collection_is_refused(body: object) -> None:
    with (
        serve(lambda *_: (200, body)) as url,
        pytest.raises(InputError, match=r"answers with something else than a Strapi collection; name one with --url"),
    ):
        seed(Application(url), PATH, 3, ignore)


def test_a_refused_connection_is_said_with_what_to_do() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # held and not listened on: nobody else can answer there
        url = f"http://127.0.0.1:{held.getsockname()[1]}"
        with pytest.raises(
            InputError, match=rf"{url}{PATH} does not answer prod1: .*; check that the application runs"
        ):
            seed(Application(url), PATH, 3, ignore)


def test_a_server_that_goes_away_meanwhile_is_said_with_what_to_do() -> None:
    collection = Collection()

    def answer(method: str, path: str, body: bytes) -> tuple[int, object] | None:
        return None if len(collection.entries) == 5 else collection.answer(method, path, body)

    with (
        serve(answer) as url,
        pytest.raises(InputError, match=rf"^POST {url}{PATH} fails \(the server closed the connection\); allow create"),
    ):
        seed(Application(url), PATH, 100, ignore)
    assert len(collection.entries) == 5


def test_a_collection_that_takes_entries_and_shows_none_is_refused() -> None:
    def answer(method: str, _path: str, _body: bytes) -> tuple[int, object]:
        return (201, {}) if method == "POST" else (200, {"meta": {"pagination": {"total": 2}}})

    with serve(answer) as url, pytest.raises(InputError, match=r"took 7 entries and still shows 2; seed a collection"):
        seed(Application(url), PATH, 9, ignore)
