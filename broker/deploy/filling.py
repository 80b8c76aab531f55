"""A broker's files from the templates beside this module."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from broker.deploy.site import HEAD, MAX_PACKET_BYTES, Site

_TEMPLATES: Final = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("templates")),
    autoescape=False,  # noqa: S701 - no HTML; names and folders of a site are plain
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


def filled(name: str, site: Site, **more: Any) -> str:
    """Return the file called `name` for a site; `more` is what its template needs beside it."""
    return _TEMPLATES.get_template(f"{name}.j2").render(
        head=HEAD,
        site=site,
        tls=site.tls_files(),
        folder=site.folder.as_posix().rstrip("/"),
        state=site.state.as_posix().rstrip("/"),
        max_packet_bytes=MAX_PACKET_BYTES,
        **more,
    )
