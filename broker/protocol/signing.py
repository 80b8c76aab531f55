"""Signed commands, for brokers without users: HMAC-SHA256 (RFC 2104).

Signed are the topic (which has the fleet, the user and the client), the time, and the request as
canonical JSON (sorted keys, no spaces, ASCII). The signature is the request's field `auth`; the key
stays on the machines that have it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any, Final

from pydantic import JsonValue

from broker.errors import ConfigError
from broker.protocol import messages as m

MIN_CHARS: Final = 32
MAX_CHARS: Final = 1024
_PURPOSE: Final = b"fleet operator request, version 1\n"
_ANSWER: Final = b"fleet operator response, version 1\n"


class Unsigned(Exception):  # noqa: N818 - what the request is
    """A command is refused; `kind` is the name of the counter, `figures` tell more."""

    def __init__(self, kind: str, **figures: JsonValue) -> None:
        super().__init__(kind)
        self.kind, self.figures = kind, figures


class OperatorKey:
    """The secret that operators share with the coordinator; no text form shows it."""

    __slots__ = ("_secret",)

    def __init__(self, text: str, source: str = "the operator key") -> None:
        """Take the key; raises `ConfigError`, which names the source and not the key."""
        secret = text.strip()
        if not MIN_CHARS <= len(secret) <= MAX_CHARS or not secret.isprintable():
            raise ConfigError(
                f"{source}: an operator key has {MIN_CHARS} to {MAX_CHARS} printable characters; "
                "make one with `fleet operator-key -o FILE`"
            )
        self._secret = secret.encode()

    def __repr__(self) -> str:
        return "OperatorKey(...)"

    def sign(self, topic: str, request: dict[str, Any], at: float) -> str:
        """Return the signature, 64 hexadecimal digits, of a request's fields without `auth`."""
        return self._mac(_PURPOSE, {"topic": topic, "at": at, "request": _unsigned(request)})

    def sign_answer(self, topic: str, response: dict[str, Any], at: float) -> str:
        """Return the signature of an answer, which never fits a request."""
        return self._mac(_ANSWER, {"topic": topic, "at": at, "response": _unsigned(response)})

    def _mac(self, purpose: bytes, what: dict[str, Any]) -> str:
        text = json.dumps(what, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hmac.new(self._secret, purpose + text.encode(), hashlib.sha256).hexdigest()


def _unsigned(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name != "auth"}


def check(
    key: OperatorKey, topic: str, payload: bytes, wall_s: float, window_s: float
) -> None:  # fmt: skip
    """Raise `Unsigned` unless `key` signed `payload` for `topic` within `window_s` of now."""
    request, at, mac = _parts(payload)
    try:
        right = key.sign(topic, request, at)
    except (ValueError, RecursionError):
        raise Unsigned("signature") from None
    # The time is judged by a clock of ours only once the key has vouched for it.
    if not hmac.compare_digest(right, mac):
        raise Unsigned("signature")
    apart_s = wall_s - at
    if abs(apart_s) > window_s:
        raise Unsigned("stale", apart_s=apart_s, window_s=window_s)


def _parts(payload: bytes) -> tuple[dict[str, Any], float, str]:
    """Return a request's fields, when it was signed, and the signature."""
    try:
        request = json.loads(payload, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        raise Unsigned("signature") from None
    auth = request.get("auth") if isinstance(request, dict) else None
    match auth:
        case None:
            raise Unsigned("unsigned")
        case {"at": int() | float() as at, "mac": str() as mac} if mac.isascii():
            return request, at, mac
        case _:
            raise Unsigned("signature")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a repeated key: one value would be signed, another one carried out."""
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key comes twice")
    return made


def signed_by(
    key: OperatorKey | None, topic: str, request: m.OperatorRequest, wall_s: float
) -> m.OperatorRequest:
    """Return a request, signed at `wall_s` (s since the epoch) if it is a command and has a key."""
    if key is None or not isinstance(request, m.Command):
        return request
    mac = key.sign(topic, json.loads(m.encode(request)), wall_s)
    return request.model_copy(update={"auth": m.Auth(at=wall_s, mac=mac)})


def answered_by(
    key: OperatorKey, topic: str, response: m.OperatorResponse, wall_s: float
) -> m.OperatorResponse:  # fmt: skip
    """Return an answer to a command, signed at `wall_s` (s since the epoch)."""
    mac = key.sign_answer(topic, json.loads(m.encode(response)), wall_s)
    return response.model_copy(update={"auth": m.Auth(at=wall_s, mac=mac)})


def is_answer(key: OperatorKey, topic: str, payload: bytes) -> bool:
    """Tell whether `payload` has a signature of an answer by `key` for `topic`, of any time."""
    try:
        response, at, mac = _parts(payload)
        return hmac.compare_digest(key.sign_answer(topic, response, at), mac)
    except (Unsigned, ValueError, RecursionError):
        return False
