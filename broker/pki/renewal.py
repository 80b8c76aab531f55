"""Renews hosts' certificates: what a host asks and takes, and what the holder of the CA answers.

The key stays, so a new certificate is one file that is replaced atomically; the link reads it at
the next connection. A certificate's time is told by the wall clock, which may jump: a host looks at
it once an hour. It sends the same request until it is answered, and gets the same answer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from broker.clock import Clock, Now, Randomness, backoff_s, rfc3339
from broker.errors import BadMessage, BadTopic, ConfigError, plain
from broker.pki import identity as ids
from broker.pki import keyfiles
from broker.pki.identity import Identity
from broker.protocol.link_events import Connected, Disconnected, Incoming, Outgoing
from broker.protocol.messages import (
    CERTIFICATE_REQUEST,
    CERTIFICATE_RESPONSE,
    CertificateRequest,
    CertificateResponse,
    decode,
    encode,
)
from broker.protocol.topic_table import Kind
from broker.protocol.topics import Topics
from broker.system.files import RealDisk
from broker.system.machine import new_id

if TYPE_CHECKING:
    from broker.pki.ca import Authority

log = logging.getLogger("fleet.identity")

LEFT_SHARE: Final = 1 / 3
JITTER_SHARE: Final = 1 / 30
RETRY_S: Final = 60.0
RETRY_CAP_S: Final = 3600.0
MAX_REMEMBERED: Final = 1000

Send = Callable[[Outgoing], bool]


class Certificate:
    """The certificate of one identity, renewed before it ends."""

    def __init__(self, identity: Identity, topics: Topics, publish: Send, rng: Randomness) -> None:
        """Begin with the identity as it was loaded."""
        self._topics = topics
        self._publish = publish
        self._rng = rng
        self._connected = False
        self._take(identity)

    def _take(self, identity: Identity) -> None:
        """Nothing is asked until this one nears its end."""
        self._identity, self._mark = identity, identity.mark()
        left = LEFT_SHARE - JITTER_SHARE * self._rng.random()
        self._due_s = identity.ends_s - (identity.ends_s - identity.begins_s) * left
        self._asked: CertificateRequest | None = None
        self._failures, self._at_mono_s = 0, 0.0

    @property
    def expires_at(self) -> str:
        """When it ends, as RFC 3339."""
        return rfc3339(self._identity.ends_s)

    def next_deadline(self) -> float | None:
        """Return when to call `turn` next (monotonic seconds); none without a connection."""
        return self._at_mono_s if self._connected else None

    def turn(self, events: Iterable[object], now: Now) -> bool:
        """Take events, ask if it is time; return whether there is a new certificate."""
        changed = False
        for event in events:
            match event:
                case Connected():
                    self._connected = True
                    changed |= self._read_again(now)
                    self._failures, self._at_mono_s = 0, 0.0
                case Disconnected():
                    self._connected = False
                case Incoming(topic, payload, False) if topic == self._topics.identity_response(
                    self._identity.name
                ):
                    changed |= self._on_answer(payload, now)
                case _:
                    pass
        if self._connected and self._is_due(now):
            self._ask()
        return changed

    def _is_due(self, now: Now) -> bool:
        if now.mono_s < self._at_mono_s:
            return False
        if now.wall_s < self._due_s:
            self._at_mono_s = now.mono_s + min(RETRY_CAP_S, self._due_s - now.wall_s + 1.0)
            return False
        wait_s = max(RETRY_S, backoff_s(self._failures, 2 * RETRY_S, RETRY_CAP_S, self._rng))
        self._at_mono_s = now.mono_s + wait_s
        self._failures += 1
        return True

    def _read_again(self, now: Now) -> bool:
        """Take a certificate that `fleet join --replace` has put there; return whether it has."""
        mark = self._identity.mark()
        if mark == self._mark:
            return False
        self._mark = mark
        try:
            new = ids.load_identity(self._identity.folder, now.wall_s)
        except ConfigError:
            return False  # it is being replaced just now
        if new.name != self._identity.name:
            return False
        self._take(new)
        log.info("another certificate was put there; it ends on %s", ids.day(new.ends_s))
        return True

    def _ask(self) -> None:
        name = self._identity.name
        if self._asked is None:
            # Once in many months, and what it loads takes 7 MiB.
            from broker.pki import certificates as certs

            try:
                key = certs.read_key(self._identity.folder / ids.KEY_FILE)
            except ConfigError as error:
                log.warning("the certificate cannot be renewed: %s", error)
                return
            pem = certs.request_pem(key, name).decode("ascii")
            self._asked = CertificateRequest(id=new_id(), request=pem)
        self._publish(Outgoing(self._topics.identity_request(name), encode(self._asked)))

    def _on_answer(self, payload: bytes, now: Now) -> bool:
        try:
            answer = decode(CERTIFICATE_RESPONSE, payload)
        except BadMessage:
            return False
        if self._asked is None or answer.id != self._asked.id:
            return False
        if answer.certificate is None:
            log.warning("the certificate is not renewed: %s", answer.error)
            return False
        try:
            self._take(self._replace(answer.certificate.encode(), now))
        except (ConfigError, OSError) as error:
            log.warning("the new certificate cannot be used: %s", plain(error))
            return False
        log.info("the certificate was renewed; it ends on %s", ids.day(self._identity.ends_s))
        return True

    def _replace(self, pem: bytes, now: Now) -> Identity:
        """Put a certificate into its place. Raises `ConfigError` for one that is not ours."""
        old, disk = self._identity, RealDisk()
        path = old.folder / ids.CERTIFICATE_FILE
        making = path.with_name(f".{path.name}.new")
        keyfiles.write(making, pem, keyfiles.PUBLIC)
        try:
            new = ids.load_with(old.folder, making, now.wall_s)
            if new.name != old.name or new.ends_s <= old.ends_s:
                raise ConfigError("it is somebody else's, or ends no later than the one here")
            disk.replace(making, path)
        finally:
            making.unlink(missing_ok=True)
        disk.sync_folder(path.parent)
        return new


class Renewals:
    """Answers `fleet/<host>/identity/request`, each host one at a time; `put` never blocks."""

    def __init__(
        self,
        authority: Authority,
        topics: Topics,
        publish: Send,
        background: Callable[[Callable[[], None]], object],
        clock: Clock,
    ) -> None:
        """`background` runs a function on another thread, one after the other."""
        self._authority = authority
        self._topics = topics
        self._publish = publish
        self._background = background
        self._clock = clock
        self._busy: set[str] = set()
        self._given: dict[str, tuple[CertificateRequest, CertificateResponse]] = {}

    def put(self, message: Incoming) -> None:
        """Take a message; ignore one of another kind, a retained one and a bad one."""
        if message.retained:
            return
        try:
            topic = self._topics.parse(message.topic)
            if topic.kind is not Kind.IDENTITY_REQUEST or topic.host in self._busy:
                return
            request = decode(CERTIFICATE_REQUEST, message.payload)
        except (BadTopic, BadMessage):
            return  # the core counts it
        self._busy.add(topic.host)
        self._background(lambda: self._answer(topic.host, request))

    def _answer(self, host: str, request: CertificateRequest) -> None:
        try:
            response = self._response(host, request)
            self._publish(Outgoing(self._topics.identity_response(host), encode(response)))
        finally:
            self._busy.discard(host)

    def _response(self, host: str, request: CertificateRequest) -> CertificateResponse:
        known = self._given.get(host)
        if known is not None and known[0] == request:
            return known[1]
        try:
            made = self._authority.renew(request.request.encode(), host, self._clock().wall_s)
        except (ConfigError, OSError) as error:
            log.warning("the certificate of %s is not renewed: %s", host, plain(error))
            # A host need not know what is wrong with our files.
            why = str(error) if isinstance(error, ConfigError) else "the CA cannot be used"
            return CertificateResponse(id=request.id, error=why[:500])
        log.info("the certificate of %s was renewed", host)
        response = CertificateResponse(id=request.id, certificate=made.decode("ascii"))
        while len(self._given) >= MAX_REMEMBERED:
            del self._given[next(iter(self._given))]
        self._given[host] = (request, response)
        return response
