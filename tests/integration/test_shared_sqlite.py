"""SQLite shared by two instances. The sample sets nothing itself: what is seen here is of the role's server.js."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pytest
from deployed import DeployedHost

pytestmark = pytest.mark.integration

# Longer than the 5 s for which better-sqlite3 waits by itself, and shorter than the 15 s that server.js sets.
LOCK_HELD_S = 7
REQUEST_LIMIT_S = 60


def database(host: DeployedHost) -> Path:
    """The file."""
    return host.root / "app" / "shared" / "tmp" / "data.db"


@contextmanager
def locked_by_another(path: Path, held_s: float) -> Iterator[None]:
    """Hold the lock for writing, for a while that begins now."""
    taken = threading.Event()

    def hold() -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            taken.set()
            threading.Event().wait(held_s)
            connection.execute("ROLLBACK")

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert taken.wait(timeout=30)
        yield
    finally:
        thread.join()


def test_deploy_gives_the_file_a_write_ahead_log(host: DeployedHost) -> None:
    done = host.playbook("deploy.yml")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert host.workers_online() == 2
    with closing(sqlite3.connect(database(host))) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_writer_waits_longer_than_the_driver_would_by_itself(host: DeployedHost) -> None:
    with locked_by_another(database(host), LOCK_HELD_S):
        answer = httpx.post(f"{host.url}/api/articles", json={"data": {"title": "patient"}}, timeout=REQUEST_LIMIT_S)
    assert answer.status_code == 201, answer.text


def test_both_instances_write_at_the_same_time(host: DeployedHost) -> None:
    def total() -> int:
        return int(httpx.get(f"{host.url}/api/articles").json()["meta"]["pagination"]["total"])

    before = total()
    codes: list[int] = []

    def write() -> None:
        # A connection for each request, so that pm2 gives them to both instances in turn.
        codes.extend(
            httpx.post(
                f"{host.url}/api/articles", json={"data": {"title": "one of many"}}, timeout=REQUEST_LIMIT_S
            ).status_code
            for _ in range(20)
        )

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes == [201] * 160
    assert total() == before + 160
