"""The web page while a result waits for room on the coordinator's disk, in a headless Chromium."""

from __future__ import annotations

from typing import Any

from tests.harness.browser import Browser
from tests.harness.shown import WITH_BROWSER, Shown
from tests.system.test_uploads import GATED, MIB, _spool

pytestmark = WITH_BROWSER


def test_every_page_says_how_much_room_is_needed(fleet: Any, browser: Browser) -> None:
    """As long as anything waits for it."""
    fleet.plan(GATED)
    coordinator = fleet.coordinator(reserve_bytes=1 << 40)
    _spool(fleet, "pi", fleet.until("big", "pending")["job_id"], MIB)
    fleet.agent("pi", wait=False)
    shown = Shown(fleet, browser)
    page = shown.page()
    page.until_text("The coordinator's disk is low")
    page.until_text("1 finished job waits for room on the coordinator's disk: it needs 1.0 MiB ")
    coordinator.stop()
    fleet.coordinator()
    fleet.until("big", "completed")
    page.until("!document.body.innerText.includes('disk is low')", "the end of the band")
    assert page.complaints == []
    shown.program.stop()
