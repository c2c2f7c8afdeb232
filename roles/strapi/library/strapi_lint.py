#!/usr/bin/python
"""Ansible module: what in a Strapi project goes wrong once several instances of it run."""

from __future__ import annotations

DOCUMENTATION = r"""
module: strapi_lint
short_description: Find what in a Strapi project breaks with several instances
description:
  - Reads the configuration and the code of a project, or of a release of it, and runs nothing of it.
  - Finds what each instance does or remembers for itself, with file, line and a way to mend it.
  - Knows the usual ways to write such things; what a project computes at run time stays unseen.
author: strapi-tuner developers
options:
  path:
    description: Directory of the project, the one that holds package.json.
    type: path
    required: true
attributes:
  check_mode: {support: full}
"""

EXAMPLES = r"""
- name: Look for what breaks with several instances
  strapi_lint:
    path: /srv/strapi/current
"""

RETURN = r"""
findings:
  description: What was found, in the order of files and lines; empty where the directory holds no project.
  type: list
  elements: dict
  returned: always
  contains:
    rule: {description: 'cron, scheduler, websocket, npm_script, rate_limit, cache, webhooks or mcp.', type: str}
    file: {description: Path from the project's directory., type: str}
    line: {description: 'Line, counted from 1.', type: int}
    message: {description: What happens with several instances., type: str}
    fix: {description: What to do about it., type: str}
"""

import bisect
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

CODE = (".js", ".cjs", ".mjs", ".ts", ".cts", ".mts")
# Code that the server runs; src/admin runs in browsers, and dist is compiled from the rest.
SERVER_FOLDERS = ("config", "src")
NOT_SERVER = {"node_modules", "dist", "build", "admin", "__tests__", "tests"}
# Configuration for other environments; Strapi reads config/env/<NODE_ENV> only.
OTHER_ENVIRONMENT = re.compile(r"config/env/(?!production/)")
ECOSYSTEM = re.compile(r"(?:ecosystem|pm2|process)[\w.-]*\.(?:c?js|json)")
# A generated bundle is no configuration, and takes long to read.
MAX_SOURCE_BYTES = 512 * 1024

STRING = r"""\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`"""
COMMENT_OR_STRING = re.compile(rf"(?P<comment>//[^\n]*|/\*.*?\*/)|(?P<string>{STRING})", re.DOTALL)
IN_PROCESS_SCHEDULERS = ("node-cron", "node-schedule", "cron", "croner", "toad-scheduler")
# What lets several processes of socket.io tell each other what to send.
SOCKET_ADAPTER = re.compile(r"@socket\.io/.*adapter")
SOCKET_PACKAGES = ("socket.io", "strapi-plugin-io", "@strapi-community/plugin-io")
MEMORY_CACHES = ("strapi-provider-rest-cache-memory", "@strapi-community/provider-rest-cache-memory")

CRON_FIX = (
    "let each task first claim a lock in the database or in Redis, or run the tasks in a second roll-out of this "
    "project that has strapi_instances: 1"
)
LIMIT_FIX = "give it a store that all instances share (Redis or the database), or limit in the proxy in front"


@dataclass(frozen=True)
class Finding:
    """One thing that breaks, and how to mend it; `line` counts from 1."""

    file: str
    line: int
    rule: str
    message: str
    fix: str


@dataclass(frozen=True)
class Block:
    """An object literal `key: {…}` in a source: where its key begins, what it holds, and that without inner blocks."""

    offset: int
    body: str
    own: str


