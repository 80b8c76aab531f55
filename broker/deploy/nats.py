"""NATS 2.9 with JetStream: nats.conf.

The user is the subject of the certificate, `CN=NAME` (`verify_and_map`), and has to be listed:
after an enrolment the file is made again. `/` of a topic becomes `.` of a subject, `+` becomes `*`,
and `/#` becomes the level itself and `.>`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from broker.deploy.filling import filled
from broker.deploy.site import Site
from broker.protocol.acl import Principal, rights_of

ROUTES_PORT: Final = 6222
# What a QoS 1 subscription is delivered on; a random name of the session's own.
_DELIVERY: Final = "$MQTT.sub.>"


def render(site: Site) -> dict[str, str]:
    """Return nats.conf. Raises `ConfigError` for a name with a dot, or a plain listener."""
    site.refuse("NATS", loopback=True, dots=True)
    conf = filled(
        "nats.conf",
        site,
        quoted=_quoted,
        routes_port=ROUTES_PORT,
        routes=[f"nats://{one.host}:{one.port or ROUTES_PORT}" for one in site.nodes],
        users=[_user(who, site) for who in site.principals()],
    )
    return {"nats.conf": conf}


def _user(who: Principal, site: Site) -> tuple[str, list[str], list[str]]:
    """Return a name, and the subjects that it may publish to and subscribe to."""
    rights = rights_of(who, site.topics)
    publish = [subject for one in rights.publish for subject in _subjects(one)]
    subscribe = [subject for one in rights.subscribe for subject in _subjects(one)]
    return who.name, publish, [*subscribe, _DELIVERY]


def _subjects(filter_: str) -> list[str]:
    subject = filter_.replace("/", ".").replace("+", "*")
    head = subject.removesuffix(".#")
    return [head, f"{head}.>"] if head != subject else [subject]


def _quoted(subjects: Iterable[str]) -> str:
    return ", ".join(f'"{subject}"' for subject in subjects)
