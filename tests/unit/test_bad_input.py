"""Whatever is typed, and whatever stands in an inventory: one line about what is wrong, exit code 2, nothing touched.

Each table has a row for each bad input: its name, what is typed, what stands in files, and what the error says.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from typed import Result, Typed, offline

HOSTS = """\
all:
  hosts:
    prod1:
    here: {ansible_connection: local}
  children:
    web: {hosts: {prod1: , prod2: }}
"""
HOST = ("--host", "prod1", "-i", "hosts.yml")
INSPECT = ("inspect", *HOST)
RECOMMEND = ("recommend", *HOST, "--url", "/api/articles")
COMPARE = ("compare", *HOST, "--url", "/api/articles", "--set", "strapi_instances=1")
SEED = ("seed", *HOST)
VAULTED = "strapi_instances: !vault |\n  $ANSIBLE_VAULT;1.1;AES256\n  6231\n"
ARABIC_3 = "\N{ARABIC-INDIC DIGIT THREE}"
LONG = "x" * 300

# What the command line itself refuses: what is typed, and what the error says. No file is read for these.
USAGE: dict[str, tuple[tuple[str, ...], str]] = {
    "tuner: unknown command": (("recomend", "--host", "prod1"), "No such command 'recomend'"),
    "tuner: control characters in a command": (("a\x1b[31mb",), r"No such command 'a\\x1b\[31mb'"),
    "inspect: unknown option": ((*INSPECT, "--fast"), "No such option '--fast'"),
    "inspect: an argument too many": ((*INSPECT, "prod2"), "unexpected extra argument"),
    "inspect: no value": (("inspect", "--host"), "requires an argument"),
    "inspect: empty inventory": (("inspect", "--host", "prod1", "-i", ""), "the path is empty"),
    "recommend: no host": (("recommend",), "Missing option '--host'"),
    "recommend: --tolerance 0": (
        (*RECOMMEND, "--tolerance", "0"),
        "'0' is no share between 0 and 100%; write for example",
    ),
    "recommend: --tolerance 100%": ((*RECOMMEND, "--tolerance", "100%"), "'100%' is no share"),
    "recommend: --tolerance 5": ((*RECOMMEND, "--tolerance", "5"), "'5' is no share"),
    "recommend: --tolerance -5%": ((*RECOMMEND, "--tolerance", "-5%"), "'-5%' is no share"),
    "recommend: --tolerance few": ((*RECOMMEND, "--tolerance", "few"), "'few' is no share"),
    "recommend: --tolerance nan": ((*RECOMMEND, "--tolerance", "nan"), "'nan' is no share"),
    "recommend: --tolerance 1e-999": ((*RECOMMEND, "--tolerance", "1e-999"), "'1e-999' is no share"),
    "recommend: --tolerance 0.0_5": ((*RECOMMEND, "--tolerance", "0.0_5"), "'0.0_5' is no share"),
    "recommend: --tolerance empty": ((*RECOMMEND, "--tolerance", ""), "'' is no share"),
    "recommend: --duration 1.9": ((*RECOMMEND, "--duration", "1.9"), "1.9 is not in the range 2<=x<=600"),
    "recommend: --duration 601": ((*RECOMMEND, "--duration", "601"), r"601\.0 is not in the range"),
    "recommend: --duration nan": ((*RECOMMEND, "--duration", "nan"), "'nan' is no number"),
    "recommend: --duration 1e400": ((*RECOMMEND, "--duration", "1e400"), "inf is not in the range"),
    "recommend: --duration of other digits": ((*RECOMMEND, "--duration", ARABIC_3), f"'{ARABIC_3}' is no number"),
    "recommend: --connections 0": ((*RECOMMEND, "--connections", "0"), "0 is not in the range 1<=x<=10000"),
    "recommend: --connections 10001": ((*RECOMMEND, "--connections", "10001"), "10001 is not in the range"),
    "recommend: --connections 1_0": ((*RECOMMEND, "--connections", "1_0"), "'1_0' is no whole number"),
    "recommend: --connections of other digits": ((*RECOMMEND, "--connections", ARABIC_3), "is no whole number"),
    "recommend: --effort some": (
        (*RECOMMEND, "--effort", "some"),
        "'some' is not one of 'quick', 'standard', 'thorough'",
    ),
    "recommend: --budget 10x": (
        (*RECOMMEND, "--budget", "10x"),
        "'10x' is no time up to a week; write for example 90s",
    ),
    "recommend: --budget 0m": ((*RECOMMEND, "--budget", "0m"), "'0m' is no time"),
    "recommend: --budget inf": ((*RECOMMEND, "--budget", "inf"), "'inf' is no time"),
    "recommend: --budget -5m": ((*RECOMMEND, "--budget", "-5m"), "'-5m' is no time"),
    "recommend: --budget 999999h": ((*RECOMMEND, "--budget", "999999h"), "'999999h' is no time up to a week"),
    "recommend: --rate nan": ((*RECOMMEND, "--slo", "p99=1s", "--rate", "nan"), "'nan' is no number"),
    "recommend: --rate -1": ((*RECOMMEND, "--slo", "p99=1s", "--rate", "-1"), r"-1\.0 is not in the range"),
    "recommend: --rate inf": ((*RECOMMEND, "--slo", "p99=1s", "--rate", "inf"), "'inf' is no number"),
    "recommend: --objective speed": ((*RECOMMEND, "--objective", "speed"), "'speed' is not one of"),
    "recommend: --seed -1": ((*RECOMMEND, "--seed", "-1"), "-1 is not in the range"),
    "recommend: --seed 2**31": ((*RECOMMEND, "--seed", str(2**31)), "2147483648 is not in the range"),
    "recommend: --seed 1.5": ((*RECOMMEND, "--seed", "1.5"), r"'1\.5' is no whole number"),
    "recommend: --results is a file": ((*RECOMMEND, "--results", "hosts.yml"), r"'hosts\.yml' is a file"),
    "recommend: --results empty": ((*RECOMMEND, "--results", ""), "the path is empty"),
    "compare: --effort all": ((*COMPARE, "--effort", "all"), "'all' is not one of"),
    "compare: --duration 0": ((*COMPARE, "--duration", "0"), r"0\.0 is not in the range"),
    "seed: --count 0": ((*SEED, "--count", "0"), "0 is not in the range 1<=x<=1000000"),
    "seed: --count 1e3": ((*SEED, "--count", "1e3"), "'1e3' is no whole number"),
    "simulate: no hosts": (("simulate",), "Missing argument 'HOSTS'"),
    "simulate: --runs 0": (("simulate", "hosts.yml", "--runs", "0"), "0 is not in the range"),
    "simulate: --method guess": (("simulate", "hosts.yml", "--method", "guess"), "'guess' is not one of"),
    "simulate: a file that is not there": (("simulate", "nowhere.jsonl"), r"'nowhere\.jsonl': No such file"),
}

# Names of hosts; each is refused before the inventory is read.
NAMES: dict[str, str] = {
    "empty": "",
    "a path": "../../etc",
    "a slash": "prod1/x",
    "dots": "..",
    "hidden": ".ssh",
    "an option": "-rf",
    "a shell's": "prod1;touch owned",
    "a substitution": "$(touch owned)",
    "a template": "{{ lookup('pipe', 'touch owned') }}",
    "a line end": "prod1\n",
    "a control character": "prod1\x1b[2J",
    "a NUL-like escape": "prod1\x07",
    "other letters": "pröd1",
    "other digits": f"prod{ARABIC_3}",
    "a pattern": "prod*",
    "two hosts": "prod1:here",
    "two hosts with a comma": "prod1,here",
    "all but": "!here",
    "a regular expression": "~prod.",
    "a file of hosts": "@hosts.yml",
    "300 characters": LONG,
}

Files = Mapping[str, str | bytes]
HOST_VARS = "host_vars/prod1.yml"

# As above, with files besides hosts.yml; Ansible reads the inventory, and no host is contacted.
INPUT: dict[str, tuple[tuple[str, ...], Files, str]] = {
    "inventory: not there": (
        ("inspect", "--host", "prod1", "-i", "nowhere.yml"),
        {},
        r"inventory .*/nowhere\.yml does not exist; give a file or a directory with -i",
    ),
    "inventory: a name of 300 characters": (
        ("inspect", "--host", "prod1", "-i", LONG),
        {},
        "cannot be read: File name too long; give a file",
    ),
    "inventory: below a file": (
        ("inspect", "--host", "prod1", "-i", "hosts.yml/x"),
        {},
        "cannot be read: Not a directory; give a file",
    ),
    "inventory: no file and no directory": (
        ("inspect", "--host", "prod1", "-i", "/dev/null"),
        {},
        "inventory /dev/null is no file and no directory",
    ),
    "inventory: empty": (INSPECT, {"hosts.yml": ""}, r"no host 'prod1' in .*hosts\.yml; it has no hosts"),
    "inventory: broken YAML": (
        INSPECT,
        {"hosts.yml": "all:\n  hosts:\n    prod1: {\n"},
        r"hosts\.yml:4 is not valid YAML",
    ),
    "inventory: not UTF-8": (INSPECT, {"hosts.yml": b"all:\n  hosts:\n    \xff:\n"}, r"hosts\.yml:3 is not UTF-8"),
    "inventory: control characters": (
        INSPECT,
        {"hosts.yml": "all:\n  hosts:\n    \x1bx:\n"},
        r"hosts\.yml:3 is not valid YAML",
    ),
    "inventory: nested 2000 deep": (INSPECT, {"hosts.yml": "[" * 2000}, r"hosts\.yml is nested too deeply"),
    "inventory: a list": (INSPECT, {"hosts.yml": "- prod1\n"}, r"no host 'prod1' in .*hosts\.yml"),
    "inventory: broken YAML in group_vars": (
        INSPECT,
        {"group_vars/all.yml": "a: [\n"},
        r"group_vars/all\.yml:2 is not valid YAML",
    ),
    "inventory: a vault without its password": (
        INSPECT,
        {HOST_VARS: "$ANSIBLE_VAULT;1.1;AES256\n6231\n"},
        "ansible-inventory cannot read .*vault",
    ),
    "inventory: unknown host": (
        ("recommend", "--host", "prd1", "-i", "hosts.yml"),
        {},
        r"no host 'prd1' in .*hosts\.yml; did you mean prod1\? its hosts are here, prod1, prod2",
    ),
    "inventory: a group": (
        ("inspect", "--host", "web", "-i", "hosts.yml"),
        {},
        r"'web' is a group in .*hosts\.yml and no host; name one of its hosts: prod1, prod2",
    ),
    "inventory: a hostile name beside": (
        ("inspect", "--host", "prod9", "-i", "hosts.yml"),
        {"hosts.yml": 'all:\n  hosts:\n    "\\ex":\n'},
        r"no host 'prod9' in .*; its hosts are \\x1bx",
    ),
    "variables: strapi_instances max": (
        INSPECT,
        {HOST_VARS: "strapi_instances: max\n"},
        "strapi_instances of prod1 is 'max' in the inventory, and no whole number of 1 or more; write one there",
    ),
    "variables: strapi_instances 0": (
        RECOMMEND,
        {HOST_VARS: "strapi_instances: 0\n"},
        "strapi_instances of prod1 is 0 in",
    ),
    "variables: strapi_instances -1": (
        COMPARE,
        {HOST_VARS: "strapi_instances: -1\n"},
        "strapi_instances of prod1 is -1 in",
    ),
    "variables: strapi_instances 1.5": (
        SEED,
        {HOST_VARS: "strapi_instances: 1.5\n"},
        r"strapi_instances of prod1 is 1\.5 in",
    ),
    "variables: strapi_instances yes": (
        INSPECT,
        {HOST_VARS: "strapi_instances: yes\n"},
        "strapi_instances of prod1 is True",
    ),
    "variables: strapi_instances a list": (
        INSPECT,
        {HOST_VARS: "strapi_instances: [2]\n"},
        r"strapi_instances of prod1 is \[2\]",
    ),
    "variables: strapi_instances null": (
        INSPECT,
        {HOST_VARS: "strapi_instances:\n"},
        "strapi_instances of prod1 is None",
    ),
    "variables: strapi_instances a template": (
        RECOMMEND,
        {HOST_VARS: "strapi_instances: '{{ cpus }}'\n"},
        r"prod1\.yml:1 has a template as the value; make strapi_instances a plain number there, or measure without",
    ),
    "variables: strapi_instances vaulted": (
        RECOMMEND,
        {HOST_VARS: VAULTED},
        r"prod1\.yml:1 has a value tagged !vault; make strapi_instances a plain number there, or measure without",
    ),
    "variables: strapi_instances twice": (
        RECOMMEND,
        {HOST_VARS: "strapi_instances: 1\nstrapi_instances: 2\n"},
        r"prod1\.yml:2 has strapi_instances more than once \(lines 1, 2\)",
    ),
    "variables: load_requests a text": (
        INSPECT,
        {HOST_VARS: "load_requests: /api\n"},
        "load_requests of prod1 in the inventory: input should be a valid list, and not ./api.; write a list",
    ),
    "variables: load_requests of texts": (
        INSPECT,
        {HOST_VARS: "load_requests: [/api]\n"},
        "0: input should be a valid dict",
    ),
    "variables: load_requests without a path": (
        INSPECT,
        {HOST_VARS: "load_requests: [{name: x}]\n"},
        r"0\.path is missing",
    ),
    "variables: load_requests with a space": (
        INSPECT,
        {HOST_VARS: "load_requests: [{path: /api}, {path: /a b}]\n"},
        r"1\.path: string should match pattern .*, and not '/a b'",
    ),
    "variables: load_requests with a negative weight": (
        INSPECT,
        {HOST_VARS: "load_requests: [{path: /api, weight: -1}]\n"},
        r"0\.weight: input should be greater than or equal to 0, and not -1",
    ),
    "variables: load_requests with an unknown key": (
        INSPECT,
        {HOST_VARS: "load_requests: [{path: /api, verb: GET}]\n"},
        r"0\.verb: extra inputs are not permitted, and not 'GET'",
    ),
    "recommend: no path": (
        RECOMMEND[:-2],
        {},
        "no path to ask prod1 for is known; name one or more with --url, or set load_requ",
    ),
    "recommend: --url without a slash": (
        (*RECOMMEND, "--url", "api"),
        {},
        "--url 'api' is no path of the application; begin",
    ),
    "recommend: --url empty": ((*RECOMMEND, "--url", ""), {}, "--url '' is no path"),
    "recommend: --url with a space": (
        (*RECOMMEND, "--url", "/a b"),
        {},
        "--url '/a b' is no path .* write spaces as %20",
    ),
    "recommend: --url with a line end": ((*RECOMMEND, "--url", "/a\r\nX: y"), {}, r"--url '/a\\r\\nX: y' is no path"),
    "recommend: --url with an escape": ((*RECOMMEND, "--url", "/\x1b[31m"), {}, r"--url '/\\x1b\[31m' is no path"),
    "recommend: --url of other letters": ((*RECOMMEND, "--url", "/é"), {}, "--url '/é' is no path"),
    "recommend: --url of 9000 characters": (
        (*RECOMMEND, "--url", "/" + "x" * 9000),
        {},
        r"\(9003 characters\) is no path",
    ),
    "recommend: --candidates -1": ((*RECOMMEND, "--candidates", "-1"), {}, "'-1' is no instance count; write"),
    "recommend: --candidates empty": ((*RECOMMEND, "--candidates", ""), {}, "'an empty entry' is no instance count"),
    "recommend: --candidates 4-1": ((*RECOMMEND, "--candidates", "4-1"), {}, "'4-1' is no range of instance counts"),
    "recommend: --candidates 0": ((*RECOMMEND, "--candidates", "0"), {}, "'0' is no range of instance counts from 1"),
    "recommend: --candidates 1.5": ((*RECOMMEND, "--candidates", "1.5"), {}, r"'1\.5' is no instance count"),
    "recommend: --candidates 99999": ((*RECOMMEND, "--candidates", "99999"), {}, "'99999' is no instance count"),
    "recommend: --candidates of other digits": ((*RECOMMEND, "--candidates", ARABIC_3), {}, "is no instance count"),
    "recommend: --slo without p": ((*RECOMMEND, "--slo", "99=250ms"), {}, "--slo '99=250ms' is no objective; write"),
    "recommend: --slo p0": ((*RECOMMEND, "--slo", "p0=250ms"), {}, "--slo 'p0=250ms' is no objective"),
    "recommend: --slo p100": ((*RECOMMEND, "--slo", "p100=250ms"), {}, "--slo 'p100=250ms' is no objective"),
    "recommend: --slo of nothing": ((*RECOMMEND, "--slo", "p99=0ms"), {}, "--slo 'p99=0ms' is no objective"),
    "recommend: --slo empty": ((*RECOMMEND, "--slo", ""), {}, "--slo '' is no objective"),
    "recommend: --slo without a unit": ((*RECOMMEND, "--slo", "p99=250"), {}, "--slo 'p99=250' is no objective"),
    "recommend: --slo huge": ((*RECOMMEND, "--slo", "p99=" + "9" * 400 + "ms"), {}, "is no objective"),
    "recommend: --slo of other digits": ((*RECOMMEND, "--slo", f"p99={ARABIC_3}s"), {}, "is no objective"),
    "recommend: --rate without --slo": (
        (*RECOMMEND, "--rate", "200"),
        {},
        "--rate says at which rate an objective must be kept; add --slo p99=250ms",
    ),
    "recommend: --objective latency alone": (
        (*RECOMMEND, "--objective", "latency"),
        {},
        "--objective latency needs an objective at a rate; add --rate 200 --slo",
    ),
    "recommend: --objective latency without --rate": (
        (*RECOMMEND, "--objective", "latency", "--slo", "p99=1s"),
        {},
        "--objective latency needs an objective at a rate",
    ),
    "recommend: --budget shorter than one trial": (
        (*RECOMMEND, "--duration", "60", "--budget", "1m"),
        {},
        r"no trial of 60 s \(--duration\) ends within 60 s \(--budget\); give it more time, or shorter trials",
    ),
    "compare: nothing to compare with": (COMPARE, {}, "there is nothing to compare with; give --set twice"),
    "compare: the same twice": (
        (*COMPARE, "--set", "strapi_instances=1"),
        {},
        "--set strapi_instances=1 is there twice",
    ),
    "compare: no value": (
        (*COMPARE, "--set", "strapi_instances"),
        {},
        "'strapi_instances' sets nothing; write name=value",
    ),
    "compare: empty": ((*COMPARE, "--set", ""), {}, "'' sets nothing"),
    "compare: what no trial can apply": ((*COMPARE, "--set", "strapi_root=/"), {}, "'strapi_root' cannot be compared"),
    "compare: instances max": ((*COMPARE, "--set", "strapi_instances=max"), {}, "strapi_instances is 'max'; write"),
    "compare: instances 10**9": (
        (*COMPARE, "--set", "strapi_instances=1000000000"),
        {},
        "strapi_instances is 1000000000;",
    ),
    "compare: instances nan": ((*COMPARE, "--set", "strapi_instances=.nan"), {}, "strapi_instances is nan; write"),
    "compare: instances a date that is none": ((*COMPARE, "--set", "strapi_instances=2026-13-45"), {}, "is no YAML"),
    "compare: arguments that are no list": ((*COMPARE, "--set", "strapi_node_args=--x"), {}, "is '--x'; write a list"),
    "compare: a list nested 5000 deep": ((*COMPARE, "--set", f"strapi_env={'[' * 5000}"), {}, "strapi_env is no YAML"),
    "compare: a variable's name with a shell's": (
        (*COMPARE, "--set", "strapi_env={'A;x': 1}"),
        {},
        "write a mapping such as",
    ),
    "compare: a tag that makes objects": (
        (*COMPARE, "--set", "strapi_env=!!python/name:os.system ''"),
        {},
        "is no YAML",
    ),
    "compare: --budget shorter than one trial": (
        (*COMPARE, "--set", "strapi_instances=2", "--budget", "20"),
        {},
        "no trial of 20 s .* ends within 20 s",
    ),
    "seed: --url without a slash": (
        (*SEED, "--url", "api/articles"),
        {},
        "--url 'api/articles' is no path of the application; begin it with /",
    ),
}

GOOD = '"name": "h1", "cpu_budget": 2, "throughput": {"1": 428, "2": 478}'
SIMULATE: dict[str, tuple[str | bytes, str]] = {
    "nothing": ("", "there are no hosts; write one JSON object a line"),
    "no JSON": ("{", r"line 1: is no JSON \(.*\); write one JSON object a line"),
    "no object": ("[1]", "line 1: is no object; write one JSON object a line"),
    "the second line": (f"{{{GOOD}}}\nnull\n", "line 2: is no object"),
    "nested 100000 deep": ("[" * 100_000, "line 1: is no JSON"),
    "a number of 5000 digits": (f'{{"seed": {"9" * 5000}}}', "line 1: is no JSON"),
    "not UTF-8": (b'{"name": "\xff"}', "line 1: throughput is None"),
    "no throughput": ('{"name": "h1", "cpu_budget": 2}', "line 1: throughput is None, which maps no count to a rate"),
    "a throughput of nothing": (
        '{"cpu_budget": 2, "throughput": {"1": 0}}',
        r"throughput\.1 is 0, which is out of range",
    ),
    "a throughput that is infinite": (
        '{"cpu_budget": 2, "throughput": {"1": 1e999}}',
        r"throughput\.1 is inf, which is out",
    ),
    "a throughput that is no number": ('{"cpu_budget": 2, "throughput": {"1": NaN}}', r"throughput\.1 is nan"),
    "a throughput in words": (
        '{"cpu_budget": 2, "throughput": {"1": "428"}}',
        r"throughput\.1 is '428', which is no number",
    ),
    "a count of other digits": (
        f'{{"cpu_budget": 2, "throughput": {{"{ARABIC_3}": 1}}}}',
        f"throughput.{ARABIC_3} is no instance count",
    ),
    "a count of nothing": ('{"cpu_budget": 2, "throughput": {"0": 1}}', r"throughput\.0 is no instance count"),
    "no CPUs": ('{"throughput": {"1": 1}}', r"line 1: cpu_budget is missing; write a number from 0\.01"),
    "negative CPUs": ('{"cpu_budget": -2, "throughput": {"1": 1}}', "cpu_budget is -2, which is out of range"),
    "a truth for CPUs": ('{"cpu_budget": true, "throughput": {"1": 1}}', "cpu_budget is True, which is no number"),
    "an unknown key": (f'{{{GOOD}, "cpus": 1}}', "line 1: cpus is no key; the keys are"),
    "a name that is no text": ('{"name": 1, "cpu_budget": 2, "throughput": {"1": 1}}', "name is 1, which is no text"),
    "noise that is no object": (f'{{{GOOD}, "noise": 3}}', "noise is 3, which is no object"),
    "noise of the wrong kind": (f'{{{GOOD}, "noise": {{"cv": -1}}}}', r"noise\.cv is -1, which is out of range"),
    "half a seed": (f'{{{GOOD}, "seed": 0.5}}', r"seed is 0\.5, which is no whole number"),
}


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Typed:
    return offline(tmp_path, HOSTS, monkeypatch, capsys)


def write(root: Path, files: Files) -> None:
    for name, content in files.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(content if isinstance(content, bytes) else content.encode())


def snapshot(root: Path) -> dict[str, tuple[int, bytes]]:
    """Every path below a directory with its mode, and what is in it."""
    return {
        str(path.relative_to(root)): (path.lstat().st_mode, path.read_bytes() if path.is_file() else b"")
        for path in root.rglob("*")
    }


def check_refused(found: Result, said: str, *progress: str) -> None:
    assert (found.code, found.out) == (2, "")
    *before, error = found.err.split("\n")[:-1]
    assert before in ([], *([line] for line in progress))
    assert re.search(rf"^Error: .*{said}", error)
    assert "a defect in tuner" not in error
    assert error.isprintable()
    assert len(error) < 1500


@pytest.mark.parametrize(("arguments", "said"), USAGE.values(), ids=USAGE.keys())
def test_usage(typed: Typed, tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    untouched = snapshot(tmp_path)
    found = typed(*arguments)
    check_refused(found, said)
    assert re.fullmatch(r"Error: [^\n]+[^.]; `tuner --help` shows how it is used\n", found.err)
    assert snapshot(tmp_path) == untouched


@pytest.mark.parametrize("command", ["inspect", "recommend", "restore"])
@pytest.mark.parametrize("host", NAMES.values(), ids=NAMES.keys())
def test_name_of_a_host(typed: Typed, tmp_path: Path, command: str, host: str) -> None:
    untouched = snapshot(tmp_path)
    found = typed(command, f"--host={host}", "-i", "hosts.yml")
    check_refused(found, "cannot be the name of a host; name it with letters, digits")
    assert snapshot(tmp_path) == untouched


@pytest.mark.parametrize(("arguments", "files", "said"), INPUT.values(), ids=INPUT.keys())
def test_input(typed: Typed, tmp_path: Path, arguments: tuple[str, ...], files: Files, said: str) -> None:
    write(tmp_path, files)
    untouched = snapshot(tmp_path)
    found = typed(*arguments, *(("--results", "results") if arguments[0] == "recommend" else ()))
    check_refused(found, said, "Looking at prod1", "Seeding api/articles on prod1")
    # The lock of the records is the one thing that a run makes before it looks at what it may write.
    made = {name for name in snapshot(tmp_path) if name.startswith("results")}
    assert made <= {"results", "results/prod1", "results/prod1/lock"}
    assert {name: found for name, found in snapshot(tmp_path).items() if name not in made} == untouched


@pytest.mark.parametrize(("content", "said"), SIMULATE.values(), ids=SIMULATE.keys())
def test_simulated_hosts(typed: Typed, tmp_path: Path, content: str | bytes, said: str) -> None:
    write(tmp_path, {"hosts.jsonl": content})
    check_refused(typed("simulate", "hosts.jsonl"), re.sub(r"throughput\.(?=\W)", r"throughput\\.", said))


def a_file(results: Path) -> None:
    results.mkdir()
    (results / "prod1").write_text("")


def a_link_to_nothing(results: Path) -> None:
    results.symlink_to("nowhere/x")
    Path("nowhere").write_text("")


def a_link_to_itself(results: Path) -> None:
    results.symlink_to(results)


def a_lock_that_is_a_directory(results: Path) -> None:
    (results / "prod1/lock").mkdir(parents=True)


# Where the results are to be, what is there, and what the error says.
RESULTS: dict[str, tuple[str, Callable[[Path], None], str]] = {
    "below a file": ("hosts.yml/x", lambda _: None, "results cannot be written to .*: Not a directory; choose another"),
    "where nothing can be made": (
        "/proc/tuner",
        lambda _: None,
        "results cannot be written to /proc/tuner/prod1: No such",
    ),
    "a file in the place of the host's": ("results", a_file, "results cannot be written to .*: Not a directory"),
    "a link below a file": ("results", a_link_to_nothing, "results cannot be written to .*"),
    "a link to itself": ("results", a_link_to_itself, "results cannot be written to .*"),
    "a directory in the place of the lock": (
        "results",
        a_lock_that_is_a_directory,
        "results cannot be .*: Is a directory",
    ),
    "a name of 300 characters": (LONG, lambda _: None, "results cannot be written to .*: File name too long"),
}


@pytest.mark.parametrize(
    "command", [RECOMMEND, (*COMPARE, "--set", "strapi_instances=2")], ids=["recommend", "compare"]
)
@pytest.mark.parametrize("row", RESULTS.values(), ids=RESULTS.keys())
def test_results(
    typed: Typed, tmp_path: Path, command: tuple[str, ...], row: tuple[str, Callable[[Path], None], str]
) -> None:
    results, prepare, said = row
    prepare(tmp_path / results)
    untouched = snapshot(tmp_path)
    check_refused(typed(*command, "--results", results), said)
    assert snapshot(tmp_path) == untouched


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everything")
def test_what_the_user_may_not_read_or_write(typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "results").mkdir(mode=0o500)
    check_refused(typed(*RECOMMEND, "--results", "results"), "results cannot be written to .*: Permission denied")
    (tmp_path / "hosts.yml").chmod(0)
    check_refused(typed(*INSPECT), r"hosts\.yml")
