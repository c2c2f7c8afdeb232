#!/usr/bin/python
"""Ansible module: a PostgreSQL database on this host, and the unprivileged role that owns it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: postgresql_database
short_description: Have a PostgreSQL database and the role that owns it
description:
  - Makes the role and the database where they are missing, and brings the role's privileges and password and the
    database's owner to what is asked for. The role may log in, and nothing beyond that.
  - Never tells the server the password, only the SCRAM-SHA-256 verifier made from it, which the server keeps anyway.
    Whether the password is the right one already is found by comparing with that verifier.
  - Runs psql as the system user C(postgres), so it needs root. What it sends goes through psql's standard input.
  - Never changes the encoding or the locale of a database that is there.
author: strapi-tuner developers
options:
  name:
    description: The database.
    type: str
    required: true
  owner:
    description: The role that owns it.
    type: str
    required: true
  password:
    description: The role's password, in printable ASCII characters.
    type: str
    required: true
  cluster:
    description: Debian's name of the server, as in C(15/main).
    type: str
    required: true
  locale:
    description: Locale of a new database.
    type: str
    default: C.UTF-8
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
"""

EXAMPLES = r"""
- name: Have a database for the shop
  postgresql_database:
    name: shop
    owner: shop
    password: "{{ vault_shop_password }}"
    cluster: 15/main
  become: true
"""

RETURN = r"""
actions:
  description: What was done, or would be, one sentence each.
  type: list
  elements: str
  returned: always
"""

import base64
import hashlib
import hmac
import json
import re
import secrets
from typing import Any

from ansible.module_utils.basic import AnsibleModule

ENCODING = "UTF8"
# What a role that owns a database does not need, and the columns of pg_authid that tell whether it has it.
PRIVILEGES = {
    "SUPERUSER": "rolsuper",
    "CREATEDB": "rolcreatedb",
    "CREATEROLE": "rolcreaterole",
    "REPLICATION": "rolreplication",
    "BYPASSRLS": "rolbypassrls",
}
# PostgreSQL's own default (scram_iterations), and the length of its salts.
SCRAM_ITERATIONS = 4096
SCRAM_SALT_BYTES = 16
VERIFIER = re.compile(r"SCRAM-SHA-256\$(\d+):([A-Za-z0-9+/=]+)\$[A-Za-z0-9+/=]+:[A-Za-z0-9+/=]+")
# PostgreSQL and its clients prepare other characters each in their own way.
PASSWORD = re.compile(r"[\x20-\x7e]+")
NAME_BYTES = 63


class DatabaseError(Exception):
    """Why the database cannot be had, in one line."""


def scram_verifier(password: str, salt: bytes, iterations: int = SCRAM_ITERATIONS) -> str:
    """What PostgreSQL keeps of a password (RFC 5803, as in its catalogue pg_authid).

    Args:
        password: Printable ASCII characters, which SASLprep leaves as they are.
        salt: Random bytes.
        iterations: How often the hash is repeated.
    """
    salted = hashlib.pbkdf2_hmac("sha256", password.encode("ascii"), salt, iterations)
    stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server = hmac.digest(salted, b"Server Key", "sha256")
    shown = [base64.b64encode(part).decode() for part in (salt, stored, server)]
    return f"SCRAM-SHA-256${iterations}:{shown[0]}${shown[1]}:{shown[2]}"


def is_password_of(password: str, verifier: str | None) -> bool:
    """Whether a verifier was made from a password; one of another kind counts as not."""
    match = VERIFIER.fullmatch(verifier or "")
    if match is None:
        return False
    made = scram_verifier(password, base64.b64decode(match.group(2)), int(match.group(1)))
    return hmac.compare_digest(made, str(verifier))


