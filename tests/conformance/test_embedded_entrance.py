"""Who gets into the embedded broker on a network, and who does not."""

from __future__ import annotations

import socket
import ssl
import struct
import time
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding

from broker.doctor.findings import Level
from broker.doctor.reach import check_address
from broker.embedded import Reason
from broker.pki import certificates as certs
from broker.pki import keyfiles
from broker.pki.ca import CRL_FILE
from broker.system.address import Address
from tests.harness.rawmqtt import CONNACK, connect, heard, joined, packet, publish, subscribe, wire
from tests.harness.secure import HOUR_S, House
from tests.harness.waiting import wait_until

DEADLINE_S = 60.0
# paho leaves sockets open.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
Make = Callable[..., Any]  # the fixtures `client`, `new_network` and `new_embedded`
ACCEPTED, BAD_ID, UNAVAILABLE, NOT_AUTHORIZED = b"\0", b"\2", b"\3", b"\5"


def _knock(port: int, context: ssl.SSLContext | None, first: bytes) -> bytes:
    """Connect, say something, and return the answer: four bytes at most, none if closed."""
    try:
        with wire(port, context) as connection:
            connection.sendall(first)
            return heard(connection, 4)
    except OSError:
        return b""


def test_a_certificate_of_the_fleet_gets_in(network: Any) -> None:
    agent = network.client("gaming-pc")
    assert agent.paho.socket().version() == "TLSv1.3"
    older = network.tls("gaming-pc")
    older.maximum_version = ssl.TLSVersion.TLSv1_2
    assert _knock(network.port, older, connect("old")) == CONNACK + ACCEPTED
    assert not network.refused


def _impostors(tmp_path: Path, network: Any) -> dict[str, ssl.SSLContext | None]:
    """Everybody who has no good certificate of this fleet's."""
    house, other = network.house, House.make(tmp_path / "other")
    own = house.context(None)
    own.load_cert_chain(other.folder / "ca" / "ca.crt", other.folder / "ca" / "ca.key")
    shown = {
        "no certificate": None,
        "another CA's": other.known("gaming-pc"),
        "of another CA of the same name": house.odd("gaming-pc", signer=certs.new_key()),
        "expired": house.odd("late", begins_s=-3 * HOUR_S, ends_s=-HOUR_S),
        "not yet good": house.odd("early", begins_s=HOUR_S, ends_s=2 * HOUR_S),
        "a server's": house.odd("gaming-pc", server=True),
    }
    contexts = {who: house.context(folder) for who, folder in shown.items()}
    return {**contexts, "self-signed": own, "no TLS at all": None}


def test_nobody_else_gets_in(tmp_path: Path, network: Any) -> None:
    agent = network.client("gaming-pc")
    impostors = _impostors(tmp_path, network)
    for who, context in impostors.items():
        assert _knock(network.port, context, connect("x")) == b"", who
    network.refuses({Reason.TLS: len(impostors)})
    agent.publish("fleet/gaming-pc/heartbeat", b"{}")


def _looks(port: int, websocket_port: int, context: ssl.SSLContext | None) -> None:
    """Everybody who only looks whether somebody listens, in all the ways of doing it."""
    (finding,) = check_address(Address("127.0.0.1", port))  # as `fleet doctor` does
    assert finding.level is Level.OK
    for one in (port, websocket_port):
        wire(one).close()
        with wire(one) as abrupt:  # ends with a RST, as HAProxy's checks do
            abrupt.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if context is not None:
            wire(one, context).close()


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_who_looks_whether_somebody_listens_is_refused_nothing(
    tls: bool, new_network: Make, new_embedded: Make
) -> None:
    """They leave without a word. Who leaves within one is counted, before and after."""
    if tls:
        network = new_network(websocket=0)
        running, context = network.running, network.tls("gaming-pc")
    else:
        running, context = new_embedded(websocket=0), None
    broker = running.broker
    for count in (1, 2):
        _looks(broker.port, broker.websocket_port, context)
        with wire(broker.port, context) as half:
            half.sendall(connect("x")[:5])
        wait_until(lambda: bool(broker.refused), "half a CONNECT is counted")
        wait_until(lambda count=count: broker.refused == {Reason.CONNECT: count}, "it alone is")


