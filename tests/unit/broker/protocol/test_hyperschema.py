"""What a schema allows, in words, and what is wrong with a value."""

from __future__ import annotations

from typing import Any

import pytest

from broker.protocol.hyperschema import check_hyper, may_be


@pytest.mark.words
@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "number", "minimum": 1e-6, "maximum": 1.0},
         "a number, at least 1e-06 and at most 1.0"),
        ({"type": "integer", "exclusiveMinimum": 0}, "a whole number, more than 0"),
        ({"type": "string", "maxLength": 5}, "a string, at most 5 characters"),
        ({"type": "array", "minItems": 2, "minimum": 3}, "a list, at least 2 items"),
        ({"type": "string", "minLength": 1}, "a string, at least 1 character"),
        ({"enum": ["linear", "mlp"]}, 'one of "linear", "mlp"'),
        ({"const": 5}, "5"),
        ({"anyOf": [{"type": "boolean"}, {"type": "null"}]}, "true or false or nothing"),
        ({"type": ["of", "another"]}, ""),
    ],
)  # fmt: skip
def test_what_a_parameter_may_be_is_said_whole(schema: dict[str, Any], words: str) -> None:
    assert may_be(schema) == words


def test_of_several_types_all_are_named() -> None:
    one = {"anyOf": [{"type": "null"}, {"type": "integer", "exclusiveMinimum": 0}]}
    schema = {"type": "object", "properties": {"width": one}}
    ((key, message),) = check_hyper({"width": 0}, schema, "vision")
    assert (key, message) == ("width", f"must be {may_be(one)}, not 0")
    assert not [*check_hyper({"width": 1}, schema, "vision")]
