"""Does the application answer? Asked once of each path, before any load."""

from __future__ import annotations

from collections.abc import Sequence

import httpx

from tuner.errors import InputError

TIMEOUT_S = 10.0
SHOWN = 120


def check_paths(base_url: str, paths: Sequence[str]) -> None:
    """Ask for each path once.

    Args:
        base_url: `http://host:port` of the application.
        paths: Paths with queries.

    Raises:
        InputError: When one is no path, or is not answered with 2xx.
    """
    with httpx.Client(timeout=TIMEOUT_S, follow_redirects=False, trust_env=False) as client:
        for path in paths:
            if not path.startswith("/"):
                raise InputError(
                    f"--url {path!r} is no path of the application", remedy="begin it with /, for example /api/articles"
                )
            _check(client, base_url, path)


def _check(client: httpx.Client, base_url: str, path: str) -> None:
    address = f"{base_url.rstrip('/')}{path}"
    try:
        response = client.get(address)
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:  # the last: a host name that IDNA cannot spell
        raise InputError(
            f"{address} does not answer: {error or type(error).__name__}",
            remedy="check that the application runs and can be reached from here, or name its address with --base-url",
        ) from error
    if not response.is_success:
        said = " ".join(response.text[:SHOWN].split())
        raise InputError(
            f"{address} answers {response.status_code}, and a trial needs 2xx: {said}",
            remedy="choose a path that everybody may read (--url)",
        )
