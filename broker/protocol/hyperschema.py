"""Checks hyperparameters against a trainer's JSON Schema, with messages for a manifest's author.

Understood are object properties of type integer, number, string, boolean, array or null, with
ranges, enums, lengths and anyOf; the trainer itself checks the rest. Of several schemas (`anyOf` at
the top: hosts that differ) one has to allow the values.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from broker.figures import counted, in_toml


def meant(word: str, known: Iterable[str]) -> str | None:
    """Return the most similar name, none without one; swapped letters count least."""
    from difflib import get_close_matches  # of no use where all is well

    names = list(known)
    close = get_close_matches(word, names, n=max(1, len(names)))
    return min(close, key=lambda one: sorted(one) != sorted(word), default=None)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'x'?`, or the list of what is known."""
    names = sorted(known)
    close = meant(word, names)
    if close is not None:
        return f"; did you mean {close!r}?"
    return f"; known are: {', '.join(names)}" if names else ""


MAX_DEPTH: Final = 32  # of lists and tables in one another
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")
_TYPES: Final[dict[str, tuple[str, tuple[type, ...]]]] = {
    "integer": ("a whole number", (int,)),
    "number": ("a number", (int, float)),
    "string": ("a string", (str,)),
    "boolean": ("true or false", (bool,)),
    "array": ("a list", (list,)),
    "object": ("a table", (dict,)),
    "null": ("nothing", (type(None),)),
}


def check_hyper(
    hyper: Mapping[str, Any], schema: Mapping[str, Any], model: str
) -> Iterator[tuple[str, str]]:
    """Yield (key, message) for everything in `hyper` that the schema does not allow."""
    options = schema.get("anyOf")
    if isinstance(options, list) and options:
        found = [list(check_hyper(hyper, one, model)) for one in options if isinstance(one, dict)]
        yield from min(found, key=len, default=[])
        return
    properties = schema.get("properties")
    properties = properties if isinstance(properties, dict) else {}
    for key, value in hyper.items():
        if key in properties:
            for message in _faults(value, properties[key]):
                yield key, message
        elif schema.get("additionalProperties") is False:
            yield key, f"unknown parameter of {model}{did_you_mean(key, properties)}"
    required = schema.get("required")
    for key in required if isinstance(required, list) else ():
        if isinstance(key, str) and key not in hyper:
            yield key, f"missing; {model} needs it"


def schema_faults(schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with a schema that somebody has written for a trainer."""
    if schema.get("type") != "object":
        yield 'type: must be "object"'
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        yield "properties: missing; an object that has a schema for each hyperparameter"
        return
    for name, one in properties.items():
        if not _NAME.fullmatch(name):
            yield f"properties.{name}: a name is lower-case letters, digits and '_'"
        if not isinstance(one, dict):
            yield f"properties.{name}: must be an object"
        elif not ({"enum", "const", "anyOf"} & one.keys() or one.get("type") in [*_TYPES]):
            yield f"properties.{name}.type: must be one of {', '.join(_TYPES)}"


def may_be(schema: Any) -> str:
    """Return what a value may be, in words: `a number, at least 0 and at most 1`."""
    if not isinstance(schema, dict):
        return ""
    options = schema.get("anyOf")
    if isinstance(options, list) and options:
        return " or ".join(map(may_be, options))
    if isinstance(allowed := _allowed(schema), list):
        return f"{'one of ' * (len(allowed) > 1)}{', '.join(map(in_toml, allowed))}"
    words, types = _TYPES.get(str(schema.get("type")), ("", ()))
    limits = [
        _wanted(_limits(schema, least, most), unit)
        for kinds, unit, least, most in _MEASURES
        if types[:1] and issubclass(types[0], kinds)
    ]
    return ", ".join(filter(None, (words, *limits)))


def _faults(value: Any, schema: Any) -> list[str]:
    if not isinstance(schema, dict):
        return []
    options = schema.get("anyOf")
    if isinstance(options, list) and options:
        if all(_faults(value, option) for option in options):
            return [f"must be {may_be(schema)}, not {in_toml(value)}"]
        return []
    name = schema.get("type")
    if isinstance(name, str) and name in _TYPES:
        words, types = _TYPES[name]
        if not isinstance(value, types) or (isinstance(value, bool) and name != "boolean"):
            return [f"must be {words}, not {in_toml(value)}"]
    return [*_enum_faults(value, schema), *_range_faults(value, schema)]


def _enum_faults(value: Any, schema: Mapping[str, Any]) -> list[str]:
    allowed = _allowed(schema)
    if isinstance(allowed, list) and value not in allowed:
        return [f"must be {may_be(schema)}, not {in_toml(value)}"]
    return []


def _allowed(schema: Mapping[str, Any]) -> Any:
    """Return the list of values that there are; anything else: it is not by a list."""
    return [schema["const"]] if "const" in schema else schema.get("enum")


def _bound(schema: Mapping[str, Any], keyword: str) -> float | None:
    """Return a limit of the schema; one that is no number (a host announced it) is no limit."""
    bound = schema.get(keyword)
    return bound if isinstance(bound, int | float) and not isinstance(bound, bool) else None


# What is measured of a value, its unit, and the keywords of its lowest and highest measure.
_MEASURES: Final[tuple[tuple[type | tuple[type, ...], str, str, str], ...]] = (
    (str, "character", "minLength", "maxLength"),
    (list, "item", "minItems", "maxItems"),
    ((int, float), "", "minimum", "maximum"),
)
_Limit = tuple[str, float, Callable[[Any, Any], bool]]


def _limits(schema: Mapping[str, Any], least: str, most: str) -> list[_Limit]:
    """Return the limits of a measure, each with its words, and what holds within it."""
    limits = (
        ("at least", _bound(schema, least), operator.ge),
        ("more than", _bound(schema, "exclusiveMinimum"), operator.gt),
        ("at most", _bound(schema, most), operator.le),
        ("less than", _bound(schema, "exclusiveMaximum"), operator.lt),
    )
    return [(words, bound, holds) for words, bound, holds in limits if bound is not None]


def _wanted(limits: Iterable[_Limit], unit: str) -> str:
    return " and ".join(f"{words} {_amount(bound, unit)}" for words, bound, _ in limits)


def _amount(number: float, unit: str) -> str:
    return counted(number, unit) if unit else f"{number}"


def _range_faults(value: Any, schema: Mapping[str, Any]) -> list[str]:
    found = next((one for one in _MEASURES if isinstance(value, one[0])), None)
    if found is None or isinstance(value, bool):
        return []
    _, unit, least, most = found
    measured = len(value) if isinstance(value, str | list) else value
    limits = _limits(schema, least, most)
    is_number = measured == measured  # noqa: PLR0124 - NaN is not
    if is_number and all(holds(measured, bound) for _, bound, holds in limits):
        return []
    return [f"must be {_wanted(limits, unit) or 'a number'}, not {_amount(measured, unit)}"]


def is_json(value: Any) -> bool:
    """Tell whether a message can bear what TOML can: no dates, no nan, no inf, no depths."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return _is_shallow(value, MAX_DEPTH)


def _is_shallow(value: Any, most: int) -> bool:
    inner = [*value.values()] if isinstance(value, dict) else value
    if not isinstance(inner, list):
        return True
    return most > 0 and all(_is_shallow(one, most - 1) for one in inner)