@dataclass(frozen=True)
class Source:
    """One file of the project, `name` being its path from the project's directory."""

    name: str
    text: str

    @cached_property
    def code(self) -> str:
        """The text with its comments blanked, every character in its place."""
        return COMMENT_OR_STRING.sub(lambda found: found["string"] or blank(found[0]), self.text)

    @cached_property
    def shape(self) -> str:
        """The code with its strings blanked too, so that a bracket is a bracket."""
        return COMMENT_OR_STRING.sub(lambda found: blank(found[0]), self.text)

    @cached_property
    def line_starts(self) -> list[int]:
        """Offset of each line's end, for `line_at`."""
        return [found.start() for found in re.finditer("\n", self.text)]

    def line_at(self, offset: int) -> int:
        """The line of an offset, counted from 1."""
        return bisect.bisect_left(self.line_starts, offset) + 1

    def blocks(self, key: str) -> Iterator[Block]:
        """Every `key: {…}`, whatever it is nested in; JSON's quotes around the key do not matter."""
        for found in re.finditer(rf"(?<![\w.$-])['\"]?{re.escape(key)}['\"]?\s*:\s*\{{", self.code):
            if self.shape[found.end() - 1] == "{":
                end = closing(self.shape, found.end() - 1)
                yield Block(found.start(), self.code[found.end() : end], self.own_part(found.end(), end))

    def own_part(self, start: int, end: int) -> str:
        """What stands between two offsets outside of inner blocks."""
        depth, kept = 0, []
        for offset in range(start, end):
            depth -= self.shape[offset] == "}"
            kept.append(self.code[offset] if depth == 0 else " ")
            depth += self.shape[offset] == "{"
        return "".join(kept)


@dataclass(frozen=True)
class Project:
    """What the rules look at: the dependencies of package.json, and the sources."""

    package: Source
    dependencies: frozenset[str]
    sources: tuple[Source, ...]

    def config(self, name: str) -> Iterator[Source]:
        """Strapi's configuration file of that name, and the one that production has of its own."""
        wanted = re.compile(rf"config/(env/production/)?{name}\.\w+")
        return (source for source in self.sources if wanted.fullmatch(source.name))

    def at_dependency(self, name: str, rule: str, message: str, fix: str) -> Finding:
        """A finding at the line of package.json that names a dependency."""
        offset = self.package.text.find(f'"{name}"', self.package.text.find('"dependencies"'))
        return Finding(self.package.name, self.package.line_at(max(offset, 0)), rule, message, fix)


def blank(text: str) -> str:
    """As many blanks as the text has characters, and its line ends."""
    return re.sub(r"[^\n]", " ", text)


def closing(shape: str, opening: int) -> int:
    """Offset of the bracket that closes the one at `opening`, or of the end where there is none."""
    depth = 0
    for offset in range(opening, len(shape)):
        depth += (shape[offset] == "{") - (shape[offset] == "}")
        if depth == 0:
            return offset
    return len(shape)


def value_of(own: str, key: str) -> str | None:
    """What a block gives a key, as it is written, or None where it has no such key."""
    found = re.search(rf"(?<![\w.$-])['\"]?{key}['\"]?\s*:\s*((?:[^,\n()]|\([^()\n]*\))*)", own)
    return found[1].strip() if found else None


def imports(source: Source, package: str) -> re.Match[str] | None:
    """The first import or require of a package in a source."""
    return re.search(rf"(?:from|import|require\(|import\()\s*['\"]{re.escape(package)}['\"]", source.code)


def cron_tasks(project: Project) -> Iterator[Finding]:
    """Tasks of config/server (`cron.enabled`), which each instance runs; off is Strapi's default."""
    for source in project.config("server"):
        for block in source.blocks("cron"):
            enabled = value_of(block.own, "enabled")
            if enabled is None or enabled == "false":
                continue
            line = source.line_at(block.offset)
            if "NODE_APP_INSTANCE" in enabled:
                # pm2 removes the lowest instance first.
                message = "cron tasks hang on one instance's number, and that instance goes first when pm2 scales down"
            elif enabled == "true":
                message = "cron tasks run once in every instance"
            else:
                message = f"cron tasks run once in every instance where cron.enabled ({enabled}) comes out true"
            yield Finding(source.name, line, "cron", message, CRON_FIX)


