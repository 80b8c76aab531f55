"""mosquitto 2.0: mosquitto.conf(5) and its acl_file.

The user is the common name of the client's certificate. On the hosts' listener it is the client id
as well, so that no host can throw another one off. People have a listener of their own, because
several programs of one person run at once.
"""

from __future__ import annotations

from typing import Final

from broker.deploy.site import HEAD, MAX_PACKET_BYTES, Site
from broker.errors import ConfigError
from broker.protocol.acl import Principal, Rights, rights_of
from broker.protocol.topic_table import Role
from broker.protocol.topics import CLIENT_PREFIX

MAX_QUEUED_MESSAGES: Final = 100_000  # above the number of retained messages of a large fleet
MAX_QUEUED_BYTES: Final = 256 * 1024 * 1024
QUEUED_BYTES_A_HOST: Final = 64 * 1024  # what is retained of it, and three births, 16 KB each
MAX_INFLIGHT_MESSAGES: Final = 1000
AUTOSAVE_CHANGES: Final = 20
AUTOSAVE_A_HOST: Final = 10  # a host's birth is four changes, or more

_CONF: Final = """\
# {head}

# Survives a kill -9: after so many changes all retained messages are written again. The more hosts
# there are, the longer that takes, and the broker serves nobody meanwhile.
persistence true
persistence_location {state}/
autosave_on_changes true
autosave_interval {autosave}

# At the defaults a coordinator would be sent the first thousand retained messages and no more. It
# is sent what is retained of all hosts, and then their births: what does not fit is lost.
max_queued_messages {queued}
max_queued_bytes {queued_bytes}
# At the default of 20 the heartbeats of a fleet that comes back overtake its births.
max_inflight_messages {inflight}

# The largest chunk and its topic.
max_packet_size {packet}
set_tcp_nodelay true

# A client id is first come, last served. Hosts go by the name in their certificate, which cannot
# begin like this: nobody on the people's listener can throw them off.
clientid_prefixes {prefix}

allow_anonymous {anonymous}
acl_file {folder}/acl
"""
_LISTENER: Final = """
# {what}
listener {port}
cafile {ca}
certfile {certificate}
keyfile {key}
tls_version tlsv1.2
require_certificate true
use_identity_as_username true
"""
_LOOPBACK: Final = """
# This machine alone, in plain text; everybody who is on it may do everything.
listener {port} 127.0.0.1
"""


def render(site: Site) -> dict[str, str]:
    """Return mosquitto.conf and acl. Raises `ConfigError` for a cluster."""
    site.refuse("mosquitto", origins=True)
    if site.nodes:
        raise ConfigError("--node: mosquitto has no cluster; take NATS or RabbitMQ")
    return {"mosquitto.conf": _conf(site), "acl": _acl(site)}


def _conf(site: Site) -> str:
    text = _CONF.format(
        head=HEAD,
        state=site.state.as_posix().rstrip("/"),
        autosave=max(AUTOSAVE_CHANGES, AUTOSAVE_A_HOST * len(site.hosts)),
        queued=MAX_QUEUED_MESSAGES,
        queued_bytes=max(MAX_QUEUED_BYTES, QUEUED_BYTES_A_HOST * len(site.hosts)),
        inflight=MAX_INFLIGHT_MESSAGES,
        packet=MAX_PACKET_BYTES,
        prefix=CLIENT_PREFIX,
        anonymous="true" if site.loopback else "false",
        folder=site.folder.as_posix().rstrip("/"),
    )
    text += _listener(site, "Hosts and the coordinator.", site.ports.hosts)
    text += "use_username_as_clientid true\n"
    text += _listener(site, "People and Home Assistant.", site.ports.people)
    if site.ports.websocket is not None:
        text += _listener(site, "People's browsers.", site.ports.websocket)
        text += "protocol websockets\n"
    if site.loopback:
        text += _LOOPBACK.format(port=site.ports.loopback)
    return text


def _listener(site: Site, what: str, port: int) -> str:
    text = _LISTENER.format(what=what, port=port, **site.tls_files())
    if site.revoked:
        text += f"crlfile {(site.certificates / 'crl.pem').as_posix()}\n"
    return text


def _acl(site: Site) -> str:
    parts = [f"# {HEAD}"]
    if site.loopback:
        whole = (f"{site.topics.root}/#", "homeassistant/#")
        rules = _rules("topic", Rights(whole, whole))
        parts.append(f"# Whoever is on this machine.\n{rules}")
    parts.append(_HOSTS + _rules("pattern", rights_of(Principal(Role.AGENT, "%u"), site.topics)))
    parts += [f"{_DENIED}user {name}\ntopic deny #" for name in sorted({*site.denied})]
    for who in site.principals():
        if who.role is not Role.AGENT:
            rules = _rules("topic", rights_of(who, site.topics))
            parts.append(f"user {who.name}\n{rules}")
    return "\n\n".join(parts) + "\n"


_DENIED: Final = "# Revoked: a reload ends what a connection that is there can do.\n"
# Patterns hold for whatever name a certificate bears, people's and the coordinator's too.
_HOSTS: Final = """\
# Any host, also one that is enrolled later: %u is the name in its certificate. These lines hold for
# people and the coordinator as well, and give them nothing: no host can be called like them, and
# what comes from a host that is none is dropped by everybody.
"""


def _rules(word: str, rights: Rights) -> str:
    lines = []
    for filter_ in dict.fromkeys((*rights.publish, *rights.subscribe)):
        both = filter_ in rights.publish and filter_ in rights.subscribe
        access = "readwrite" if both else "write" if filter_ in rights.publish else "read"
        lines.append(f"{word} {access} {filter_}")
    return "\n".join(lines)
