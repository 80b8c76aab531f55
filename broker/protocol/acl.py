"""Rights: which role may publish and subscribe where, made from the table of topics.

Everything that enforces it is made from it: the embedded broker's own check, the files for
mosquitto, the permissions for RabbitMQ and the accounts for NATS (`fleet broker config`).

Who somebody is, the broker takes from the common name of the client's certificate, and from nothing
else. The name tells the role: a host's name is an agent's; `coordinator`; `operator:NAME`;
`observer:NAME`; `homeassistant`. No host can be called like one of the others.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from broker.errors import ConfigError
from broker.protocol.topic_table import TABLE as TOPICS
from broker.protocol.topic_table import Role
from broker.protocol.topics import (
    CLIENT_PREFIX,
    HOME_STATUS,
    MAX_NAME_CHARS,
    RESERVED,
    Topics,
    filter_of,
    is_host,
    is_user,
)

NAME: Final = "{name}"  # in a filter: the principal's own name


@dataclass(frozen=True, slots=True)
class Principal:
    """A user of the broker: a role and a name."""

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
    """Return why a name is neither a host's nor a person's."""
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
        """Tell whether a message or a will may be published on `topic`."""
        return any(matches(one, topic) for one in self.publish)

    def may_receive(self, topic: str) -> bool:
        """Tell whether a message on `topic` may be sent to whoever has these rights."""
        return any(matches(one, topic) for one in self.subscribe)

    def may_subscribe(self, filter_: str) -> bool:
        """Tell whether a subscription asks for nothing but what may be sent."""
        return any(covers(one, filter_) for one in self.subscribe)


_READERS: Final = frozenset({Role.OPERATOR, Role.OBSERVER, Role.HOMEASSISTANT})
# Home Assistant's own topics, outside the root: what each role may publish and subscribe to there.
_OUTSIDE: Final = {
    Role.COORDINATOR: Rights(("homeassistant/+/+/+/config",), (HOME_STATUS,)),
    Role.HOMEASSISTANT: Rights((HOME_STATUS,), ("homeassistant/#",)),
}
# Whose own name stands where in the topics that they publish.
_OWN: Final = {Role.AGENT: {"host": NAME}} | {role: {"user": NAME} for role in _READERS}


def _rights(role: Role) -> Rights:
    outside, own = _OUTSIDE.get(role, Rights((), ())), _OWN.get(role, {})

    def below_root(patterns: Iterable[str]) -> tuple[str, ...]:
        return tuple("{root}/" + filter_of(pattern, **own) for pattern in patterns)

    publish = below_root(row.pattern for row in TOPICS.values() if role in row.senders)
    subscribe = below_root(row.pattern for row in TOPICS.values() if role in row.receivers)
    if role in _READERS:
        subscribe = ("{root}/#",)
    return Rights(publish + outside.publish, subscribe + outside.subscribe)


# Under `{root}`, with `{name}` for the own name.
TABLE: Final[dict[Role, Rights]] = {role: _rights(role) for role in Role}
REWRITE_RIGHTS: Final = (
    "`fleet broker` gives rights below its own topic root alone: see that --root names it; after "
    "an update another broker may need its files written anew: `fleet broker config mosquitto`, "
    "`nats` or `rabbitmq` (acl, nats.conf, definitions.json), then restart it; "
    "docs/reference/brokers.md"
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
    """Tell whether this user may change anything."""
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
