"""Programs and datasets: which there are, and the addresses of their pages."""

from __future__ import annotations

import re
from typing import Final

from nicegui import ui
from starlette.responses import RedirectResponse

from broker.errors import FleetError
from coordinator.client.rows import Table, pushed_row
from coordinator.jobs import titles
from coordinator.jobs.causes import cause, in_words
from coordinator.ui.pushed import KINDS, PushedKind
from coordinator.web.frame import Site, frame, not_found
from coordinator.web.pages.job_parts import WAIT
from coordinator.web.pages.pushed_page import ProgramPage, PushedPage
from coordinator.web.parts import Tag, table_card
from coordinator.web.tables import Grid, as_rows, feed, grid

EVERY_S: Final = 10.0
ANSWER_S: Final = 20.0
MAX_TEXT: Final = 100
DIGEST: Final = re.compile(r"[0-9a-f]{64}")


def register(site: Site) -> None:
    """Make the pages known."""

    @ui.page("/programs")
    def programs() -> None:
        visit = site.visit()
        with frame(visit, "Programs", "/programs"):
            Tag("h1", "Programs", "hidden-text")
            for kind in KINDS:
                _listing(site, kind)

    for kind, page in zip(KINDS, (ProgramPage, PushedPage), strict=True):
        _register_one(site, kind, page)


def _register_one(site: Site, kind: PushedKind, page: type[PushedPage]) -> None:
    """Make the page of a program or a dataset known, by its digest, or by what means it."""
    one = kind.kind
    missing = f"No such {one}"

    @ui.page(f"/{one}/{{text}}", response_timeout=ANSWER_S)
    async def pushed(text: str) -> RedirectResponse | None:
        visit, is_one, why = site.visit(), DIGEST.fullmatch(text) is not None, ""
        if not is_one:
            found, why = await _meant(site, kind, text)
            if found:
                return RedirectResponse(f"/{one}/{found}")
        with frame(visit, one.capitalize() if is_one else missing, "/programs"):
            if is_one:
                page(site, visit, text)
            else:
                not_found(visit, missing, why, f"All {one}s", "/programs")
        return None


async def _meant(site: Site, kind: PushedKind, text: str) -> tuple[str, str]:
    """Return the digest of the program or dataset that a text means, and why there is none."""
    try:
        told = (await site.hub.ask(kind.ask()))["pushed"]
    except FleetError as error:
        return "", f"The coordinator did not tell: {error}"
    known = [f"{one['name']}@{one['digest']}" for one in told]
    found = titles.meant(text, known)
    if len(found) == 1:
        return found[0].partition("@")[2], ""
    return "", in_words(cause(f"no_{kind.kind}", **titles.not_one(text[:MAX_TEXT], known)))


def _listing(site: Site, kind: PushedKind) -> None:
    """Make a table of what people have pushed, which is asked for while it is looked at."""
    section, count = table_card(kind.title)
    rows, made = Table(), list[Grid]()

    async def ask() -> None:
        try:
            told = (await site.hub.ask(kind.ask()))["pushed"]
        except FleetError as error:
            note.say(f"The coordinator did not tell: {error}")
            return
        if section.client.is_deleted:
            return
        note.say("")
        count.set_text(f" {len(told)}")
        delta = rows.update({f"{one['name']}@{one['digest']}": (one,) for one in told}, pushed_row)
        if made:
            feed(made[0], delta)
            return
        with section:
            made.append(grid(
                kind.title, kind.columns, delta.add, sort="pushed", order="desc",
                height=as_rows(400), empty=kind.none,
            ))  # fmt: skip

    with section:
        note = Tag("p", WAIT, "note")
        ui.timer(EVERY_S, ask, immediate=True)
