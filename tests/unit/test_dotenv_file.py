"""dotenv_file: what it writes, what it leaves alone, and that it tells no value."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args
from support import load_module

dotenv_file = load_module("strapi", "dotenv_file")

# How dotenv 16 reads a line: without quotes, to a # or the end, less the blanks around; in single quotes or backticks,
# everything as it is, line ends too; in double quotes likewise, but \n and \r become line ends. A carriage return in
# the file becomes a line feed before anything is read, and a backslash before a quote may keep it from closing.
WRITTEN = {
    "": "",
    "sqlite": "sqlite",
    "http://shop.example:1337/a?b=c": "'http://shop.example:1337/a?b=c'",
    "a+b/c==,d": "a+b/c==,d",
    "two words": "'two words'",
    " blanks ": "' blanks '",
    "a#b": "'a#b'",
    "#": "'#'",
    "${HOME}": "'${HOME}'",
    'say "hi"': "'say \"hi\"'",
    "it's": "`it's`",
    "it's `so`": '"it\'s `so`"',
    "all ' of \" the ` quotes": "all ' of \" the ` quotes",
    "C:\\new\\real": "'C:\\new\\real'",
    "ends with a \\": "ends with a \\",
    "first\nsecond": "'first\nsecond'",
    "newline\n": "'newline\n'",
    "\n": "'\n'",
    "dos\r\nline": '"dos\\r\\nline"',
    "it's\r": '"it\'s\\r"',
    "\u2028": "'\u2028'",
    "übergröße": "'übergröße'",
}
# Each kind of quotes, and what keeps it from being written bare as well.
IMPOSSIBLE = ["'`\" #", "'`\" ", " '`\"", "'`\"", "#\\", " \\", "\\\r", "'`\"\n"]


def run(capsys: pytest.CaptureFixture[str], path: Path, **params: object) -> tuple[dict[str, Any], str]:
    """Run the module as Ansible would; its whole result, and that as the text that it printed."""
    with patch_module_args({"path": str(path), **params}), pytest.raises(SystemExit):
        dotenv_file.main()
    output = capsys.readouterr()
    assert output.err == ""
    result: dict[str, Any] = json.loads(output.out)
    return result, output.out


def write(folder: Path, text: str, mode: int = 0o600) -> Path:
    """A .env file with this content."""
    path = folder / ".env"
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return path


def merged(text: str, generate: dict[str, int] | None = None, **values: object) -> str:
    """The new content of a file."""
    return str(dotenv_file.merge(text, values, generate or {})[0])


@pytest.mark.parametrize(("value", "line"), WRITTEN.items())
def test_a_value_is_written_as_dotenv_reads_it(value: str, line: str) -> None:
    text, updated, generated = dotenv_file.merge("A=1\n", {"X": value}, {})
    assert (text, updated, generated) == (f"A=1\nX={line}\n", ["X"], [])


@pytest.mark.parametrize("value", WRITTEN)
def test_a_value_that_is_there_is_left_alone_and_can_be_replaced(value: str) -> None:
    text = merged("# top\n", X=value, Y="last")
    assert dotenv_file.merge(text, {"X": value, "Y": "last"}, {}) == (text, [], [])
    assert merged(text, X="short") == "# top\nX=short\nY=last\n"
    assert merged(text, X=None) == "# top\nY=last\n"


@pytest.mark.parametrize("value", IMPOSSIBLE)
def test_a_value_that_no_line_can_hold_is_refused_without_showing_it(
    value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result, output = run(capsys, tmp_path / ".env", secrets={"PASSWORD": f"hunter2{value}hunter2{value}"[7:]})
    assert result["failed"] is True
    assert "the value of PASSWORD holds quotes" in result["msg"]
    assert "hunter2" not in output
    assert not (tmp_path / ".env").exists()


@pytest.mark.parametrize(
    ("value", "text"), [(True, "true"), (False, "false"), (0, "0"), (10, "10"), (1.5, "1.5"), ("True", "True")]
)
def test_values_of_yaml(value: object, text: str) -> None:
    assert merged("", X=value) == f"X={text}\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("# first\n\nA=1\n# about X\nX=old\n\nB=2 # two\n", "# first\n\nA=1\n# about X\nX=new\n\nB=2 # two\n"),
        ("X=old # why\nB=2\n", "X=new\nB=2\n"),
        ("  export X = 'old'\n", "X=new\n"),
        ("X: old\n", "X=new\n"),
        ("X=1\nB=2\nX=3\n", "X=1\nB=2\nX=new\n"),
        ("XX=1\nX_=2\n#X=3\nA=X=4\n", "XX=1\nX_=2\n#X=3\nA=X=4\nX=new\n"),
        ("A='one\nX=old\n'\nB=2\n", "A='one\nX=old\n'\nB=2\nX=new\n"),
        ("X='one\ntwo' # why\nB=2\n", "X=new\nB=2\n"),
        ('X="it\'s\ntwo"\nB=2\n', "X=new\nB=2\n"),
        ("A='unfinished\nX=old\nB='x' y\n", "A='unfinished\nX=new\nB='x' y\n"),
        ("# don't\nX=old\n# won't\n", "# don't\nX=new\n# won't\n"),
        ("what is this\f?\nX=\u2028\n", "what is this\f?\nX=new\n"),
        ("A=1", "A=1\nX=new\n"),
        ("X=", "X=new\n"),
        ("", "X=new\n"),
        ("\n\n", "\n\nX=new\n"),
    ],
)
def test_other_lines_stay_as_they_are(before: str, after: str) -> None:
    text, updated, generated = dotenv_file.merge(before, {"X": "new"}, {})
    assert (text, updated, generated) == (after, ["X"], [])
    assert dotenv_file.merge(after, {"X": "new"}, {}) == (after, [], [])


def test_null_removes_every_line_of_a_name_and_says_so_once() -> None:
    assert dotenv_file.merge("X=1\nA=2\nX=3\n", {"X": None, "Y": None}, {}) == ("A=2\n", ["X"], [])


@pytest.mark.parametrize("name", ["", "1A", "A-B", "A B", "A\n", "A=B", "ü"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(dotenv_file.DotenvError, match="is no name of an environment variable"):
        dotenv_file.merge("", {name: "x"}, {})
    with pytest.raises(dotenv_file.DotenvError, match="is no name of an environment variable"):
        dotenv_file.merge("", {}, {name: 1})


def test_secrets_are_generated_once_and_differ(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / ".env"
    wanted = {"APP_KEYS": 4, "JWT_SECRET": 1}
    first, output = run(capsys, path, generate=wanted)
    assert (first["changed"], first["generated"], first["updated"]) == (True, ["APP_KEYS", "JWT_SECRET"], [])
    text = path.read_text(encoding="utf-8")
    lines = dict(line.split("=", 1) for line in text.splitlines())
    assert set(lines) == set(wanted)
    parts = [part for value in lines.values() for part in value.split(",")]
    assert [len(base64.b64decode(part, validate=True)) for part in parts] == [16] * 5
    assert len(set(parts)) == 5
    assert not [part for part in parts if part in output]

    second, output = run(capsys, path, generate=wanted)
    assert (second["changed"], second["generated"], second["updated"]) == (False, [], [])
    assert second["digest"] == first["digest"]
    assert path.read_text(encoding="utf-8") == text
    assert not [part for part in parts if part in output]


@pytest.mark.parametrize(
    "line", ["KEY=kept", "KEY='kept'", "export KEY=kept", "KEY: kept", "KEY = kept # why", "KEY='kept\nlonger'"]
)
def test_a_secret_that_is_there_is_kept(line: str) -> None:
    text = f"# mine\n{line}\nA=1\n"
    assert dotenv_file.merge(text, {}, {"KEY": 1}) == (text, [], [])


@pytest.mark.parametrize(
    "line", ["KEY=", "KEY=  ", "KEY=''", 'KEY=""', "export KEY=", "KEY= # to be filled in", "KEY:  "]
)
def test_a_secret_that_is_empty_is_generated_in_its_place(line: str) -> None:
    text, _, generated = dotenv_file.merge(f"# mine\n{line}\nA=1\n", {}, {"KEY": 1})
    first, key, last = text.splitlines()
    assert (first, last, generated) == ("# mine", "A=1", ["KEY"])
    assert len(base64.b64decode(key.removeprefix("KEY="), validate=True)) == 16


def test_values_are_set_changed_and_removed_and_none_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, "KEPT=kept-value\nCHANGED=old-value\nGONE=gone-value\nPASSWORD=old-password\n")
    result, output = run(
        capsys,
        path,
        secrets={"CHANGED": "new-value", "GONE": None, "PASSWORD": "n3w passw'rd", "API_TOKEN": "t0ken"},
        _ansible_diff=True,
        _ansible_verbosity=4,
    )
    assert path.read_text(encoding="utf-8") == (
        "KEPT=kept-value\nCHANGED=new-value\nPASSWORD=`n3w passw'rd`\nAPI_TOKEN=t0ken\n"
    )
    assert result["changed"] is True
    assert result["updated"] == ["CHANGED", "GONE", "PASSWORD", "API_TOKEN"]
    assert result["diff"]["after"] == "CHANGED: (set)\nGONE: (set)\nPASSWORD: (set)\nAPI_TOKEN: (set)\n"
    secret = ("kept-value", "old-value", "new-value", "gone-value", "old-password", "n3w passw'rd", "t0ken")
    assert [value for value in secret if value in output] == []


def test_the_digest_follows_the_content(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / ".env"
    digests = [run(capsys, path, values={"A": value})[0]["digest"] for value in ("1", "2", "1", "1")]
    assert digests[0] == digests[2] == digests[3] != digests[1]


@pytest.mark.parametrize("text", ["A=1\n", None])
def test_the_file_is_private(text: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / ".env" if text is None else write(tmp_path, text, 0o644)
    result, _ = run(capsys, path, values={"A": "1"})
    assert result["changed"] is True
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_text(encoding="utf-8") == "A=1\n"
    assert run(capsys, path, values={"A": "1"})[0]["changed"] is False
    assert [file.name for file in tmp_path.iterdir()] == [".env"]


def test_another_mode_can_be_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, "A=1\n")
    assert run(capsys, path, mode="0640")[0]["changed"] is True
    assert path.stat().st_mode & 0o777 == 0o640


def test_check_mode_predicts_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new = tmp_path / ".env"
    result, _ = run(capsys, new, values={"A": "1"}, generate={"KEY": 1}, _ansible_check_mode=True)
    assert (result["changed"], result["updated"], result["generated"]) == (True, ["A"], ["KEY"])
    assert list(tmp_path.iterdir()) == []

    path = write(tmp_path, "A=1\n", 0o644)
    before = path.stat()
    assert run(capsys, path, values={"A": "2"}, _ansible_check_mode=True)[0]["changed"] is True
    assert run(capsys, path, values={"A": "1"}, _ansible_check_mode=True)[0]["changed"] is True, "the mode would change"
    assert path.read_text(encoding="utf-8") == "A=1\n"
    assert (path.stat().st_mode, path.stat().st_ino) == (before.st_mode, before.st_ino)
    path.chmod(0o600)
    assert run(capsys, path, values={"A": "1"}, _ansible_check_mode=True)[0]["changed"] is False


def test_a_file_that_cannot_be_read_or_written_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"A=\xff\n")
    for path, reason in (
        (binary, "codec can't decode"),
        (tmp_path, "Is a directory"),
        (tmp_path / "missing" / ".env", "cannot be written: No such file or directory"),
    ):
        result, _ = run(capsys, path, values={"A": "1"})
        assert result["failed"] is True
        assert result["msg"].startswith(str(path))
        assert reason in result["msg"]
        assert "exception" not in result
    assert binary.read_bytes() == b"A=\xff\n"
