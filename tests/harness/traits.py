"""What brokers do unlike each other.

tests/conformance/test_rights.py and test_websockets.py try it, docs/reference/brokers.md tells it.
"""

from __future__ import annotations

from typing import Final

BROKERS: Final = ("embedded", "mosquitto", "nats", "rabbitmq")

# what -> what each of BROKERS does; the words of the table in docs/reference/brokers.md
TRAITS: Final[dict[str, tuple[str, str, str, str]]] = {
    "a forbidden publication": (
        "acknowledged, dropped", "acknowledged, dropped", "acknowledged, dropped", "disconnected",
    ),
    "a forbidden subscription": (
        "refused", "granted, nothing comes", "refused", "disconnected",
    ),
    "a will on another's topic": (
        "connection refused", "not published", "not published", "not published",
    ),
    "using another's client id": (
        "does nothing", "does nothing", "throws them off", "throws them off",
    ),
    "a host that is enrolled later": (
        "gets in", "gets in", "needs a new file", "needs a new file",
    ),
    "retained messages, by an exact filter": ("sent", "sent", "sent", "sent"),
    "retained messages, by a wildcard": ("sent", "sent", "sent", "not sent"),
    "retained messages, after `kill -9`": ("lost", "kept", "kept", "kept after 2 s"),
    "a dot in a host's name": ("works", "works", "does not work", "does not work"),
    "a chunk of 1 MiB": ("arrives", "arrives", "arrives", "arrives"),
    "1 MiB to a websocket": ("at once", "27 s", "at once", "at once"),
    "a websocket for a page of elsewhere": ("refused", "opened", "refused", "opened"),
}  # fmt: skip


def trait(what: str, kind: str) -> str:
    return TRAITS[what][BROKERS.index(kind)]
