"""One integer of a YAML text is changed, and every other byte stays."""

from __future__ import annotations

import pytest
import yaml

from tuner.yaml_splice import SpliceError, check, lines, set_int

KEY = "strapi_instances"
VAULT = """\
db_password: !vault |
          $ANSIBLE_VAULT;1.1;AES256
          62313365396662343061393464336163383764373764613633653634306231386433626436623361
          6134333665353966363534333632666535333761666131620a663537646436643839616531643561
"""

SPLICED = {
    "plain": ("a: 1\nstrapi_instances: 2\nb: 2\n", "a: 1\nstrapi_instances: 3\nb: 2\n"),
    "comment behind": ("strapi_instances: 2  # measured\n", "strapi_instances: 3  # measured\n"),
    "odd gap": ("strapi_instances :    12\n", "strapi_instances :    3\n"),
    "quoted key": ('"strapi_instances": 2\n', '"strapi_instances": 3\n'),
    "single-quoted key": ("'strapi_instances': 2\n", "'strapi_instances': 3\n"),
    "quoted integer": ('strapi_instances: "2"\n', "strapi_instances: 3\n"),
    "value on the next line": ("strapi_instances:\n    2\n", "strapi_instances:\n    3\n"),
    "no value": ("strapi_instances:  # later\nb: 1\n", "strapi_instances: 3  # later\nb: 1\n"),
    "explicit key": ("? strapi_instances\n: 2\n", "? strapi_instances\n: 3\n"),
    "no line end": ("a: 1\nstrapi_instances: 2", "a: 1\nstrapi_instances: 3"),
    "CRLF": ("a: 1\r\nstrapi_instances: 2\r\nb: 2\r\n", "a: 1\r\nstrapi_instances: 3\r\nb: 2\r\n"),
    "byte order mark": ("\ufeffstrapi_instances: 2\n", "\ufeffstrapi_instances: 3\n"),
    "unicode": ("ville: 'Zürich 🏔'\nstrapi_instances: 2\n", "ville: 'Zürich 🏔'\nstrapi_instances: 3\n"),
    "odd indents": (
        "app:\n    name:   shop\n    -x: y\nstrapi_instances: 2\nlist:\n-   a\n-   b\n",
        "app:\n    name:   shop\n    -x: y\nstrapi_instances: 3\nlist:\n-   a\n-   b\n",
    ),
    "indented mapping": ("  a: 1\n  strapi_instances: 2\n", "  a: 1\n  strapi_instances: 3\n"),
    "vault block": (VAULT + "strapi_instances: 2\n", VAULT + "strapi_instances: 3\n"),
    "same name deeper": (
        "other:\n  strapi_instances: 9\nstrapi_instances: 2\n",
        "other:\n  strapi_instances: 9\nstrapi_instances: 3\n",
    ),
    "flow style": ("{a: 1, strapi_instances: 2}\n", "{a: 1, strapi_instances: 3}\n"),
    "JSON": ('{"strapi_instances": 2, "b": [1]}', '{"strapi_instances": 3, "b": [1]}'),
    "merge key": (
        "base: &base {a: 1}\n<<: *base\nstrapi_instances: 2\n",
        "base: &base {a: 1}\n<<: *base\nstrapi_instances: 3\n",
    ),
}

ADDED = {
    "empty": ("", "strapi_instances: 3\n"),
    "byte order mark only": ("\ufeff", "\ufeffstrapi_instances: 3\n"),
    "document start": ("---\n", "---\nstrapi_instances: 3\n"),
    "document start, no line end": ("---", "---\nstrapi_instances: 3\n"),
    "comments": ("# the shop\n# of Zürich\n", "# the shop\n# of Zürich\nstrapi_instances: 3\n"),
    "document start and comment": ("--- # shop\n", "--- # shop\nstrapi_instances: 3\n"),
    "mapping": ("a: 1\n", "a: 1\nstrapi_instances: 3\n"),
    "no line end": ("a: 1", "a: 1\nstrapi_instances: 3\n"),
    "CRLF": ("a: 1\r\n", "a: 1\r\nstrapi_instances: 3\r\n"),
    "CRLF, no line end": ("a: 1\r\nb: 2", "a: 1\r\nb: 2\r\nstrapi_instances: 3\r\n"),
    "document end": ("---\na: 1\n...\n", "---\na: 1\nstrapi_instances: 3\n...\n"),
    "indented mapping": ("  a: 1\n  b: 2\n", "  a: 1\n  b: 2\n  strapi_instances: 3\n"),
    "nested last": ("a:\n  b:\n    - c\n", "a:\n  b:\n    - c\nstrapi_instances: 3\n"),
    "vault block": (VAULT, VAULT + "strapi_instances: 3\n"),
    "vault block, no line end": (VAULT.rstrip("\n"), VAULT + "strapi_instances: 3\n"),
    "kept blank lines": ("text: |+\n  a\n\n\n", "text: |+\n  a\n\n\nstrapi_instances: 3\n"),
    "same name deeper": (
        "other:\n  strapi_instances: 9\n",
        "other:\n  strapi_instances: 9\nstrapi_instances: 3\n",
    ),
    "name in a comment": (
        "# strapi_instances: 2\na: 1\n",
        "# strapi_instances: 2\na: 1\nstrapi_instances: 3\n",
    ),
}

