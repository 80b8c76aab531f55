"""Enrolment over the network: a host fetches its certificate with a one-time token.

The token has a secret of 128 bits and the first 128 bits of the SHA-256 of the CA's certificate.
The server has a certificate of that CA for `SERVER_NAME`. Both sides speak in lines of JSON:

1. The host connects without knowing the CA, sends nothing, and reads it from the server's greeting.
   If its fingerprint is not the token's, the host leaves.
2. The host connects again, trusting that CA alone. It sends the secret, and gets the name that it
   will have. If it cannot store that, it leaves, and the token is as good as before.
3. It sends a certificate request for a key that it made itself, and gets the certificate.

A token is good for one certificate, for a time, and for a few wrong guesses. Number, size and
duration of connections are bounded.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hmac
import json
import secrets
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, Final

from broker.errors import ConfigError, LinkError, plain
from broker.pki import certificates as certs
from broker.pki import keyfiles
from broker.pki.ca import Authority, public_key
from broker.pki.identity_file import Bundle, parse_bundle

SERVER_NAME: Final = "enrolment.fleet.internal"
DEFAULT_PORT: Final = 8885
SECRET_BYTES: Final = 16
PIN_BYTES: Final = 16
MAX_TRIES: Final = 5
MAX_CONNECTIONS: Final = 16
MAX_LINE_BYTES: Final = 32 * 1024
CONNECTION_S: Final = 10.0
ACCEPT_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Token:
    """A one-time secret, and the fingerprint that identifies the CA."""

    secret: bytes = field(repr=False)
    pin: bytes

    def text(self) -> str:
        """Return it as people carry it: 52 lower-case letters and digits."""
        return base64.b32encode(self.secret + self.pin).decode("ascii").rstrip("=").lower()


def new_token(authority: Authority) -> Token:
    """Return a token for one enrolment by this CA."""
    return Token(secrets.token_bytes(SECRET_BYTES), authority.fingerprint[:PIN_BYTES])


def parse_token(text: str) -> Token:
    """Return the token in a text. Raises `ConfigError`, which does not repeat it."""
    letters = text.strip().upper()
    try:
        data = base64.b32decode(letters + "=" * (-len(letters) % 8))
    except (binascii.Error, ValueError):
        data = b""
    if len(data) != SECRET_BYTES + PIN_BYTES:
        raise ConfigError("the token is not whole; copy it from what `fleet enroll` printed")
    return Token(data[:SECRET_BYTES], data[SECRET_BYTES:])


class End(StrEnum):
    """How an enrolment ended."""

    JOINED = "joined"
    EXPIRED = "expired"
    GUESSED = "guessed"


_ANOTHER: Final = "ask for another `fleet enroll`"
_SAID: Final = {
    End.JOINED: f"this token has been used; {_ANOTHER}",
    End.EXPIRED: f"this token has expired; {_ANOTHER}",
    End.GUESSED: f"this token was given up after too many wrong ones; {_ANOTHER}",
}


@dataclass(frozen=True, slots=True)
class Offer:
    """What is offered: a certificate of `authority` for `name`, and the broker's address."""

    authority: Authority
    name: str
    broker: str
    token: Token
    lasts_s: float
    replace: bool = False


