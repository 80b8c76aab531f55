"""NATS 2.9 with JetStream: nats.conf.

The user is the subject of the client's certificate, `CN=NAME` and nothing more (`verify_and_map`),
and must be among the users: a host that is enrolled later needs the file made anew. MQTT's levels
become the tokens of a subject: `/` is `.`, `+` is `*`, and `/#` is the level itself and `.>`.
"""

from __future__ import annotations

from typing import Final

from broker.acl import Principal, rights_of
from broker.deploy.site import HEAD, MAX_PACKET_BYTES, Site

_CONF: Final = """\
# {head}

server_name: fleet
# NATS's own protocol: this machine alone, and no user may use it.
listen: "127.0.0.1:{own}"
max_payload: {packet}

jetstream {{
  store_dir: "{state}"
}}

mqtt {{
  listen: "0.0.0.0:{port}"
  tls {{
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
_USER: Final = """\
      {{
        user: "CN={name}"
        allowed_connection_types: ["MQTT"]
        permissions: {{
          publish: [{publish}]
          subscribe: [{subscribe}]
        }}
      }}"""
# What a QoS 1 subscription is delivered on; a random name of the session's own.
_DELIVERY: Final = "$MQTT.sub.>"


def render(site: Site) -> dict[str, str]:
    """Return nats.conf. Raises `ConfigError` for a name with a dot, or a plain listener."""
    site.refuse_loopback("NATS")
    site.refuse_dots("NATS")
    conf = _CONF.format(
        head=HEAD,
        own=site.ports.nats,
        packet=MAX_PACKET_BYTES,
        state=site.state.as_posix(),
        port=site.ports.hosts,
        ca=site.certificate("ca.crt"),
        certificate=site.certificate("broker.crt"),
        key=site.certificate("broker.key"),
        users="\n".join(_user(who, site) for who in site.principals()),
    )
    return {"nats.conf": conf}


def _user(who: Principal, site: Site) -> str:
    rights = rights_of(who, site.topics)
    publish = [subject for one in rights.publish for subject in _subjects(one)]
    subscribe = [subject for one in rights.subscribe for subject in _subjects(one)]
    return _USER.format(
        name=who.name, publish=_quoted(publish), subscribe=_quoted([*subscribe, _DELIVERY])
    )


def _subjects(filter_: str) -> list[str]:
    subject = filter_.replace("/", ".").replace("+", "*")
    head = subject.removesuffix(".#")
    return [head, f"{head}.>"] if head != subject else [subject]


def _quoted(subjects: list[str]) -> str:
    return ", ".join(f'"{subject}"' for subject in subjects)
