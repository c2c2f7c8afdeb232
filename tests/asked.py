"""What check.yml and seed.yml report, with the same load generator run in this process instead of through Ansible."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any

from truth_server import http_load

HOST = "prod1"


def send_once(base_url: str, requests: Sequence[dict[str, Any]], connections: int = 1) -> tuple[Any, str]:
    """Send each request once: what http_load reports, or None and why it could not send them."""
    wanted = {"base_url": base_url, "requests": requests, "count": len(requests), "connections": connections}
    try:
        return http_load.run_load(http_load.make_plan(wanted), lambda: False), ""
    except http_load.LoadError as error:
        return None, str(error)


def check(base_url: str, paths: Sequence[str]) -> dict[str, Any]:
    """The report of check.yml, sent from one host."""
    load, problem = send_once(base_url, [{"path": path} for path in paths])
    return {"base_url": base_url, "hosts": [HOST], "loads": [load or {}], "problems": [problem]}


class Application:
    """An application that entries can be added to, by the address where it answers."""

    def __init__(self, base_url: str) -> None:
        self._base_url = base_url

    def seed(self, path: str, entries: Sequence[dict[str, str]]) -> dict[str, Any]:
        """The report of seed.yml."""
        requests = [{"path": path, "method": "POST", "body": {"data": entry}} for entry in entries]
        load, problem = send_once(self._base_url, requests, connections=8) if requests else (None, "")
        fetched = self._fetch(f"{self._base_url}{path}?pagination%5BpageSize%5D=1")
        return {"base_url": self._base_url, "host": HOST, "load": load, "problem": problem, "fetched": fetched}

    def _fetch(self, url: str) -> dict[str, Any]:
        try:
            with urllib.request.urlopen(url) as answer:  # noqa: S310 an address of the test's own
                return {"status": answer.status, "body": answer.read().decode(), "problem": ""}
        except urllib.error.HTTPError as error:
            with error:
                return {"status": error.code, "body": "", "problem": str(error)}
        except OSError as error:
            return {"status": -1, "body": "", "problem": f"Request failed: {error}"}
