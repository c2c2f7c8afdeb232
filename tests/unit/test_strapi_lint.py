"""strapi_lint on small projects: what it must find, at which line, and what must not alarm it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support import ROOT, load_module, run_module

strapi_lint = load_module("strapi", "strapi_lint")

SAMPLE = ROOT / "roles" / "strapi" / "files" / "sample"
STRAPI = {"@strapi/strapi": "5.54.0"}
SERVER = "module.exports = ({ env }) => ({\n  host: env('HOST', '0.0.0.0'),\n  %s\n});\n"


def found(root: Path, files: Mapping[str, str], **dependencies: str) -> list[tuple[str, str, int]]:
    """What is found in a project of these files and dependencies, as (rule, file, line)."""
    package = {"name": "shop", "dependencies": {**STRAPI, **{k.replace("__", "/"): v for k, v in dependencies.items()}}}
    for name, content in {"package.json": json.dumps(package, indent=2), **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content, encoding="utf-8")
    return [(finding.rule, finding.file, finding.line) for finding in strapi_lint.lint(strapi_lint.read_project(root))]


def run(capsys: pytest.CaptureFixture[str], path: Path) -> dict[str, Any]:
    """Run the module as Ansible would, and return its whole result."""
    return run_module(strapi_lint, {"path": str(path)}, capsys)


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("cron: { enabled: true, tasks: cronTasks },", True),
        ("cron: {\n    tasks: { '0 1 * * *': { task() { if (a) { b(); } } } },\n    enabled: true,\n  },", True),
        ("cron: { enabled: env.bool('CRON_ENABLED', true) },", True),
        ("cron: { enabled: process.env.NODE_APP_INSTANCE === '0' },", True),
        ("'cron': { \"enabled\": true },", True),
        ("cron: { enabled: false, tasks: cronTasks },", False),
        ("cron: { tasks: { job: { options: { enabled: true } } } },", False),
        ("// cron: { enabled: true },", False),
        ("/* cron: { enabled: true }, */", False),
        ("note: 'cron: { enabled: true }',", False),
        ("croncheck: { enabled: true },", False),
        ("my: { cron_: { enabled: true } },", False),
    ],
)
@pytest.mark.parametrize("name", ["config/server.js", "config/server.ts", "config/env/production/server.js"])
def test_cron_of_the_configuration(setting: str, expected: bool, name: str, tmp_path: Path) -> None:
    assert found(tmp_path, {name: SERVER % setting}) == ([("cron", name, 3)] if expected else [])


def test_cron_in_json_and_of_other_environments(tmp_path: Path) -> None:
    text = '{\n  "cron": {\n    "enabled": true\n  }\n}\n'
    assert found(tmp_path, {"config/server.json": text, "config/env/staging/server.json": text}) == [
        ("cron", "config/server.json", 2)
    ]


def test_what_cron_says_names_the_condition(tmp_path: Path) -> None:
    texts = {
        "true": "run once in every instance",
        "env.bool('JOBS', false)": "where cron.enabled (env.bool('JOBS', false)) comes out true",
        "process.env.NODE_APP_INSTANCE === '0'": "that instance goes first when pm2 scales down",
    }
    for value, expected in texts.items():
        found(tmp_path, {"config/server.js": SERVER % f"cron: {{ enabled: {value} }},"})
        (finding,) = strapi_lint.lint(strapi_lint.read_project(tmp_path))
        assert expected in finding.message


@pytest.mark.parametrize(
    ("name", "code", "expected"),
    [
        (
            "src/index.js",
            "module.exports = {\n  bootstrap({ strapi }) {\n    strapi.cron.add({});\n  },\n};",
            ("cron", 3),
        ),
        ("src/index.ts", "export default {\n  bootstrap: () => strapi.get('cron').add(tasks),\n};", ("cron", 2)),
        ("src/plugins/mail/server/src/bootstrap.ts", "strapi\n  .cron.add(tasks)", ("cron", 2)),
        ("src/index.js", "strapi.cron.remove('job');", None),
        ("src/admin/app.tsx", "strapi.cron.add({});", None),
        ("src/plugins/mail/admin/src/index.js", "strapi.cron.add({});", None),
        ("src/plugins/mail/node_modules/x/index.js", "strapi.cron.add({});", None),
        ("dist/src/index.js", "strapi.cron.add({});", None),
        ("types/generated/x.d.ts", "strapi.cron.add({});", None),
        ("src/x.d.ts", "strapi.cron.add({});", None),
        ("README.md", "strapi.cron.add({});", None),
        ("src/jobs.js", "\nconst cron = require('node-cron');", ("scheduler", 2)),
        ("src/jobs.ts", "import { Cron } from 'croner';", ("scheduler", 1)),
        ("src/jobs.ts", "import { Queue } from 'bullmq';", None),
        ("src/jobs.js", "const a = require('node-cron-parser');", None),
    ],
)
def test_cron_of_the_code(name: str, code: str, expected: tuple[str, int] | None, tmp_path: Path) -> None:
    assert found(tmp_path, {name: code}) == ([(expected[0], name, expected[1])] if expected else [])


def test_socket_io_is_found_in_package_json(tmp_path: Path) -> None:
    ((rule, file, line),) = found(tmp_path, {}, **{"socket.io": "4.8.1"})
    assert (rule, file) == ("websocket", "package.json")
    assert '"socket.io"' in (tmp_path / "package.json").read_text().splitlines()[line - 1]


def test_socket_io_client_is_no_server(tmp_path: Path) -> None:
    assert found(tmp_path, {}, **{"socket.io-client": "4.8.1"}) == []


def test_socket_io_with_an_adapter_and_without_polling_is_well(tmp_path: Path) -> None:
    code = {"src/index.js": "new Server(http, { transports: ['websocket'] });"}
    dependencies = {"socket.io": "4.8.1", "@socket.io__redis-adapter": "8.3.0"}
    assert found(tmp_path / "both", code, **dependencies) == []
    assert found(tmp_path / "polling", {}, **dependencies) != []
    assert found(tmp_path / "alone", code, **{"socket.io": "4.8.1"}) != []


@pytest.mark.parametrize(
    ("name", "script", "expected"),
    [
        ("ecosystem.config.js", "script: 'npm',", True),
        ("ecosystem.config.cjs", 'script: "yarn",', True),
        ("ecosystem.production.config.js", "script: '/usr/bin/pnpm',", True),
        ("pm2.json", '"script": "npm",', True),
        ("process.json", '"script": "node_modules/npm/bin/npm-cli.js",', True),
        ("ecosystem.config.js", "script: 'npm run start',", True),
        ("ecosystem.config.js", "script: './server.js',", False),
        ("ecosystem.config.js", "script: 'npm-helper.js',", False),
        ("ecosystem.config.js", "// script: 'npm',", False),
        ("config/ecosystem.config.js", "script: 'npm',", False),
        ("build.config.js", "script: 'npm',", False),
    ],
)
def test_npm_under_pm2(name: str, script: str, expected: bool, tmp_path: Path) -> None:
    files = {name: f"module.exports = {{\n  apps: [{{\n    {script}\n    args: 'start',\n  }}],\n}};\n"}
    assert found(tmp_path, files) == ([("npm_script", name, 3)] if expected else [])


@pytest.mark.parametrize(
    ("name", "code", "line"),
    [
        (
            "config/plugins.js",
            "x = {\n'users-permissions': { config: { ratelimit: { interval: 60000, max: 3 } } } }",
            2,
        ),
        ("config/plugins.ts", "x = { 'users-permissions': { config: { ratelimit: { enabled: true } } } }", 1),
        ("config/plugins.js", "x = { 'users-permissions': { config: { ratelimit: { enabled: false } } } }", None),
        ("config/plugins.js", "x = { a: { ratelimit: { max: 3, store: new Stores.Redis({ host: 'r' }) } } }", None),
        ("config/admin.js", "x = { rateLimit: { max: 3 } }", 1),
        ("config/admin.js", "x = { rateLimit: { max: 3, store } }", None),
        (
            "src/middlewares/limit.js",
            "\nconst { RateLimit } = require('koa2-ratelimit');\nRateLimit.middleware({});",
            2,
        ),
        ("src/middlewares/limit.js", "const { RateLimit, Stores } = require('koa2-ratelimit');", None),
        ("src/middlewares/limit.js", "const limit = require('koa-ratelimit');\nlimit({ driver: 'memory' });", 2),
        ("src/middlewares/limit.js", "const limit = require('koa-ratelimit');\nlimit({ driver: 'redis' });", None),
        ("src/middlewares/store.js", "connect({ driver: 'memory' });", None),
        ("src/middlewares/limit.ts", "const limiter = new RateLimiterMemory({ points: 3 });", 1),
        ("src/middlewares/limit.ts", "const limiter = new RateLimiterRedis({ storeClient, points: 3 });", None),
    ],
)
def test_rate_limits(name: str, code: str, line: int | None, tmp_path: Path) -> None:
    assert found(tmp_path, {name: code}) == ([("rate_limit", name, line)] if line else [])


@pytest.mark.parametrize(
    ("name", "code", "line"),
    [
        ("config/server.js", "x = {\n  webhooks: { defaultHeaders: { Authorization: 'Bearer x' } },\n}", 2),
        ("config/server.js", "x = { webhooks: { populateRelations: env.bool('WEBHOOKS', false) } }", None),
        ("src/index.ts", "await strapi.get('webhookStore').createWebhook(hook);", 1),
        ("src/index.ts", "// the webhookStore is not used", None),
    ],
)
def test_webhooks(name: str, code: str, line: int | None, tmp_path: Path) -> None:
    assert found(tmp_path, {name: code}) == ([("webhooks", name, line)] if line else [])


def test_caches_and_sessions_in_memory(tmp_path: Path) -> None:
    cache = found(tmp_path / "cache", {}, **{"strapi-provider-rest-cache-memory": "4.2.9"})
    assert [rule for rule, _, _ in cache] == ["cache"]
    plugin = {"@sensinum__strapi-plugin-mcp": "1.1.1"}
    assert [rule for rule, _, _ in found(tmp_path / "mcp", {}, **plugin)] == ["mcp"]
    redis = {"config/plugins.js": "x = { mcp: { config: { session: { type: 'redis' } } } }"}
    assert found(tmp_path / "redis", redis, **plugin) == []


def test_strapis_own_mcp_server_keeps_no_sessions(tmp_path: Path) -> None:
    assert found(tmp_path, {"config/server.js": SERVER % "mcp: { enabled: true },"}) == []


def test_findings_come_in_order_and_each_says_what_to_do(tmp_path: Path) -> None:
    files = {
        "src/index.js": "strapi.cron.add({});\nstrapi.cron.add({});\n",
        "config/server.js": SERVER % "cron: { enabled: true },",
        "ecosystem.config.js": "script: 'npm'",
    }
    assert found(tmp_path, files, **{"socket.io": "4.8.1"}) == [
        ("cron", "config/server.js", 3),
        ("npm_script", "ecosystem.config.js", 1),
        ("websocket", "package.json", 5),
        ("cron", "src/index.js", 1),
        ("cron", "src/index.js", 2),
    ]
    assert all(finding.message and finding.fix for finding in strapi_lint.lint(strapi_lint.read_project(tmp_path)))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("const quote = /['\"]/;", ""),
        ("const url = 'http://example.com/*';", ""),
        ("const text = `a ${b} // no comment { `;", ""),
        ("const unfinished = 'it\\'s';", ""),
        ("", "const later = '}';"),
        ("/** @param {object} a it's */", ""),
    ],
)
def test_quotes_and_comments_around_do_not_hide_anything(before: str, after: str, tmp_path: Path) -> None:
    code = f"{before}\nmodule.exports = {{\n  cron: {{ enabled: true }},\n}};\n{after}\n"
    assert found(tmp_path, {"config/server.js": code}) == [("cron", "config/server.js", 3)]


def test_the_sample_application_raises_no_alarm(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, SAMPLE)["findings"] == []


@pytest.mark.parametrize("content", [None, "", "[]", "{", '{"dependencies": []}'])
def test_a_directory_that_is_no_project_has_no_findings(
    content: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (tmp_path / "package.json").write_text(content)
    assert run(capsys, tmp_path) == {
        "changed": False,
        "findings": [],
        "invocation": {"module_args": {"path": str(tmp_path)}},
    }


def test_what_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "server.js").symlink_to("nowhere")
    (tmp_path / "config" / "plugins.js").write_bytes(b"\xff\xfe")
    (tmp_path / "config" / "api.js").mkdir()
    assert found(tmp_path, {}) == []
