"""RabbitMQ 3.10 with its MQTT plugin: its configuration, plugins and definitions.

The user is the common name of the client's certificate (`mqtt.ssl_cert_login`), and must be among
the users: a host that is enrolled later needs the file made anew. The plugin turns a topic into a
routing key of `amq.topic`, `/` into `.`, a filter's `+` into `*`, and checks both against the topic
permission's regular expressions. A dot that is in a topic already would part its levels as well.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from broker.acl import rights_of
from broker.deploy.site import HEAD, Site

_VHOST: Final = "/"
_EXCHANGE: Final = "amq.topic"
_QUEUES: Final = "mqtt-subscription-.*"
_NOTHING: Final = "^$"

_PLUGINS: Final = f"""\
% {HEAD}
[rabbitmq_auth_mechanism_ssl,rabbitmq_mqtt].
"""
# In `operator:alice` the plugin would take `operator` for a virtual host.
_ADVANCED: Final = f"""\
% {HEAD}
[{{rabbitmq_mqtt, [{{ignore_colons_in_username, true}}]}}].
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


def render(site: Site) -> dict[str, str]:
    """Return rabbitmq.conf, advanced.config, enabled_plugins and definitions.json.

    Raises `ConfigError` for a name with a dot, or a plain listener.
    """
    site.refuse_loopback("RabbitMQ")
    site.refuse_dots("RabbitMQ")
    conf = _CONF.format(
        head=HEAD,
        port=site.ports.hosts,
        vhost=_VHOST,
        exchange=_EXCHANGE,
        ca=site.certificate("ca.crt"),
        certificate=site.certificate("broker.crt"),
        key=site.certificate("broker.key"),
        folder=site.folder.as_posix().rstrip("/"),
    )
    definitions = json.dumps(_definitions(site), indent=2) + "\n"
    return {
        "rabbitmq.conf": conf,
        "advanced.config": _ADVANCED,
        "enabled_plugins": _PLUGINS,
        "definitions.json": definitions,
    }


def _definitions(site: Site) -> dict[str, Any]:
    principals = site.principals()
    return {
        "made_by": HEAD,
        "vhosts": [{"name": _VHOST}],
        # No password hash: nobody gets in by a password.
        "users": [{"name": who.name, "password_hash": "", "tags": ""} for who in principals],
        "permissions": [
            {
                "user": who.name,
                "vhost": _VHOST,
                "configure": f"^{_QUEUES}$",
                "write": f"^({_QUEUES}|{re.escape(_EXCHANGE)})$",
                "read": f"^({_QUEUES}|{re.escape(_EXCHANGE)})$",
            }
            for who in principals
        ],
        "topic_permissions": [
            {
                "user": who.name,
                "vhost": _VHOST,
                "exchange": _EXCHANGE,
                "write": _expression(rights_of(who, site.topics).publish),
                "read": _expression(rights_of(who, site.topics).subscribe),
            }
            for who in principals
        ],
    }


def _expression(filters: tuple[str, ...]) -> str:
    return f"^({'|'.join(_one(filter_) for filter_ in filters)})$" if filters else _NOTHING


def _one(filter_: str) -> str:
    """Return what matches the routing keys of a filter's topics, and of filters that it covers."""
    head = filter_.removesuffix("/#")
    levels = ["[^.#]*" if level == "+" else re.escape(level) for level in head.split("/")]
    return r"\.".join(levels) + (r"(\..*)?" if head != filter_ else "")
