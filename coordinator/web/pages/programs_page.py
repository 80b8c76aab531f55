"""Programs and datasets: which there are; of each program its parameters, hosts and jobs."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from nicegui import background_tasks, ui
from starlette.responses import RedirectResponse

from broker.errors import FleetError
from broker.figures import in_toml
from broker.protocol.hyperschema import may_be
from broker.protocol.messages import AskPushed, AskTrainers, Program
from broker.protocol.reasons import Reason, of_program
from broker.system.machine import new_id
from coordinator.client.mirror import HostSeen
from coordinator.client.rows import Table, pushed_row, title_of
from coordinator.jobs import titles
from coordinator.jobs.causes import cause, in_words
from coordinator.jobs.reason_words import all_words
from coordinator.ui.pushed import KINDS, PushedKind
from coordinator.web.frame import Site, Visit, frame, not_found
from coordinator.web.pages.dataset_page import DatasetPage, holds
from coordinator.web.pages.job_parts import MAX_HOSTS, WAIT, its_jobs, scrolled
from coordinator.web.parts import (
    Facts,
    Link,
    Moment,
    Tag,
    Value,
    card,
    fill,
    listed,
    plain_table,
    size,
    table_card,
)
from coordinator.web.tables import Grid, as_rows, feed, grid

EVERY_S: Final = 10.0
ANSWER_S: Final = 20.0
MAX_TEXT: Final = 100
DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_MADE: Final = {"none": "the agent's own interpreter", "uv": "made by uv on each host"}


def register(site: Site) -> None:
    """Make the pages known."""

    @ui.page("/programs")
    def programs() -> None:
        visit = site.visit()
        with frame(visit, "Programs", "/programs"):
            Tag("h1", "Programs", "hidden-text")
            for kind in KINDS:
                _listing(site, kind)

    for kind, page in zip(KINDS, (_Page, DatasetPage), strict=True):
        _register_one(site, kind, page)


def _register_one(site: Site, kind: PushedKind, page: Callable[[Site, Visit, str], Any]) -> None:
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


class _Page:
    """One open page of one program."""

    def __init__(self, site: Site, visit: Visit, digest: str) -> None:
        """Make it, and have it told what changes."""
        self.site, self.visit, self.digest = site, visit, digest
        self._program: Program | None = None
        self._hosts_told: list[list[Value]] | None = None
        jobs = site.hub.tables.jobs.rows.values()
        name = next((row["model"] for row in jobs if row["program"] == digest), "")
        with Tag("div", classes="head"):
            self._title = Tag("h1", title_of(name, self.digest) if name else self.digest[:12])
        self._note = Tag("p", "", "warn")
        self._note.say("")
        with Tag("div", classes="columns"):
            with Tag("div"):
                with card("About"):
                    self._facts = Facts()
                    self._facts.tell({"Digest": self.digest})
                self._parameters = card("Parameters")
            with Tag("div"):
                self._hosts = card("Hosts")
        for told_later in (self._parameters, self._hosts):
            with told_later:
                Tag("p", WAIT, "note")
        its_jobs(visit, lambda row: row["program"] == digest, "model", "mode")
        visit.follow(lambda _news: self._tell_hosts())
        background_tasks.create(self._ask())

    async def _ask(self) -> None:
        """Ask what the program is, and for its parameters."""
        ask = self.site.hub.ask
        try:
            programs, trainers = await asyncio.gather(
                ask(AskPushed(id=new_id(), kind="program")), ask(AskTrainers(id=new_id()))
            )
        except FleetError as error:
            self._note.say(f"The coordinator did not tell more: {error}")
            return
        told = [one for one in programs["pushed"] if one["digest"] == self.digest]
        if self.visit.client.is_deleted:
            return
        if not told:
            why = "does not have this program any more; `fleet push` brings it back"
            self._note.say(f"The fleet {why}.")
            for place in (self._parameters, self._hosts):
                place.set_visibility(False)
            return
        self._tell(told[0], trainers["trainers"].get(f"{told[0]['name']}@{self.digest}") or {})

    def _tell(self, told: Mapping[str, Any], trainer: Mapping[str, Any]) -> None:
        row, schema = pushed_row(told), trainer.get("hyper_schema") or {}
        with self.visit.client:
            ui.page_title(f"{row['title']} · training fleet")
        self._title.set_text(row["title"])
        self._facts.tell({
            "What it is": schema.get("description"),
            "Signed by": row["signers"],
            "Pushed": Moment(row["pushed"]),
            "Pushed by": row["by"],
            "Size": size(row["size"]),
            "Environment": _MADE.get(told["environment"], told["environment"]),
            "Keeps checkpoints": "yes" if trainer.get("resumable") else "no",
            "Datasets": listed(trainer.get("data")),
            "Inputs": listed(trainer.get("inputs")),
            "Needs": listed(trainer.get("needs")),
        })  # fmt: skip
        with fill(self._parameters, "Parameters"):
            _show_parameters(schema)
        self._program = Program(
            digest=self.digest, size_bytes=told["size_bytes"], signers=tuple(told["signers"]),
            environment=told["environment"],
        )  # fmt: skip
        self._tell_hosts()

    def _tell_hosts(self) -> None:
        """Show which hosts let it in, and why others do not, where that has changed."""
        if self._program is None:
            return
        rows = hosts_of(self._program, self.site.hub.seen.hosts)
        if rows == self._hosts_told:
            return
        self._hosts_told = rows
        with fill(self._hosts, "Hosts"):
            if rows:
                scrolled(["Host", "Lets it in", "Has it", "Why not"], rows[:MAX_HOSTS], "Hosts")
            else:
                Tag("p", "no host is known yet", "note")


def hosts_of(program: Program, hosts: Mapping[str, HostSeen]) -> list[list[Value]]:
    """Return each host, whether it lets a program in and has it, and why not.

    Those that let it in come first.
    """
    against = {
        name: [*of_program(program, host.capability.programs)] if host.capability else None
        for name, host in sorted(hosts.items())
    }
    names = sorted(against, key=lambda name: against[name] != [])
    rows = list[list[Value]]()
    for name in names:
        lets, why_not = _answer(against[name])
        has = "yes" if holds(hosts[name], program.digest) else ""
        rows.append([Link(name, f"/host/{name}"), lets, has, why_not])
    return rows


def _answer(against: Sequence[Reason] | None) -> tuple[str, str]:
    """Return whether a host lets a program in, and why not; none: it has not said what it is."""
    if against is None:
        return "", "it has not said yet what it is"
    return ("no", all_words(against)) if against else ("yes", "")


def _show_parameters(schema: Mapping[str, Any]) -> None:
    rows = parameters_of(schema)
    if rows:
        plain_table(["Parameter", "Default", "What it may be"], rows, "Parameters", stacks=True)
    else:
        left_out = "" if schema else "; too much for one answer: its program.toml has them"
        Tag("p", f"none{left_out}", "note")


def parameters_of(schema: Mapping[str, Any]) -> list[list[Value]]:
    """Return of each parameter its name, its default, and what it may be, in words."""
    required = schema.get("required") or ()
    return [
        [
            name,
            "required" if name in required else in_toml(one.get("default")),
            ": ".join(filter(None, (may_be(one), listed(one.get("description"))))),
        ]
        for name, one in (schema.get("properties") or {}).items()
    ]
