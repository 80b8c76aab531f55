"""One host: what it is, how it fares, what it may do, its jobs."""

from __future__ import annotations

from typing import Any, Final

from nicegui import ui

from broker.protocol.messages import AskDrain, AskResume, AskSnooze, Capability
from broker.protocol.topics import is_host
from broker.system.machine import new_id
from coordinator.client.rows import Row
from coordinator.client.seen import HostSeen
from coordinator.jobs.set_aside import begins_again
from coordinator.web.frame import Site, Visit, frame, not_found
from coordinator.web.hub import Beat, News
from coordinator.web.parts import (
    Answers,
    Facts,
    Link,
    Moment,
    Tag,
    Value,
    call,
    card,
    choices,
    listed,
    size,
    table_card,
    tick,
)  # fmt: skip
from coordinator.web.tables import Part, as_rows, feed, grid, job_columns

HOUR_S: Final = 3600
SNOOZES: Final = {
    str(HOUR_S): "1 hour", str(3 * HOUR_S): "3 hours", str(8 * HOUR_S): "8 hours",
    "tomorrow": "until tomorrow, 08:00",
}  # fmt: skip
_ALLOWED: Final = (
    "priority", "allow_jobs", "deny_jobs", "max_ram_gib", "max_vram_gib", "cuda", "slots",
    "quiet_hours", "idle_only",
)  # fmt: skip


def register(site: Site) -> None:
    """Make the page known."""

    @ui.page("/host/{name}")
    def host(name: str) -> None:
        visit = site.visit()
        row = site.hub.tables.hosts.rows.get(name) if is_host(name) else None
        with frame(visit, name if row else "No such host", "/"):
            if row is None:
                text = "No host of this name has been heard of."
                not_found(visit, "No such host", text, "All hosts", "/")
            else:
                _Page(site, visit, row).build()


class _Page:
    """One open page of one host."""

    def __init__(self, site: Site, visit: Visit, row: Row) -> None:
        self.site, self.visit, self.row = site, visit, row
        self.name: str = row["id"]
        self._bars_told: tuple[bool, bool] | None = None
        self._beat_told: Beat | None = None
        self._seen: HostSeen | None = None

    def build(self) -> None:
        """Make the page, and have it told what changes."""
        with Tag("div", classes="head"):
            Tag("h1", self.name)
            self._state = Tag("span", "", "state big", role="status", aria_live="polite")
            Tag("span", "", "grow")
            self._buttons = Tag("div", classes="filters")
        self._note = Tag("p", "", "warn")
        with Tag("div", classes="columns"):
            with Tag("div"):
                with card("Now"):
                    self._now = Facts()
                with card("What it is"):
                    self._what = Facts()
                    self._no_word = Tag("p", "It has not said yet.", "note")
            with Tag("div"):
                with card("Use"):
                    chart = ui.echart({}, renderer="svg").classes("chart").style("height: 220px")
                with card("What it may do"):
                    self._policy = Facts()
                    self._no_policy = Tag("p", "", "note")
        self._jobs()
        self._chart_id = chart.id
        call(self.visit.client, "feedBeats", chart.id, [])
        self.visit.keep_current(self._tell)

    def _jobs(self) -> None:
        rows = list(self.site.hub.tables.jobs.rows.values())
        part = Part(lambda row: row["host"] == self.name, rows)
        columns = [one for one in job_columns() if one["field"] != "host"]
        section, _ = table_card("Its jobs")
        with section:
            table = grid(f"Jobs of {self.name}", columns, list(part.rows.values()),
                         height=as_rows(15), empty="it has had no job yet")  # fmt: skip

        def on_news(news: News) -> None:
            feed(table, part.take(news.jobs))

        self.visit.follow(on_news)

    def _tell(self) -> None:
        host = self.site.hub.seen.hosts.get(self.name)
        row = self.site.hub.tables.hosts.rows.get(self.name)
        if host is None or row is None or (host is self._seen and row is self.row):
            return
        self._seen, self.row = host, row
        self._state.set_text(row["state"])
        self._state.classes(replace=f"state big tone-{row['tone']}")
        self._note.set_text(f"It is given no new jobs: {row['barred']}")
        self._note.set_visibility(bool(row["barred"]))
        self._tell_now(row)
        self._tell_what(host.capability, host.row.get("policy"))
        self._tell_beats(host.capability)
        bars = (bool(host.row.get("drained")), bool(host.row.get("snoozed")))
        if self._bars_told != bars:
            self._bars_told = bars
            self._tell_buttons(drained=bars[0], snoozed=bars[1])

    def _tell_beats(self, made: Capability | None) -> None:
        """Feed the chart: with all heartbeats at first, with the newest one since."""
        beats = list(self.site.hub.beats.get(self.name) or ())
        new = beats if self._beat_told is None else beats[-1:]
        if new and new[-1] is not self._beat_told:
            self._beat_told = new[-1]
            points = [point_of(beat, made) for beat in new]
            call(self.visit.client, "feedBeats", self._chart_id, points)

    def _tell_now(self, row: Row) -> None:
        idle = ("ending" if row["ending"] else "idle") if row["online"] else ""
        self._now.tell({
            "Heard": Moment(row["seen"]),
            "Job": Link(row["job"], f"/job/{row['job_id']}") if row["job_id"] else idle,
            "Jobs held": f"{row['jobs']} of {row['slots']} slots",
            "CPU": "" if row["cpu"] is None else f"{row['cpu']:.0f} %",
            "RAM": _of(row["ram_used"], row["ram_total"]),
            "GPU": "" if row["gpu"] is None else f"{row['gpu']:.0f} %",
            "VRAM": _of(row["vram_used"], row["vram_total"]),
            "Power": "" if row["power"] is None else f"{row['power']:.0f} W",
        })  # fmt: skip

    def _tell_what(self, made: Capability | None, policy: Any) -> None:
        self._what.tell({"In the manifest": described(policy)} | (what_it_is(made) if made else {}))
        self._no_word.set_visibility(made is None)
        said = allowed(policy)
        self._policy.tell(dict.fromkeys((name.replace("_", " ") for name in _ALLOWED), "") | said)
        self._no_policy.set_text(unsaid(policy))
        self._no_policy.set_visibility(not said)

    def _tell_buttons(self, *, drained: bool, snoozed: bool) -> None:
        self._buttons.clear()
        if not self.visit.may_act():
            return
        with self._buttons:
            if drained or snoozed:
                self.visit.act_button("Resume", self._resume)
            if not drained:
                self.visit.act_button("Snooze", self._snooze)
                self.visit.act_button("Drain", self._drain, "button danger")

    def _snooze(self) -> None:
        def fields() -> None:
            choices("For how long", "for", SNOOZES)
            _tick_now()

        self.visit.confirm(
            f"Snooze {self.name}?",
            f"{self.name} is given no new jobs for a while, and jobs again by itself."
            f"{self._becomes()}",
            "Snooze the host",
            lambda said: AskSnooze(
                id=new_id(), host=self.name, for_s=snooze_s(said), now=_is_now(said)
            ),
            fields, danger=False,
        )  # fmt: skip

    def _becomes(self) -> str:
        """Say what becomes of what it holds, and what to have it back at once would cost."""
        held = self.row["jobs"]
        if not held:
            return ""
        jobs = self._seen.row.get("jobs", ()) if self._seen else ()
        costs = "".join(f" {text}." for text in begins_again(jobs))
        return f" What it holds ({held}) is finished there.{costs}"

    def _drain(self) -> None:
        self.visit.confirm(
            f"Drain {self.name}?",
            f"{self.name} is given no new jobs until somebody resumes it.{self._becomes()}",
            "Drain the host",
            lambda said: AskDrain(id=new_id(), host=self.name, now=_is_now(said)), _tick_now,
        )  # fmt: skip

    def _resume(self) -> None:
        self.visit.confirm(
            f"Resume {self.name}?", f"{self.name} is given jobs again.", "Resume the host",
            lambda _: AskResume(id=new_id(), host=self.name), danger=False,
        )  # fmt: skip


