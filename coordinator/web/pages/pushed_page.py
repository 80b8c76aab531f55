"""The pages of a program and of a dataset: what it is, its hosts, its jobs; of a program more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from nicegui import background_tasks, ui

from broker.errors import FleetError
from broker.figures import in_toml, size
from broker.protocol.hyperschema import may_be
from broker.protocol.messages import AskPushed, AskTrainers, Program, PushKind
from broker.protocol.reasons import Reason, of_program
from broker.system.machine import new_id
from coordinator.client.mirror import HostSeen
from coordinator.client.rows import Row, pushed_row, title_of
from coordinator.jobs.reason_words import all_words
from coordinator.ui.facts import Link, Moment, Value
from coordinator.ui.words import listed
from coordinator.web.frame import Site, Visit
from coordinator.web.pages.job_parts import MAX_HOSTS, its_jobs, scrolled
from coordinator.web.parts import Facts, Tag, card, fill, plain_table

_MADE: Final = {"none": "the agent's own interpreter", "uv": "made by uv on each host"}


class PushedPage:
    """One open page of what was pushed: of a dataset, where no subclass says otherwise.

    `again` is the verb that brings it back, `nowhere` what is said where there is no host to show,
    `columns` are those of the hosts; its jobs are told of `without` some.
    """

    kind: PushKind = "dataset"
    again = "fleet data push"
    hosts_title = "Held by"
    columns: tuple[str, ...] = ("Host",)
    nowhere = "no host yet; one gets it with its first job that reads it"
    without: tuple[str, ...] = ()

    def __init__(self, site: Site, visit: Visit, digest: str) -> None:
        self.site, self.visit, self.digest = site, visit, digest
        self._hosts_told: list[list[Value]] | None = None
        with Tag("div", classes="head"):
            self._title = Tag("h1", self.title())
        self._note = Tag("p", "", "warn")
        self._note.say("")
        with Tag("div", classes="columns"):
            with Tag("div") as self._about, card("About"):
                self._facts = Facts()
                self._facts.tell({"Digest": digest})
            self._hosts = card(self.hosts_title)
        its_jobs(visit, self.is_of, *self.without)
        visit.keep_current(self._tell_hosts)
        background_tasks.create(self._ask())

    def title(self) -> str:
        """Return how it is called before the coordinator has told its name."""
        return self.digest[:12]

    def is_of(self, job: Row) -> bool:
        """Whether a job reads it."""
        return self.digest in job["datasets"]

    async def facts(self, _told: Mapping[str, Any], row: Row) -> Mapping[str, Value]:
        """Return what it alone has; its page has been told `_told`, of which `row` is made."""
        return {"Files": f"{row['files']:,}"}

    def hosts_of(self, hosts: Mapping[str, HostSeen]) -> list[list[Value]]:
        """Return the rows of its table of hosts."""
        return [[_link(name)] for name in sorted(hosts) if _holds(hosts[name], self.digest)]

    async def _ask(self) -> None:
        try:
            ask = AskPushed(id=new_id(), kind=self.kind)
            told = (await self.site.hub.ask(ask))["pushed"]
            found = next((one for one in told if one["digest"] == self.digest), None)
            row = pushed_row(found) if found else {}
            facts = await self.facts(found, row) if found else {}
        except FleetError as error:
            self._note.say(f"The coordinator did not tell more: {error}")
            return
        if self.visit.client.is_deleted:
            return
        if not found:
            why = f"does not have this {self.kind} any more; `{self.again}` brings it back"
            self._note.say(f"The fleet {why}.")
            return
        with self.visit.client:
            ui.page_title(f"{row['title']} · training fleet")
        self._title.set_text(row["title"])
        self._facts.tell({
            **facts,
            "Size": size(row["size"]),
            "Pushed": Moment(row["pushed"]),
            "Pushed by": row["by"],
        })  # fmt: skip
        self._tell_hosts()

    def _tell_hosts(self) -> None:
        """Show its hosts, where that has changed."""
        rows = self.hosts_of(self.site.hub.seen.hosts)
        if rows == self._hosts_told:
            return
        self._hosts_told = rows
        with fill(self._hosts, self.hosts_title):
            if rows:
                scrolled(self.columns, rows[:MAX_HOSTS], self.hosts_title)
            else:
                Tag("p", self.nowhere, "note")


class ProgramPage(PushedPage):
    """One open page of a program, with its parameters, and whether each host lets it in."""

    kind = "program"
    again = "fleet push"
    hosts_title = "Hosts"
    columns = ("Host", "Lets it in", "Has it", "Why not")
    nowhere = "none is known yet"
    without = ("model", "mode")

    def __init__(self, site: Site, visit: Visit, digest: str) -> None:
        """Make it; what hosts go by comes with the coordinator's answer."""
        self._program: Program | None = None
        super().__init__(site, visit, digest)

    def title(self) -> str:
        """Return its name, where a job tells it."""
        jobs = self.site.hub.tables.jobs.rows.values()
        name = next((row["model"] for row in jobs if self.is_of(row)), "")
        return title_of(name, self.digest) if name else super().title()

    def is_of(self, job: Row) -> bool:
        """Whether a job runs it."""
        return bool(job["program"] == self.digest)

    async def facts(self, told: Mapping[str, Any], row: Row) -> Mapping[str, Value]:
        """Return what it does and needs, and show its parameters."""
        trainers = (await self.site.hub.ask(AskTrainers(id=new_id())))["trainers"]
        trainer = trainers.get(f"{told['name']}@{self.digest}") or {}
        schema = trainer.get("hyper_schema") or {}
        self._program = Program(
            digest=self.digest, size_bytes=told["size_bytes"], signers=tuple(told["signers"]),
            environment=told["environment"],
        )  # fmt: skip
        if not self.visit.client.is_deleted:
            with self._about, card("Parameters"):
                _show_parameters(schema)
        return {
            "What it is": schema.get("description"),
            "Signed by": row["signers"],
            "Environment": _MADE.get(told["environment"], told["environment"]),
            "Keeps checkpoints": "yes" if trainer.get("resumable") else "no",
            "Datasets": listed(trainer.get("data")),
            "Inputs": listed(trainer.get("inputs")),
            "Needs": listed(trainer.get("needs")),
        }

    def hosts_of(self, hosts: Mapping[str, HostSeen]) -> list[list[Value]]:
        """Return each host, whether it lets it in and has it, and why not."""
        return lets_in(self._program, hosts) if self._program is not None else []


def lets_in(program: Program, hosts: Mapping[str, HostSeen]) -> list[list[Value]]:
    """Return each host, whether it lets a program in and has it, and why not.

    Those that let it in come first.
    """
    against = {
        name: [*of_program(program, host.capability.programs)] if host.capability else None
        for name, host in sorted(hosts.items())
    }
    rows = list[list[Value]]()
    for name in sorted(against, key=lambda name: against[name] != []):
        lets, why_not = _answer(against[name])
        has = "yes" if _holds(hosts[name], program.digest) else ""
        rows.append([_link(name), lets, has, why_not])
    return rows


def _answer(against: Sequence[Reason] | None) -> tuple[str, str]:
    """Return whether a host lets a program in, and why not; none: it has not said what it is."""
    if against is None:
        return "", "it has not said yet what it is"
    return ("no", all_words(against)) if against else ("yes", "")


def _holds(host: HostSeen, digest: str) -> bool:
    return host.capability is not None and digest in host.capability.holdings


def _link(host: str) -> Link:
    return Link(host, f"/host/{host}")


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
