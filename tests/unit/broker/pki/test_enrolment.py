"""Enrolment by file and over the network: who gets a certificate, and who does not."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.errors import ConfigError, LinkError
from broker.pki import certificates as certs
from broker.pki import enrolment as en
from broker.pki import identity as ids
from broker.pki.ca import Authority
from broker.pki.enrolment import (
    MAX_LINE_BYTES,
    MAX_TRIES,
    End,
    Enrolment,
    Offer,
    Token,
    fetch,
    listen,
    new_token,
    parse_token,
)
from broker.pki.identity import load_identity
from broker.pki.identity_file import Bundle, check_place, install

URL = "mqtts://pi.lan:8883"
DEADLINE_S = 60.0
ID = "gpu"


class Desk:
    """A waiting `fleet enroll`, with a clock that a test can turn."""

    def __init__(self, authority: Authority, **more: Any) -> None:
        self.late_s = 0.0
        self.open: list[socket.socket] = []
        self.token = new_token(authority)
        self.enrolment = Enrolment(
            Offer(authority, ID, URL, self.token, 60.0, **more),
            lambda: time.monotonic() + self.late_s,
            time.time,
        )
        listener = listen("127.0.0.1", 0)
        self.port: int = listener.getsockname()[1]
        self.thread = threading.Thread(target=self.enrolment.serve, args=(listener,))
        self.thread.start()

    def end(self) -> End | None:
        """Wait until it has ended; say how."""
        self.thread.join(DEADLINE_S)
        assert not self.thread.is_alive()
        return self.enrolment.end

    def fetch(
        self, token: Token | None = None, check: Callable[[str], object] = lambda _: None
    ) -> Bundle:
        return fetch("127.0.0.1", self.port, token or self.token, time.time(), check)

    def connect(self) -> socket.socket:
        """A connection of somebody who has said nothing yet."""
        self.open.append(socket.create_connection(("127.0.0.1", self.port), DEADLINE_S))
        return self.open[-1]

    def stream(self) -> socket.socket:
        """A connection of somebody who speaks TLS, after the greeting."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        stream = context.wrap_socket(self.connect(), server_hostname="x")
        self.open.append(stream)
        assert _line(stream)
        return stream


def _line(stream: socket.socket) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        data = stream.recv(4096)
        if not data:
            break
        line += data
    return line


@pytest.fixture
def desk(authority: Authority) -> Iterator[Callable[..., Desk]]:
    """`desk()`: somebody waits for a host; it is over at the end."""
    made: list[Desk] = []

    def wait(of: Authority | None = None, **more: Any) -> Desk:
        made.append(Desk(of or authority, **more))
        return made[-1]

    yield wait
    for one in made:
        one.late_s = 1e6
        for stream in one.open:
            stream.close()
        one.end()


def test_a_host_with_the_token_gets_its_certificate(
    desk: Any, authority: Authority, tmp_path: Path
) -> None:
    one = desk()
    bundle = one.fetch()
    assert one.end() is End.JOINED
    assert (bundle.name, bundle.broker) == (ID, URL)
    install(bundle, tmp_path / "gpu")
    assert load_identity(tmp_path / "gpu", time.time()).name == ID
    assert [row.name for row in authority.issued()] == [ID]
    assert one.enrolment.peer == "127.0.0.1"


def test_a_token_is_good_for_one_host(desk: Any, authority: Authority) -> None:
    one = desk()
    early, late = one.stream(), one.stream()  # were there before the first was served
    assert _said(early, secret=one.token.secret.hex()) == {"v": 1, "name": ID}
    one.fetch()
    request = certs.request_pem(certs.new_key(), "x").decode()
    assert "has been used" in _said(early, request=request)["error"]
    assert "has been used" in _said(late, secret=one.token.secret.hex())["error"]
    early.close()
    late.close()
    assert one.end() is End.JOINED
    with pytest.raises(LinkError, match="does `fleet enroll` still wait there"):
        one.fetch()
    assert len(authority.issued()) == 1


