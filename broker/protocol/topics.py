"""Builds and parses every topic of the fleet by `topic_table`; nothing else spells one.

`parse` is the inverse of the builders: it returns what kind of topic it is and the names in it, or
raises `BadTopic`. The tree is in docs/reference/protocol.md.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from broker.errors import BadTopic, ConfigError
from broker.protocol.topic_table import TABLE, Kind, Role

HOST_PATTERN: Final = r"[a-z0-9][a-z0-9._-]{0,62}"
HEX_PATTERN: Final = r"[0-9a-f]{64}"
USER_PATTERN: Final = r"(?:operator|observer):[a-z0-9][a-z0-9._-]{0,62}|homeassistant"
MAX_NAME_CHARS: Final = 63
CLIENT_PREFIX: Final = "fleet-"  # with which the MQTT client ids of all programs begin
LOCAL_USER: Final = "operator:local"  # where the broker asks nobody who they are
RESERVED: Final = frozenset(
    {"broker", "coordinator", "jobs", "operator", "artifact", "homeassistant"}
)
MAX_TOPIC_CHARS: Final = 512
MAX_ROOT_IN_CLIENT_ID: Final = 64  # RabbitMQ and the embedded broker bear some 250 in all
MAX_CHUNKS: Final = 1 << 24
HOME_STATUS: Final = "homeassistant/status"  # where Home Assistant says that it has come

_HOST = re.compile(HOST_PATTERN)
_HEX = re.compile(HEX_PATTERN)
_USER = re.compile(USER_PATTERN)
_INDEX = re.compile(r"0|[1-9][0-9]{0,7}")
_VARIABLE = re.compile(r"\{\w+\}")
_NAMES = re.compile(r"\{user\}/\{client\}|\{\w+\}")
_ROOT_LEVEL = re.compile(r"[A-Za-z0-9._-]{1,64}")


@dataclass(frozen=True, slots=True)
class Topic:
    """A parsed topic.

    `host` is the agent's host, in operator topics `user/client`, and in Home Assistant's a host or
    `coordinator`.
    """

    kind: Kind
    host: str = ""
    job_id: str = ""
    artifact_id: str = ""
    index: int = 0


def is_host(name: str) -> bool:
    """Tell whether `name` may stand in a host's place in a topic."""
    if name in RESERVED or name.startswith(CLIENT_PREFIX):
        # By a client id of the programs' kind, a person could throw such a host off some brokers.
        return False
    return _HOST.fullmatch(name) is not None


def is_user(name: str) -> bool:
    """Tell whether `name` may ask the coordinator: `operator:NAME`, `observer:NAME`, and so on."""
    return _USER.fullmatch(name) is not None


def user_of(client: str) -> str:
    """Return the user in `user/client`."""
    return client.partition("/")[0]


def _builder(kind: Kind) -> Callable[..., str]:
    def topic(self: Topics, *names: str | int) -> str:
        return self._forms[kind].format(*names)

    return topic


