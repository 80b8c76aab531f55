"""Sessions, and what a request and a connection must be to reach the pages.

- A password starts a session. Its token is random, and all else is kept here: a logout, and the end
  of the process, ends it for good.

- A name in `Host` that is not ours is refused: another site's name may be made to point at this
  machine (DNS rebinding), and its scripts would then read the pages.
- What changes something, and every websocket, has to come from our own pages (`Origin`): NiceGUI's
  websocket takes any origin by itself.
- Headers that proxies set are dropped, since nobody here vouches for them; by what address browsers
  come through a proxy, the settings say.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from hashlib import sha256
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.responses import PlainTextResponse, RedirectResponse
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from broker.clock import Clock
from broker.system.address import machine_of
from coordinator.web.settings import WebSettings

SESSION_S: Final = 12 * 3600.0
TRIES: Final = 5  # wrong passwords
TRIES_IN_S: Final = 60.0


@dataclass(slots=True)
class Sessions:
    """The browsers that have logged in. `password` none: nobody can, the page is read only."""

    password: str | None
    _ends_s: dict[str, float] = field(default_factory=dict)
    _wrong_s: deque[float] = field(default_factory=lambda: deque(maxlen=TRIES))

    def wait_s(self, now_s: float) -> float:
        """Return for how long no further password is looked at: wrong ones were too many.

        Counted over all browsers: an attacker has many addresses.
        """
        if len(self._wrong_s) < TRIES:
            return 0.0
        return max(0.0, self._wrong_s[0] + TRIES_IN_S - now_s)

    def start(self, password: str, now_s: float) -> str | None:
        """Return the token of a new session; none for a wrong password, or one too many."""
        if self.password is None or self.wait_s(now_s) > 0.0:
            return None
        # Digests: of equal length whatever was typed, so that no time tells the password's.
        given, wanted = (sha256(text.encode()).digest() for text in (password, self.password))
        if not hmac.compare_digest(given, wanted):
            self._wrong_s.append(now_s)
            return None
        token = secrets.token_urlsafe(32)
        self._ends_s = {key: end_s for key, end_s in self._ends_s.items() if end_s > now_s}
        self._ends_s[token] = now_s + SESSION_S
        return token

    def is_open(self, token: str | None, now_s: float) -> bool:
        """Whether a browser's token is of a session that has not ended."""
        return self._ends_s.get(token or "", 0.0) > now_s

    def end(self, token: str | None) -> None:
        """End a session, if it is one."""
        self._ends_s.pop(token or "", None)


def local_path(text: str | None) -> str:
    """Return a path of this site to go to, or the first page for anything else.

    What is not one plain path would send a browser to somebody else's site.
    """
    if not text or len(text) > 500 or not text.isprintable() or "\\" in text:
        return "/"
    return text if text.startswith("/") and not text.startswith("//") else "/"


Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

COOKIE: Final = "fleet_session"
# Everything from here, nothing from elsewhere. NiceGUI needs inline scripts and `new Function`.
POLICY: Final = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:; "
    "connect-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'self'"
)
_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
# What needs no password on a private page: the way to give it, and files of ours that it needs.
_OPEN: Final = frozenset({"/login", "/favicon.ico"})
_FILES: Final = "/fleet/"


