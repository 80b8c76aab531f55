"""The topic tree as one table: pattern, QoS, retained, who may publish, who may subscribe.

`topics` builds and parses topics by it; the rights in `acl` and asyncapi.yaml come from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Role(StrEnum):
    """A role of a broker's user."""

    AGENT = "agent"
    COORDINATOR = "coordinator"
    OPERATOR = "operator"
    OBSERVER = "observer"
    HOMEASSISTANT = "homeassistant"


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
    CHUNK = "artifact/chunk"
    GRANT = "artifact/grant"
    CHECKPOINT_CHUNK = "checkpoint/chunk"
    CHECKPOINT_GRANT = "checkpoint/grant"
    COORDINATOR_STATUS = "coordinator/status"
    COORDINATOR_ECHO = "coordinator/echo"
    SUMMARY = "coordinator/summary"
    HOLDER = "coordinator/holder"
    BROKER_REFUSED = "broker/refused"
    JOB = "jobs"
    OPERATOR_REQUEST = "operator/request"
    OPERATOR_RESPONSE = "operator/response"
    DOWNLOAD_CHUNK = "operator/chunk"
    DOWNLOAD_GRANT = "operator/grant"
    PUSH_CHUNK = "operator/push"
    PUSH_GRANT = "operator/push-grant"
    HOME_STATE = "homeassistant/state"
    HOME_EVENT = "homeassistant/event"
    HOME_COMMAND = "homeassistant/set"


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of topic: its pattern below the root, and how it is used.

    An agent publishes and subscribes with its own name as `{host}`, a person with theirs as
    `{user}`. Operators, observers and Home Assistant may also read everything below the root:
    as receivers stand only those for whom a topic is meant. The embedded broker itself publishes
    what has no senders.
    """

    pattern: str
    qos: int
    retained: bool
    senders: tuple[Role, ...]
    receivers: tuple[Role, ...]


_A: Final = (Role.AGENT,)
_C: Final = (Role.COORDINATOR,)
_PEOPLE: Final = (Role.OPERATOR, Role.OBSERVER, Role.HOMEASSISTANT)
_OPERATOR: Final = (Role.OPERATOR,)
_HOME: Final = (Role.HOMEASSISTANT,)

TABLE: Final[dict[Kind, Row]] = {
    # An agent reads its own status and echo to see whether its connection works. The coordinator
    # clears the retained status and capability of a host that is forgotten.
    Kind.STATUS: Row("{host}/status", 1, True, (*_A, *_C), (*_C, *_A)),
    Kind.CAPABILITY: Row("{host}/capability", 1, True, (*_A, *_C), _C),
    Kind.HEARTBEAT: Row("{host}/heartbeat", 0, False, _A, _C),
    Kind.ECHO: Row("{host}/echo", 0, False, _A, _A),
    Kind.REQUEST: Row("{host}/job/request", 1, False, _C, _A),
    Kind.RESPONSE: Row("{host}/job/response", 1, False, _A, _C),
    Kind.LOG: Row("{host}/job/{job_id}/log", 0, False, _A, _C),
    Kind.PROGRESS: Row("{host}/job/{job_id}/progress", 0, True, _A, _C),
    Kind.IDENTITY_REQUEST: Row("{host}/identity/request", 1, False, _A, _C),
    Kind.IDENTITY_RESPONSE: Row("{host}/identity/response", 1, False, _C, _A),
    Kind.CHUNK: Row("{host}/artifact/{artifact_id}/chunk/{index}", 0, False, _A, _C),
    Kind.GRANT: Row("{host}/artifact/{artifact_id}/grant", 1, False, _C, _A),
    Kind.CHECKPOINT_CHUNK: Row("{host}/checkpoint/{artifact_id}/chunk/{index}", 0, False, _C, _A),
    Kind.CHECKPOINT_GRANT: Row("{host}/checkpoint/{artifact_id}/grant", 1, False, _A, _C),
    Kind.COORDINATOR_STATUS: Row("coordinator/status", 1, True, _C, (*_A, *_C)),
    Kind.COORDINATOR_ECHO: Row("coordinator/echo", 1, False, _C, _C),
    Kind.SUMMARY: Row("coordinator/summary", 1, True, _C, (Role.OBSERVER,)),
    Kind.HOLDER: Row("coordinator/holder", 1, True, _C, _C),
    Kind.BROKER_REFUSED: Row("broker/refused", 1, True, (), _C),
    Kind.JOB: Row("jobs/{job_id}", 1, True, _C, (Role.OBSERVER,)),
    # Observers may ask, too: the coordinator changes nothing for them.
    Kind.OPERATOR_REQUEST: Row("operator/{user}/{client}/request", 1, False, _PEOPLE, _C),
    Kind.OPERATOR_RESPONSE: Row("operator/{user}/{client}/response", 1, False, _C, _PEOPLE),
    Kind.DOWNLOAD_CHUNK: Row("operator/{user}/{client}/chunk/{index}", 0, False, _C, _PEOPLE),
    Kind.DOWNLOAD_GRANT: Row("operator/{user}/{client}/grant", 1, False, _PEOPLE, _C),
    Kind.PUSH_CHUNK: Row("operator/{user}/{client}/push/{index}", 0, False, _OPERATOR, _C),
    Kind.PUSH_GRANT: Row("operator/{user}/{client}/push-grant", 1, False, _C, _OPERATOR),
    Kind.HOME_STATE: Row("homeassistant/{node}/state", 1, True, _C, _HOME),
    Kind.HOME_EVENT: Row("homeassistant/{node}/event", 1, False, _C, _HOME),
    Kind.HOME_COMMAND: Row("homeassistant/{node}/set", 1, False, _HOME, _C),
}
