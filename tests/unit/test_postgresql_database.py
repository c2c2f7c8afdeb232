"""postgresql_database: the verifier against RFC 7677's example, what is planned, and that no password leaves it."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args
from support import load_module, run_module

module = load_module("postgresql", "postgresql_database")

# RFC 7677, section 3: user "user", password "pencil", and the messages of one exchange.
RFC_PASSWORD = "pencil"  # noqa: S105 the RFC's example
RFC_SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
RFC_NONCE = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
RFC_MESSAGES = (
    f"n=user,r=rOprNGfwEbeRWgbNEkqO,r={RFC_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r={RFC_NONCE}"
).encode()
RFC_PROOF = base64.b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
RFC_SERVER_SIGNATURE = base64.b64decode("6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")

PASSWORD = "s3cr3t' \"$x\\%;--"  # noqa: S105 an example
PARAMS = {"name": "shop", "owner": "shop", "password": PASSWORD, "cluster": "15/main", "locale": "C.UTF-8"}


def role(password: str = PASSWORD, **columns: bool) -> dict[str, Any]:
    """A role as the server tells of it."""
    held = dict.fromkeys(module.PRIVILEGES.values(), False)
    return {"rolcanlogin": True, "rolpassword": module.scram_verifier(password, b"salt"), **held, **columns}


def planned(
    found: dict[str, Any] | None, database: dict[str, str] | None, **params: str
) -> tuple[list[str], list[str]]:
    """The sentences and the statements of a plan."""
    actions = module.plan({"role": found, "database": database}, {**PARAMS, **params})
    return [sentence for sentence, _ in actions], [statement for _, statement in actions]


def own(**changed: str) -> dict[str, str]:
    """A database as it should be."""
    return {"owner": "shop", "encoding": "UTF8", **changed}


def test_the_verifier_is_the_one_that_the_rfcs_exchange_needs() -> None:
    verifier = module.scram_verifier(RFC_PASSWORD, RFC_SALT)
    head, keys = verifier.rsplit("$", 1)
    assert head == "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ=="
    stored, server = (base64.b64decode(part) for part in keys.split(":"))
    signature = hmac.digest(stored, RFC_MESSAGES, "sha256")
    client_key = bytes(a ^ b for a, b in zip(RFC_PROOF, signature, strict=True))
    assert hashlib.sha256(client_key).digest() == stored
    assert hmac.digest(server, RFC_MESSAGES, "sha256") == RFC_SERVER_SIGNATURE


def test_a_verifier_knows_its_password() -> None:
    verifier = module.scram_verifier("pencil", b"0123456789abcdef", 1000)
    assert module.is_password_of("pencil", verifier)
    assert not module.is_password_of("pencils", verifier)


@pytest.mark.parametrize("other", [None, "", "md5a6343a68d964ca596d9752250d54bb8a", "pencil", "SCRAM-SHA-256$x"])
def test_what_is_no_verifier_fits_no_password(other: str | None) -> None:
    assert not module.is_password_of("pencil", other)


def test_nothing_is_done_where_all_is_as_it_should_be() -> None:
    assert planned(role(), own()) == ([], [])


def test_a_bare_server_gets_a_role_without_privileges_and_its_database() -> None:
    sentences, statements = planned(None, None, name="shop-orders", owner='the "shop"')
    assert sentences == ['make the role the "shop"', 'make the database shop-orders of the "shop"']
    assert statements[0].startswith(
        'CREATE ROLE "the ""shop""" LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS '
        "PASSWORD 'SCRAM-SHA-256$4096:"
    )
    assert statements[1] == (
        'CREATE DATABASE "shop-orders" OWNER "the ""shop""" TEMPLATE template0 ENCODING \'UTF8\' LOCALE \'C.UTF-8\''
    )
    assert module.is_password_of(PASSWORD, statements[0].split("'")[1])


@pytest.mark.parametrize(
    ("found", "database", "sentences"),
    [
        (role(rolsuper=True, rolcreatedb=True), own(), ["take SUPERUSER, CREATEDB from the role shop"]),
        (role(rolcanlogin=False), own(), ["let the role shop log in"]),
        (role("old"), own(), ["change the password of the role shop"]),
        (role(), own(owner="postgres"), ["give the database shop of postgres to shop"]),
        (role(), None, ["make the database shop of shop"]),
    ],
)
def test_what_differs_is_brought_back(
    found: dict[str, Any], database: dict[str, str] | None, sentences: list[str]
) -> None:
    assert planned(found, database)[0] == sentences


def test_no_plan_holds_the_password() -> None:
    for found in (None, role("old"), role(rolsuper=True)):
        assert PASSWORD not in json.dumps(planned(found, None))


@pytest.mark.parametrize(
    ("params", "database", "reason"),
    [
        ({"password": "pässword"}, None, "beyond printable ASCII"),
        ({"password": "two\nlines"}, None, "beyond printable ASCII"),
        ({"password": ""}, None, "beyond printable ASCII"),
        ({"owner": ""}, None, "no name for a database or a role"),
        ({"name": "x" * 64}, None, "no name for a database or a role"),
        ({"name": "a\nb"}, None, "no name for a database or a role"),
        ({}, own(encoding="SQL_ASCII"), "has the encoding SQL_ASCII, and UTF8 is needed"),
    ],
)
def test_what_cannot_be_had_is_said(params: dict[str, str], database: dict[str, str] | None, reason: str) -> None:
    with pytest.raises(module.DatabaseError, match=reason) as raised:
        planned(None, database, **params)
    assert "pässword" not in str(raised.value)


def test_check_mode_on_a_bare_host_tells_what_would_be_done(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.AnsibleModule, "get_bin_path", lambda *_: None)
    with patch_module_args({**PARAMS, "_ansible_check_mode": True}), pytest.raises(SystemExit):
        module.main()
    output = capsys.readouterr().out
    result = json.loads(output)
    assert result["changed"] is True
    assert result["diff"]["after"] == "make the role shop\nmake the database shop of shop\n"
    assert "s3cr3t" not in output


def test_a_server_that_is_not_there_is_said_in_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> tuple[int, str, str]:
        return 2, "", "psql: hint\npsql: error: connection to server failed\n"

    monkeypatch.setattr(module.AnsibleModule, "run_command", refuse)
    result = run_module(module, PARAMS, capsys)
    assert result["failed"] is True
    assert result["msg"] == "PostgreSQL 15/main: psql: error: connection to server failed"
