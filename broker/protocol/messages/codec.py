"""Encoding and decoding; sizes are bounded before anything is parsed."""

from __future__ import annotations

import json
from functools import cache
from typing import Final

from pydantic import TypeAdapter, ValidationError

from broker.errors import BadMessage
from broker.protocol.messages.values import FIELD_NAMES, MAX_PAYLOAD_BYTES, T, Wire

# What a person looks for in a line of a trace.
_FIRST: Final = (
    "v", "type", "verdict", "name", "state", "host", "job_id", "attempt", "why", "reason",
    "reasons", "error",
)  # fmt: skip
_JSON: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def encode(message: Wire) -> bytes:
    """Return the JSON of a message; what it is comes first, for whoever reads a trace."""
    if _is_in_order(type(message)):
        return message.__pydantic_serializer__.to_json(message)
    fields = message.model_dump(mode="json")
    head = {key: fields[key] for key in _FIRST if key in fields}
    return _JSON.encode(head | fields).encode()


@cache
def _is_in_order(kind: type[Wire]) -> bool:
    """Whether the fields stand in the order of a trace, as those of the frequent messages do."""
    fields = list(kind.model_fields)
    first = [name for name in _FIRST if name in fields]
    return fields[: len(first)] == first


def decode(adapter: TypeAdapter[T], payload: bytes, limit_bytes: int = MAX_PAYLOAD_BYTES) -> T:
    """Return the message in `payload`; raises `BadMessage`, which repeats none of its content."""
    if len(payload) > limit_bytes:
        raise BadMessage(f"payload of {len(payload)} bytes; at most {limit_bytes} are taken")
    try:
        return adapter.validate_json(payload)
    except ValidationError as error:
        raise BadMessage(_fault(error)) from None
    except (RecursionError, ValueError) as error:
        raise BadMessage(f"not usable JSON: {type(error).__name__}") from None


def _fault(error: ValidationError) -> str:
    """Say where the first fault is, by our own words alone: keys of a mapping are content, too."""
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"] if part in FIELD_NAMES) or "payload"
    if first["type"] == "union_tag_invalid":  # pydantic's message would repeat the tag
        return f"{where}: must be one of {first['ctx']['expected_tags']}"
    return f"{where}: {first['msg']}"
