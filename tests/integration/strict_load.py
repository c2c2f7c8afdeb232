"""A client that forgives nothing: closed loop, keep-alive, no retry; what is not answered with 2xx is an error."""

from __future__ import annotations

import http.client
import threading
import time
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

ANSWER_LIMIT_S = 60.0


class StrictLoad:
    """Requests to one path over some connections at once, from the start of the context to its end.

    A connection is opened anew only where the server announced its end in the answer before (`Connection: close`).

    Attributes:
        answers: Number of requests that were answered with 2xx.
        errors: What happened to the others.
    """

    def __init__(self, base_url: str, path: str, *, connections: int) -> None:
        self.answers = 0
        self.errors: list[str] = []
        self._address = urlsplit(base_url)
        self._path = path
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._work) for _ in range(connections)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def await_answers(self, count: int) -> None:
        """Wait until so many more requests were answered."""
        wanted = self.answers + count
        deadline = time.monotonic() + ANSWER_LIMIT_S
        while self.answers < wanted:
            assert time.monotonic() < deadline, f"not {count} answers within {ANSWER_LIMIT_S:g} s; {self.errors[:3]}"
            self._stop.wait(0.05)

    def _work(self) -> None:
        host, port = self._address.hostname or "", self._address.port
        connection = http.client.HTTPConnection(host, port, timeout=ANSWER_LIMIT_S)
        while not self._stop.is_set():
            try:
                connection.request("GET", self._path)
                response = connection.getresponse()
                response.read()
                problem = "" if 200 <= response.status < 300 else f"status {response.status}"
            except (OSError, http.client.HTTPException) as error:
                problem = f"{type(error).__name__}: {error}"
                connection.close()
            with self._lock:
                if problem:
                    self.errors.append(problem)
                else:
                    self.answers += 1
        connection.close()
