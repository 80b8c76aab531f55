"""Takes valid messages and makes others of them: on bytes, in the JSON's structure, in topics."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

_ODD: tuple[Any, ...] = (
    None, True, False, -1, 0, 2**31, 2**63, 2**64, 10**30, 1e308, -0.0, "", "x", "x" * 3000, "\0",
    "\ud800".encode("utf-8", "surrogatepass").decode("utf-8", "replace"), "..", "../../etc/passwd",
    "é" * 70, [], {}, [[[]]], {"a": {"a": {}}}, [1] * 300, {"v": 1}, "NaN", "assign", "pending",
)  # fmt: skip
_BAD_NUMBERS = (b"NaN", b"Infinity", b"-Infinity", b"1e999", b"0x10", b"01", b"1_0", b"--1")
_TOPIC_ODD = (
    "",
    "+",
    "#",
    "..",
    "\0",
    "UPPER",
    "a b",
    "-x",
    "é",
    "x" * 600,
    "coordinator",
    "0",
    "00",
)


def mutate_bytes(rng: random.Random, data: bytes, others: list[bytes]) -> bytes:
    body = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(body) + 1)
        match rng.randrange(7):
            case 0 if body:
                body[at % len(body)] ^= 1 << rng.randrange(8)
            case 1:
                del body[at:]
            case 2:
                other = rng.choice(others)
                body[at:] = other[rng.randrange(len(other) + 1) :]
            case 3:
                body[at:at] = body[at : at + rng.randrange(40)] * rng.randrange(1, 4)
            case 4:
                body[at:at] = rng.choice(
                    (b"\xff", b"\0", b"\xed\xa0\x80", b"\xf5", b'"', b"{", b"[")
                )
            case 5:
                body[at : at + rng.randrange(8)] = rng.choice(_BAD_NUMBERS)
            case _:
                body[at:at] = rng.choice((b"[", b'{"a":')) * rng.choice((3, 200, 3000))
    return bytes(body)


def mutate_json(rng: random.Random, data: bytes, others: list[bytes]) -> bytes:
    """Swap types, drop and add keys, nest, mix two messages."""
    message = json.loads(data)
    if not isinstance(message, dict) or not message:
        return data
    for _ in range(rng.choice((1, 1, 2, 4))):
        holder, key = _somewhere(rng, message)
        match rng.randrange(6):
            case 0:
                holder.pop(key, None) if isinstance(holder, dict) else None
            case 1:
                if isinstance(holder, dict):
                    added = rng.choice(("extra", "v", "type", "attempt", "x" * 200))
                    holder[added] = copy.deepcopy(rng.choice(_ODD))
            case 2:
                other = json.loads(rng.choice(others))
                if isinstance(other, dict) and isinstance(holder, dict):
                    holder |= other
            case 3:
                holder[key] = [holder[key]]
            case _:
                holder[key] = copy.deepcopy(rng.choice(_ODD))
        if not message:
            break
    return json.dumps(message).encode()


def mutate_topic(rng: random.Random, topic: str, others: list[str]) -> str:
    levels = topic.split("/")
    at = rng.randrange(len(levels))
    match rng.randrange(5):
        case 0:
            levels[at] = rng.choice(_TOPIC_ODD)
        case 1:
            levels.insert(at, rng.choice(_TOPIC_ODD))
        case 2:
            del levels[at]
        case 3:
            levels[at:] = rng.choice(others).split("/")[at:]
        case _:
            levels[at] += rng.choice((".", "x", "\n", "é", "/"))
    return "/".join(levels)


def _somewhere(rng: random.Random, message: dict[str, Any]) -> tuple[Any, Any]:
    holder: Any = message
    while True:
        keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        key = rng.choice(keys)
        inside = holder[key]
        if isinstance(inside, dict | list) and inside and rng.random() < 0.6:
            holder = inside
        else:
            return holder, key