def test_tls_of_long_ago_is_refused(network: Any) -> None:
    ancient = network.tls("gaming-pc")
    ancient.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        ancient.minimum_version = ssl.TLSVersion.TLSv1
        ancient.maximum_version = ssl.TLSVersion.TLSv1_1
    assert _knock(network.port, ancient, connect("x")) == b""
    network.refuses({Reason.TLS: 1})


@pytest.mark.parametrize(
    "names",
    [("Gaming PC",), ("operator:",), ("operator",), ("jobs",), ("a/b",), ("+",), (), ("a", "b")],
    ids=str,
)
def test_a_name_that_is_nobodys_is_not_authorised(network: Any, names: tuple[str, ...]) -> None:
    context = network.house.context(network.house.odd(*names))
    assert _knock(network.port, context, connect("x")) == CONNACK + NOT_AUTHORIZED
    network.refuses({Reason.NOBODY: 1})


def test_the_user_name_has_no_say(network: Any) -> None:
    first = connect("operator:alice", user="operator:alice")
    with joined(network.port, network.tls("gaming-pc"), first=first) as connection:
        connection.sendall(subscribe("fleet/#"))
        assert heard(connection, 5) == b"\x90\x03\0\1\x80"


def test_it_asks_who_it_is_before_it_touches_a_session(network: Any) -> None:
    victim, coordinator = network.client("gaming-pc", "victim"), network.client("coordinator")
    victim.subscribe("fleet/gaming-pc/job/request")
    nobody = network.house.context(network.house.odd("Nobody"))
    will = ("fleet/other/status", b"offline")
    for context, first in (
        (nobody, connect("victim")),
        (network.tls("gaming-pc"), connect("victim", will=will)),
        (network.tls("gaming-pc"), connect("v" * 300)),
    ):
        assert _knock(network.port, context, first) in {CONNACK + NOT_AUTHORIZED, CONNACK + BAD_ID}
    coordinator.publish("fleet/gaming-pc/job/request", b"hello")
    assert victim.next() == ("fleet/gaming-pc/job/request", b"hello")
    assert not victim.gone.is_set()


def test_it_ends_the_old_connection_at_a_takeover(network: Any) -> None:
    """Its will is published, since it said no goodbye (MQTT 3.1.1, 3.1.4-2 and 3.1.2.5)."""
    watcher = network.client("operator:alice")
    watcher.subscribe("fleet/gaming-pc/#")
    old = network.client("gaming-pc", will=("fleet/gaming-pc/status", b"lost"))
    new = network.client("gaming-pc")
    assert old.gone.wait(DEADLINE_S)
    assert watcher.next() == ("fleet/gaming-pc/status", b"lost")
    new.subscribe("fleet/gaming-pc/job/request")
    network.client("coordinator").publish("fleet/gaming-pc/job/request", b"work")
    assert new.next() == ("fleet/gaming-pc/job/request", b"work")


def test_a_goodbye_takes_the_will_away(network: Any) -> None:
    watcher = network.client("operator:alice")
    watcher.subscribe("fleet/+/status")
    context = network.tls("gaming-pc")
    polite = connect("x", will=("fleet/gaming-pc/status", b"polite"))
    with wire(network.port, context) as connection:
        connection.sendall(polite + b"\xe0\0")
        assert heard(connection, 5) == CONNACK + ACCEPTED
    network.client("gaming-pc", will=("fleet/gaming-pc/status", b"rude")).break_off()
    assert watcher.next() == ("fleet/gaming-pc/status", b"rude")


