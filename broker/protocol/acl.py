"""The one table of rights: which role may publish and subscribe where.

Everything that enforces it is made from it: the embedded broker's own check, the files for
mosquitto, the permissions for RabbitMQ and the accounts for NATS (`fleet broker config`).

Who somebody is, the broker takes from the common name of the client's certificate, and from nothing
else. The name tells the role: a host's name is an agent's; `coordinator`; `operator:NAME`;
`observer:NAME`; `homeassistant`. No host can be called like one of the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from broker.errors import ConfigError
from broker.protocol.topics import CLIENT_PREFIX, MAX_NAME_CHARS, RESERVED, Topics, is_host, is_user

NAME: Final = "{name}"  # in a filter: the principal's own name


class Role(StrEnum):
    """What somebody is to the fleet."""

    AGENT = "agent"
    COORDINATOR = "coordinator"
    OPERATOR = "operator"
    OBSERVER = "observer"
    HOMEASSISTANT = "homeassistant"


@dataclass(frozen=True, slots=True)
class Principal:
    """Somebody whom the broker knows: a role and a name."""

    role: Role
    name: str

    @classmethod
    def parse(cls, name: str) -> Principal:
        """Return whose common name this is. Raises `ConfigError` for a name that is nobody's."""
        if name in {Role.COORDINATOR, Role.HOMEASSISTANT}:
            return cls(Role(name), name)
        if is_user(name):
            return cls(Role(name.partition(":")[0]), name)
        if is_host(name):
            return cls(Role.AGENT, name)
        raise ConfigError(f"{name!r} is nobody's name: {fault_of(name)}")


def fault_of(name: str) -> str:
    """Say what keeps a name from being a host's or a person's."""
    if name in RESERVED:
        return "topics of the fleet are called so; choose another, such as 'gaming-pc'"
    if name.startswith(CLIENT_PREFIX):
        return f"a host's may not begin with {CLIENT_PREFIX!r}, as the programs' client ids do"
    if is_user(name):
        return "a person is called so; a host is called like 'gaming-pc'"
    role, _, own = name.rpartition(":")
    if len(own) > MAX_NAME_CHARS:
        return f"it has {len(own)} characters, and {MAX_NAME_CHARS} are the most"
    if own and role in {"", Role.OPERATOR, Role.OBSERVER}:
        found = "write it with a-z, 0-9, '.', '_' and '-', a letter or a digit first"
        lower = name.lower()
        return f"{found}: {lower!r}" if is_host(lower) or is_user(lower) else found
    return (
        "a host is called like 'gaming-pc', a person like 'operator:alice' or 'observer:bob', and "
        "there are 'coordinator' and 'homeassistant'"
    )


