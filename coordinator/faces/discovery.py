"""The entities of Home Assistant, and the messages by which it discovers them.

One message an entity, on `homeassistant/COMPONENT/NODE/KEY/config`, which every version takes. No
message sets an entity's id: some versions know `object_id` for that, others `default_entity_id`,
and each logs a warning about the other.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, get_args

from broker.protocol.link_events import Outgoing
from broker.protocol.messages import HomeCommand, encode
from broker.protocol.messages.homeassistant import EventType, FleetState, HostState
from broker.protocol.topics import Topics
from coordinator.jobs.states import JobState

PREFIX: Final = "homeassistant"
COORDINATOR: Final = "coordinator"
# A cleared or foreign message means offline, and logs no error in Home Assistant.
AVAILABLE: Final = "{{ (value_json | default({})).state | default('offline') }}"


@dataclass(frozen=True, slots=True)
class Entity:
    """One kind of entity.

    `while_online`: it is unavailable also while its host is offline. `measure`: only for hosts that
    report it. `commands`: its payloads; only where Home Assistant may give commands. `fields` go
    into the message as they are.
    """

    component: str
    key: str
    name: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    while_online: bool = False
    measure: str = ""
    commands: Mapping[str, str] = field(default_factory=dict)


def _percent(key: str, name: str, icon: str, measure: str = "") -> Entity:
    fields = {"unit_of_measurement": "%", "state_class": "measurement", "icon": icon}
    return Entity("sensor", key, name, fields, while_online=True, measure=measure)


def _free(key: str, name: str, measure: str = "") -> Entity:
    fields = {
        "device_class": "data_size",
        "unit_of_measurement": "GiB",
        "state_class": "measurement",
        "entity_category": "diagnostic",
        "suggested_display_precision": 1,
    }
    return Entity("sensor", key, name, fields, while_online=True, measure=measure)


def _binary(key: str, name: str, kind: str, **fields: str) -> Entity:
    template = f"{{{{ 'ON' if value_json.{key} else 'OFF' }}}}"
    said = {"device_class": kind, "value_template": template, "entity_category": "diagnostic"}
    return Entity("binary_sensor", key, name, said | fields)


def _state(words: Any, icon: str) -> Entity:
    fields = {"device_class": "enum", "options": list(get_args(words)), "icon": icon}
    return Entity("sensor", "state", "State", fields)


_PROBLEM: Final = _binary(
    "problem", "Problem", "problem",
    json_attributes_template="{{ {'problems': value_json.problems} | tojson }}",
)  # fmt: skip
_JOB_ICONS: Final = {
    JobState.PENDING: "mdi:tray-full",
    JobState.CLAIMED: "mdi:send-clock",
    JobState.RUNNING: "mdi:play",
    JobState.COMPLETED: "mdi:check",
    JobState.FAILED: "mdi:alert",
    JobState.CANCELLED: "mdi:cancel",
}

OF_HOST: Final = (
    _state(HostState, "mdi:server"),
    Entity("sensor", "job", "Current job", {
        "icon": "mdi:school",
        "json_attributes_template":
            "{{ {'jobs': value_json.jobs, 'eta': value_json.eta} | tojson }}",
    }, while_online=True),
    _percent("progress", "Progress", "mdi:progress-clock"),
    # Not a timestamp: Home Assistant 2024.3 warns of one that is not known.
    Entity("sensor", "time_left_min", "Time left", {
        "device_class": "duration", "unit_of_measurement": "min", "state_class": "measurement",
        "suggested_display_precision": 0,
    }, while_online=True),
    _percent("cpu", "CPU use", "mdi:cpu-64-bit"),
    _percent("ram", "RAM use", "mdi:memory"),
    _free("ram_free_gib", "RAM free"),
    _percent("gpu", "GPU use", "mdi:expansion-card", "gpu"),
    _percent("vram", "VRAM use", "mdi:memory", "vram"),
    _free("vram_free_gib", "VRAM free", "vram"),
    Entity("sensor", "power_w", "GPU power", {
        "device_class": "power", "unit_of_measurement": "W", "state_class": "measurement",
    }, while_online=True, measure="power"),
    Entity("sensor", "energy_kwh", "GPU energy", {
        "device_class": "energy", "unit_of_measurement": "kWh",
        "state_class": "total_increasing", "suggested_display_precision": 2,
    }, measure="power"),
    _binary("online", "Online", "connectivity"),
    _PROBLEM,
    Entity("switch", "accepts", "Accept jobs", {
        "icon": "mdi:school", "qos": 1, "state_on": "ON", "state_off": "OFF",
        "value_template": "{{ 'ON' if value_json.accepts else 'OFF' }}",
    }, commands={"payload_on": "resume", "payload_off": "drain"}),
    Entity("button", "release", "Give back current job", {"icon": "mdi:hand-back-left"},
           while_online=True, commands={"payload_press": "release"}),
    # Once at most: the same press twice would cancel the next job as well. So no QoS.
    Entity("button", "cancel", "Cancel current job", {"icon": "mdi:stop"}, while_online=True,
           commands={"payload_press": "cancel"}),
)  # fmt: skip
OF_COORDINATOR: Final = (
    _state(FleetState, "mdi:school"),
    *(
        Entity("sensor", state.value, f"{state.value.capitalize()} jobs", {
            "unit_of_measurement": "jobs", "state_class": "measurement",
            "icon": _JOB_ICONS[state], "value_template": f"{{{{ value_json.jobs.{state.value} }}}}",
        })
        for state in JobState
    ),
    Entity("sensor", "progress", "Plan progress", {
        "unit_of_measurement": "%", "state_class": "measurement", "icon": "mdi:progress-check",
    }),
    Entity("sensor", "hosts_online", "Hosts online", {
        "unit_of_measurement": "hosts", "state_class": "measurement", "icon": "mdi:server-network",
        "json_attributes_template": "{{ {'hosts': value_json.hosts} | tojson }}",
    }),
    Entity("binary_sensor", "online", "Online", {
        "device_class": "connectivity", "entity_category": "diagnostic",
        "value_template": "{{ 'ON' if " + AVAILABLE[3:-3] + " == 'online' else 'OFF' }}",
    }),
    _PROBLEM,
    Entity("event", "event", "Event", {
        "event_types": list(get_args(EventType)), "icon": "mdi:bell", "qos": 1,
    }),
    Entity("button", "requeue", "Requeue failed jobs", {
        "icon": "mdi:replay", "entity_category": "config",
    }, commands={"payload_press": "requeue"}),
    Entity("button", "reload", "Reload manifest", {
        "icon": "mdi:file-refresh", "entity_category": "config",
    }, commands={"payload_press": "reload"}),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Shape:
    """What the messages of a node's entities are made of. `node`: a host's name, `coordinator`."""

    node: str
    model: str = ""
    version: str = ""
    measures: frozenset[str] = frozenset()


class Discovery:
    """Makes the messages of discovery of one fleet.

    `version` is the coordinator's; `commands`: whether Home Assistant may give any.
    """

    def __init__(self, topics: Topics, version: str, *, commands: bool) -> None:
        self._topics = topics
        self._version = version
        self._commands = commands

    def messages(self, shape: Shape) -> Iterator[Outgoing]:
        """Yield the message of each entity; an empty one for those that must not be (any more)."""
        device = self._device(shape)
        for entity in _entities(shape.node):
            if entity.commands and not self._commands:
                yield self._outgoing(shape.node, entity, b"")
            elif not entity.measure or entity.measure in shape.measures:
                config = self._config(shape.node, entity) | {"device": device}
                text = json.dumps(config, separators=(",", ":"), ensure_ascii=False)
                yield self._outgoing(shape.node, entity, text.encode())

    def removal(self, node: str) -> Iterator[Outgoing]:
        """Yield the messages that remove every entity of a node."""
        return (self._outgoing(node, entity, b"") for entity in _entities(node))

    def _outgoing(self, node: str, entity: Entity, payload: bytes) -> Outgoing:
        name = _id(f"{self._topics.root}/{node}")
        return Outgoing(
            f"{PREFIX}/{entity.component}/{name}/{entity.key}/config", payload, retain=True
        )

    def _config(self, node: str, entity: Entity) -> dict[str, Any]:
        topics = self._topics
        config: dict[str, Any] = {
            "name": entity.name,
            "unique_id": f"{_id(f'{topics.root}/{node}')}__{entity.key}",
            "origin": {"name": "training-fleet", "sw_version": self._version},
        }
        is_presence = (node, entity.key) == (COORDINATOR, "online")
        if is_presence:
            config["state_topic"] = topics.coordinator_status()  # off, and never unavailable
        elif entity.component == "event":
            config["state_topic"] = topics.home_event(node)
        elif entity.component != "button":
            config["state_topic"] = topics.home_state(node)
            config["value_template"] = f"{{{{ value_json.{entity.key} }}}}"
        if entity.commands:
            config["command_topic"] = topics.home_command(node)
        for name, command in entity.commands.items():
            config[name] = encode(HomeCommand.model_validate({"type": command})).decode()
        if not is_presence:
            config |= self._availability(node, entity)
        config |= entity.fields
        if "json_attributes_template" in entity.fields:
            config["json_attributes_topic"] = topics.home_state(node)
        return config

    def _availability(self, node: str, entity: Entity) -> dict[str, Any]:
        needed = [self._topics.coordinator_status()]
        if entity.while_online:
            needed.append(self._topics.status(node))
        listed = [{"topic": topic, "value_template": AVAILABLE} for topic in needed]
        return {"availability": listed, "availability_mode": "all"}

    def _device(self, shape: Shape) -> dict[str, Any]:
        root = self._topics.root
        device: dict[str, Any] = {
            "identifiers": [_id(f"{root}/{shape.node}")],
            "name": shape.node,
            "manufacturer": "Training fleet",
            "model": shape.model or "Host",
        }
        if shape.node == COORDINATOR:
            device["name"] = "Training fleet" if root == "fleet" else f"Training fleet {root}"
        else:
            device["via_device"] = _id(f"{root}/{COORDINATOR}")
        if shape.version:
            device["sw_version"] = shape.version
        return device


def _entities(node: str) -> tuple[Entity, ...]:
    return OF_COORDINATOR if node == COORDINATOR else OF_HOST


def _id(path: str) -> str:
    """Return a topic's levels as one word that Home Assistant takes; no two get the same one."""
    return path.replace("_", "_u").replace(".", "_d").replace("/", "__")
