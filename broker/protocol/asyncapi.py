"""Writes asyncapi.yaml from the topics and the messages: `python -m broker.protocol.asyncapi`.

AsyncAPI 3.0.0, https://www.asyncapi.com/docs/reference/specification/v3.0.0. A development tool: it
needs PyYAML, which the services do not.
"""

from __future__ import annotations

import sys
from copy import deepcopy
from typing import Any, Final

import yaml
from pydantic import TypeAdapter

from broker.protocol import messages as m
from broker.protocol.topic_table import TABLE, Kind
from broker.protocol.topics import HEX_PATTERN, HOST_PATTERN, USER_PATTERN

_RAW: Final = "raw"
_TEXT: Final = "text"
_LINES: Final = "lines"

# What each kind of topic carries: a model, or what raw bytes mean; and a summary.
CONTENTS: Final[dict[Kind, tuple[TypeAdapter[Any] | str, str]]] = {
    Kind.STATUS: (m.STATUS, "Presence; also the will."),
    Kind.CAPABILITY: (m.CAPABILITY, "What a host is."),
    Kind.HEARTBEAT: (
        m.HEARTBEAT, "What a host is doing; renews the leases of the jobs that it lists.",
    ),
    Kind.ECHO: (_TEXT, "A word to itself, to see whether it gets through."),
    Kind.REQUEST: (m.AGENT_REQUEST, "What an agent is asked to do."),
    Kind.RESPONSE: (
        m.AGENT_RESPONSE,
        "What became of jobs on a host: a report, or a list of some.",
    ),
    Kind.LOG: (
        _LINES, "`ATTEMPT.NUMBER LINE`, a line of a trainer's output; more after line ends.",
    ),
    Kind.PROGRESS: (m.PROGRESS, "Progress of a running job; cleared when it ends."),
    Kind.IDENTITY_REQUEST: (
        m.CERTIFICATE_REQUEST, "A host's certificate nears its end; it asks for the next one.",
    ),
    Kind.IDENTITY_RESPONSE: (
        m.CERTIFICATE_RESPONSE, "The next certificate, where the coordinator has the CA.",
    ),
    Kind.CHUNK: (_RAW, "A span of chunks of an artifact."),
    Kind.GRANT: (m.GRANT, "What is still missing of an artifact, or that it is rejected."),
    Kind.CHECKPOINT_CHUNK: (_RAW, "A span of chunks of a checkpoint that a host fetches."),
    Kind.CHECKPOINT_GRANT: (m.GRANT, "What that host still misses."),
    Kind.COORDINATOR_STATUS: (m.STATUS, "Presence of the coordinator; also its will."),
    Kind.COORDINATOR_ECHO: (_TEXT, "The same, by the coordinator."),
    Kind.SUMMARY: (m.SUMMARY, "Counts by state."),
    Kind.HOLDER: (
        m.HOLDER, "Which ledger the fleet's jobs are in; another coordinator yields to it.",
    ),
    Kind.BROKER_REFUSED: (
        m.BROKER_REFUSED, "What the embedded broker has refused; brokers of others do not tell.",
    ),
    Kind.JOB: (m.JOB_ROW, "One job's row."),
    Kind.OPERATOR_REQUEST: (m.OPERATOR_REQUEST, "What an operator asks."),
    Kind.OPERATOR_RESPONSE: (m.OPERATOR_RESPONSE, "The answer."),
    Kind.DOWNLOAD_CHUNK: (_RAW, "A span of chunks of an artifact that a client fetches."),
    Kind.DOWNLOAD_GRANT: (m.GRANT, "What the client still misses."),
    Kind.PUSH_CHUNK: (_RAW, "A span of chunks of a program or dataset that an operator pushes."),
    Kind.PUSH_GRANT: (m.GRANT, "What the coordinator still misses of it, or that it is stored."),
    Kind.HOME_STATE: (
        m.HOME_STATE, "What Home Assistant shows of a host or the coordinator, where that is on.",
    ),
    Kind.HOME_EVENT: (m.HOME_EVENT, "What happened, for Home Assistant's event entity."),
    Kind.HOME_COMMAND: (m.HOME_COMMAND, "A switch or a button of Home Assistant."),
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
    channels = {_key(kind): _channel(kind) for kind in CONTENTS}
    messages = {_key(kind): _message(*CONTENTS[kind], schemas) for kind in CONTENTS}
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
            f"{_key(kind)}.{action}": _operation(kind, action)
            for kind in CONTENTS
            for action in ("send", "receive")
        },
        "components": {"messages": messages, "schemas": dict(sorted(schemas.items()))},
    }


def _key(kind: Kind) -> str:
    return kind.value.replace("/", ".")


def _channel(kind: Kind) -> dict[str, Any]:
    address = f"fleet/{TABLE[kind].pattern}"
    names = [name for name in _PARAMETERS if "{" + name + "}" in address]
    found: dict[str, Any] = {
        "address": address,
        "description": CONTENTS[kind][1],
        "messages": {_key(kind): {"$ref": f"#/components/messages/{_key(kind)}"}},
    }
    if names:
        found["parameters"] = {name: {"description": _PARAMETERS[name]} for name in names}
    return found


def _operation(kind: Kind, action: str) -> dict[str, Any]:
    row = TABLE[kind]
    role = next(iter(row.senders if action == "send" else row.receivers), "broker")
    verb = "sends" if action == "send" else "receives"
    article = "An" if role[0] in "aeiou" else "The"
    return {
        "action": action,
        "channel": {"$ref": f"#/channels/{_key(kind)}"},
        "summary": f"{article} {role} {verb} it.",
        "bindings": {"mqtt": {"qos": row.qos, "retain": row.retained}},
    }


def _message(
    content: TypeAdapter[Any] | str, summary: str, schemas: dict[str, Any]
) -> dict[str, Any]:
    if isinstance(content, str):
        type_ = "application/octet-stream" if content == _RAW else "text/plain"
        return {"contentType": type_, "summary": summary, "payload": _RAW_PAYLOADS[content]}
    schema = content.json_schema(mode="serialization", ref_template="#/components/schemas/{model}")
    schemas.update(schema.pop("$defs", {}))
    if "title" in schema:
        name = schema["title"]
        schemas[name] = schema
        schema = {"$ref": f"#/components/schemas/{name}"}
    schema.pop("discriminator", None)  # its mapping is an OpenAPI notion
    if content is m.AGENT_RESPONSE:  # see `decode_reports`
        several = {"type": "array", "minItems": 1, "items": deepcopy(schema)}
        schema["oneOf"].append(several)
    return {"summary": summary, "payload": schema}


def text() -> str:
    """Return the document as YAML."""
    head = "# Generated by `make generate` from the topics and messages of broker/protocol.\n"
    body = yaml.safe_dump(document(), sort_keys=False, allow_unicode=True, width=100)
    return head + body


if __name__ == "__main__":
    sys.stdout.write(text())
