"""The pages, one file each; `register` makes them known."""

from __future__ import annotations

from coordinator.web.pages import curves, host, job, jobs, overview, timeline
from coordinator.web.site import Site


def register(site: Site) -> None:
    """Make every page known to NiceGUI."""
    for page in (overview, jobs, job, host, curves, timeline):
        page.register(site)
