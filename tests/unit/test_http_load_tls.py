"""The load generator over TLS: authorities, names, and what it says when one of them is wrong."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from truth_server import OK, Arrival, Server, always, errors_of, http_load, params, run

NAME = "cms.example.test"


@dataclass(frozen=True)
class Authority:
    """A certificate authority of the test, and a server's key and certificate signed by it.

    Attributes:
        certificate: File of the authority's certificate.
        key: File of the server's key.
        signed: File of the server's certificate, for NAME and 127.0.0.1.
    """

    certificate: Path
    key: Path
    signed: Path

    def context(self, names: list[str | None]) -> ssl.SSLContext:
        """Return how the server encrypts; the names that clients ask for are added to the list."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.signed, self.key)
        context.sni_callback = lambda _socket, name, _context: names.append(name)
        return context


def make_authority(directory: Path) -> Authority:
    """Make an authority and have it sign a server's certificate."""
    directory.mkdir()
    new = "openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    commands = [
        f"{new} -x509 -subj /CN={directory.name} -keyout ca.key -out ca.pem",
        (
            f"{new} -x509 -subj /CN=server -CA ca.pem -CAkey ca.key -keyout server.key -out server.pem"
            f" -addext subjectAltName=DNS:{NAME},IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE"
        ),
    ]
    for command in commands:
        subprocess.run(command.split(), cwd=directory, check=True, capture_output=True)
    return Authority(directory / "ca.pem", directory / "server.key", directory / "server.pem")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make_authority(tmp_path_factory.mktemp("tls") / "right")


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make_authority(tmp_path_factory.mktemp("tls") / "wrong")


async def large(_server: Server, _arrival: Arrival) -> tuple[bytes, bool]:
    return b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + b"x" * 100_000, True


def test_a_trusted_server_is_loaded_and_asked_by_its_name(authority: Authority) -> None:
    names: list[str | None] = []
    load, server = run(
        tls=authority.context(names), ca_path=str(authority.certificate), server_name=NAME, count=60, connections=3
    )
    assert errors_of(load) == {}
    assert load["total"]["ok"] == len(server.arrivals) == 60
    assert names == [NAME] * server.connections
    assert server.connections == 3
    assert server.arrivals[0].headers["host"] == f"127.0.0.1:{server.port}"


def test_the_name_of_the_address_is_the_one_that_is_asked_for(authority: Authority) -> None:
    names: list[str | None] = []
    tls = authority.context(names)
    with pytest.raises(http_load.LoadError, match=r"no encrypted connection to localhost.*localhost.*server_name"):
        run(tls=tls, host="localhost", ca_path=str(authority.certificate))
    assert names == ["localhost"]
    load, _ = run(tls=tls, ca_path=str(authority.certificate), count=3)
    assert load["total"]["ok"] == 3, "an address needs no name"


def test_large_responses_and_bodies_pass_in_both_loops(authority: Authority) -> None:
    tls = authority.context([])
    requests = [{"path": "/", "method": "PUT", "body": "y" * 3_000_000}]
    load, server = run(large, tls=tls, ca_path=str(authority.certificate), requests=requests, count=6)
    assert errors_of(load) == {}
    assert {len(arrival.body) for arrival in server.arrivals} == {3_000_000}
    assert load["total"]["bytes"] > 600_000
    load, server = run(large, tls=tls, ca_path=str(authority.certificate), mode="open", rate=100.0, arrivals="uniform")
    assert errors_of(load) == {}
    assert load["total"]["ok"] == load["planned"] == 40


def test_each_request_has_its_own_connection_without_keep_alive(authority: Authority) -> None:
    load, server = run(
        tls=authority.context([]), ca_path=str(authority.certificate), keep_alive=False, count=9, connections=2
    )
    assert errors_of(load) == {}
    assert server.connections == load["total"]["ok"] == 9


def test_a_wrong_authority_is_refused_before_the_load(authority: Authority, other: Authority) -> None:
    tls = authority.context([])
    with pytest.raises(http_load.LoadError, match=r"no encrypted connection to .*unable to get.*issuer.*set ca_path"):
        run(tls=tls, ca_path=str(other.certificate))
    with pytest.raises(http_load.LoadError, match="no encrypted connection"):
        run(tls=tls)
    load, _ = run(tls=tls, validate_certs=False, count=3)
    assert load["total"]["ok"] == 3


def test_a_wrong_authority_later_on_is_a_connect_error(authority: Authority, other: Authority) -> None:
    tls = authority.context([])

    async def answer(_server: Server, _arrival: Arrival) -> tuple[bytes, bool]:
        tls.load_cert_chain(other.signed, other.key)
        return OK, False

    load, _ = run(answer, tls=tls, ca_path=str(authority.certificate), keep_alive=False, count=3, connections=1)
    assert (load["total"]["ok"], errors_of(load)) == (1, {"connect": 2})
    assert "issuer" in load["error_samples"]["connect"] or "signature" in load["error_samples"]["connect"]


class Blunt(Server):
    """Answers to whatever it gets."""

    async def _read(self, reader: asyncio.StreamReader, connection: int, on_connection: int) -> Arrival:
        await reader.read(1)
        return Arrival("", {}, b"", connection, 0, on_connection)


def test_a_server_without_tls_is_named_as_such() -> None:
    with pytest.raises(http_load.LoadError, match=r"no encrypted connection .* base_url begins with http://"):
        run(always(b"HTTP/1.1 400 Bad Request\r\n\r\n", keep=False), server_class=Blunt, scheme="https")


def test_a_missing_file_of_authorities_is_named() -> None:
    with pytest.raises(http_load.LoadError, match="ca_path '/nowhere' cannot be used: No such file"):
        http_load.make_plan(params("https://h:1", ca_path="/nowhere"))
