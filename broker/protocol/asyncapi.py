"""Writes docs/asyncapi.yaml from the topics and the messages: `python -m broker.protocol.asyncapi`.

AsyncAPI 3.0.0, https://www.asyncapi.com/docs/reference/specification/v3.0.0. A development tool: it
needs PyYAML, which the services do not.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, Final

import yaml
from pydantic import TypeAdapter

from broker.protocol import messages as m
from broker.protocol.topics import HEX_PATTERN, HOST_PATTERN, USER_PATTERN, Kind, Topics

_RAW: Final = "raw"
_TEXT: Final = "text"
_LINES: Final = "lines"


@dataclass(frozen=True, slots=True)
class Channel:
    """How one kind of topic is used. `payload` is a model, or what raw bytes mean."""

    address: str
    sender: str
    receiver: str
    qos: int
    retained: bool
    payload: TypeAdapter[Any] | str
    summary: str


_T: Final = Topics("fleet")
CHANNELS: Final[dict[Kind, Channel]] = {
    Kind.STATUS: Channel(
        _T.status("{host}"), "agent", "coordinator", 1, True, m.STATUS, "Presence; also the will."
    ),
    Kind.CAPABILITY: Channel(
        _T.capability("{host}"), "agent", "coordinator", 1, True, m.CAPABILITY, "What a host is."
    ),
    Kind.HEARTBEAT: Channel(
        _T.heartbeat("{host}"), "agent", "coordinator", 0, False, m.HEARTBEAT,
        "What a host is doing; renews the leases of the jobs that it lists.",
    ),
    Kind.ECHO: Channel(
        _T.echo("{host}"), "agent", "agent", 0, False, _TEXT,
        "A word to itself, to see whether it gets through; a coordinator's is coordinator/echo.",
    ),
    Kind.REQUEST: Channel(
        _T.request("{host}"), "coordinator", "agent", 1, False, m.AGENT_REQUEST,
        "What an agent is asked to do.",
    ),
    Kind.RESPONSE: Channel(
        _T.response("{host}"), "agent", "coordinator", 1, False, m.AGENT_RESPONSE,
        "What became of a job on a host.",
    ),
    Kind.LOG: Channel(
        _T.log("{host}", "{job_id}"), "agent", "coordinator", 0, False, _LINES,
        "`ATTEMPT.NUMBER LINE`, a line of a trainer's output; further ones after line ends.",
    ),
    Kind.PROGRESS: Channel(
        _T.progress("{host}", "{job_id}"), "agent", "coordinator", 0, True, m.PROGRESS,
        "Progress of a running job; cleared when it ends.",
    ),
    Kind.IDENTITY_REQUEST: Channel(
        _T.identity_request("{host}"), "agent", "coordinator", 1, False, m.CERTIFICATE_REQUEST,
        "A host's certificate nears its end; it asks for the next one.",
    ),
    Kind.IDENTITY_RESPONSE: Channel(
        _T.identity_response("{host}"), "coordinator", "agent", 1, False, m.CERTIFICATE_RESPONSE,
        "The next certificate, where the coordinator has the CA.",
    ),
    Kind.OFFER: Channel(
        _T.offer("{host}", "{artifact_id}"), "agent", "coordinator", 1, False, m.OFFER,
        "An artifact that waits on the agent's disk.",
    ),
    Kind.CHUNK: Channel(
        _T.chunk("{host}", "{artifact_id}", 0)[:-1] + "{index}", "agent", "coordinator", 0, False,
        _RAW, "A span of chunks of an artifact.",
    ),
    Kind.GRANT: Channel(
        _T.grant("{host}", "{artifact_id}"), "coordinator", "agent", 1, False, m.GRANT,
        "What is still missing of an artifact, or that it is stored, or rejected.",
    ),
    Kind.CHECKPOINT_CHUNK: Channel(
        _T.checkpoint_chunk("{host}", "{artifact_id}", 0)[:-1] + "{index}", "coordinator", "agent",
        0, False, _RAW, "A span of chunks of a checkpoint that a host fetches.",
    ),
    Kind.CHECKPOINT_GRANT: Channel(
        _T.checkpoint_grant("{host}", "{artifact_id}"), "agent", "coordinator", 1, False, m.GRANT,
        "What that host still misses.",
    ),
    Kind.COORDINATOR_STATUS: Channel(
        _T.coordinator_status(), "coordinator", "agent", 1, True, m.STATUS,
        "Presence of the coordinator; also its will.",
    ),
    Kind.SUMMARY: Channel(
        _T.summary(), "coordinator", "observer", 1, True, m.SUMMARY, "Counts by state."
    ),
    Kind.HOLDER: Channel(
        _T.holder(), "coordinator", "coordinator", 1, True, m.HOLDER,
        "Which ledger the fleet's jobs are in; another coordinator yields to it.",
    ),
    Kind.BROKER_REFUSED: Channel(
        _T.broker_refused(), "broker", "coordinator", 1, True, m.BROKER_REFUSED,
        "What the embedded broker has refused; brokers of others do not tell.",
    ),
    Kind.BROKER_LOAD: Channel(
        _T.broker_load(), "broker", "coordinator", 0, True, m.BROKER_LOAD,
        "What the embedded broker has to do; brokers of others do not tell.",
    ),
    Kind.JOB: Channel(
        _T.job("{job_id}"), "coordinator", "observer", 1, True, m.JOB_ROW, "One job's row."
    ),
    Kind.OPERATOR_REQUEST: Channel(
        _T.operator_request("{user}/{client}"), "operator", "coordinator", 1, False,
        m.OPERATOR_REQUEST, "What an operator asks.",
    ),
    Kind.OPERATOR_RESPONSE: Channel(
        _T.operator_response("{user}/{client}"), "coordinator", "operator", 1, False,
        m.OPERATOR_RESPONSE, "The answer.",
    ),
    Kind.DOWNLOAD_CHUNK: Channel(
        _T.download_chunk("{user}/{client}", 0)[:-1] + "{index}", "coordinator", "operator", 0,
        False, _RAW, "A span of chunks of an artifact that a client fetches.",
    ),
    Kind.DOWNLOAD_GRANT: Channel(
        _T.download_grant("{user}/{client}"), "operator", "coordinator", 1, False, m.GRANT,
        "What the client still misses.",
    ),
    Kind.HOME_STATE: Channel(
        _T.home_state("{node}"), "coordinator", "homeassistant", 1, True, m.HOME_STATE,
        "What Home Assistant shows of a host, or of the coordinator; where that is switched on.",
    ),
    Kind.HOME_EVENT: Channel(
        _T.home_event("{node}"), "coordinator", "homeassistant", 1, False, m.HOME_EVENT,
        "What happened, for Home Assistant's event entity.",
    ),
    Kind.HOME_COMMAND: Channel(
        _T.home_command("{node}"), "homeassistant", "coordinator", 1, False, m.HOME_COMMAND,
        "A switch or a button of Home Assistant.",
    ),
}  # fmt: skip

_PARAMETERS: Final = {
    "host": f"A host's name, {HOST_PATTERN}",
    "node": f"A host's name, {HOST_PATTERN}, or `coordinator`",
    "user": f"Who asks, {USER_PATTERN}",
    "client": f"One run of a program of theirs, {HOST_PATTERN}",
    "job_id": f"A job's id, {HEX_PATTERN}",
    "artifact_id": f"The sha256 of a bundle, {HEX_PATTERN}",
    "index": "Index of the first chunk, from 0",
}
_RAW_PAYLOADS: Final[dict[str, dict[str, Any]]] = {
    _RAW: {"type": "string", "format": "binary", "maxLength": m.MAX_CHUNK_BYTES},
    _TEXT: {"type": "string", "description": "UTF-8 text without a line end."},
    _LINES: {
        "type": "string",
        "description": "UTF-8 text.",
        "pattern": "^[0-9]{1,9}\\.[0-9]{1,9} ",
    },
}


def document() -> dict[str, Any]:
    """Return the AsyncAPI document."""
    schemas: dict[str, Any] = {}
    channels = {_key(kind): _channel(kind, channel) for kind, channel in CHANNELS.items()}
    messages = {_key(kind): _message(channel, schemas) for kind, channel in CHANNELS.items()}
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "training fleet",
            "version": str(m.VERSION),
            "description": (
                "What goes over MQTT between the agents, the coordinator and the operators of a "
                "fleet. The root, here `fleet`, is configurable. See protocol.md for the rules."
            ),
            "license": {"name": "MIT"},
        },
        "defaultContentType": "application/json",
        "channels": channels,
        "operations": {
            f"{_key(kind)}.{action}": _operation(kind, channel, action)
            for kind, channel in CHANNELS.items()
            for action in ("send", "receive")
        },
        "components": {"messages": messages, "schemas": dict(sorted(schemas.items()))},
    }


def _key(kind: Kind) -> str:
    return kind.value.replace("/", ".")


def _channel(kind: Kind, channel: Channel) -> dict[str, Any]:
    names = [name for name in _PARAMETERS if "{" + name + "}" in channel.address]
    found: dict[str, Any] = {
        "address": channel.address,
        "description": channel.summary,
        "messages": {_key(kind): {"$ref": f"#/components/messages/{_key(kind)}"}},
    }
    if names:
        found["parameters"] = {name: {"description": _PARAMETERS[name]} for name in names}
    return found


def _operation(kind: Kind, channel: Channel, action: str) -> dict[str, Any]:
    role = channel.sender if action == "send" else channel.receiver
    verb = "sends" if action == "send" else "receives"
    article = "An" if role[0] in "aeiou" else "The"
    return {
        "action": action,
        "channel": {"$ref": f"#/channels/{_key(kind)}"},
        "summary": f"{article} {role} {verb} it.",
        "bindings": {"mqtt": {"qos": channel.qos, "retain": channel.retained}},
    }


def _message(channel: Channel, schemas: dict[str, Any]) -> dict[str, Any]:
    if isinstance(channel.payload, str):
        content = "application/octet-stream" if channel.payload == _RAW else "text/plain"
        payload = _RAW_PAYLOADS[channel.payload]
        return {"contentType": content, "summary": channel.summary, "payload": payload}
    schema = channel.payload.json_schema(
        mode="serialization", ref_template="#/components/schemas/{model}"
    )
    schemas.update(schema.pop("$defs", {}))
    if "title" in schema:
        name = schema["title"]
        schemas[name] = schema
        schema = {"$ref": f"#/components/schemas/{name}"}
    schema.pop("discriminator", None)  # its mapping is an OpenAPI notion
    return {"summary": channel.summary, "payload": schema}


def text() -> str:
    """Return the document as YAML."""
    head = "# Generated by `make generate` from the topics and messages of broker/protocol.\n"
    body = yaml.safe_dump(document(), sort_keys=False, allow_unicode=True, width=100)
    return head + body


if __name__ == "__main__":
    sys.stdout.write(text())
