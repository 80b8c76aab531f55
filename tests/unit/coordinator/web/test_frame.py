"""An open page, and whose browser it is in."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("nicegui", reason="the extra of the web page is not installed")
from nicegui import Client, core, ui
from starlette.requests import Request

from broker.clock import Now
from broker.system.settings import BrokerSettings
from coordinator.client.watcher import Watcher
from coordinator.web.artifacts import Artifacts
from coordinator.web.frame import Site
from coordinator.web.hub import Hub, News
from coordinator.web.security import COOKIE, SESSION_S, Sessions
from coordinator.web.settings import WebSettings
from tests.harness.played import played

PASSWORD = "a long enough password"  # noqa: S105 - opens nothing


class _Web:
    """A web page without a server, whose clock is the test's."""

    def __init__(self, *, private: bool) -> None:
        self.now_s = 0.0
        hub = Hub(lambda wake: Watcher(BrokerSettings(), wake, clock=self._now), self._now)
        sessions = Sessions(PASSWORD)
        artifacts = Artifacts(Path(), lambda *_: "")
        self.site = Site(hub, sessions, WebSettings(private=private), artifacts, self._now)
        self.told: list[News] = []

    def _now(self) -> Now:
        return Now(self.now_s, 1_000_000.0 + self.now_s)

    def opens(self) -> Client:
        """Somebody who has logged in opens a page, which follows the fleet."""
        self.token = token = self.site.sessions.start(PASSWORD, self.now_s)
        scope = {"type": "http", "method": "GET", "path": "/jobs", "query_string": b"",
                 "headers": [(b"cookie", f"{COOKIE}={token}".encode())]}  # fmt: skip
        with Client(ui.page("/jobs"), request=Request(scope)) as client:
            visit = self.site.visit()
        visit.follow(self.told.append)
        return client


@pytest.mark.parametrize("private", [True, False])
@played
async def test_a_private_page_is_told_nothing_once_its_session_has_ended(*, private: bool) -> None:
    web = _Web(private=private)
    web.opens()
    web.now_s = SESSION_S - 1.0
    web.site.hub.refresh()
    assert len(web.told) == 1
    web.now_s = SESSION_S
    web.site.hub.refresh()
    web.site.hub.refresh()
    assert len(web.told) == (1 if private else 3)


@played
async def test_a_private_page_that_connects_after_its_session_ended_goes_to_the_login(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    web = _Web(private=True)
    client = web.opens()
    monkeypatch.setattr(core, "loop", asyncio.get_running_loop())
    web.site.sessions.end(web.token)
    web.site.hub.refresh()
    await asyncio.sleep(0)  # its end waits for the browser
    await client.handle_handshake("socket", "tab", None, "document", None)
    await asyncio.sleep(0)
    said = [data["code"] for _, kind, data in client.outbox.messages if kind == "run_javascript"]
    assert any("/login?next=/jobs" in code for code in said)
