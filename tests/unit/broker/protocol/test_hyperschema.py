"""What a schema allows, in words."""

from __future__ import annotations

from typing import Any

import pytest

from broker.protocol.hyperschema import may_be


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "number", "minimum": 1e-6, "maximum": 1.0},
         "a number, at least 1e-06 and at most 1.0"),
        ({"type": "integer", "exclusiveMinimum": 0}, "a whole number, more than 0"),
        ({"type": "string", "maxLength": 5}, "a string, at most 5 characters"),
        ({"type": "array", "minItems": 2, "minimum": 3}, "a list, at least 2 entries"),
        ({"enum": ["linear", "mlp"]}, 'one of "linear", "mlp"'),
        ({"anyOf": [{"type": "boolean"}, {"type": "null"}]}, "true or false or nothing"),
        ({"type": ["of", "another"]}, ""),
    ],
)  # fmt: skip
def test_what_a_parameter_may_be_is_said_whole(schema: dict[str, Any], words: str) -> None:
    assert may_be(schema) == words