REFUSED = {
    "twice": ("strapi_instances: 1\nb: 2\n'strapi_instances': 2\n", r"more than once \(lines 1, 3\)", 3),
    "template": ('a: 1\nstrapi_instances: "{{ n }}"\n', "template", 2),
    "statement": ("strapi_instances: '{% if a %}1{% endif %}'\n", "template", 1),
    "vault value": (VAULT.replace("db_password", KEY), "tagged !vault", 1),
    "tagged integer": ('strapi_instances: !!int "2"\n', "tagged", 1),
    "anchor": ("strapi_instances: &n 2\nb: *n\n", "anchor", 1),
    "alias": ("b: &n 2\nstrapi_instances: *n\n", "alias", 2),
    "list": ("strapi_instances: [2]\n", "list or a mapping", 1),
    "mapping": ("strapi_instances:\n  a: 1\n", "list or a mapping", 2),
    "text": ("strapi_instances: max\n", "not a plain integer", 1),
    "null": ("strapi_instances: null\n", "not a plain integer", 1),
    "float": ("strapi_instances: 2.0\n", "not a plain integer", 1),
    "sexagesimal": ("strapi_instances: 1:30\n", "not a plain integer", 1),
    "block text": ("strapi_instances: |\n  2\n", "not a plain integer", 1),
    "empty text": ("strapi_instances: ''\n", "not a plain integer", 1),
    "documents": ("a: 1\n---\nstrapi_instances: 2\n", "another document", 2),
    "list on top": ("- a\n", "not a mapping", 1),
    "scalar on top": ("just text\n", "not a mapping", 1),
    "flow style without it": ("{a: 1}\n", "flow style", 1),
    "empty flow style": ("--- {}\n", "flow style", 1),
    "text block without line end": ("text: |\n  a", "line end", 0),
    "broken": ("a: 1\nb: c: d\n", "not valid YAML: mapping values are not allowed here", 2),
    "undefined alias": ("a: *nowhere\n", "undefined alias", 1),
    "control character": ("a: 1\nb: \x07\n", "not valid YAML: special characters are not allowed", 2),
    "far too deep": ("a: " + "[" * 5000, "nested too deeply", 0),
}


@pytest.mark.parametrize(("before", "after"), SPLICED.values(), ids=SPLICED.keys())
def test_an_existing_value_is_replaced_and_nothing_else(before: str, after: str) -> None:
    assert set_int(before, KEY, 3) == after


@pytest.mark.parametrize(("before", "after"), ADDED.values(), ids=ADDED.keys())
def test_a_missing_key_is_added_as_the_last_line(before: str, after: str) -> None:
    assert set_int(before, KEY, 3) == after


@pytest.mark.parametrize(("text", "reason", "line"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_changed_safely_is_refused_with_its_line(text: str, reason: str, line: int) -> None:
    with pytest.raises(SpliceError, match=reason) as caught:
        set_int(text, KEY, 3)
    assert caught.value.line == line


@pytest.mark.parametrize("text", [before for before, _ in (*SPLICED.values(), *ADDED.values())])
def test_a_second_run_changes_nothing(text: str) -> None:
    once = set_int(text, KEY, 3)
    assert set_int(once, KEY, 3) == once


@pytest.mark.parametrize("name", [name for name in (*SPLICED, *ADDED) if "vault" not in name])
def test_the_result_loads_to_the_old_values_and_the_new_one(name: str) -> None:
    before, after = {**ADDED, **SPLICED}[name]
    expected = {**(yaml.safe_load(before) or {}), KEY: 3}
    assert yaml.safe_load(after) == expected


def test_lines_are_those_of_the_top_level_only() -> None:
    assert lines("x:\n  strapi_instances: 1\nstrapi_instances: 2\n", KEY) == (3,)
    assert lines("# strapi_instances: 1\n", KEY) == ()
    assert lines("- strapi_instances\n", KEY) == ()


def test_check_takes_what_ansible_takes() -> None:
    for text in ("", "---\n", "# nothing\n", VAULT, "a: !unsafe '{{ x }}'\n", "- a\n"):
        check(text)
