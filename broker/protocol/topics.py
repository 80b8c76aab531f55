"""Builds and parses every topic of the fleet; nothing else in the project spells one.

`parse` is the inverse of the builders: it returns what kind of topic it is and the names in it, or
raises `BadTopic`. The tree is in docs/protocol.md.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from broker.errors import BadTopic, ConfigError

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
_ROOT_LEVEL = re.compile(r"[A-Za-z0-9._-]{1,64}")


class Kind(StrEnum):
    """What a topic is for; the value is how docs and counters name it."""

    STATUS = "status"
    CAPABILITY = "capability"
    HEARTBEAT = "heartbeat"
    ECHO = "echo"
    REQUEST = "job/request"
    RESPONSE = "job/response"
    LOG = "job/log"
    PROGRESS = "job/progress"
    IDENTITY_REQUEST = "identity/request"
    IDENTITY_RESPONSE = "identity/response"
    OFFER = "artifact/offer"
    CHUNK = "artifact/chunk"
    GRANT = "artifact/grant"
    CHECKPOINT_CHUNK = "checkpoint/chunk"
    CHECKPOINT_GRANT = "checkpoint/grant"
    COORDINATOR_STATUS = "coordinator/status"
    SUMMARY = "coordinator/summary"
    HOLDER = "coordinator/holder"
    BROKER_LOAD = "broker/load"
    BROKER_REFUSED = "broker/refused"
    JOB = "jobs"
    OPERATOR_REQUEST = "operator/request"
    OPERATOR_RESPONSE = "operator/response"
    DOWNLOAD_CHUNK = "operator/chunk"
    DOWNLOAD_GRANT = "operator/grant"
    HOME_STATE = "homeassistant/state"
    HOME_EVENT = "homeassistant/event"
    HOME_COMMAND = "homeassistant/set"


@dataclass(frozen=True, slots=True)
class Topic:
    """A parsed topic.

    `host` is the agent's host, in operator topics `user/client`, in the echo's who it is, and in
    Home Assistant's a host or `coordinator`.
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