def cron_added(project: Project) -> Iterator[Finding]:
    """Tasks that code adds; `cron.enabled` does not switch them off."""
    added = re.compile(r"\bcron\s*\.\s*add\s*\(|\.get\(\s*['\"]cron['\"]\s*\)\s*\.\s*add\s*\(")
    for source in project.sources:
        for found in added.finditer(source.code):
            message = "the task added here runs once in every instance, whatever cron.enabled says"
            yield Finding(source.name, source.line_at(found.start()), "cron", message, CRON_FIX)


def schedulers(project: Project) -> Iterator[Finding]:
    """Packages that run tasks at given times in the process that asks them to."""
    for source in project.sources:
        for package in IN_PROCESS_SCHEDULERS:
            found = imports(source, package)
            if found:
                message = f"what {package} schedules here runs once in every instance"
                yield Finding(source.name, source.line_at(found.start()), "scheduler", message, CRON_FIX)


def websockets(project: Project) -> Iterator[Finding]:
    """socket.io: its polling needs one instance for all requests of a client, and a broadcast stays in its instance."""
    has_adapter = any(SOCKET_ADAPTER.fullmatch(name) for name in project.dependencies)
    alone = re.compile(r"['\"]?transports['\"]?\s*:\s*\[\s*['\"]websocket['\"]\s*\]")
    if has_adapter and any(alone.search(source.code) for source in project.sources):
        return
    for package in SOCKET_PACKAGES:
        if package in project.dependencies:
            yield project.at_dependency(
                package,
                "websocket",
                f'{package}: a client\'s requests reach different instances ("Session ID unknown"), and what one '
                "instance sends to all reaches its own clients only",
                "set transports: ['websocket'] on both sides and add an adapter, such as @socket.io/redis-adapter",
            )


def npm_scripts(project: Project) -> Iterator[Finding]:
    """An ecosystem file of the project that has pm2 start npm, which pm2 cannot run in several instances."""
    runs_npm = re.compile(
        r"['\"]?script['\"]?\s*:\s*['\"](?:[^'\"]*/)?(?:npm|yarn|pnpm)(?:-cli)?(?:\.js|\.cmd)?['\"\s]"
    )
    for source in project.sources:
        if "/" in source.name or not ECOSYSTEM.fullmatch(source.name):
            continue
        for found in runs_npm.finditer(source.code):
            yield Finding(
                source.name,
                source.line_at(found.start()),
                "npm_script",
                "pm2 cannot share a port between copies of npm: each starts a Strapi of its own, and all but one fail",
                "the roll-out uses a file of its own; remove this one, or name a JavaScript file as its script",
            )


def rate_limits(project: Project) -> Iterator[Finding]:
    """Limits that count in the memory of one process; Strapi's own, of 5 logins in 5 minutes, are taken as they are."""
    message = "each instance counts for itself, so that this limit is as many times higher as there are instances"
    for name, key in (("plugins", "ratelimit"), ("admin", "rateLimit")):
        for source in project.config(name):
            for block in source.blocks(key):
                if value_of(block.own, "enabled") != "false" and not re.search(r"\bstore\b", block.body):
                    yield Finding(source.name, source.line_at(block.offset), "rate_limit", message, LIMIT_FIX)
    for source in project.sources:
        found = in_memory_limit(source)
        if found:
            yield Finding(source.name, source.line_at(found.start()), "rate_limit", message, LIMIT_FIX)


def in_memory_limit(source: Source) -> re.Match[str] | None:
    """Where a source makes a limit that counts in memory, with one of the packages that are used for it in Strapi."""
    if imports(source, "koa-ratelimit"):
        return re.search(r"['\"]?driver['\"]?\s*:\s*['\"]memory['\"]", source.code)
    if imports(source, "koa2-ratelimit"):
        return None if re.search(r"\bstores?\b", source.code, re.IGNORECASE) else imports(source, "koa2-ratelimit")
    return re.search(r"\bnew\s+(?:\w+\.)?RateLimiterMemory\s*\(", source.code)


def memory_caches(project: Project) -> Iterator[Finding]:
    """A cache of answers in each instance: a change of content empties that of one instance only."""
    for package in MEMORY_CACHES:
        if package in project.dependencies:
            yield project.at_dependency(
                package,
                "cache",
                "each instance caches answers for itself, and a change of content empties that of one instance only",
                "use the Redis provider of the same plugin, or cache in the proxy in front",
            )


