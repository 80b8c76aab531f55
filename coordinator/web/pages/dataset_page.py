"""The page of a dataset: what it is, the hosts that hold it, and the jobs that read it."""

from __future__ import annotations

from typing import Final

from nicegui import background_tasks, ui

from broker.errors import FleetError
from broker.protocol.messages import AskPushed
from broker.system.machine import new_id
from coordinator.client.mirror import HostSeen
from coordinator.client.rows import Row, pushed_row
from coordinator.web.frame import Site, Visit
from coordinator.web.pages.job_parts import MAX_HOSTS, its_jobs, scrolled
from coordinator.web.parts import Facts, Link, Moment, Tag, Value, card, fill, size

_HELD_BY: Final = "Held by"


class DatasetPage:
    """One open page of one dataset."""

    def __init__(self, site: Site, visit: Visit, digest: str) -> None:
        """Make it, and have it told what changes."""
        self.site, self.visit, self.digest = site, visit, digest
        self._hosts_told: list[list[Value]] | None = None
        with Tag("div", classes="head"):
            self._title = Tag("h1", digest[:12])
        self._note = Tag("p", "", "warn")
        self._note.say("")
        with Tag("div", classes="columns"):
            with card("About"):
                self._facts = Facts()
                self._facts.tell({"Digest": digest})
            self._hosts = card(_HELD_BY)
        its_jobs(visit, lambda row: digest in row["datasets"])
        visit.follow(lambda _news: self._tell_hosts())
        self._tell_hosts()
        background_tasks.create(self._ask())

    async def _ask(self) -> None:
        """Ask what the dataset is."""
        try:
            ask = AskPushed(id=new_id(), kind="dataset")
            told = (await self.site.hub.ask(ask))["pushed"]
        except FleetError as error:
            self._note.say(f"The coordinator did not tell more: {error}")
            return
        if self.visit.client.is_deleted:
            return
        found = [pushed_row(one) for one in told if one["digest"] == self.digest]
        if found:
            self._tell(found[0])
        else:
            why = "does not have this dataset any more; `fleet data push` brings it back"
            self._note.say(f"The fleet {why}.")

    def _tell(self, row: Row) -> None:
        with self.visit.client:
            ui.page_title(f"{row['title']} · training fleet")
        self._title.set_text(row["title"])
        self._facts.tell({
            "Size": size(row["size"]),
            "Files": f"{row['files']:,}",
            "Pushed": Moment(row["pushed"]),
            "Pushed by": row["by"],
        })  # fmt: skip

    def _tell_hosts(self) -> None:
        """Show which hosts hold it, where that has changed."""
        hosts = sorted(self.site.hub.seen.hosts.items())
        rows: list[list[Value]] = [
            [Link(name, f"/host/{name}")] for name, host in hosts if holds(host, self.digest)
        ]
        if rows == self._hosts_told:
            return
        self._hosts_told = rows
        with fill(self._hosts, _HELD_BY):
            if rows:
                scrolled(["Host"], rows[:MAX_HOSTS], _HELD_BY)
            else:
                Tag("p", "no host yet; one gets it with its first job that reads it", "note")


def holds(host: HostSeen, digest: str) -> bool:
    """Whether a host has said that it has a program or a dataset."""
    return host.capability is not None and digest in host.capability.holdings