class Topics:
    """The topic tree under one root (`fleet`, or several levels such as `site/lab/fleet`).

    Raises `ConfigError` when the root is not one to five plain levels.
    """

    def __init__(self, root: str = "fleet") -> None:
        """Set the root."""
        levels = root.split("/")
        if len(levels) > 5 or not all(_ROOT_LEVEL.fullmatch(level) for level in levels):
            raise ConfigError(
                f"topic root {root!r}: use one to five levels of letters, digits, '.', '_', '-', "
                "such as 'fleet' or 'site/fleet'"
            )
        self.root = root
        self._depth = len(levels)

    def client_id(self, name: str) -> str:
        """Return the MQTT client id of a program: `coordinator`, a host's agent, or one run.

        Programs of fleets with other roots have other ids, so that they can share a broker: it ends
        the connection of whoever had an id before. A long root is told by its hash.
        """
        root = self.root
        if len(root) > MAX_ROOT_IN_CLIENT_ID:
            root = hashlib.sha256(root.encode()).hexdigest()[:32]
        return f"{CLIENT_PREFIX}{root}/{name}"

    def status(self, host: str) -> str:
        """Presence of one host."""
        return f"{self.root}/{host}/status"

    def capability(self, host: str) -> str:
        """What one host is."""
        return f"{self.root}/{host}/capability"

    def heartbeat(self, host: str) -> str:
        """What one host is doing now."""
        return f"{self.root}/{host}/heartbeat"

    def echo(self, name: str) -> str:
        """What a host, or `coordinator`, says to itself, to see whether it gets through."""
        return f"{self.root}/{name}/echo"

    def request(self, host: str) -> str:
        """Coordinator to agent."""
        return f"{self.root}/{host}/job/request"

    def response(self, host: str) -> str:
        """Agent to coordinator."""
        return f"{self.root}/{host}/job/response"

    def log(self, host: str, job_id: str) -> str:
        """Output of a trainer, a line a message."""
        return f"{self.root}/{host}/job/{job_id}/log"

    def progress(self, host: str, job_id: str) -> str:
        """Progress of a trainer."""
        return f"{self.root}/{host}/job/{job_id}/progress"

    def identity_request(self, host: str) -> str:
        """A host asks for its next certificate."""
        return f"{self.root}/{host}/identity/request"

    def identity_response(self, host: str) -> str:
        """The coordinator gives it."""
        return f"{self.root}/{host}/identity/response"

    def offer(self, host: str, artifact_id: str) -> str:
        """An agent offers an artifact."""
        return f"{self.root}/{host}/artifact/{artifact_id}/offer"

    def chunk(self, host: str, artifact_id: str, index: int) -> str:
        """One chunk of an artifact."""
        return f"{self.root}/{host}/artifact/{artifact_id}/chunk/{index}"

    def grant(self, host: str, artifact_id: str) -> str:
        """The receiver says what is missing."""
        return f"{self.root}/{host}/artifact/{artifact_id}/grant"

    def checkpoint_chunk(self, host: str, artifact_id: str, index: int) -> str:
        """One chunk of a checkpoint that a host fetches."""
        return f"{self.root}/{host}/checkpoint/{artifact_id}/chunk/{index}"

    def checkpoint_grant(self, host: str, artifact_id: str) -> str:
        """What that host still misses."""
        return f"{self.root}/{host}/checkpoint/{artifact_id}/grant"

    def coordinator_status(self) -> str:
        """Presence of the coordinator."""
        return f"{self.root}/coordinator/status"

    def summary(self) -> str:
        """Counts by state."""
        return f"{self.root}/coordinator/summary"

    def holder(self) -> str:
        """Which ledger the fleet's jobs are in: who serves says so."""
        return f"{self.root}/coordinator/holder"

    def broker_refused(self) -> str:
        """What the embedded broker has refused; nobody else may publish there."""
        return f"{self.root}/broker/refused"

    def broker_load(self) -> str:
        """What the embedded broker has to do; nobody else may publish there."""
        return f"{self.root}/broker/load"

    def job(self, job_id: str) -> str:
        """One job's row."""
        return f"{self.root}/jobs/{job_id}"

    def operator_request(self, client: str) -> str:
        """An operator asks; `client` is `user/client`."""
        return f"{self.root}/operator/{client}/request"

    def operator_response(self, client: str) -> str:
        """The coordinator answers an operator."""
        return f"{self.root}/operator/{client}/response"

    def download_chunk(self, client: str, index: int) -> str:
        """One chunk of the artifact that an operator's client downloads."""
        return f"{self.root}/operator/{client}/chunk/{index}"

    def download_grant(self, client: str) -> str:
        """What that client still misses."""
        return f"{self.root}/operator/{client}/grant"

    def home_state(self, node: str) -> str:
        """What Home Assistant shows of `node`: a host, or `coordinator`."""
        return f"{self.root}/homeassistant/{node}/state"

    def home_event(self, node: str) -> str:
        """What happens to jobs, for Home Assistant."""
        return f"{self.root}/homeassistant/{node}/event"

    def home_command(self, node: str) -> str:
        """Home Assistant has something done."""
        return f"{self.root}/homeassistant/{node}/set"

    def for_homeassistant(self) -> tuple[tuple[str, int], ...]:
        """Return what a coordinator subscribes to besides, where it serves Home Assistant."""
        return ((self.home_command("+"), 1), (HOME_STATUS, 1))

    def before_coordinator(self) -> tuple[tuple[str, int], ...]:
        """Return the (filter, QoS) pairs of a coordinator that has yet to see whether it may serve.

        None has a wildcard: some brokers send nothing that is retained for such.
        """
        own = (self.holder(), self.coordinator_status(), self.echo("coordinator"))
        return tuple((topic, 1) for topic in own)

    def for_coordinator(self) -> tuple[tuple[str, int], ...]:
        """Return the (filter, QoS) pairs that a coordinator which serves subscribes to."""
        root = self.root
        return (
            (f"{root}/+/status", 1),
            (f"{root}/+/capability", 1),
            (f"{root}/+/heartbeat", 0),
            (f"{root}/+/job/response", 1),
            (f"{root}/+/job/+/log", 0),
            (f"{root}/+/job/+/progress", 0),
            (f"{root}/+/artifact/+/offer", 1),
            (f"{root}/+/artifact/+/chunk/+", 0),
            (f"{root}/+/checkpoint/+/grant", 1),
            (f"{root}/+/identity/request", 1),
            (f"{root}/operator/+/+/request", 1),
            (f"{root}/operator/+/+/grant", 1),
            (f"{root}/broker/refused", 1),
            (f"{root}/broker/load", 0),
        )

    def for_agent(self, host: str) -> tuple[tuple[str, int], ...]:
        """Return the (filter, QoS) pairs that the agent of `host` subscribes to."""
        root = self.root
        return (
            (f"{root}/{host}/job/request", 1),
            (f"{root}/{host}/artifact/+/grant", 1),
            (f"{root}/{host}/checkpoint/+/chunk/+", 0),
            (f"{root}/{host}/identity/response", 1),
            (f"{root}/coordinator/status", 1),
        )

    def for_operator(self, client: str) -> tuple[tuple[str, int], ...]:
        """Return the (filter, QoS) pairs that an operator's client subscribes to."""
        root = self.root
        return (
            (f"{root}/operator/{client}/response", 1),
            (f"{root}/operator/{client}/chunk/+", 0),
        )

    def for_watcher(self) -> tuple[tuple[str, int], ...]:
        """Return the (filter, QoS) pairs that a live view of the fleet subscribes to."""
        root = self.root
        return (
            (f"{root}/+/status", 1),
            (f"{root}/+/capability", 1),
            (f"{root}/+/heartbeat", 0),
            (f"{root}/+/job/+/progress", 0),
            (f"{root}/coordinator/summary", 1),
            (f"{root}/jobs/+", 1),
        )

    def parse(self, topic: str) -> Topic:
        """Return what `topic` is. Raises `BadTopic` for anything outside the tree."""
        if len(topic) > MAX_TOPIC_CHARS or not topic.startswith(self.root + "/"):
            raise BadTopic(f"not under {self.root}/: {topic[:80]!r}")
        levels = topic.split("/")[self._depth :]
        parsed = _parse_fixed(levels) or _parse_host(levels)
        if parsed is None:
            raise BadTopic(f"no such topic: {topic[:120]!r}")
        return parsed


