"""RabbitMQ 3.10 with its MQTT plugin: its configuration, plugins and definitions.

The user is the common name of the certificate (`mqtt.ssl_cert_login`), and has to be listed: after
an enrolment the file is made again. The plugin turns a topic into a routing key (`/` into `.`, `+`
into `*`), which topic permissions match by regular expressions; a dot in a name would be a level.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

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

_PLUGINS: Final = """\
% {head}
[rabbitmq_auth_mechanism_ssl,rabbitmq_mqtt{more}].
"""
# In `operator:alice` the plugin would take `operator` for a virtual host.
_ADVANCED: Final = """\
% {head}
[{{rabbitmq_mqtt, [{{ignore_colons_in_username, true}}]}}{more}].
"""
_CONF: Final = """\
# {head}

# MQTT over TLS, and nothing else, also not AMQP.
listeners.tcp = none
listeners.ssl = none
mqtt.listeners.tcp = none
mqtt.listeners.ssl.default = {port}
mqtt.vhost = {vhost}
mqtt.exchange = {exchange}
mqtt.allow_anonymous = false

# Who somebody is, is the common name of the certificate.
mqtt.ssl_cert_login = true
ssl_cert_login_from = common_name
ssl_options.cacertfile = {ca}
ssl_options.certfile = {certificate}
ssl_options.keyfile = {key}
ssl_options.verify = verify_peer
ssl_options.fail_if_no_peer_cert = true
ssl_options.versions.1 = tlsv1.3
ssl_options.versions.2 = tlsv1.2

load_definitions = {folder}/definitions.json
"""
_WEBSOCKET: Final = """
# Websockets: see advanced.config, since no line here asks for a client's certificate.
web_mqtt.tcp.listener = none
"""
# At the path /ws.
_WEBSOCKET_TLS: Final = """,
 {{rabbitmq_web_mqtt, [{{ssl_config, [
   {{port, {port}}},
   {{cacertfile, "{ca}"}}, {{certfile, "{certificate}"}}, {{keyfile, "{key}"}},
   {{verify, verify_peer}}, {{fail_if_no_peer_cert, true}}, {{versions, ['tlsv1.3', 'tlsv1.2']}}
 ]}}]}}"""
_CLUSTER: Final = """
# The nodes find each other by this list. One that sees no other stops until it does.
cluster_name = fleet
cluster_formation.peer_discovery_backend = classic_config
cluster_partition_handling = pause_minority
"""
_ENVIRONMENT: Final = """\
# {head}

NODENAME={node}
USE_LONGNAME={longname}
# The nodes speak TLS with each other; who may join them is who has their Erlang cookie.
SERVER_ADDITIONAL_ERL_ARGS="-proto_dist inet_tls -ssl_dist_optfile {folder}/inter_node_tls.config"
CTL_ERL_ARGS="-proto_dist inet_tls -ssl_dist_optfile {folder}/inter_node_tls.config"
"""
_BETWEEN: Final = """\
%% {head}
[{{server, [{{cacertfile, "{ca}"}}, {{certfile, "{certificate}"}}, {{keyfile, "{key}"}},
           {{verify, verify_peer}}, {{fail_if_no_peer_cert, true}}]}},
 {{client, [{{cacertfile, "{ca}"}}, {{certfile, "{certificate}"}}, {{keyfile, "{key}"}},
           {{verify, verify_peer}}]}}].
"""


def render(site: Site) -> dict[str, str]:
    """Return RabbitMQ's files by name; a node of a cluster has two more."""
    site.refuse("RabbitMQ", loopback=True, origins=True, dots=True)
    conf = _CONF.format(
        head=HEAD,
        port=site.ports.hosts,
        vhost=_VHOST,
        exchange=_EXCHANGE,
        **site.tls_files(),
        folder=site.folder.as_posix().rstrip("/"),
    )
    more = ",rabbitmq_web_mqtt" if site.ports.websocket else ""
    files = {
        "rabbitmq.conf": conf + (_WEBSOCKET if site.ports.websocket else "") + _cluster(site),
        "advanced.config": _ADVANCED.format(head=HEAD, more=_websocket(site)),
        "enabled_plugins": _PLUGINS.format(head=HEAD, more=more),
        "definitions.json": json.dumps(_definitions(site), indent=2) + "\n",
    }
    return files if site.node is None else files | _of_node(site, site.node)


def _websocket(site: Site) -> str:
    if site.ports.websocket is None:
        return ""
    return _WEBSOCKET_TLS.format(port=site.ports.websocket, **site.tls_files())


def _cluster(site: Site) -> str:
    lines = [
        f"cluster_formation.classic_config.nodes.{number} = {_full_name(node)}\n"
        for number, node in enumerate(site.nodes, 1)
    ]
    return _CLUSTER + "".join(lines) if lines else ""


def _of_node(site: Site, node: Node) -> dict[str, str]:
    folder = site.folder.as_posix().rstrip("/")
    environment = _ENVIRONMENT.format(
        head=HEAD,
        node=_full_name(node),
        longname="true" if "." in node.host else "false",
        folder=folder,
    )
    between = _BETWEEN.format(head=HEAD, **site.tls_files())
    return {"rabbitmq-env.conf": environment, "inter_node_tls.config": between}


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