def test_it_refuses_a_will_outside_the_rights(network: Any) -> None:
    agent = network.tls("gaming-pc")
    for topic in ("fleet/pi-4/status", "fleet/coordinator/status", "$SYS/x", "other"):
        refused = connect("x", will=(topic, b"lie"))
        assert _knock(network.port, agent, refused) == CONNACK + NOT_AUTHORIZED
    good = connect("x", will=("fleet/gaming-pc/status", b"lost"))
    assert _knock(network.port, agent, good) == CONNACK + ACCEPTED
    network.refuses({Reason.WILL: 4})


@pytest.mark.parametrize("topic", ["", "fleet/+/status", "#", "a\0b"])
def test_a_will_to_no_topic_is_refused_everywhere(embedded_broker: Any, topic: str) -> None:
    assert _knock(embedded_broker.port, None, connect("x", will=(topic, b"lie"))) == b""


def _slow_starts(port: int, context: ssl.SSLContext) -> list[socket.socket]:
    """Connections that stop half-way: before TLS, within it, before CONNECT, within it."""
    half_hello = bytes.fromhex("16030100ff010000fb0303")
    made = [socket.create_connection(("127.0.0.1", port), DEADLINE_S) for _ in range(2)]
    made[1].sendall(half_hello)
    made += [wire(port, context), wire(port, context)]
    made[3].sendall(connect("slow")[:9])
    return made


def test_it_ends_whoever_does_not_connect_in_time(new_network: Make) -> None:
    network = new_network(connect_timeout_s=3.0)
    agent = network.client("gaming-pc")
    for connection in _slow_starts(network.port, network.tls("gaming-pc")):
        with connection:
            assert heard(connection, 1) == b""
    network.refuses({Reason.TIMEOUT: 4})
    agent.publish("fleet/gaming-pc/heartbeat", b"{}")


def test_an_address_has_few_connections_that_say_nothing(new_network: Make) -> None:
    network = new_network(max_waiting_per_address=3, connect_timeout_s=5.0)
    inside = network.client("gaming-pc")  # does not count: it has shown who it is
    waiting = [socket.create_connection(("127.0.0.1", network.port), 10) for _ in range(3)]
    with socket.create_connection(("127.0.0.1", network.port), DEADLINE_S) as one_more:
        begun_s = time.monotonic()
        assert heard(one_more, 1) == b""
        assert time.monotonic() - begun_s < 4.0, "not by the time that it may take to connect"
    for connection in waiting:
        assert heard(connection, 1) == b""
        connection.close()
    assert network.client("pi-4")
    network.refuses({Reason.CROWD: 1, Reason.TIMEOUT: 3})
    assert not inside.gone.is_set()


def test_a_name_has_so_many_connections(new_network: Make) -> None:
    network = new_network(max_connections_per_name=2)
    for number in range(2):
        network.client("gaming-pc", f"c{number}")
    context = network.tls("gaming-pc")
    assert _knock(network.port, context, connect("c3")) == CONNACK + UNAVAILABLE
    assert _knock(network.port, network.tls("pi-4"), connect("c3")) == CONNACK + ACCEPTED


def test_an_oversize_connect_is_refused_before_it_is_read(network: Any) -> None:
    announced = b"\x10\x80\x80\x02"  # 32 KiB
    assert _knock(network.port, network.tls("gaming-pc"), announced) == b""
    network.refuses({Reason.OVERSIZE: 1})


@pytest.mark.parametrize(
    "first",
    [
        publish("a", b"b"), b"\x10\xff\xff\xff\xff\x01", b"\x10\0", b"\xf0\0", b"GET / HTTP",
        packet(0x10, connect("x")[2:] + b"more"), b"\x10\x0d\0\4MQTT\4\2\0\x3c\0\x09z",
    ],
    ids=["publish", "endless length", "empty", "reserved", "http", "trailing", "short"],
)  # fmt: skip
def test_what_is_no_connect_ends_the_connection(network: Any, first: bytes) -> None:
    assert _knock(network.port, network.tls("gaming-pc"), first) == b""
    wait_until(lambda: sum(network.refused.values()) == 1, "nothing was counted")


