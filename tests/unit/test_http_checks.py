"""Paths that a trial would ask for are asked for once, and what is wrong is said in one sentence."""

from __future__ import annotations

import pytest
from web import serve

from tuner.errors import InputError
from tuner.http_checks import check_paths

# What is given as the address, and what the message must hold.
BAD_ADDRESSES = {
    "ftp://prod1": "unsupported protocol 'ftp://'",
    "prod1:1337": "missing an 'http://'",
    "": "missing an 'http://'",
    "http://prod1:port": "Invalid port: 'port'",
    "http://prod1:99999": "",
    "http://ä..b": "Invalid IDNA hostname",
    "http://x\n": "Invalid non-printable ASCII character",
    "http://..": "label empty or too long",
    f"http://{'a' * 300}": "too long",
    "http://127.0.0.1:1": "Connection refused",
}


def test_each_path_is_asked_for_as_it_is() -> None:
    asked: list[str] = []

    def answer(_method: str, path: str, _body: bytes) -> tuple[int, object]:
        asked.append(path)
        return 200, []

    with serve(answer) as url:
        check_paths(url, ["/api/articles?pagination[pageSize]=10&sort=title", "/"])
        check_paths(f"{url}/", ["/slash"])
    # httpx quotes brackets; a server reads both the same.
    assert [path.replace("%5B", "[").replace("%5D", "]") for path in asked] == [
        "/api/articles?pagination[pageSize]=10&sort=title",
        "/",
        "/slash",
    ]


@pytest.mark.parametrize("status", [301, 403, 404, 500])
def test_what_is_not_answered_with_success_is_refused(status: int) -> None:
    with (
        serve(lambda *_: (status, "<p>\n  not this way</p>")) as url,
        pytest.raises(InputError, match=rf"/x answers {status}, and a trial needs 2xx: <p> not this way</p>; choose"),
    ):
        check_paths(url, ["/x"])


def test_a_path_that_is_none_is_refused() -> None:
    with pytest.raises(InputError, match=r"--url 'api/articles' is no path of the application; begin it with /"):
        check_paths("http://127.0.0.1:1", ["api/articles"])


@pytest.mark.parametrize(("address", "said"), BAD_ADDRESSES.items())
def test_an_address_that_does_not_answer_is_said_with_what_to_do(address: str, said: str) -> None:
    with pytest.raises(InputError, match=r"does not answer: .*; check that the application runs") as caught:
        check_paths(address, ["/x"])
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
