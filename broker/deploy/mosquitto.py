"""mosquitto 2.0: mosquitto.conf(5) and its acl_file.

The user is the common name of the client's certificate. On the hosts' listener it is the client id
as well, so that no host can throw another one off. People have a listener of their own, because
several programs of one person run at once.
"""

from __future__ import annotations

from typing import Final

from broker.deploy.filling import filled
from broker.deploy.site import Site
from broker.errors import ConfigError
from broker.protocol.acl import Principal, Rights, rights_of
from broker.protocol.topic_table import Role
from broker.protocol.topics import CLIENT_PREFIX

MAX_QUEUED_MESSAGES: Final = 100_000  # above the number of retained messages of a large fleet
MAX_QUEUED_BYTES: Final = 256 * 1024 * 1024
QUEUED_BYTES_A_HOST: Final = 64 * 1024  # what is retained of it, and three births, 16 KB each
AUTOSAVE_CHANGES: Final = 20
AUTOSAVE_A_HOST: Final = 10  # a host's birth is four changes, or more


def render(site: Site) -> dict[str, str]:
    """Return mosquitto.conf and acl. Raises `ConfigError` for a cluster."""
    site.refuse("mosquitto", origins=True)
    if site.nodes:
        raise ConfigError("--node: mosquitto has no cluster; take NATS or RabbitMQ")
    conf = filled(
        "mosquitto.conf",
        site,
        autosave=max(AUTOSAVE_CHANGES, AUTOSAVE_A_HOST * len(site.hosts)),
        queued_messages=MAX_QUEUED_MESSAGES,
        queued_bytes=max(MAX_QUEUED_BYTES, QUEUED_BYTES_A_HOST * len(site.hosts)),
        prefix=CLIENT_PREFIX,
    )
    whole = (f"{site.topics.root}/#", "homeassistant/#")
    others = [who for who in site.principals() if who.role is not Role.AGENT]
    acl = filled(
        "acl",
        site,
        rules=_rules,
        everything=Rights(whole, whole),
        # Patterns hold for whatever name a certificate bears, people's and the coordinator's too.
        any_host=rights_of(Principal(Role.AGENT, "%u"), site.topics),
        denied=sorted({*site.denied}),
        others=[(who.name, rights_of(who, site.topics)) for who in others],
    )
    return {"mosquitto.conf": conf, "acl": acl}


def _rules(word: str, rights: Rights) -> str:
    lines = []
    for filter_ in dict.fromkeys((*rights.publish, *rights.subscribe)):
        both = filter_ in rights.publish and filter_ in rights.subscribe
        access = "readwrite" if both else "write" if filter_ in rights.publish else "read"
        lines.append(f"{word} {access} {filter_}")
    return "\n".join(lines)