class Enrolment:
    """Serves one offer until it is taken, or its time is over."""

    def __init__(
        self, offer: Offer, monotonic_s: Callable[[], float], wall_s: Callable[[], float]
    ) -> None:
        """Begin; the offer's time runs from now. Raises `ConfigError` or OSError of the CA."""
        self._offer = offer
        self._monotonic_s = monotonic_s
        self._wall_s = wall_s
        self._ends_s = monotonic_s() + offer.lasts_s
        self._tls = _server_context(offer, wall_s())
        self._judging = threading.Lock()
        self._free = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._tries = 0
        self._end: End | None = None
        self.peer = ""

    @property
    def end(self) -> End | None:
        """How it ended; none while it goes on."""
        with self._judging:
            return self._end_by_now()

    def serve(self, listener: socket.socket) -> End:
        """Serve on a listening socket until the end, and return that."""
        listener.settimeout(ACCEPT_S)
        threads: list[threading.Thread] = []
        while (end := self.end) is None:
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            except OSError:
                time.sleep(ACCEPT_S)  # without a free descriptor it would fail again at once
                continue
            threads = [thread for thread in threads if thread.is_alive()]
            if not self._free.acquire(blocking=False):
                connection.close()
                continue
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            thread.start()
            threads.append(thread)
        listener.close()
        for thread in threads:
            thread.join(CONNECTION_S)
        return end

    def _end_by_now(self) -> End | None:
        if self._end is None and self._monotonic_s() >= self._ends_s:
            self._end = End.EXPIRED
        return self._end

    def _serve(self, connection: socket.socket) -> None:
        try:
            with _tls(connection, self._tls, server_side=True) as stream:
                _send(stream, {"v": 1, "ca": self._offer.authority.pem.decode("ascii")})
                answer = self._answer(_receive(stream), "secret", self._name_for)
                _send(stream, answer)
                if "error" not in answer:
                    peer = stream.getpeername()[0].removeprefix("::ffff:")
                    give = partial(self._give, peer=peer)
                    _send(stream, self._answer(_receive(stream), "request", give))
        except (OSError, ValueError):
            pass  # a stranger's connection that broke off, or sent garbage
        finally:
            self._free.release()

    def _answer(
        self, request: dict[str, Any], key: str, judge: Callable[[str], dict[str, Any]]
    ) -> dict[str, Any]:
        """Have what is asked under `key` judged, one at a time, unless the offer is over."""
        asked = request.get(key)
        if not isinstance(asked, str):
            return {"error": "this is no request of `fleet join`"}
        with self._judging:
            end = self._end_by_now()
            return judge(asked) if end is None else {"error": _SAID[end]}

    def _name_for(self, secret: str) -> dict[str, Any]:
        if hmac.compare_digest(secret.encode(), self._offer.token.secret.hex().encode()):
            return {"v": 1, "name": self._offer.name}
        self._tries += 1
        left = MAX_TRIES - self._tries
        if left <= 0:
            self._end = End.GUESSED
            return {"error": _SAID[self._end]}
        tries = "one more try is" if left == 1 else f"{left} more tries are"
        return {
            "error": f"this token is not the one that was printed; copy it again, {tries} allowed"
        }

    def _give(self, request: str, peer: str) -> dict[str, Any]:
        offer = self._offer
        try:
            public, now_s = public_key(request.encode()), self._wall_s()
            certificate = offer.authority.issue(public, offer.name, now_s, replace=offer.replace)
        except ConfigError as error:
            return {"error": f"{error}; {_ANOTHER}"}
        self._end, self.peer = End.JOINED, peer
        return Bundle(offer.name, offer.broker, offer.authority.pem, certificate, b"").document()


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket: on `host` if that is loopback, else on every address."""
    try:
        if host in {"127.0.0.1", "localhost"}:
            return socket.create_server(("127.0.0.1", port))
        if socket.has_dualstack_ipv6():
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
        return socket.create_server(("", port))
    except (OSError, OverflowError) as error:
        raise LinkError(
            f"cannot listen on port {port}: {plain(error)}; name another with --address {host}:PORT"
        ) from None


def fetch(
    host: str, port: int, token: Token, now_s: float, check: Callable[[str], object]
) -> Bundle:
    """Return the identity that a server of `Enrolment` gives for a token; the key is made here.

    `check` is given the name first, and may raise `ConfigError`: the token is not used up then.
    """
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    # Not verified: this connection is for reading the CA alone, and nothing is sent on it.
    unknown = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    unknown.check_hostname = False
    unknown.verify_mode = ssl.CERT_NONE
    with _connected(host, port, unknown, where) as stream:
        greeting = _receive(stream)
    authority = certs.parse_certificate(str(greeting.get("ca")).encode(), where)
    if not hmac.compare_digest(certs.fingerprint(authority)[:PIN_BYTES], token.pin):
        raise LinkError(
            f"{where} is not the machine that printed this token, or the token is mistyped; "
            "nothing was sent"
        )
    key = certs.new_key()
    known = ssl.create_default_context(
        ssl.Purpose.SERVER_AUTH, cadata=certs.certificate_pem(authority).decode("ascii")
    )
    known.minimum_version = ssl.TLSVersion.TLSv1_2
    with _connected(host, port, known, where) as stream:
        _receive(stream)
        check(str(_asked(stream, {"v": 1, "secret": token.secret.hex()}, where).get("name")))
        request = certs.request_pem(key, "fleet").decode("ascii")
        answer = _asked(stream, {"request": request}, where)
    own = {"key": certs.key_pem(key).decode(), "ca": certs.certificate_pem(authority).decode()}
    return parse_bundle(json.dumps(answer | own).encode(), where, now_s)


def _asked(stream: ssl.SSLSocket, question: dict[str, Any], where: str) -> dict[str, Any]:
    """Return the answer to a question. Raises `LinkError` with the server's words if it says no."""
    _send(stream, question)
    answer = _receive(stream)
    if "error" in answer:
        raise LinkError(f"{where}: {str(answer['error'])[:500]}")
    return answer


