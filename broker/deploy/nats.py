"""NATS 2.9 with JetStream: nats.conf.

The user is the subject of the certificate, `CN=NAME` (`verify_and_map`), and has to be listed:
after an enrolment the file is made again. `/` of a topic becomes `.` of a subject, `+` becomes `*`,
and `/#` becomes the level itself and `.>`.
"""

from __future__ import annotations

from typing import Final

from broker.deploy.site import HEAD, MAX_PACKET_BYTES, Node, Site
from broker.protocol.acl import Principal, rights_of

ROUTES_PORT: Final = 6222

_CONF: Final = """\
# {head}

server_name: "{name}"
# NATS's own protocol: this machine alone, and no user may use it.
listen: "127.0.0.1:{own}"
max_payload: {packet}

jetstream {{
  store_dir: "{state}"
}}

{cluster}{websocket}mqtt {{
  listen: "0.0.0.0:{port}"
{replicas}  tls {{
    ca_file: "{ca}"
    cert_file: "{certificate}"
    key_file: "{key}"
    verify_and_map: true
  }}
}}

accounts {{
  FLEET {{
    jetstream: enabled
    users: [
{users}
    ]
  }}
}}
"""
# A host's certificate has no address of a node in it, and so is none's here.
_CLUSTER: Final = """\
cluster {{
  name: fleet
  listen: "0.0.0.0:{port}"
  routes: [{routes}]
  tls {{
    ca_file: "{ca}"
    cert_file: "{certificate}"
    key_file: "{key}"
    verify_cert_and_check_known_urls: true
    timeout: 5
  }}
}}

"""
# MQTT is at the path /mqtt.
_WEBSOCKET: Final = """\
websocket {{
  listen: "0.0.0.0:{port}"
  # A browser would show its user's certificate for any page: which ones may open a websocket.
  {pages}
  tls {{
    ca_file: "{ca}"
    cert_file: "{certificate}"
    key_file: "{key}"
    verify_and_map: true
  }}
}}

"""
_REPLICAS: Final = "  stream_replicas: 3\n"
_USER: Final = """\
      {{
        user: "CN={name}"
        allowed_connection_types: [{types}]
        permissions: {{
          publish: [{publish}]
          subscribe: [{subscribe}]
        }}
      }}"""
# What a QoS 1 subscription is delivered on; a random name of the session's own.
_DELIVERY: Final = "$MQTT.sub.>"


def render(site: Site) -> dict[str, str]:
    """Return nats.conf. Raises `ConfigError` for a name with a dot, or a plain listener."""
    site.refuse("NATS", loopback=True, dots=True)
    conf = _CONF.format(
        head=HEAD,
        name=site.node.called if site.node else "fleet",
        cluster=_cluster(site, site.node) if site.node else "",
        websocket=_websocket(site, site.ports.websocket) if site.ports.websocket else "",
        replicas=_REPLICAS if site.node else "",
        own=site.ports.nats,
        packet=MAX_PACKET_BYTES,
        state=site.state.as_posix(),
        port=site.ports.hosts,
        **site.tls_files(),
        users="\n".join(_user(who, site) for who in site.principals()),
    )
    return {"nats.conf": conf}


def _cluster(site: Site, node: Node) -> str:
    return _CLUSTER.format(
        port=node.port or ROUTES_PORT,
        routes=_quoted([f"nats://{one.host}:{one.port or ROUTES_PORT}" for one in site.nodes]),
        **site.tls_files(),
    )


def _websocket(site: Site, port: int) -> str:
    allowed = f"allowed_origins: [{_quoted([*site.origins])}]"
    pages = allowed if site.origins else "same_origin: true"
    return _WEBSOCKET.format(port=port, pages=pages, **site.tls_files())


def _user(who: Principal, site: Site) -> str:
    rights = rights_of(who, site.topics)
    publish = [subject for one in rights.publish for subject in _subjects(one)]
    subscribe = [subject for one in rights.subscribe for subject in _subjects(one)]
    types = ["MQTT", "MQTT_WS"] if site.ports.websocket is not None else ["MQTT"]
    return _USER.format(
        name=who.name,
        types=_quoted(types),
        publish=_quoted(publish),
        subscribe=_quoted([*subscribe, _DELIVERY]),
    )


def _subjects(filter_: str) -> list[str]:
    subject = filter_.replace("/", ".").replace("+", "*")
    head = subject.removesuffix(".#")
    return [head, f"{head}.>"] if head != subject else [subject]


def _quoted(subjects: list[str]) -> str:
    return ", ".join(f'"{subject}"' for subject in subjects)