_FIXED: Final = {
    ("coordinator", "status"): Kind.COORDINATOR_STATUS,
    ("coordinator", "summary"): Kind.SUMMARY,
    ("coordinator", "holder"): Kind.HOLDER,
    ("broker", "load"): Kind.BROKER_LOAD,
    ("broker", "refused"): Kind.BROKER_REFUSED,
}
_OPERATOR: Final = {
    "request": Kind.OPERATOR_REQUEST,
    "response": Kind.OPERATOR_RESPONSE,
    "grant": Kind.DOWNLOAD_GRANT,
}
_HOME: Final = {
    "state": Kind.HOME_STATE,
    "event": Kind.HOME_EVENT,
    "set": Kind.HOME_COMMAND,
}
_PLAIN: Final = {
    ("status",): Kind.STATUS,
    ("capability",): Kind.CAPABILITY,
    ("heartbeat",): Kind.HEARTBEAT,
    ("echo",): Kind.ECHO,
    ("job", "request"): Kind.REQUEST,
    ("job", "response"): Kind.RESPONSE,
    ("identity", "request"): Kind.IDENTITY_REQUEST,
    ("identity", "response"): Kind.IDENTITY_RESPONSE,
}
_JOB: Final = {"log": Kind.LOG, "progress": Kind.PROGRESS}
_ARTIFACT: Final = {"offer": Kind.OFFER, "grant": Kind.GRANT}


def _parse_fixed(levels: list[str]) -> Topic | None:
    match levels:
        case ["coordinator", "echo"]:
            return Topic(Kind.ECHO, "coordinator")
        case ["coordinator" | "broker", _]:
            kind = _FIXED.get((levels[0], levels[1]))
            return Topic(kind) if kind else None
        case ["jobs", job_id] if _HEX.fullmatch(job_id):
            return Topic(Kind.JOB, job_id=job_id)
        case ["operator", user, client, *rest] if is_user(user) and _HOST.fullmatch(client):
            return _parse_operator(f"{user}/{client}", rest)
        case ["homeassistant", node, leaf] if leaf in _HOME and _is_node(node):
            return Topic(_HOME[leaf], node)
    return None


def _is_node(name: str) -> bool:
    return name == "coordinator" or is_host(name)


def _parse_operator(client: str, levels: list[str]) -> Topic | None:
    match levels:
        case ["chunk", index]:
            return _indexed(Topic(Kind.DOWNLOAD_CHUNK, host=client), index)
        case [verb] if verb in _OPERATOR:
            return Topic(_OPERATOR[verb], host=client)
    return None


def _parse_host(levels: list[str]) -> Topic | None:
    if not levels or not is_host(levels[0]):
        return None
    host = levels[0]
    match levels[1:]:
        case ["job", job_id, leaf] if leaf in _JOB and _HEX.fullmatch(job_id):
            return Topic(_JOB[leaf], host, job_id=job_id)
        case ["artifact", artifact_id, leaf] if leaf in _ARTIFACT and _HEX.fullmatch(artifact_id):
            return Topic(_ARTIFACT[leaf], host, artifact_id=artifact_id)
        case ["artifact", artifact_id, "chunk", index] if _HEX.fullmatch(artifact_id):
            return _indexed(Topic(Kind.CHUNK, host, artifact_id=artifact_id), index)
        case ["checkpoint", artifact_id, "grant"] if _HEX.fullmatch(artifact_id):
            return Topic(Kind.CHECKPOINT_GRANT, host, artifact_id=artifact_id)
        case ["checkpoint", artifact_id, "chunk", index] if _HEX.fullmatch(artifact_id):
            return _indexed(Topic(Kind.CHECKPOINT_CHUNK, host, artifact_id=artifact_id), index)
        case rest:
            kind = _PLAIN.get(tuple(rest))
            return Topic(kind, host) if kind else None


def _indexed(topic: Topic, text: str) -> Topic | None:
    if not _INDEX.fullmatch(text) or int(text) >= MAX_CHUNKS:
        return None
    return Topic(topic.kind, topic.host, topic.job_id, topic.artifact_id, int(text))
