"""Every topic of the tree with real names in it, and somebody of each role."""

from __future__ import annotations

import itertools
from typing import Final

from broker.protocol.acl import Principal
from broker.protocol.topic_table import TABLE, Kind
from broker.protocol.topics import Topics

JOB: Final = "1" * 64
ARTIFACT: Final = "a" * 64
# Somebody of each role, and a second one of those roles that there may be many of.
EVERYBODY: Final = [
    Principal.parse(name)
    for name in (
        "coordinator", "homeassistant", "one", "two",
        "operator:alice", "operator:bob", "observer:carol", "observer:dave",
    )
]  # fmt: skip


def tree(topics: Topics) -> list[tuple[Kind, str, str]]:
    """Return every kind of topic with two names each in it: (kind, whose, topic)."""
    found = {}
    for kind in Kind:
        for host, user in itertools.product(("one", "two"), ("operator:alice", "observer:carol")):
            topic = _address(topics, kind, host, user)
            found[topic] = (kind, user if "/operator/" in topic else host, topic)
    return list(found.values())


def _address(topics: Topics, kind: Kind, host: str, user: str) -> str:
    filled = f"fleet/{TABLE[kind].pattern}".format(
        host=host, node=host, user=user, client="cli-1", job_id=JOB, artifact_id=ARTIFACT, index=3
    )
    topic = filled.replace("fleet", topics.root, 1)
    assert topics.parse(topic).kind is kind
    return topic