def point_of(beat: Beat, made: Capability | None) -> list[float | int | None]:
    """Return a moment and the use of CPU, RAM, GPU and VRAM, in percent."""
    heard = beat.heartbeat
    ram = made.ram_total_bytes if made else None
    total = sum(gpu.vram_total_bytes or 0 for gpu in heard.gpus)
    free = sum(gpu.vram_free_bytes or 0 for gpu in heard.gpus)
    uses = [gpu.use_percent for gpu in heard.gpus if gpu.use_percent is not None]
    return [
        beat.at_ms,
        None if heard.cpu_percent is None else min(100.0, heard.cpu_percent),
        100.0 * (1 - heard.ram_available_bytes / ram) if ram else None,
        max(uses, default=None),
        100.0 * (1 - free / total) if total else None,
    ]


def what_it_is(made: Capability) -> dict[str, Value]:
    """Return what a host has told of itself."""
    gpus = {f"GPU {gpu.index}": f"{gpu.name}, {size(gpu.vram_total_bytes)}" for gpu in made.gpus}
    return {
        "Description": made.description,
        "System": f"{made.os}, {made.arch}, Python {made.python}",
        "CPU": f"{made.cpu or made.arch}, {made.physical_cores} cores",
        "RAM": size(made.ram_total_bytes),
        **gpus,
        "GPU problem": made.gpu_problem,
        "Trainers": ", ".join(sorted(made.trainers)),
        "torch": made.torch,
        "xgboost": made.xgboost,
        "Slots": made.slots,
        "Battery": "yes" if made.battery else "",
        "Data": made.data_id or "no prepared data",
        "Agent": made.agent_version,
        "Certificate ends": (made.certificate_expires_at or "")[:10],
    }


def described(policy: Any) -> str:
    """Return a host's description in the manifest; nothing for none."""
    return str(policy.get("description") or "") if isinstance(policy, dict) else ""


def allowed(policy: Any) -> dict[str, Value]:
    """Return what the manifest says that a host may do, by name, in words."""
    found = policy if isinstance(policy, dict) else {}
    told = {name.replace("_", " "): listed(found.get(name) or "") for name in _ALLOWED}
    return {name: words for name, words in told.items() if words}


def unsaid(policy: Any) -> str:
    """Return what is told of a host whose manifest neither allows nor forbids it anything."""
    more = " but what it is" if described(policy) else ""
    return f"The manifest says nothing of it{more}."


def _tick_now() -> None:
    tick("Give back at once what runs, to go on elsewhere", "now")


def _is_now(answers: Answers) -> bool:
    return answers.get("now") is True


def snooze_s(answers: Answers) -> float:
    """Return for how long (seconds) a browser's answers snooze a host: an hour, if they are none.

    Tomorrow begins when it does where the browser is, so that it is the browser that tells.
    """
    chosen = answers.get("for")
    if chosen == "tomorrow":
        left_s = answers.get("tomorrow_s")
        if isinstance(left_s, int | float) and 0 < left_s <= 48 * HOUR_S:
            return float(left_s)
    if isinstance(chosen, str) and chosen in SNOOZES and chosen.isdecimal():
        return float(chosen)
    return float(HOUR_S)


def _of(used: int | None, total: int | None) -> str:
    if total is None:
        return ""
    return size(total) if used is None else f"{size(used)} of {size(total)}"
