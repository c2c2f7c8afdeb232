"""Settings to compare are read as users write them, and what a trial cannot apply is refused."""

from __future__ import annotations

import pytest

from tuner.errors import InputError
from tuner.settings import APPLICABLE, KINDS, parse_variants


def test_settings_are_read_as_yaml_and_several_are_separated_by_commas() -> None:
    one, two, three = parse_variants(
        (
            "strapi_serve_admin_panel=true",
            'strapi_instances=2, strapi_node_args=["--max-semi-space-size=64","--no-opt"],strapi_database_pool_max=5',
            "strapi_env={A: 1, B: 2}",
        )
    )
    assert one.variables == {"strapi_serve_admin_panel": True}
    assert two.variables == {
        "strapi_instances": 2,
        "strapi_node_args": ["--max-semi-space-size=64", "--no-opt"],
        "strapi_database_pool_max": 5,
    }
    assert three.variables == {"strapi_env": {"A": 1, "B": 2}}
    assert one.name == "strapi_serve_admin_panel=true"


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ((), "there is nothing to compare with; give --set twice"),
        (("strapi_instances=1",), "there is nothing to compare with"),
        (("strapi_instances=1", "strapi_instances=1"), "--set strapi_instances=1 is there twice"),
        (("strapi_instances=1", "strapi_instances"), "'strapi_instances' sets nothing; write name=value"),
        (("strapi_instances=1", "=2"), "'=2' sets nothing"),
        (("strapi_instances=1", "strapi_instance=2"), "cannot be compared; did you mean strapi_instances"),
        (
            ("strapi_instances=1", "strapi_root=/srv"),
            "'strapi_root' cannot be compared; what can be is strapi_instances,",
        ),
        (("strapi_instances=1", "strapi_instances=2,strapi_instances=3"), "strapi_instances is there twice"),
        (
            ("strapi_instances=1", "strapi_instances=max"),
            "strapi_instances is 'max'; write a whole number from 1 to 9999",
        ),
        (("strapi_instances=1", "strapi_instances=0"), "strapi_instances is 0; write"),
        (("strapi_instances=1", "strapi_instances=true"), "strapi_instances is True; write"),
        (("strapi_instances=1", "strapi_instances=10000"), "strapi_instances is 10000; write"),
        (("strapi_instances=1", "strapi_instances=2026-13-45"), "the value of strapi_instances is no YAML"),
        (("strapi_instances=1", f"strapi_env={'[' * 5000}"), "the value of strapi_env is no YAML"),
        (("strapi_instances=1", "strapi_node_args=--no-opt"), r"is '--no-opt'; write a list of texts such as"),
        (("strapi_instances=1", "strapi_node_args=[1]"), "strapi_node_args is [1]; write a list of texts"),
        (("strapi_instances=1", "strapi_env={A: {B: C}}"), "strapi_env is {'A': {'B': 'C'}}; write a mapping"),
        (("strapi_instances=1", "strapi_env={'A;touch x': 1}"), "write a mapping such as {NAME: value}"),
        (("strapi_instances=1", "strapi_env={A: "), "the value of strapi_env is no YAML; quote it"),
        (("strapi_instances=1", "strapi_serve_admin_panel=maybe"), "is 'maybe'; write true or false"),
    ],
)
def test_what_cannot_be_compared_is_refused(texts: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_variants(texts)
    assert message in str(caught.value)


def test_every_setting_has_its_kind() -> None:
    assert set(KINDS) == set(APPLICABLE)
