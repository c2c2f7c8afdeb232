"""Requests that a trial would send are sent once, and what is wrong is said in one sentence."""

from __future__ import annotations

import socket

import pytest
from asked import check
from web import serve

from tuner.answers import check_answers, check_paths
from tuner.errors import InputError


def test_each_path_is_asked_for_once_and_as_it_is() -> None:
    asked: list[str] = []

    def answer(_method: str, path: str, _body: bytes) -> tuple[int, object]:
        asked.append(path)
        return 200, []

    paths = ["/api/articles?pagination[pageSize]=10&sort=title", "/"]
    with serve(answer) as url:
        check_answers(check(url, paths))
    assert asked == paths


@pytest.mark.parametrize("status", [301, 403, 404, 500])
def test_what_is_not_answered_with_success_is_refused(status: int) -> None:
    def answer(_method: str, path: str, _body: bytes) -> tuple[int, object]:
        return (status, "<p>\n  not this way</p>") if path == "/x" else (200, [])

    with (
        serve(answer) as url,
        pytest.raises(InputError, match=rf"^{url}/x answers {status} \(asked from prod1\), and .* choose a path"),
    ):
        check_answers(check(url, ["/", "/x"]))


def test_an_answer_that_breaks_off_is_refused_with_what_happened() -> None:
    with (
        serve(lambda *_: None) as url,
        pytest.raises(InputError, match=rf"^{url}/x fails \(the server closed the connection\) \(asked from prod1\)"),
    ):
        check_answers(check(url, ["/x"]))


def test_one_of_several_hosts_that_does_not_reach_the_application_is_named() -> None:
    with serve(lambda *_: (200, [])) as url:
        fine = check(url, ["/"])
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # held and not listened on: nobody else can answer there
        refused = check(f"http://127.0.0.1:{held.getsockname()[1]}", ["/"])
    both = {"base_url": url, "hosts": ["prod1", "load2"]}
    both |= {name: fine[name] + refused[name] for name in ("loads", "problems")}
    with pytest.raises(
        InputError, match=rf"^{url} does not answer load2: nothing accepts .* refused.*load_from"
    ) as caught:
        check_answers(both)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("path", ["api/articles", "", "/api/a b", "/api/a\n", "http://prod1/api"])
def test_a_path_that_is_none_is_refused(path: str) -> None:
    with pytest.raises(InputError, match=r"is no path of the application; begin it with / and write spaces as %20"):
        check_paths(["/", path])