def webhooks(project: Project) -> Iterator[Finding]:
    """Signs that webhooks are used: the list of them is read at boot, and a change of it reaches one instance."""
    message = "a webhook that is added or changed in the admin panel is known to one instance until the others restart"
    fix = "after a change of webhooks, reload the application: pm2 reload with its name"
    for source in project.config("server"):
        for block in source.blocks("webhooks"):
            # The generated configuration of version 4 has populateRelations in every project.
            if value_of(block.own, "defaultHeaders") is not None:
                yield Finding(source.name, source.line_at(block.offset), "webhooks", message, fix)
    used = re.compile(r"\bwebhook(?:Store|Runner)\b")
    for source in project.sources:
        found = used.search(source.code)
        if found:
            yield Finding(source.name, source.line_at(found.start()), "webhooks", message, fix)


def mcp_sessions(project: Project) -> Iterator[Finding]:
    """The plugin that keeps sessions in memory; Strapi's own MCP server (5.47 and later) keeps none."""
    package = "@sensinum/strapi-plugin-mcp"
    in_redis = re.compile(r"['\"]?type['\"]?\s*:\s*['\"]redis['\"]")
    if package in project.dependencies and not any(in_redis.search(s.code) for s in project.config("plugins")):
        yield project.at_dependency(
            package,
            "mcp",
            "its sessions live in one instance, and a client's next request may reach another",
            "keep them in Redis (session type redis in config/plugins)",
        )


RULES: tuple[Callable[[Project], Iterator[Finding]], ...] = (
    cron_tasks,
    cron_added,
    schedulers,
    websockets,
    npm_scripts,
    rate_limits,
    memory_caches,
    webhooks,
    mcp_sessions,
)


def lint(project: Project) -> list[Finding]:
    """Everything that the rules find, in the order of files and lines."""
    found = {finding for rule in RULES for finding in rule(project)}
    return sorted(found, key=lambda finding: (finding.file, finding.line, finding.rule, finding.message))


def source_files(path: Path) -> Iterator[Path]:
    """The files that the rules look at: ecosystem files at the top, and the server's configuration and code."""
    yield from (file for file in path.iterdir() if ECOSYSTEM.fullmatch(file.name))
    for folder in SERVER_FOLDERS:
        for directory, folders, files in os.walk(path / folder):
            folders[:] = [name for name in folders if name not in NOT_SERVER]
            suffixes = (*CODE, ".json") if folder == "config" else CODE
            yield from (Path(directory) / name for name in files if name.endswith(suffixes))


def read_source(path: Path, file: Path) -> Source | None:
    """A file of the project, or None where it is none that somebody wrote, or cannot be read."""
    name = file.relative_to(path).as_posix()
    if OTHER_ENVIRONMENT.match(name) or name.endswith(".d.ts"):
        return None
    try:
        if not file.is_file() or file.stat().st_size > MAX_SOURCE_BYTES:
            return None
        return Source(name, file.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None


def read_project(path: Path) -> Project | None:
    """What the rules look at, or None where the directory holds no package.json that can be read."""
    try:
        text = (path / "package.json").read_text(encoding="utf-8")
        document: Any = json.loads(text)
    except (OSError, ValueError):
        return None
    wanted = document.get("dependencies") if isinstance(document, dict) else None
    dependencies = frozenset(wanted if isinstance(wanted, dict) else {})
    sources = (read_source(path, file) for file in source_files(path))
    return Project(Source("package.json", text), dependencies, tuple(source for source in sources if source))


def main() -> None:
    """Entry point."""
    module = AnsibleModule(argument_spec={"path": {"type": "path", "required": True}}, supports_check_mode=True)
    project = read_project(Path(module.params["path"]))
    module.exit_json(changed=False, findings=[asdict(finding) for finding in lint(project)] if project else [])


if __name__ == "__main__":
    main()