def test_a_revoked_certificate_is_out_at_once(network: Any) -> None:
    watcher = network.client("operator:alice")
    watcher.subscribe("fleet/gaming-pc/status")
    agent = network.client("gaming-pc", will=("fleet/gaming-pc/status", b"lost"))
    network.house.revoke("gaming-pc")
    assert agent.gone.wait(DEADLINE_S)
    assert watcher.next() == ("fleet/gaming-pc/status", b"lost")
    again = _knock(network.port, network.tls("gaming-pc"), connect("x"))
    assert again == CONNACK + NOT_AUTHORIZED
    assert network.refused[Reason.REVOKED] == 2
    network.house.identity("gaming-pc")
    assert _knock(network.port, network.tls("gaming-pc"), connect("x")) == CONNACK + ACCEPTED
    assert not watcher.gone.is_set()


def _revoke_by_an_old_list(house: House, name: str) -> None:
    house.known(name)
    house.authority.revoke(name, time.time())
    new = x509.load_pem_x509_crl(house.crl)
    ended = new.last_update_utc - timedelta(hours=1)
    old = x509.CertificateRevocationListBuilder(new.issuer).next_update(ended)
    for one in new:
        old = old.add_revoked_certificate(one)
    signed = old.last_update(ended - timedelta(hours=1)).sign(house.authority._key, SHA256())
    keyfiles.write(house.broker / CRL_FILE, signed.public_bytes(Encoding.PEM))


def test_an_old_list_of_revocations_still_counts(network: Any) -> None:
    _revoke_by_an_old_list(network.house, "gaming-pc")
    agent = network.client("pi-4")
    _revoke_by_an_old_list(network.house, "pi-4")
    assert agent.gone.wait(DEADLINE_S), "the list was read"
    again = _knock(network.port, network.tls("gaming-pc"), connect("x"))
    assert again == CONNACK + NOT_AUTHORIZED
    assert _knock(network.port, network.tls("third"), connect("x")) == CONNACK + ACCEPTED


@pytest.mark.parametrize("how", ["garbage", "another CA's", "gone"])
def test_a_list_that_is_none_changes_nothing(
    tmp_path: Path, network: Any, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    agent = network.client("gaming-pc")
    network.house.revoke("gaming-pc")
    assert agent.gone.wait(DEADLINE_S)
    crl = network.house.broker / CRL_FILE
    if how == "garbage":
        crl.write_text("nonsense")
    elif how == "gone":
        crl.unlink()
    else:
        crl.write_bytes(House.make(tmp_path / "other").crl)
    wait_until(lambda: "those revoked before stay so" in caplog.text, "the log says nothing")
    again = _knock(network.port, network.tls("gaming-pc"), connect("x"))
    assert again == CONNACK + NOT_AUTHORIZED


def test_a_certificate_that_expires_ends_its_connection(network: Any) -> None:
    short = network.house.odd("pi-4", ends_s=3)
    with joined(network.port, network.house.context(short)) as connection:
        assert heard(connection, 1) == b""
    network.refuses({Reason.EXPIRED: 1})


def _serial(network: Any) -> int:
    with wire(network.port, network.tls("gaming-pc")) as connection:
        assert isinstance(connection, ssl.SSLSocket)
        shown = connection.getpeercert()
        assert shown is not None
        return int(str(shown["serialNumber"]), 16)


def test_a_renewed_certificate_of_the_broker_is_taken(network: Any) -> None:
    agent = network.client("gaming-pc")
    before = _serial(network)
    network.house.certify_broker()
    wait_until(lambda: _serial(network) != before, "the old one is still shown")
    agent.publish("fleet/gaming-pc/heartbeat", b"{}")


def test_a_renewal_gone_wrong_keeps_the_old_certificate(
    network: Any, caplog: pytest.LogCaptureFixture
) -> None:
    (network.house.broker / "broker.key").write_bytes(certs.key_pem(certs.new_key()))
    wait_until(lambda: "the old certificates stay in use" in caplog.text, "the log says nothing")
    assert _knock(network.port, network.tls("pi-4"), connect("x")) == CONNACK + ACCEPTED
