"""The use case `seed`: fill a collection over the public API, up to a number of entries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Protocol

from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict  # pydantic takes that of the standard library from Python 3.12 on

from tuner.answers import check_paths, failures
from tuner.errors import InputError
from tuner.model import Report

# Entries for one call of Ansible, which takes about a second beside them.
BATCH = 250
WORDS = ("measure", "once", "more", "before", "you", "believe", "what", "a", "single", "run", "has", "told", "you")


class Pagination(TypedDict):
    """What Strapi says of how many entries there are."""

    total: Annotated[int, Field(ge=0)]


class Meta(TypedDict):
    """What Strapi says beside the entries."""

    pagination: Pagination


class Collection(TypedDict):
    """What Strapi answers for a collection, as far as it matters here."""

    meta: Meta


COLLECTION = TypeAdapter(Collection)


class Seedable(Protocol):
    """An application that entries can be added to."""

    def seed(self, path: str, entries: Sequence[dict[str, str]]) -> Report:
        """Add entries to the collection with this path, and count what it holds then; the report of seed.yml.

        Raises:
            HostError: When the host or Ansible fails.
            InterruptedByUserError: When the user stopped the run meanwhile.
        """


def make_article(number: int) -> dict[str, str]:
    """An article of about 600 bytes, the same for the same number."""
    turned = WORDS[number % len(WORDS) :] + WORDS[: number % len(WORDS)]
    sentence = " ".join(turned).capitalize() + ". "
    return {"title": f"Article {number}", "content": sentence * 6}


def seed(application: Seedable, path: str, count: int, on_progress: Callable[[int, int], None]) -> int:
    """Create entries until the collection holds this many.

    Args:
        application: Where the collection is.
        path: Path of the collection's API, for example /api/articles.
        count: How many entries there should be.
        on_progress: Called with the number there is and the number there should be.

    Returns:
        How many were created.

    Raises:
        InputError: When the collection cannot be read or written.
        HostError: When the host or Ansible fails.
    """
    check_paths((path,))
    present = done = _read_total(application.seed(path, []), path)
    on_progress(done, count)
    while done < count:
        numbers = range(done + 1, min(done + BATCH, count) + 1)
        report = application.seed(path, [make_article(number) for number in numbers])
        _check_added(report, path)
        total = _read_total(report, path)
        if total <= done:
            raise InputError(
                f"{path} took {len(numbers)} entries and still shows {total}",
                remedy="seed a collection that publishes what is created",
            )
        done = total
        on_progress(done, count)
    return done - present


def _read_total(report: Report, path: str) -> int:
    address, answer = f"{report['base_url']}{path}", report["fetched"]
    if answer["status"] < 0:
        raise InputError(
            f"{address} does not answer {report['host']}: {answer['problem']}",
            remedy="check that the application runs, and strapi_url where load_from is another host",
        )
    if not 200 <= answer["status"] < 300:  # noqa: PLR2004 success, in HTTP
        raise InputError(
            f"{address} answers {answer['status']}, and seeding needs to read how many entries there are",
            remedy="allow find and create for the public role, or name another collection with --url",
        )
    try:
        return COLLECTION.validate_json(answer["body"])["meta"]["pagination"]["total"]
    except ValidationError:
        raise InputError(
            f"{address} answers with something else than a Strapi collection", remedy="name one with --url"
        ) from None


def _check_added(report: Report, path: str) -> None:
    if not report["load"]:
        raise InputError(
            f"{report['base_url']}{path} does not answer {report['host']}: {report['problem']}",
            remedy="check that the application runs",
        )
    for _, reason in failures(report["load"]):
        raise InputError(
            f"POST {report['base_url']}{path} {reason}",
            remedy="allow create for the public role, or seed a collection with the fields title and content",
        )
