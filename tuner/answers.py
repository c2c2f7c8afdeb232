"""Does the application answer, from where the load will come? What was seen when each request was sent once. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tuner.errors import InputError
from tuner.model import Report
from tuner.wording import quoted

# What can be sent as it is; longer ones no server takes.
PATH = re.compile(r"/[\x21-\x7e]{0,8000}")


def check_paths(paths: Sequence[str]) -> None:
    """Refuse what no server could be asked for.

    Args:
        paths: Paths with queries, as the user typed them.

    Raises:
        InputError: When one is no path.
    """
    for path in paths:
        if not PATH.fullmatch(path):
            raise InputError(
                f"--url {quoted(path)} is no path of the application",
                remedy="begin it with / and write spaces as %20, for example /api/articles?sort=title",
            )


def check_answers(report: Report) -> None:
    """Refuse an application that does not answer every request with success.

    Args:
        report: As check.yml gave it: `base_url`, and for each of `hosts` what http_load says of its requests (`loads`),
            or why it could send none (`problems`).

    Raises:
        InputError: When one request failed; says which, from where, and with which status.
    """
    for host, load, problem in zip(report["hosts"], report["loads"], report["problems"], strict=True):
        if not load:
            raise InputError(
                f"{report['base_url']} does not answer {host}: {problem}",
                remedy="deploy it, or set load_from to a host that reaches it, strapi_url to its address for others",
            )
        for name, reason in failures(load):
            raise InputError(
                f"{report['base_url']}{name} {reason} (asked from {host}), and a trial needs success",
                remedy="choose a path that everybody may read (--url, or load_requests in the inventory)",
            )


def failures(load: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Name each request that failed, and how: what it was answered with, or what happened to it.

    Args:
        load: What http_load reported.
    """
    for name, counts in load["by_name"].items():
        total = counts["total"]
        kinds = [kind for kind, count in total["errors_by_kind"].items() if count]
        if "status" in kinds:
            yield name, f"answers {', '.join(total['status_counts'])}"
        elif kinds:
            yield name, f"fails ({load['error_samples'].get(kinds[0], kinds[0]).removeprefix(f'{name}: ')})"