def test_two_at_the_same_moment_get_one_certificate(desk: Any, authority: Authority) -> None:
    one = desk()
    got: list[Bundle] = []
    lost: list[str] = []

    def come() -> None:
        try:
            got.append(one.fetch())
        except LinkError as error:
            lost.append(str(error))

    threads = [threading.Thread(target=come) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert (len(got), len(lost)) == (1, 5)
    assert len(authority.issued()) == 1


def _said(stream: socket.socket, **question: str) -> dict[str, Any]:
    stream.sendall(json.dumps(question).encode() + b"\n")
    return dict(json.loads(_line(stream)))


def test_a_request_without_the_secret_is_none(desk: Any, authority: Authority) -> None:
    one = desk()
    stream = one.stream()
    request = certs.request_pem(certs.new_key(), "x").decode()
    assert "no request of `fleet join`" in _said(stream, request=request)["error"]
    with contextlib.suppress(OSError, ValueError):
        pytest.fail(str(_said(stream, request=request)))
    stream.close()
    assert authority.issued() == []
    assert one.fetch().name == ID


def test_a_host_that_has_no_place_for_it_leaves_the_token_as_it_was(
    desk: Any, authority: Authority, tmp_path: Path
) -> None:
    one = desk()
    install(_issued(authority), tmp_path / ID)
    before = (tmp_path / ID / "client.crt").read_bytes()
    asked: list[str] = []

    def check(name: str) -> None:
        asked.append(name)
        check_place(tmp_path / name)

    for _ in range(MAX_TRIES + 1):  # and it is no guess
        with pytest.raises(ConfigError, match="another identity is there; take --replace"):
            one.fetch(check=check)
    assert asked == [ID] * (MAX_TRIES + 1)
    assert [row.revoked_s is None for row in authority.issued()] == [False]
    assert one.enrolment.end is None
    one.fetch(check=lambda name: check_place(tmp_path / name, replace=True))
    assert one.end() is End.JOINED
    assert [path.name for path in tmp_path.glob("gpu/.*")] == []
    assert (tmp_path / ID / "client.crt").read_bytes() == before


def _issued(authority: Authority) -> Bundle:
    """An identity of before, which was revoked since."""
    key = certs.new_key()
    certificate = authority.issue(key.public_key(), ID, time.time())
    authority.revoke(ID, time.time())
    return Bundle(ID, URL, authority.pem, certificate, certs.key_pem(key))


def test_a_token_that_expired_is_good_for_nobody(desk: Any, authority: Authority) -> None:
    one = desk()
    early = one.stream()
    asked = one.stream()
    assert _said(asked, secret=one.token.secret.hex())["name"] == ID
    one.late_s = 61.0
    request = certs.request_pem(certs.new_key(), "x").decode()
    assert "this token has expired" in _said(asked, request=request)["error"]
    assert "this token has expired" in _said(early, secret=one.token.secret.hex())["error"]
    asked.close()
    early.close()
    assert one.end() is End.EXPIRED
    with pytest.raises(LinkError, match="cannot be reached: Connection refused; does"):
        one.fetch()
    assert authority.issued() == []


def test_guessing_ends_it(desk: Any, authority: Authority) -> None:
    one = desk()
    told: list[str] = []
    wrong = Token(bytes(16), one.token.pin)
    for _ in range(MAX_TRIES):
        with pytest.raises(LinkError, match=r"not the one that was printed|given up") as said:
            one.fetch(wrong)
        told.append(str(said.value))
    assert "4 more tries are allowed" in told[0]
    assert ["ask for another" in text for text in told] == [False] * 4 + [True]
    assert one.end() is End.GUESSED
    with pytest.raises(LinkError):
        one.fetch()
    assert authority.issued() == []


@pytest.mark.parametrize("shows", ["another CA", "the CA", "a host's", "the broker's"])
def test_an_impostor_is_told_nothing(
    desk: Any, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shows: str
) -> None:
    """The CA's certificate is no secret, but nobody has a key of it for the server's name."""
    impostor = desk(Authority.create(tmp_path / "other", time.time()))
    heard: list[Any] = []
    monkeypatch.setattr(impostor.enrolment, "_answer", lambda *said: heard.append(said) or {})
    if shows != "another CA":
        monkeypatch.setattr(impostor.enrolment._offer.authority, "pem", authority.pem)
    if shows in {"a host's", "the broker's"}:
        key, now_s = certs.new_key(), time.time()
        made = (
            authority.issue(key.public_key(), "pi", now_s)
            if shows == "a host's"
            else authority.issue_broker(key.public_key(), ["127.0.0.1"], now_s)
        )
        ids.write_identity(tmp_path / "shown", authority.pem, made, certs.key_pem(key))
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(tmp_path / "shown" / "client.crt", tmp_path / "shown" / "client.key")
        monkeypatch.setattr(impostor.enrolment, "_tls", tls)
    with pytest.raises(LinkError, match=r"nothing was sent"):
        impostor.fetch(new_token(authority))
    assert heard == []


@pytest.mark.parametrize(
    "bytes_",
    [b"{}\n", b"[]\n", b"GET / HTTP/1.1\r\n\r\n", b"[" * 20000 + b"\n", b"\xff\xfe\n",
     b'{"secret": 1}\n', b'{"secret": "\\ud800"}\n'],
)  # fmt: skip
def test_garbage_changes_nothing(desk: Any, bytes_: bytes) -> None:
    one = desk()
    stream = one.stream()
    stream.sendall(bytes_)
    assert b"certificate" not in _line(stream).replace(b"no request", b"")
    stream.close()
    assert one.fetch().name == ID


def test_a_right_token_with_garbage_for_a_request_is_not_spent(desk: Any) -> None:
    one = desk()
    stream = one.stream()
    assert _said(stream, secret=one.token.secret.hex())["name"] == ID
    assert "the certificate request is none" in _said(stream, request="garbage")["error"]
    stream.close()
    assert one.fetch().name == ID


def test_a_request_that_is_too_large_is_cut_off(desk: Any) -> None:
    one = desk()
    sent_bytes = _drip(one.stream(), b"x" * 1024, 0.0)
    assert sent_bytes < 100 * MAX_LINE_BYTES  # the rest is in the system's buffers
    assert one.fetch().name == ID


def _drip(stream: socket.socket, data: bytes, pause_s: float) -> int:
    """Send again and again until the other side ends the connection; return how much went out."""
    sent_bytes = 0
    deadline_s = time.monotonic() + DEADLINE_S
    stream.settimeout(max(pause_s, 0.001))
    while time.monotonic() < deadline_s:
        try:
            stream.sendall(data)
            sent_bytes += len(data)
            if stream.recv(1) == b"":
                return sent_bytes
        except TimeoutError:
            continue
        except OSError:
            return sent_bytes
    pytest.fail("it was never cut off")


def test_slow_and_silent_connections_end_and_stop_nobody(
    desk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(en, "CONNECTION_S", 3.0)
    one = desk()
    silent = [one.connect() for _ in range(9)]
    dripping = one.stream()
    begun_s = time.monotonic()
    assert one.fetch().name == ID
    _drip(dripping, b"x", 0.05)
    for stream in silent:
        _drip(stream, b"", 0.05)
    assert time.monotonic() - begun_s < 25.0, "one after the other it would be 30 s"
    assert one.end() is End.JOINED


def test_more_connections_than_allowed_are_turned_away(desk: Any) -> None:
    one = desk()
    before = threading.active_count()
    crowd = [one.connect() for _ in range(40)]
    assert crowd[-1].recv(1) == b""  # at once, since others are there
    assert threading.active_count() <= before + 2 * en.MAX_CONNECTIONS  # each with its alarm
    for stream in crowd:
        stream.close()
    deadline_s = time.monotonic() + DEADLINE_S
    while True:
        try:
            assert one.fetch().name == ID
            break
        except LinkError:
            assert time.monotonic() < deadline_s


def test_who_has_a_certificate_gets_another_only_if_it_is_replaced(
    desk: Any, authority: Authority
) -> None:
    authority.issue(certs.new_key().public_key(), ID, time.time())
    with pytest.raises(LinkError, match="gpu has a certificate until"):
        desk().fetch()
    desk(replace=True).fetch()
    assert [row.revoked_s is None for row in authority.issued()] == [False, True]


def test_a_token_is_one_word_and_survives_copying(authority: Authority) -> None:
    token = new_token(authority)
    assert len(token.text()) == 52
    assert token.text().isalnum()
    assert parse_token(f" {token.text().upper()}\n") == token
    assert new_token(authority).secret != token.secret
    assert token.secret.hex() not in repr(token)
    assert str(token.secret) not in repr(token)


@pytest.mark.parametrize("text", ["", "x", "0" * 52, "é" * 52, "a" * 51, "a" * 53, "a" * 100_000])
def test_what_is_no_token_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(ConfigError, match="the token is not whole") as refusal:
        parse_token(text)
    assert len(str(refusal.value)) < 100
