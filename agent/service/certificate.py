"""Renews this host's certificate in time.

The key stays, so the new certificate is one file that is replaced atomically; the link reads it at
the next connection.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from agent.core.renewal import Renewal
from broker.clock import Now, Randomness, rfc3339
from broker.errors import ConfigError, plain
from broker.pki import identity as ids
from broker.pki import keyfiles
from broker.pki.identity import Identity
from broker.protocol.events import Connected, Disconnected, Incoming, Outgoing
from broker.protocol.messages import CertificateResponse, encode
from broker.protocol.topics import Topics
from broker.system.files import RealDisk
from broker.system.machine import new_id

log = logging.getLogger("fleet.agent")


class Certificate:
    """The certificate of one identity, renewed before it ends."""

    def __init__(
        self,
        identity: Identity,
        topics: Topics,
        publish: Callable[[Outgoing], bool],
        rng: Randomness,
    ) -> None:
        """Begin with the identity as it was loaded."""
        self._identity = identity
        self._topics = topics
        self._publish = publish
        self._mark = identity.mark()
        self._renewal = Renewal(identity.begins_s, identity.ends_s, rng, new_id)
        self._connected = False

    @property
    def expires_at(self) -> str:
        """When it ends, as RFC 3339."""
        return rfc3339(self._identity.ends_s)

    def next_deadline(self) -> float | None:
        """Return when to call `turn` next (monotonic seconds); none without a connection."""
        return self._renewal.next_deadline() if self._connected else None

    def turn(self, events: Iterable[object], now: Now) -> bool:
        """Take events, ask if it is time; return whether there is a new certificate."""
        changed = False
        for event in events:
            match event:
                case Connected():
                    self._connected = True
                    changed |= self._read_again(now)
                    self._renewal.ask_at_once()
                case Disconnected():
                    self._connected = False
                case Incoming(topic, payload, retained) if not retained:
                    if topic == self._topics.identity_response(self._identity.name):
                        answer = self._renewal.answer(payload)
                        changed |= answer is not None and self._take(answer, now)
                case _:
                    pass
        if self._connected and self._renewal.due(now):
            self._ask()
        return changed

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
        self._identity = new
        self._renewal.renewed(new.begins_s, new.ends_s)
        log.info("another certificate was put there; it ends on %s", ids.day(new.ends_s))
        return True

    def _ask(self) -> None:
        request = self._renewal.asked
        if request is None:
            # Once in many months, and what it loads takes 7 MiB.
            from broker.pki import certificates as certs

            try:
                key = certs.read_key(self._identity.folder / ids.KEY_FILE)
            except ConfigError as error:
                log.warning("the certificate cannot be renewed: %s", error)
                return
            pem = certs.request_pem(key, self._identity.name).decode("ascii")
            request = self._renewal.request(pem)
        topic = self._topics.identity_request(self._identity.name)
        self._publish(Outgoing(topic, encode(request)))

    def _take(self, answer: CertificateResponse, now: Now) -> bool:
        if answer.certificate is None:
            log.warning("the certificate is not renewed: %s", answer.error)
            return False
        try:
            self._identity = self._replace(answer.certificate.encode(), now)
        except (ConfigError, OSError) as error:
            log.warning("the new certificate cannot be used: %s", plain(error))
            return False
        self._mark = self._identity.mark()
        self._renewal.renewed(self._identity.begins_s, self._identity.ends_s)
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
