"""Renews hosts' certificates and reads the CA's journal, where the coordinator has the CA.

A worker thread reads and writes the CA's files. Each host has one request at a time, and the same
request gets the same answer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from broker.clock import Clock
from broker.errors import BadMessage, BadTopic, ConfigError, plain
from broker.pki import ca_journal
from broker.pki.ca import Authority
from broker.protocol.events import Incoming, Outgoing
from broker.protocol.messages import (
    CERTIFICATE_REQUEST,
    CertificateRequest,
    CertificateResponse,
    decode,
)
from broker.protocol.messages import encode as encode_message
from broker.protocol.topic_table import Kind
from broker.protocol.topics import Topics
from broker.system.deadline import SOON_S, Aside, Looks
from coordinator.core.effects import JournalRead

log = logging.getLogger("fleet.coordinator")

LOOK_EVERY_S: Final = 5.0
MAX_REMEMBERED: Final = 1000


class JournalReader:
    """Reads the CA's journal, when it has changed."""

    def __init__(self, folder: Path, soon_s: float = SOON_S) -> None:
        """`folder` is the CA's. Nothing has been read; see `Looks` for `soon_s`."""
        self._folder = folder
        self._seen: tuple[int, int] | None = None
        self._looks = Looks(self._look, LOOK_EVERY_S, Aside(), soon_s)
        self._hangs = False

    @property
    def due_s(self) -> float:
        """When to look again (monotonic, s)."""
        return self._looks.due_s

    def news(self, mono_s: float) -> JournalRead | None:
        """Return the whole journal if it is time to look and it has changed, else none.

        A disk that does not answer at once is left to a later call.
        """
        try:
            found = self._looks.take(mono_s)
        except TimeoutError as error:
            if not self._hangs:
                log.warning("what was done with the CA cannot be read: %s", error)
            self._hangs = True
            return None
        self._hangs = False
        return found

    def _look(self) -> JournalRead | None:
        path = self._folder / ca_journal.FILE_NAME
        try:
            found = path.stat()
            stamp = (found.st_mtime_ns, found.st_size)
            if stamp == self._seen:
                return None
            entries = tuple((one.who, one) for one in ca_journal.read(self._folder).entries)
        except FileNotFoundError:
            return None
        except (OSError, ConfigError) as error:
            log.warning("what was done with the CA cannot be read: %s", plain(error))
            return None
        self._seen = stamp
        return JournalRead(entries)


class Renewals:
    """Answers `fleet/<host>/identity/request`; `put` never blocks."""

    def __init__(
        self,
        authority: Authority,
        topics: Topics,
        publish: Callable[[Outgoing], bool],
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
            topic = self._topics.identity_response(host)
            self._publish(Outgoing(topic, encode_message(response)))
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
