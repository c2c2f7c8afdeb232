"""The use case `seed`: fill a collection over the public API, up to a number of entries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import httpx

from tuner.errors import InputError

TIMEOUT_S = 30.0
# Strapi writes one entry after the other anyway; a few requests at once hide the way there and back.
CONCURRENCY = 8
WORDS = ("measure", "once", "more", "before", "you", "believe", "what", "a", "single", "run", "has", "told", "you")


def make_article(number: int) -> dict[str, str]:
    """An article of about 600 bytes, the same for the same number."""
    turned = WORDS[number % len(WORDS) :] + WORDS[: number % len(WORDS)]
    sentence = " ".join(turned).capitalize() + ". "
    return {"title": f"Article {number}", "content": sentence * 6}


async def _count(client: httpx.AsyncClient, path: str) -> int:
    response = await client.get(path, params={"pagination[pageSize]": 1})
    if not response.is_success:
        raise InputError(
            f"{response.url} answers {response.status_code}, and seeding needs to read how many entries there are",
            remedy="allow find and create for the public role, or name another collection with --url",
        )
    try:
        return int(response.json()["meta"]["pagination"]["total"])
    except (ValueError, KeyError, TypeError):
        raise InputError(
            f"{response.url} answers with something else than a Strapi collection", remedy="name one with --url"
        ) from None


async def _create(client: httpx.AsyncClient, path: str, number: int) -> None:
    response = await client.post(path, json={"data": make_article(number)})
    if not response.is_success:
        raise InputError(
            f"POST {response.url} answers {response.status_code}: {' '.join(response.text[:120].split())}",
            remedy="allow create for the public role, or seed a collection with the fields title and content",
        )


async def _fill(base_url: str, path: str, count: int, on_progress: Callable[[int, int], None]) -> int:
    async with httpx.AsyncClient(base_url=base_url, timeout=TIMEOUT_S, trust_env=False) as client:
        present = await _count(client, path)
        numbers = iter(range(present + 1, count + 1))
        done = present
        on_progress(done, count)

        async def work() -> None:
            nonlocal done
            for number in numbers:
                await _create(client, path, number)
                done += 1
                on_progress(done, count)

        async with asyncio.TaskGroup() as group:
            for _ in range(CONCURRENCY):
                group.create_task(work())
        return done - present


def seed(base_url: str, path: str, count: int, on_progress: Callable[[int, int], None]) -> int:
    """Create entries until the collection holds this many.

    Args:
        base_url: `http://host:port` of the application.
        path: Path of the collection's API, for example /api/articles.
        count: How many entries there should be.
        on_progress: Called with the number there is and the number there should be.

    Returns:
        How many were created.

    Raises:
        InputError: When the collection cannot be read or written.
    """
    try:
        return asyncio.run(_fill(base_url, path, count, on_progress))
    except BaseExceptionGroup as group:
        # Several workers may fail at once; what the first says is enough.
        raise _explain(group.exceptions[0], base_url, path) from None
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
        raise _explain(error, base_url, path) from None


def _explain(error: BaseException, base_url: str, path: str) -> BaseException:
    if isinstance(error, httpx.HTTPError | httpx.InvalidURL | UnicodeError):
        return InputError(
            f"{base_url}{path} does not answer: {error or type(error).__name__}",
            remedy="check that the application runs, or name its address with --base-url",
        )
    return error