@dataclass(frozen=True, slots=True)
class Rights:
    """The topic filters that somebody may publish to and be sent."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]

    def may_publish(self, topic: str) -> bool:
        """Tell whether a message to `topic`, a will too, may go out."""
        return any(matches(one, topic) for one in self.publish)

    def may_receive(self, topic: str) -> bool:
        """Tell whether a message on `topic` may be sent to whoever has these rights."""
        return any(matches(one, topic) for one in self.subscribe)

    def may_subscribe(self, filter_: str) -> bool:
        """Tell whether a subscription asks for nothing but what may be sent."""
        return any(covers(one, filter_) for one in self.subscribe)


_READ: Final = ("{root}/#",)
_ASK: Final = ("{root}/operator/{name}/+/request", "{root}/operator/{name}/+/grant")

# Under `{root}`, with `{name}` for the own name. Observers may ask the coordinator, too: it goes by
# the name in the topic, which nobody else can use, and has them change nothing. What the embedded
# broker tells of itself, in `{root}/broker`, nobody may publish. The coordinator clears what is
# retained of a host that is forgotten: hence its status, capability.
TABLE: Final[dict[Role, Rights]] = {
    Role.AGENT: Rights(
        publish=(
            "{root}/{name}/status",
            "{root}/{name}/capability",
            "{root}/{name}/heartbeat",
            "{root}/{name}/echo",
            "{root}/{name}/job/response",
            "{root}/{name}/job/+/log",
            "{root}/{name}/job/+/progress",
            "{root}/{name}/artifact/+/offer",
            "{root}/{name}/artifact/+/chunk/+",
            "{root}/{name}/checkpoint/+/grant",
            "{root}/{name}/identity/request",
        ),
        subscribe=(
            "{root}/{name}/status",
            "{root}/{name}/echo",
            "{root}/{name}/job/request",
            "{root}/{name}/artifact/+/grant",
            "{root}/{name}/checkpoint/+/chunk/+",
            "{root}/{name}/identity/response",
            "{root}/coordinator/status",
        ),
    ),
    Role.COORDINATOR: Rights(
        publish=(
            "{root}/coordinator/status",
            "{root}/coordinator/summary",
            "{root}/coordinator/holder",
            "{root}/coordinator/echo",
            "{root}/jobs/+",
            "{root}/+/status",
            "{root}/+/capability",
            "{root}/+/job/request",
            "{root}/+/artifact/+/grant",
            "{root}/+/checkpoint/+/chunk/+",
            "{root}/+/identity/response",
            "{root}/operator/+/+/response",
            "{root}/operator/+/+/chunk/+",
            "homeassistant/+/+/+/config",
            "{root}/homeassistant/+/state",
            "{root}/homeassistant/+/event",
        ),
        subscribe=(
            "{root}/+/status",
            "{root}/+/capability",
            "{root}/+/heartbeat",
            "{root}/coordinator/holder",
            "{root}/coordinator/echo",
            "{root}/+/job/response",
            "{root}/+/job/+/log",
            "{root}/+/job/+/progress",
            "{root}/+/artifact/+/offer",
            "{root}/+/artifact/+/chunk/+",
            "{root}/+/checkpoint/+/grant",
            "{root}/+/identity/request",
            "{root}/operator/+/+/request",
            "{root}/operator/+/+/grant",
            "{root}/broker/load",
            "{root}/broker/refused",
            "{root}/homeassistant/+/set",
            "homeassistant/status",
        ),
    ),
    Role.OPERATOR: Rights(publish=_ASK, subscribe=_READ),
    Role.OBSERVER: Rights(publish=_ASK, subscribe=_READ),
    Role.HOMEASSISTANT: Rights(
        publish=(*_ASK, "{root}/homeassistant/+/set", "homeassistant/status"),
        subscribe=(*_READ, "homeassistant/#"),
    ),
}
REWRITE_RIGHTS: Final = (
    "`fleet broker` gives rights below its own topic root alone: see that --root names it; after "
    "an update another broker may need its files written anew: `fleet broker config mosquitto`, "
    "`nats` or `rabbitmq` (acl, nats.conf, definitions.json), then restart it; docs/brokers.md"
)
MAY_CHANGE: Final = frozenset({Role.OPERATOR, Role.HOMEASSISTANT})


def rights_of(principal: Principal, topics: Topics) -> Rights:
    """Return somebody's rights under the fleet's root."""
    entry = TABLE[principal.role]

    def filled(filters: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(
            one.replace("{root}", topics.root).replace(NAME, principal.name) for one in filters
        )

    return Rights(filled(entry.publish), filled(entry.subscribe))


def may_change(user: str) -> bool:
    """Tell whether whoever asks in the name of `user` may change anything."""
    return is_user(user) and Principal.parse(user).role in MAY_CHANGE


def matches(filter_: str, topic: str) -> bool:
    """Tell whether a topic matches a filter (MQTT 3.1.1, 4.7); `$` topics match no wildcard."""
    if "+" in topic or "#" in topic:
        return False  # that is a filter, and nobody may publish to one
    return covers(filter_, topic)


def covers(wide: str, narrow: str) -> bool:
    """Tell whether every topic that matches filter `narrow` matches filter `wide`, too."""
    if narrow == "#":
        narrow = "+/#"  # the same topics: each has a first level
    wanted, asked = wide.split("/"), narrow.split("/")
    if narrow.startswith("$") and wanted[0] in {"+", "#"}:
        return False
    for at, level in enumerate(wanted):
        if level == "#":
            return True
        if at >= len(asked) or asked[at] == "#":
            return False
        if level not in {"+", asked[at]}:
            return False
    return len(wanted) == len(asked)
