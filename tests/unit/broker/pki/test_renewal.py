"""Renewal: when a host asks, what the coordinator signs, and what the host takes."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509

from broker.clock import Now
from broker.errors import ConfigError
from broker.pki import certificates as certs
from broker.pki import identity as ids
from broker.pki import keyfiles
from broker.pki.ca import MAX_HELD, Authority
from broker.pki.identity import DAY_S, load_identity
from broker.pki.renewal import Certificate, Renewals
from broker.protocol.link_events import Connected, Disconnected, Incoming, Outgoing
from broker.protocol.messages import (
    CERTIFICATE_REQUEST,
    CERTIFICATE_RESPONSE,
    CertificateResponse,
    decode,
    encode,
)
from broker.protocol.topics import Topics

pytestmark = pytest.mark.system

NOW_S = 1.8e9
YEAR_S = 365 * DAY_S
TOPICS = Topics()


class Host:
    """A host `pi` with a certificate, the coordinator that has the CA, and the clock of both."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority.create(folder / "ca", NOW_S)
        self.wall_s = NOW_S
        self.folder = folder / "pi"
        self.key = certs.new_key()
        made = self.authority.issue(self.key.public_key(), "pi", NOW_S)
        ids.write_identity(self.folder, self.authority.pem, made, certs.key_pem(self.key))
        self.asked: list[Outgoing] = []
        self.answers: list[Outgoing] = []
        self.renewals = Renewals(
            self.authority, TOPICS, self._answered, self._at_once, lambda: self.now
        )
        self.certificate = Certificate(
            load_identity(self.folder, NOW_S), TOPICS, self._ask, random.Random(1)
        )
        self.certificate.turn([Connected("s")], self.now)

    @property
    def now(self) -> Now:
        return Now(self.wall_s, self.wall_s)

    def _ask(self, message: Outgoing) -> bool:
        self.asked.append(message)
        return True

    def _answered(self, message: Outgoing) -> bool:
        self.answers.append(message)
        return True

    @staticmethod
    def _at_once(function: Callable[[], None]) -> None:
        function()

    def passes(self, seconds: float) -> None:
        """Time passes; every deadline on the way is kept."""
        end_s = self.wall_s + seconds
        while (due_s := self.certificate.next_deadline()) is not None and due_s <= end_s:
            self.wall_s = max(self.wall_s, due_s)
            self.certificate.turn([], self.now)
        self.wall_s = end_s

    def serve(self) -> list[CertificateResponse]:
        """The coordinator gets what was asked; its answers."""
        for message in self.asked:
            self.renewals.put(Incoming(message.topic, message.payload, False))
        self.asked.clear()
        return [decode(CERTIFICATE_RESPONSE, one.payload) for one in self.answers]

    def hears(self) -> bool:
        """The host gets the answers; whether it has a new certificate."""
        events = [Incoming(one.topic, one.payload, False) for one in self.answers]
        self.answers.clear()
        return self.certificate.turn(events, self.now)

    def present(self) -> x509.Certificate:
        return certs.read_certificate(self.folder / "client.crt")


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_a_host_asks_when_a_third_is_left_and_gets_the_next_one(host: Host) -> None:
    before = host.present()
    host.passes(YEAR_S * 0.66)
    assert host.asked == []
    host.passes(YEAR_S * 0.05)
    assert {one.topic for one in host.asked} == {"fleet/pi/identity/request"}
    host.serve()
    assert host.hears()
    after = host.present()
    assert after.public_key() == before.public_key()
    assert after.serial_number != before.serial_number
    assert load_identity(host.folder, host.wall_s).ends_s == pytest.approx(
        host.wall_s + YEAR_S, abs=2
    )
    assert host.certificate.expires_at.startswith(ids.day(host.wall_s + YEAR_S))
    host.passes(YEAR_S * 0.6)
    assert host.asked == []


def test_connections_that_come_and_go_make_one_request(host: Host) -> None:
    host.wall_s += YEAR_S * 0.7
    for _ in range(3):
        host.certificate.turn([Disconnected("gone"), Connected("s")], host.now)
    assert len(host.asked) == 3
    assert len(set(host.asked)) == 1


def test_a_certificate_that_was_put_there_is_the_one_from_the_next_connection_on(
    host: Host,
) -> None:
    """As `fleet join --replace` does: its end is announced, and no old request is sent again."""
    host.passes(YEAR_S * 0.7)
    assert len(set(host.asked)) == 1
    host.asked.clear()
    key = certs.new_key()
    made = host.authority.issue(key.public_key(), "pi", host.wall_s, replace=True)
    ids.write_identity(host.folder, host.authority.pem, made, certs.key_pem(key))
    host.certificate.turn([Disconnected("gone")], host.now)
    assert host.certificate.turn([Connected("t")], host.now), "it has another end"
    assert host.certificate.expires_at.startswith(ids.day(host.wall_s + YEAR_S))
    host.passes(YEAR_S * 0.6)
    assert host.asked == []
    assert not host.certificate.turn([Connected("u")], host.now)


def test_it_asks_again_ever_more_seldom_and_in_the_same_words(host: Host) -> None:
    """A coordinator without the CA does not answer."""
    host.passes(YEAR_S * 0.71)
    asked = len(host.asked)
    assert len({one.payload for one in host.asked}) == 1
    host.passes(DAY_S)
    assert 24 <= len(host.asked) - asked <= 50
    host.certificate.turn([Disconnected("gone")], host.now)
    assert host.certificate.next_deadline() is None
    host.asked.clear()
    host.certificate.turn([Connected("t")], host.now)
    assert len(host.asked) == 1


