"""What is wrong with a value that pydantic refuses, in words that need no knowledge of Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from broker.protocol.hyperschema import did_you_mean


def _short(limit: object) -> object:
    """Return a limit as people write it: 0, not 0.0."""
    return int(limit) if isinstance(limit, float) and limit.is_integer() else limit


def fault_words(fault: Any, known: Sequence[str]) -> str:
    """Say what is wrong; `known` are the keys that there are."""
    given, context = fault.get("input"), fault.get("ctx", {})
    key = str(fault["loc"][-1]) if fault["loc"] else ""
    shown = repr(given)[:80]
    simple = {
        "int_type": f"must be a whole number, not {shown}",
        "float_type": f"must be a number, not {shown}",
        "string_type": f"must be a string, not {shown}",
        "bool_type": f"must be true or false, not {shown}",
        "list_type": f'must be a list, such as ["a", "b"], not {shown}',
        "tuple_type": f'must be a list, such as ["a", "b"], not {shown}',
        "dict_type": f"must be a table, not {shown}",
        "model_type": f"must be a table, not {shown}",
        "greater_than": f"must be more than {_short(context.get('gt'))}, not {shown}",
        "greater_than_equal": f"must be at least {_short(context.get('ge'))}, not {shown}",
        "less_than_equal": f"must be at most {_short(context.get('le'))}, not {shown}",
        "literal_error": f"must be {context.get('expected')}, not {shown}",
        "too_short": f"has fewer than {context.get('min_length')} entries",
        "too_long": f"has more than {context.get('max_length')} entries",
        "missing": f"missing; write {key} = ...",
        "string_too_long": f"longer than {context.get('max_length')} characters",
        "finite_number": f"must be a finite number, not {shown}",
    }
    if fault["type"] == "extra_forbidden":
        return f"unknown key{did_you_mean(key, [*known])}"
    kind = fault["type"].replace("_parsing", "_type")  # of a text, as options and variables are
    if kind in simple:
        return simple[kind]
    if fault["type"] == "value_error":  # our own words have said what it is
        return str(context["error"])
    said = str(fault["msg"])
    return f"{said[:1].lower()}{said[1:]}, not {shown}"
