"""The pages, one file each; `register` makes them known."""

from __future__ import annotations

from coordinator.web.frame import Site
from coordinator.web.pages import (
    curves_page,
    host_page,
    job_page,
    jobs_page,
    overview_page,
    timeline_page,
)


def register(site: Site) -> None:
    """Make every page known to NiceGUI."""
    for page in (overview_page, jobs_page, job_page, host_page, curves_page, timeline_page):
        page.register(site)