class Guard:
    """The outermost part of the application."""

    def __init__(
        self, app: App, settings: WebSettings, sessions: Sessions, machine: str, clock: Clock
    ) -> None:
        """Take the application; `machine` is this machine's own name."""
        self._app = app
        self._clock = clock
        self._settings = settings
        self._sessions = sessions
        own = machine.casefold().rstrip(".")
        self._public_name = urlsplit(settings.public_url).hostname or ""
        names = {"localhost", settings.host.casefold(), own, own.partition(".")[0]}
        names |= {f"{own.partition('.')[0]}.local", self._public_name}
        names |= {name.casefold().rstrip(".") for name in settings.names}
        self._names = frozenset(names - {""})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, or refuse it."""
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        refused = self.refusal(scope["type"], scope.get("method", ""), headers)
        if refused:
            await _refuse(scope, receive, send, refused)
            return
        if self._settings.private and not self._may_look(scope["path"], headers):
            if scope["type"] == "http":
                await RedirectResponse("/login", 303)(scope, receive, send)
            else:
                await _refuse(scope, receive, send, "log in")
            return
        scope["headers"] = [
            (name, value) for name, value in scope["headers"]
            if not name.startswith(b"x-forwarded-") and name != b"forwarded"
        ]  # fmt: skip
        await self._app(scope, receive, _with_headers(send, self._settings.scheme))

    def refusal(self, kind: str, method: str, headers: dict[bytes, str]) -> str:
        """Return why a request is refused, in words for whoever reads it; empty: it is not."""
        host = headers.get(b"host", "")
        if not self._is_ours(host):
            name = _name(host)
            return (
                f"this page is not called {name!r}; start `fleet dashboard` with --name {name} "
                "if it should be"
            )
        changes = kind == "websocket" or method not in {"GET", "HEAD", "OPTIONS"}
        # Polling, which Socket.IO falls back to, is a websocket by other means.
        origin = headers.get(b"origin")
        if origin is None:
            return "no Origin: a browser says where it comes from" if changes else ""
        if not changes or origin in self._origins(host):
            return ""
        where = f" than {self._settings.public_origin}" if self._is_public(host) else ""
        return f"this was sent from another site{where}"

    def _origins(self, host: str) -> set[str]:
        """Return from where a page that is called by this `Host` may send something."""
        own, public = f"{self._settings.scheme}://{host}", self._settings.public_origin
        if not self._settings.public_url:
            return {own}
        # A page of the public name without TLS is made by anybody who is on the way to it.
        return {public} if self._is_public(host) else {own, public}

    def _is_public(self, host: str) -> bool:
        return bool(self._public_name) and _name(host) == self._public_name

    def _is_ours(self, host: str) -> bool:
        name = _name(host)
        try:
            ip_address(name)
        except ValueError:
            return name in self._names
        return True  # nobody can make an address point elsewhere

    def _may_look(self, path: str, headers: dict[bytes, str]) -> bool:
        if path in _OPEN or path.startswith(_FILES):
            return True
        return self._sessions.is_open(
            session_token(headers.get(b"cookie", "")), self._clock().mono_s
        )


def session_token(cookies: str) -> str | None:
    """Return the session's token in a Cookie header, if there is one."""
    try:
        found = SimpleCookie(cookies[:4096]).get(COOKIE)
    except CookieError:
        return None
    return None if found is None else found.value


def _name(host: str) -> str:
    try:
        return (urlsplit(f"//{host}").hostname or "").casefold().rstrip(".")
    except ValueError:
        return ""


def _with_headers(send: Send, scheme: str) -> Send:
    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            headers = message["headers"] = list(message.get("headers", ()))
            headers += _HEADERS
            if scheme == "https":
                headers.append((b"strict-transport-security", b"max-age=31536000"))
            if not any(name.lower() == b"content-security-policy" for name, _ in headers):
                headers.append((b"content-security-policy", POLICY.encode()))
        await send(message)

    return sending


async def _refuse(scope: Scope, receive: Receive, send: Send, why: str) -> None:
    if scope["type"] == "websocket":
        await receive()  # the handshake; refused before it is taken
        await send({"type": "websocket.close", "code": 1008})
        return
    await PlainTextResponse(why + "\n", 403)(scope, receive, send)


# A silent connection makes room for others, and ends after some seconds. Uvicorn alone would wait
# for ever for a first request, and answer everybody that it is busy.

MAX_CONNECTIONS: Final = 500
MAX_OF_ONE: Final = 100  # address; an open page has some six of them
REQUEST_S: Final = 10.0  # for a request, its body too, from the connection or the last one on


class Connection(HttpToolsProtocol):
    """A browser's connection, until it becomes a websocket, whose silence ends by its own pings."""

    def __init__(self, *, most_of_one: int, **of_uvicorn: Any) -> None:
        """Prepare; `most_of_one` is how many connections an address may have."""
        super().__init__(**of_uvicorn)
        self._most_of_one = most_of_one
        self._served: object = None  # the request that was the last one when we looked
        self._timer: asyncio.TimerHandle | None = None
        self.begun_s = self.loop.time()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take it in; if there are too many, the one that is silent longest has to go."""
        super().connection_made(transport)
        same = [one for one in self.connections if _machine(one) == _machine(self)]
        if len(same) > self._most_of_one or len(self.connections) >= MAX_CONNECTIONS:
            crowd = same if len(same) > self._most_of_one else self.connections
            silent = [
                one for one in crowd
                if isinstance(one, Connection) and one is not self and one.is_silent()
            ]  # fmt: skip
            leaves = min(silent, key=lambda one: one.begun_s, default=self)
            self.connections.discard(leaves)  # now: its end is told later
            leaves.transport.abort()
        self._timer = self.loop.call_later(REQUEST_S, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        super().connection_lost(exc)
        if self._timer is not None:
            self._timer.cancel()

    def is_silent(self) -> bool:
        """Tell whether it is the browser's turn to say something."""
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

    def _look(self) -> None:
        if self not in self.connections:
            return  # it is a websocket now
        if self.is_silent() and self._served is self.cycle:
            self.transport.abort()
            return
        self._served = self.cycle
        self._timer = self.loop.call_later(REQUEST_S, self._look)


def _machine(connection: Any) -> str:
    peer = connection.transport.get_extra_info("peername")
    return machine_of(str(peer[0])) if peer else ""