def identifier(name: str) -> str:
    """Quote the name of a database or a role.

    Raises:
        DatabaseError: When PostgreSQL cannot have that name.
    """
    if not 0 < len(name.encode()) <= NAME_BYTES or not name.isprintable():
        raise DatabaseError(f"{name!r} is no name for a database or a role; use 1 to {NAME_BYTES} printable characters")
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Quote a text."""
    return "'" + text.replace("'", "''") + "'"


def question(name: str, owner: str) -> str:
    """The statement that asks for the state of the database and its owner, as one line of JSON."""
    role = f"SELECT * FROM pg_authid WHERE rolname = {literal(owner)}"  # noqa: S608 quoted
    database = f"SELECT * FROM pg_database WHERE datname = {literal(name)}"  # noqa: S608 quoted
    owned = "d.datname AS name, pg_get_userbyid(d.datdba) AS owner, pg_encoding_to_char(d.encoding) AS encoding"
    role_json = f"SELECT row_to_json(r) FROM ({role}) r"  # noqa: S608 quoted
    database_json = f"SELECT row_to_json(x) FROM (SELECT {owned} FROM ({database}) d) x"  # noqa: S608 quoted
    return f"SELECT json_build_object('role', ({role_json}), 'database', ({database_json}))"


def plan(state: dict[str, Any], params: dict[str, Any]) -> list[tuple[str, str]]:
    """Work out what has to be done.

    Args:
        state: The answer to `question`; both parts are None where there is no server yet.
        params: The module's parameters.

    Returns:
        Pairs of a sentence that may be shown and a statement that may not.

    Raises:
        DatabaseError: When the database that is there does not fit.
    """
    name, owner, password = params["name"], params["owner"], params["password"]
    if not PASSWORD.fullmatch(password):
        raise DatabaseError(f"the password of {owner} holds characters beyond printable ASCII; choose another")
    actions = role_actions(state["role"], owner, password)
    database = state["database"]
    if database is None:
        options = f"TEMPLATE template0 ENCODING '{ENCODING}' LOCALE {literal(params['locale'])}"
        statement = f"CREATE DATABASE {identifier(name)} OWNER {identifier(owner)} {options}"
        return [*actions, (f"make the database {name} of {owner}", statement)]
    if database["encoding"] != ENCODING:
        raise DatabaseError(
            f"the database {name} has the encoding {database['encoding']}, and {ENCODING} is needed; "
            "dump it, drop it, let this role make it anew, and restore the dump"
        )
    if database["owner"] != owner:
        actions.append(
            (
                f"give the database {name} of {database['owner']} to {owner}",
                f"ALTER DATABASE {identifier(name)} OWNER TO {identifier(owner)}",
            )
        )
    return actions


def role_actions(role: dict[str, Any] | None, owner: str, password: str) -> list[tuple[str, str]]:
    """What has to be done to the role, as `plan` returns it."""
    verifier = literal(scram_verifier(password, secrets.token_bytes(SCRAM_SALT_BYTES)))
    denied = " ".join(f"NO{privilege}" for privilege in PRIVILEGES)
    if role is None:
        return [(f"make the role {owner}", f"CREATE ROLE {identifier(owner)} LOGIN {denied} PASSWORD {verifier}")]
    actions = []
    held = [privilege for privilege, column in PRIVILEGES.items() if role[column]]
    if held or not role["rolcanlogin"]:
        done = f"take {', '.join(held)} from the role {owner}" if held else f"let the role {owner} log in"
        actions.append((done, f"ALTER ROLE {identifier(owner)} LOGIN {denied}"))
    if not is_password_of(password, role["rolpassword"]):
        actions.append(
            (f"change the password of the role {owner}", f"ALTER ROLE {identifier(owner)} PASSWORD {verifier}")
        )
    return actions


def psql(module: AnsibleModule, statements: list[str]) -> str:
    """Run statements as the server's administrator, and return what they print.

    Raises:
        DatabaseError: When one fails; the rest is not run.
    """
    # A failed statement or one that makes a role would else be in the server's log, and with it the verifier.
    quiet = ["SET log_statement = 'none'", "SET log_min_error_statement = 'panic'"]
    options = [
        "--no-psqlrc",
        "--quiet",
        "--tuples-only",
        "--no-align",
        "--set=ON_ERROR_STOP=1",
        "--set=VERBOSITY=terse",
    ]
    code, output, error = module.run_command(
        ["runuser", "--user=postgres", "--", "psql", f"--cluster={module.params['cluster']}", *options],
        data=";\n".join([*quiet, *statements]) + ";\n",
        cwd="/",
    )
    if code != 0:
        reason = error.strip().splitlines() or [f"psql ended with {code}"]
        raise DatabaseError(f"PostgreSQL {module.params['cluster']}: {reason[-1]}")
    return str(output)


def read_state(module: AnsibleModule) -> dict[str, Any]:
    """Ask the server; in check mode, one that is not installed yet has nothing."""
    if module.check_mode and not module.get_bin_path("psql"):
        return {"role": None, "database": None}
    state: dict[str, Any] = json.loads(psql(module, [question(module.params["name"], module.params["owner"])]))
    return state


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "owner": {"type": "str", "required": True},
            "password": {"type": "str", "required": True, "no_log": True},
            "cluster": {"type": "str", "required": True},
            "locale": {"type": "str", "default": "C.UTF-8"},
        },
        supports_check_mode=True,
    )
    try:
        actions = plan(read_state(module), module.params)
        if actions and not module.check_mode:
            psql(module, [statement for _, statement in actions])
    except DatabaseError as error:
        module.fail_json(msg=str(error))
    done = [sentence for sentence, _ in actions]
    diff = {"before": "", "after": "".join(f"{sentence}\n" for sentence in done)}
    module.exit_json(changed=bool(done), actions=done, diff=diff)


if __name__ == "__main__":
    main()
