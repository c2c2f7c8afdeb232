"""A small web server in a thread, for what asks an application over HTTP."""

from __future__ import annotations

import http.server
import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

# (method, path with query, body) -> (status, body)
Answer = Callable[[str, str, bytes], tuple[int, object] | None]


@contextmanager
def serve(answer: Answer) -> Iterator[str]:
    """Serve what `answer` says, one request after the other, and yield the address.

    A str is sent as it is, anything else as JSON; None closes the connection without an answer.
    """
    one_at_a_time = threading.Lock()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            with one_at_a_time:
                answered = answer(self.command, self.path, sent)
            if answered is None:
                self.close_connection = True
                return
            status, said = answered
            body = (said if isinstance(said, str) else json.dumps(said)).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = _answer  # noqa: N815 the names that http.server looks for

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    class Server(http.server.ThreadingHTTPServer):
        def handle_error(self, *address: Any) -> None:
            """Say nothing of clients that went away."""
            if not isinstance(sys.exception(), ConnectionError):
                super().handle_error(*address)

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