class Topics:
    """The topic tree under one root (`fleet`, or several levels such as `site/lab/fleet`).

    Raises `ConfigError` when the root is not one to five plain levels.
    """

    def __init__(self, root: str = "fleet") -> None:
        levels = root.split("/")
        if len(levels) > 5 or not all(_ROOT_LEVEL.fullmatch(level) for level in levels):
            raise ConfigError(
                f"topic root {root!r}: use one to five levels of letters, digits, '.', '_', '-', "
                "such as 'fleet' or 'site/fleet'"
            )
        self.root = root
        self._forms = {
            kind: f"{root}/{_NAMES.sub('{}', row.pattern)}" for kind, row in TABLE.items()
        }

    def client_id(self, name: str) -> str:
        """Return the MQTT client id of a program; another fleet (root) may share the broker."""
        root = self.root
        if len(root) > MAX_ROOT_IN_CLIENT_ID:
            root = hashlib.sha256(root.encode()).hexdigest()[:32]
        return f"{CLIENT_PREFIX}{root}/{name}"

    # Each takes the names in its pattern, in their order; `user/client` is one name.
    status = _builder(Kind.STATUS)
    capability = _builder(Kind.CAPABILITY)
    heartbeat = _builder(Kind.HEARTBEAT)
    request = _builder(Kind.REQUEST)
    response = _builder(Kind.RESPONSE)
    log = _builder(Kind.LOG)
    progress = _builder(Kind.PROGRESS)
    identity_request = _builder(Kind.IDENTITY_REQUEST)
    identity_response = _builder(Kind.IDENTITY_RESPONSE)
    chunk = _builder(Kind.CHUNK)
    grant = _builder(Kind.GRANT)
    checkpoint_chunk = _builder(Kind.CHECKPOINT_CHUNK)
    checkpoint_grant = _builder(Kind.CHECKPOINT_GRANT)
    coordinator_status = _builder(Kind.COORDINATOR_STATUS)
    summary = _builder(Kind.SUMMARY)
    holder = _builder(Kind.HOLDER)
    broker_refused = _builder(Kind.BROKER_REFUSED)
    job = _builder(Kind.JOB)
    operator_request = _builder(Kind.OPERATOR_REQUEST)
    operator_response = _builder(Kind.OPERATOR_RESPONSE)
    download_chunk = _builder(Kind.DOWNLOAD_CHUNK)
    download_grant = _builder(Kind.DOWNLOAD_GRANT)
    push_chunk = _builder(Kind.PUSH_CHUNK)
    push_grant = _builder(Kind.PUSH_GRANT)
    home_state = _builder(Kind.HOME_STATE)
    home_event = _builder(Kind.HOME_EVENT)
    home_command = _builder(Kind.HOME_COMMAND)

    def echo(self, name: str) -> str:
        """Return where a host, or `coordinator`, writes to itself."""
        if name == Role.COORDINATOR:
            return self._forms[Kind.COORDINATOR_ECHO]
        return self._forms[Kind.ECHO].format(name)

    def for_homeassistant(self) -> tuple[tuple[str, int], ...]:
        """Return the extra subscriptions of a coordinator that serves Home Assistant."""
        return ((self.home_command("+"), 1), (HOME_STATUS, 1))

    def before_coordinator(self) -> tuple[tuple[str, int], ...]:
        """Return the (filter, QoS) pairs of a coordinator that does not serve yet.

        None has a wildcard: some brokers send nothing that is retained for such.
        """
        own = (self.holder(), self.coordinator_status(), self.echo("coordinator"))
        return tuple((topic, 1) for topic in own)

    def for_coordinator(self) -> tuple[tuple[str, int], ...]:
        """Return the (filter, QoS) pairs that a coordinator which serves subscribes to."""
        return self.filters(
            kind for kind, row in TABLE.items()
            if Role.COORDINATOR in row.receivers and kind not in _COORDINATORS_OWN
        )  # fmt: skip

    def for_agent(self, host: str) -> tuple[tuple[str, int], ...]:
        """Return the (filter, QoS) pairs that the agent of `host` subscribes to."""
        kinds = (
            kind for kind, row in TABLE.items()
            if Role.AGENT in row.receivers and kind not in {Kind.STATUS, Kind.ECHO}
        )  # fmt: skip
        return self.filters(kinds, host=host)

    def for_operator(self, client: str) -> tuple[tuple[str, int], ...]:
        """Return the (filter, QoS) pairs that an operator's client subscribes to."""
        user, _, own = client.partition("/")
        kinds = (Kind.OPERATOR_RESPONSE, Kind.DOWNLOAD_CHUNK, Kind.PUSH_GRANT)
        return self.filters(kinds, user=user, client=own)

    def for_watcher(self) -> tuple[tuple[str, int], ...]:
        """Return the (filter, QoS) pairs that a live view of the fleet subscribes to."""
        return self.filters((
            Kind.STATUS, Kind.CAPABILITY, Kind.HEARTBEAT, Kind.PROGRESS, Kind.SUMMARY, Kind.JOB,
        ))  # fmt: skip

    def filters(self, kinds: Iterable[Kind], **own: str) -> tuple[tuple[str, int], ...]:
        """Return the (filter, QoS) pairs of these kinds, with the names in `own`."""
        return tuple(
            (f"{self.root}/{filter_of(TABLE[kind].pattern, **own)}", TABLE[kind].qos)
            for kind in kinds
        )

    def parse(self, topic: str) -> Topic:
        """Return what `topic` is. Raises `BadTopic` for anything outside the tree."""
        if len(topic) > MAX_TOPIC_CHARS or not topic.startswith(self.root + "/"):
            raise BadTopic(f"not under {self.root}/: {topic[:80]!r}")
        parsed = _parsed(topic[len(self.root) + 1 :])
        if parsed is None:
            raise BadTopic(f"no such topic: {topic[:120]!r}")
        return parsed


# What a coordinator hears of itself; it subscribes to these before it serves, or needs no answer.
_COORDINATORS_OWN: Final = frozenset(
    {Kind.COORDINATOR_STATUS, Kind.COORDINATOR_ECHO, Kind.HOLDER, Kind.HOME_COMMAND}
)


def filter_of(pattern: str, **own: str) -> str:
    """Return a pattern of the table as a topic filter: names given in `own`, `+` for all others."""
    return _VARIABLE.sub(lambda found: own.get(found[0][1:-1], "+"), pattern)


def _is_node(name: str) -> bool:
    return name == "coordinator" or is_host(name)


def _is_index(text: str) -> bool:
    return _INDEX.fullmatch(text) is not None and int(text) < MAX_CHUNKS


_MAY_BE: Final[dict[str, Callable[[str], object]]] = {
    "host": is_host,
    "node": _is_node,
    "user": is_user,
    "client": _HOST.fullmatch,
    "job_id": _HEX.fullmatch,
    "artifact_id": _HEX.fullmatch,
    "index": _is_index,
}


_BY_DEPTH: Final[dict[int, list[tuple[Kind, list[str]]]]] = {}
for _kind, _row in TABLE.items():
    _levels = _row.pattern.split("/")
    _BY_DEPTH.setdefault(len(_levels), []).append((_kind, _levels))


@lru_cache(maxsize=2048)  # each is asked for twice: for the lane and by the core
def _parsed(topic: str) -> Topic | None:
    levels = topic.split("/")
    for kind, pattern in _BY_DEPTH.get(len(levels), ()):
        found = _names_in(levels, pattern)
        if found is not None:
            host = found.get("host") or found.get("node") or ""
            if "user" in found:
                host = f"{found['user']}/{found['client']}"
            job_id, artifact_id = found.get("job_id", ""), found.get("artifact_id", "")
            return Topic(kind, host, job_id, artifact_id, int(found.get("index", 0)))
    return None


def _names_in(levels: list[str], pattern: list[str]) -> dict[str, str] | None:
    """Return the names in a topic by their variable in the pattern, none if it does not match."""
    found = {}
    for level, wanted in zip(levels, pattern):
        if wanted[0] != "{":
            if level != wanted:
                return None
            continue
        variable = wanted[1:-1]
        if not _MAY_BE[variable](level):
            return None
        found[variable] = level
    return found