def test_the_fleet_does_not_ask_in_one_moment(host: Host) -> None:
    begun = []
    for seed in range(20):
        asked: list[Outgoing] = []
        identity = load_identity(host.folder, NOW_S)
        one = Certificate(identity, TOPICS, asked.append, random.Random(seed))
        mono_s = NOW_S
        one.turn([Connected("s")], Now(mono_s, mono_s))
        while not asked:
            mono_s = one.next_deadline() or 0.0
            one.turn([], Now(mono_s, mono_s))
        begun.append(mono_s)
    assert max(begun) - min(begun) > 5 * DAY_S
    assert NOW_S + YEAR_S * 0.66 < min(begun) <= max(begun) < NOW_S + YEAR_S * 0.71


def test_the_same_request_gets_the_same_answer(host: Host) -> None:
    host.passes(YEAR_S * 0.7)
    host.asked = host.asked[:1] * 3
    given = host.serve()
    assert len(given) == 3
    assert len({one.certificate for one in given}) == 1
    assert len(host.authority.issued()) == 2


def test_a_revoked_host_gets_none_over_the_connection_that_it_has(host: Host) -> None:
    host.passes(YEAR_S * 0.7)
    host.authority.revoke("pi", host.wall_s)
    first = host.asked[:]
    (given,) = {one.error for one in host.serve()}
    assert given == "pi has no certificate of this key that holds"
    host.authority.issue(certs.new_key().public_key(), "pi", host.wall_s)
    host.answers.clear()
    host.asked = first
    assert all(one.certificate is None for one in host.serve())
    assert not host.hears()


def test_the_name_in_the_topic_counts(host: Host) -> None:
    host.passes(YEAR_S * 0.7)
    payload = host.asked[0].payload
    host.authority.issue(certs.new_key().public_key(), "gpu", host.wall_s)
    host.renewals.put(Incoming(TOPICS.identity_request("gpu"), payload, False))
    answer = decode(CERTIFICATE_RESPONSE, host.answers[0].payload)
    assert host.answers[0].topic == "fleet/gpu/identity/response"
    assert answer.certificate is None


@pytest.mark.parametrize(
    "payload", [b"", b"{}", b"\xff", b'{"v":1,"id":"a","request":7}', b"x" * 300_000]
)
def test_garbage_gets_no_answer(host: Host, payload: bytes) -> None:
    topic = TOPICS.identity_request("pi")
    host.renewals.put(Incoming(topic, payload, False))
    host.passes(YEAR_S * 0.7)
    host.renewals.put(Incoming(topic, host.asked[0].payload, True))
    host.renewals.put(Incoming("fleet/a/b/identity/request", host.asked[0].payload, False))
    host.renewals.put(Incoming("fleet/jobs/identity/request", host.asked[0].payload, False))
    assert host.answers == []


def test_a_host_takes_its_own_certificate_alone(host: Host, tmp_path: Path) -> None:
    host.passes(YEAR_S * 0.7)
    asked = decode(CERTIFICATE_REQUEST, host.asked[0].payload)
    other = Authority.create(tmp_path / "other", NOW_S)
    late_s, own = host.wall_s, host.key.public_key()
    wrong = {
        "name": host.authority.issue(own, "gpu", late_s),
        "key": host.authority.issue(certs.new_key().public_key(), "pi", late_s, replace=True),
        "ca": other.issue(own, "pi", late_s),
        "older": host.authority.issue(own, "pi", late_s, days=1, replace=True),
        "server": host.authority.issue_broker(own, ["pi"], late_s),
    }
    before = host.present()
    for what, pem in wrong.items():
        said = CertificateResponse(id=asked.id, certificate=pem.decode())
        topic = TOPICS.identity_response("pi")
        assert not host.certificate.turn([Incoming(topic, encode(said), False)], host.now), what
    good = host.authority.issue(own, "pi", late_s, replace=True).decode()
    for message in (
        Incoming(topic, encode(CertificateResponse(id="other", certificate=good)), False),
        Incoming(topic, encode(CertificateResponse(id=asked.id, certificate=good)), True),
        Incoming(topic, b"garbage", False),
        Incoming(TOPICS.identity_response("gpu"),
                 encode(CertificateResponse(id=asked.id, certificate=good)), False),
    ):  # fmt: skip
        assert not host.certificate.turn([message], host.now)
    assert host.present() == before
    said = CertificateResponse(id=asked.id, certificate=good)
    assert host.certificate.turn([Incoming(topic, encode(said), False)], host.now)


def test_lost_answers_do_not_fill_the_registry(host: Host) -> None:
    for number in range(MAX_HELD - 1):
        request = certs.request_pem(host.key, f"n{number}")
        host.authority.renew(request, "pi", host.wall_s)
    with pytest.raises(ConfigError, match="take `fleet enroll`"):
        host.authority.renew(request, "pi", host.wall_s)


def test_a_ca_that_cannot_be_used_is_told_without_its_place(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> bytes:
        raise OSError(28, "No space left on device", "/secret/place")

    monkeypatch.setattr(host.authority, "renew", full)
    host.passes(YEAR_S * 0.7)
    host.asked = host.asked[:1]
    (answer,) = host.serve()
    assert answer.error == "the CA cannot be used"


def test_an_identity_whose_key_is_gone_does_not_end_the_agent(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    key = (host.folder / "client.key").read_bytes()
    (host.folder / "client.key").unlink()
    host.passes(YEAR_S * 0.7)
    assert host.asked == []
    assert "client.key: cannot be read: No such file" in caplog.text
    keyfiles.write(host.folder / "client.key", key)
    host.passes(DAY_S)
    assert len(set(host.asked)) == 1