@contextlib.contextmanager
def _connected(
    host: str, port: int, context: ssl.SSLContext, where: str
) -> Iterator[ssl.SSLSocket]:
    try:
        connection = socket.create_connection((host, port), CONNECTION_S)
    except (OSError, OverflowError) as error:
        raise LinkError(
            f"{where} cannot be reached: {plain(error)}; does `fleet enroll` still wait there? it "
            "ends when its token was used or has expired"
        ) from None
    try:
        with _tls(connection, context, server_side=False) as stream:
            yield stream
    except ssl.SSLCertVerificationError as error:
        raise LinkError(
            f"{where} does not show that it is the CA's: {error.verify_message}; is this machine's "
            "clock right? nothing was sent"
        ) from None
    except (OSError, ValueError):
        raise LinkError(
            f"{where} broke off, or did not answer as `fleet enroll` does; ask for another token"
        ) from None


@contextlib.contextmanager
def _tls(
    connection: socket.socket, context: ssl.SSLContext, *, server_side: bool
) -> Iterator[ssl.SSLSocket]:
    """Speak TLS on a connection that ends after `CONNECTION_S`, however slowly bytes drip."""
    connection.settimeout(CONNECTION_S)
    stream = context.wrap_socket(
        connection,
        server_side=server_side,
        server_hostname=None if server_side else SERVER_NAME,
        do_handshake_on_connect=False,
    )

    def end() -> None:
        # Not SSLSocket's own: it would take the state away from the thread that is at work.
        with contextlib.suppress(OSError):
            socket.socket.shutdown(stream, socket.SHUT_RDWR)

    alarm = threading.Timer(CONNECTION_S, end)
    alarm.daemon = True
    alarm.start()
    try:
        stream.do_handshake()
        yield stream
    finally:
        alarm.cancel()
        stream.close()


def _send(stream: ssl.SSLSocket, message: dict[str, Any]) -> None:
    stream.sendall(json.dumps(message).encode() + b"\n")


def _receive(stream: ssl.SSLSocket) -> dict[str, Any]:
    """Return the next line as JSON. Raises ValueError for anything else, and OSError."""
    line = b""
    while not line.endswith(b"\n"):
        data = stream.recv(MAX_LINE_BYTES + 1 - len(line))
        line += data
        if not data or len(line) > MAX_LINE_BYTES:
            raise ValueError("no line")
    try:
        message = json.loads(line)
    except RecursionError:
        message = None
    if not isinstance(message, dict):
        raise ValueError("no object")  # noqa: TRY004 - of the stream, not of an argument
    return message


def _server_context(offer: Offer, now_s: float) -> ssl.SSLContext:
    key = certs.new_key()
    certificate = offer.authority.temporary(
        key.public_key(), SERVER_NAME, now_s, offer.lasts_s + CONNECTION_S, server=True
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    with tempfile.TemporaryDirectory() as name:  # OpenSSL takes files only; 0700, and gone at once
        folder = Path(name)
        keyfiles.write(folder / "key", certs.key_pem(key))
        keyfiles.write(folder / "crt", certificate)
        context.load_cert_chain(folder / "crt", folder / "key")
    return context


def wait_for_joining(offer: Offer, host: str, port: int, ready: Callable[[int], None]) -> Enrolment:
    """Serve `offer` until its end; `ready` is given the port. Return the enrolment as it ended."""
    listener = listen(host, port)
    enrolment = Enrolment(offer, time.monotonic, time.time)
    ready(listener.getsockname()[1])
    enrolment.serve(listener)
    return enrolment
