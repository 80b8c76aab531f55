"""RabbitMQ 3.10 with its MQTT plugin: its configuration, plugins and definitions.

The user is the common name of the certificate (`mqtt.ssl_cert_login`), and has to be listed: after
an enrolment the file is made again. The plugin turns a topic into a routing key (`/` into `.`, `+`
into `*`), which topic permissions match by regular expressions; a dot in a name would be a level.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from broker.deploy.filling import filled
from broker.deploy.site import HEAD, Node, Site
from broker.errors import ConfigError
from broker.protocol.acl import rights_of

_VHOST: Final = "/"
_EXCHANGE: Final = "amq.topic"
# The plugin keeps a client's QoS 1 queue, durable, on the node that it was connected to. With that
# node gone, the client could subscribe nowhere: each node has a copy.
_COPIED: Final = "^mqtt-subscription-.*qos1$"
_QUEUES: Final = "mqtt-subscription-.*"
_NOTHING: Final = "^$"


def render(site: Site) -> dict[str, str]:
    """Return RabbitMQ's files by name; a node of a cluster has two more."""
    site.refuse("RabbitMQ", loopback=True, origins=True, dots=True)
    names = ["rabbitmq.conf", "advanced.config", "enabled_plugins"]
    if site.node is not None:
        names += ["rabbitmq-env.conf", "inter_node_tls.config"]
    more = {"vhost": _VHOST, "exchange": _EXCHANGE, "full_name": _full_name}
    files = {name: filled(name, site, **more) for name in names}
    return files | {"definitions.json": json.dumps(_definitions(site), indent=2) + "\n"}


def _full_name(node: Node) -> str:
    if node.port:
        raise ConfigError(f"--node {node.host}:{node.port}: RabbitMQ's nodes need no port")
    return f"{node.name or 'rabbit'}@{node.host}"


def _definitions(site: Site) -> dict[str, Any]:
    copied = {
        "vhost": _VHOST, "name": "fleet-sessions", "pattern": _COPIED, "apply-to": "queues",
        "priority": 0, "definition": {"ha-mode": "all", "ha-sync-mode": "automatic"},
    }  # fmt: skip
    queues_and_exchange = f"^({_QUEUES}|{re.escape(_EXCHANGE)})$"
    users, permissions, topic_permissions = [], [], []
    for who in site.principals():
        rights = rights_of(who, site.topics)
        # No password hash: nobody gets in by a password.
        users.append({"name": who.name, "password_hash": "", "tags": ""})
        permissions.append({
            "user": who.name, "vhost": _VHOST, "configure": f"^{_QUEUES}$",
            "write": queues_and_exchange, "read": queues_and_exchange,
        })  # fmt: skip
        topic_permissions.append({
            "user": who.name, "vhost": _VHOST, "exchange": _EXCHANGE,
            "write": _expression(rights.publish), "read": _expression(rights.subscribe),
        })  # fmt: skip
    return {
        "made_by": HEAD,
        **({"policies": [copied]} if site.nodes else {}),
        "vhosts": [{"name": _VHOST}],
        "users": users,
        "permissions": permissions,
        "topic_permissions": topic_permissions,
    }


def _expression(filters: tuple[str, ...]) -> str:
    return f"^({'|'.join(_one(filter_) for filter_ in filters)})$" if filters else _NOTHING


def _one(filter_: str) -> str:
    """Return what matches the routing keys of a filter's topics, and of filters that it covers."""
    head = filter_.removesuffix("/#")
    levels = ["[^.#]*" if level == "+" else re.escape(level) for level in head.split("/")]
    return r"\.".join(levels) + (r"(\..*)?" if head != filter_ else "")
