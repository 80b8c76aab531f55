"""What `fleet doctor` says of an identity: until when it holds, and who renews it."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.client.access import Access
from broker.doctor.reach import Answers, _rights, check_identity, no_session
from broker.pki.identity import DAY_S, Identity
from broker.protocol.acl import REWRITE_RIGHTS
from broker.protocol.link_events import Disconnected

BY_HAND = "renew it: `fleet enroll {} --replace` on the CA's machine and `fleet join` here"


def _access(name: str, left_days: float) -> Access:
    return Access((), Identity(Path(), name, 0.0, left_days * DAY_S))


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("attic", f"a running agent renews it by itself; else {BY_HAND.format('attic')}"),
        ("operator:alice", BY_HAND.format("operator:alice")),
        ("coordinator", "`fleet init` on the CA's machine renews it"),
    ],
)
def test_who_renews_an_identity_is_told_before_its_end(name: str, remedy: str) -> None:
    found = check_identity(_access(name, 29), 0.0)
    assert (found.level, found.text) == ("warn", f"{name}, for 29 more days")
    assert found.remedy == remedy
    assert check_identity(_access(name, 31), 0.0).level == "ok"


def test_a_broker_that_ends_the_connection_for_the_holders_word_is_told() -> None:
    """As RabbitMQ does; one that refuses the subscription has given no session at all."""
    lost = Disconnected("connection lost")
    found = _rights(Answers(lost, 0.1, holds=False), "fleet/coordinator/holder")
    assert (found.level, found.remedy) == ("fail", REWRITE_RIGHTS)
    assert found.text == "connection lost, after a word in fleet/coordinator/holder"
    denied = no_session(Disconnected("refused", denied=True, remedy=REWRITE_RIGHTS), "coordinator")
    assert (denied.check, denied.level, denied.remedy) == ("rights", "fail", REWRITE_RIGHTS)


def test_where_no_identity_is_needed_that_is_said() -> None:
    found = check_identity(Access(()), 0.0)
    assert (found.level, found.text[:14]) == ("ok", "none is needed")
