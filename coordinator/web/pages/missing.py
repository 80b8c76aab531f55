"""What is shown at an address that is none of ours."""

from __future__ import annotations

from collections.abc import Callable

from coordinator.web.parts import Tag, link
from coordinator.web.site import Site, frame


def missing(site: Site) -> Callable[[], None]:
    """Return what makes the page."""

    def page() -> None:
        visit = site.visit()
        visit.client.status_code = 404
        with frame(visit, "No such page"):
            Tag("h1", "No such page")
            Tag("p", "There is nothing at this address; it may be mistyped.", "note")
            link("The overview", "/", "button")

    return page
