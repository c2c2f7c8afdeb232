"""An application whose answers are made to be run: they end as one line of text, and nothing in them is run."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import ROOT

from tuner.ansible_target import AnsibleTarget
from tuner.answers import check_answers
from tuner.errors import InputError
from tuner.interruption import Interruption
from tuner.model import Load
from tuner.seed import seed

pytestmark = pytest.mark.integration

# A template, a shell's substitution, a terminal's title, an erased screen, and a line that looks like another error.
HOSTILE = "{{ lookup('pipe', 'touch OWNED') }}{% for x in y %}$(touch OWNED)`touch OWNED`\x1b]0;OWNED\x07\x1b[2J[red]"
BODY = f'{HOSTILE}"\nError: all is lost'


def answer(status: str, body: str, *headers: str) -> bytes:
    head = "\r\n".join([f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(body.encode())}", "", ""])
    return (head + body).encode()


# What the application sends, whatever it is asked.
ANSWERS = {
    "reason": answer(f"500 {HOSTILE}", "no"),
    "header": answer("403 Forbidden", "no", f"X-Powered-By: {HOSTILE}", f"Set-Cookie: {HOSTILE}"),
    "body": answer("404 Not Found", BODY),
    "no HTTP": f"{HOSTILE}\r\n\r\n".encode(),
    "a redirect": answer("302 Found", "", f"Location: file:///etc/passwd?{HOSTILE}"),
    "a body where a collection is expected": answer("200 OK", BODY, "Content-Type: application/json"),
    "a template for a number": answer("200 OK", '{"meta": {"pagination": {"total": "' + HOSTILE[:35] + '"}}}'),
}


@pytest.fixture
def application(request: pytest.FixtureRequest) -> Iterator[int]:
    """The port on which something gives one of the answers above."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            """Take a request, and give the answer."""
            if self.request.recv(65536):
                self.request.sendall(ANSWERS[request.param])

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.fixture
def target(application: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AnsibleTarget:
    """The host of that application, as the playbooks see it."""
    monkeypatch.setenv("ANSIBLE_HOME", str(tmp_path / "ansible"))
    monkeypatch.setenv("ANSIBLE_CONFIG", str(ROOT / "ansible.cfg"))
    inventory = tmp_path / "hosts.yml"
    inventory.write_text(
        f"""\
strapi:
  hosts:
    prod1:
      ansible_connection: local
      ansible_python_interpreter: "{{{{ ansible_playbook_python }}}}"
      ansible_remote_tmp: {tmp_path}/ansible/tmp
      strapi_user: ""
      strapi_host: 127.0.0.1
      strapi_port: {application}
"""
    )
    return AnsibleTarget(ROOT, inventory, "prod1", Interruption())


def check_harmless(error: InputError, tmp_path: Path) -> None:
    assert str(error).isprintable()
    assert len(str(error)) < 2500
    for place in (tmp_path, ROOT, ROOT / "playbooks", Path.cwd(), Path.home()):
        assert not list(place.glob("OWNED*"))
    assert not list(tmp_path.rglob("OWNED*"))


REFUSED_TO_ALL = ("reason", "header", "body", "no HTTP", "a redirect")


@pytest.mark.parametrize("application", REFUSED_TO_ALL, indirect=True)
def test_answers_to_the_requests_of_a_load(target: AnsibleTarget, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        check_answers(target.check(Load(paths=("/api/articles?sort=title",))))
    check_harmless(caught.value, tmp_path)


@pytest.mark.parametrize("application", ANSWERS, indirect=True)
def test_answers_where_entries_are_counted(target: AnsibleTarget, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        seed(target, "/api/articles", 5, lambda _done, _total: None)
    check_harmless(caught.value, tmp_path)


@pytest.mark.parametrize("application", ["body"], indirect=True)
def test_paths_that_are_made_to_be_run(target: AnsibleTarget, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        check_answers(target.check(Load(paths=("/api/{{lookup('pipe','touch${IFS}OWNED')}}",))))
    assert "{{lookup('pipe','touch${IFS}OWNED')}} answers 404" in str(caught.value)
    check_harmless(caught.value, tmp_path)
