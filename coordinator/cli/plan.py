"""`fleet plan`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from broker.clock import rfc3339
from broker.errors import ConfigError
from broker.figures import counted, some
from broker.protocol.messages import AskStatus
from broker.system.machine import new_id, system_clock
from coordinator.cli.reload import announced, rows_of, told
from coordinator.client.predictions import Picture, look
from coordinator.jobs.causes import Cause, cause, in_words
from coordinator.jobs.reasons import Wait
from coordinator.ui import EXIT_REFUSED, outlook, terminal
from coordinator.ui.fitted_table import Column, Table
from coordinator.ui.live import View, viewing
from coordinator.ui.options import OperatorClient, flag
from coordinator.ui.words import short

if TYPE_CHECKING:
    from broker.protocol.reasons import Reason
    from coordinator.jobs.plan_entries import JobSpec, Plan
    from coordinator.manifest.diff import Difference
    from coordinator.manifest.problems import ManifestError
    from coordinator.scheduler.forecast import Forecast, Outlook

EXIT_CHANGES: Final = 4
_COLUMNS: Final = (
    Column("JOB", least=32),
    Column("HOST", rank=1),
    Column("STARTS", rank=1),
    Column("ENDS", rank=1),
    Column("BETWEEN", rank=2),
    Column("BY", rank=3, least=24),
    Column("AFTER", rank=4, least=8),
)
# Of jobs that no host can take as things are, by what they wait for.
_TITLES: Final = {
    Wait.QUIET: "waiting for a host that takes none now",
    Wait.RETURN: "waiting for a host to come back",
    Wait.DATA: "waiting for prepared data",
    Wait.RESUME: "whose hosts are drained or in quarantine",
    Wait.PREDECESSOR: "behind jobs that do not go on",
}
_UNCHANGED: Final = "the manifest has errors; the running plan is unchanged"  # as of a reload


@click.command("plan")
@click.argument("manifest", required=False, type=click.Path(path_type=Path))
@flag("--all show_all", "Show every job, not a screenful.")
@flag("--detailed-exitcode", "Exit with 4 when a reload would change something.")
@viewing
def plan_command(
    client: OperatorClient, manifest: Path | None, show_all: bool, detailed_exitcode: bool
) -> View:
    """What a reload with MANIFEST would change, and when the plan will be done.

    Changes nothing. Which host each job would go to, when it would start and end: predicted from
    what has been measured, see forecast.md. Without MANIFEST: the running plan, with a warning
    when the coordinator's manifest has become another since it was read.

    Example: fleet plan training_manifest.toml
    """
    if manifest is not None and not manifest.exists():
        raise ConfigError(f"{manifest}: there is no such file")

    def code(seen: Seen) -> int:
        if seen.error is not None:
            return EXIT_REFUSED
        is_other = seen.found is not None and not seen.found.is_empty()
        return EXIT_CHANGES if detailed_exitcode and is_other else 0

    draw = partial(_draw, show_all=show_all)
    return View(lambda: _read(client, manifest), draw, code, _to_dict, _complaints)


class Seen(NamedTuple):
    """A plan, what a reload with it would change, and what is to be expected of it.

    `error`: the manifest has errors, and nothing but them and the warnings is known.
    """

    picture: Picture
    found: Difference | None
    prospect: Forecast
    warnings: list[Cause]
    error: ManifestError | None = None


def _read(client: OperatorClient, manifest: Path | None) -> Seen:
    from coordinator.cli.check import doubts, known_hosts
    from coordinator.manifest.problems import ManifestError

    try:
        return _prepare(client, manifest)
    except ManifestError as error:
        plan = error.readable
        warnings = None if plan is None else doubts(plan, known_hosts(client))
        nothing: Any = None
        return Seen(nothing, None, nothing, warnings or [], error)


def _prepare(client: OperatorClient, manifest: Path | None) -> Seen:
    from coordinator.cli.check import known_to
    from coordinator.manifest.builtin import builtin_trainers
    from coordinator.manifest.manifest_file import load_manifest
    from coordinator.scheduler.unknown_hosts import of_plan

    if manifest is None:
        who = client.ask(AskStatus(id=new_id()))["coordinator"]
        picture = look(client)
        return Seen(picture, None, picture.forecast(), unread_manifest(who))
    known = known_to(client)
    trainers = {**builtin_trainers(), **known.trainers}
    plan = load_manifest(manifest, trainers, known.datasets)
    picture = look(client, ())
    found = after_reload(picture, plan)
    warnings = of_plan(plan, picture.known)
    return Seen(replace(picture, name=plan.name), found, _after(picture, found, plan), warnings)


def unread_manifest(who: dict[str, Any]) -> list[Cause]:
    """Return what the coordinator says of its manifest, where that is not as it was read."""
    fault, changed = who["manifest_fault"], who["manifest_changed"]
    if not (fault or changed):
        return []
    about = {"manifest": who["manifest"], "host": who["host"]}
    return [cause("manifest_behind", fault=fault, changed=changed, **about)]


def after_reload(picture: Picture, plan: Plan) -> Difference:
    """Return what is different once the coordinator has read that manifest."""
    from coordinator.manifest.diff import Known, difference

    known = [
        Known(
            job.spec,
            job.row["state"],
            job.row["in_plan"],
            job.row["host"],
            submitted=bool(job.row.get("submitted_by")),
        )
        for job in picture.jobs
    ]
    return difference(known, plan, picture.policies, picture.plans_grace_s, picture.name)


def _after(picture: Picture, found: Difference, plan: Plan) -> Forecast:
    """Return what is to be expected once the coordinator has read that manifest."""
    from coordinator.jobs.plan_entries import HostPolicy
    from coordinator.scheduler.feasibility import Waiting
    from coordinator.scheduler.precedence import LASTS, Before, unmet

    by_id = {job.spec.job_id: job for job in picture.jobs}
    now = rfc3339(system_clock().wall_s)
    specs = {step.spec.job_id: step for step in found.steps if step.action != "orphaned"}

    def before(job_id: str) -> Before | None:
        step, job = specs.get(job_id), by_id.get(job_id)
        if job is None:
            return None if step is None else Before(step.spec.name, "pending")
        in_plan = step is not None or bool(job.row.get("submitted_by"))
        return Before(job.spec.name, job.row["state"], in_plan)

    def behind(spec: JobSpec) -> tuple[Reason, ...]:
        return tuple(one for one in unmet(spec, before) if one.code == LASTS)

    waiting = []
    for step in found.steps:
        job = by_id.get(step.spec.job_id)
        if step.action in {"added", "replaced"}:
            waiting.append(Waiting(step.spec, now, behind=behind(step.spec)))
        elif step.action != "orphaned" and job is not None and job.row["state"] == "pending":
            waiting.append(replace(job.waiting(step.spec), behind=behind(step.spec)))
    named = {step.spec.job_id for step in found.steps}
    waiting += [
        job.waiting(job.spec)
        for job in picture.jobs
        if job.row.get("submitted_by")
        and job.row["state"] == "pending"
        and job.spec.job_id not in named
    ]
    views = [
        replace(view, policy=plan.hosts.get(view.host) or HostPolicy(view.host))
        for view in picture.views
    ]
    is_fixed = picture.plans_grace_s is None
    grace_s = picture.grace_s if is_fixed else plan.prefer_cuda_grace_s
    return picture.predict(waiting, views, grace_s)


def _to_dict(seen: Seen) -> dict[str, Any]:
    if seen.error is not None:
        return {
            "ok": False, "message": str(seen.error), "warnings": seen.warnings,
            "errors": [asdict(one) for one in seen.error.problems],
        }  # fmt: skip
    now, prospect = datetime.now(UTC), seen.prospect
    outlooks = prospect.outlooks.values()
    data: dict[str, Any] = {
        "name": seen.picture.name,
        "ok": True,
        "warnings": seen.warnings,
        "forecast": outlook.summary_to_dict(prospect, now),
        "jobs": [outlook.to_dict(one, now, paused=prospect.paused) for one in outlooks],
    }
    return data if seen.found is None else data | announced(seen.found)


def _complaints(seen: Seen) -> list[str]:
    warnings = [f"warning: {in_words(why)}" for why in seen.warnings]
    return warnings if seen.error is None else [str(seen.error), *warnings, _UNCHANGED]


def _draw(seen: Seen, *, show_all: bool) -> Iterator[Any]:
    from coordinator.jobs.causes import plan_words

    if seen.error is not None:
        return
    rows = rows_of(show_all=show_all)
    cut = False
    if seen.found is not None:
        cut |= yield from told(announced(seen.found), rows)
        title = terminal.Text().append("A reload: ", "bold")
        yield terminal.paragraph(title.append(plan_words(seen.found.counts())))
        yield ""
    prospect = seen.prospect
    cut |= yield from _times(prospect, rows)
    cut |= yield from _left_over(prospect.of("stuck"), "that no known host can run", rows)
    for awaits, left in outlook.awaited(prospect):
        cut |= yield from _left_over(left, _TITLES[awaits], rows)
    words = outlook.end_of_plan(prospect) or "nothing is left to do"
    name = terminal.printable(seen.picture.name)
    title = terminal.Text().append(f'The plan "{name}": ' if name else "The plan: ", "bold")
    yield terminal.paragraph(title.append(words))
    if not seen.picture.views:
        words = "No host is known yet; start an agent on each with `fleet agent`."
        yield terminal.paragraph(words)
    if cut:
        yield "--all shows every job."


def _times(prospect: Forecast, rows: int) -> Generator[Any, None, bool]:
    """Say what runs when and where; return whether that was more than `rows`."""
    shown = [*prospect.of("running"), *prospect.of("starts")]
    if not shown:
        return False
    names = _names(prospect)
    if is_paused := prospect.waits_for_fleet():
        words = "The fleet is paused, until `fleet pause --off`; + is counted from then."
        yield terminal.paragraph(words, style="yellow")
    cells = [_cells(one, names, is_paused=is_paused) for one in shown[:rows]]
    yield Table(_COLUMNS, cells)
    if len(shown) > rows:
        last = _last(shown, is_paused=is_paused)
        words = f"and {len(shown) - rows} more, the last of which starts {last}"
        yield terminal.paragraph(words)
    yield ""
    return len(shown) > rows


def _names(prospect: Forecast) -> dict[str, str]:
    """Return what each job is called by its id: with that, where others have the name as well."""
    specs = [one.spec for one in prospect.outlooks.values()]
    many = Counter(spec.name for spec in specs)
    return {
        spec.job_id: f"{spec.name} {short(spec.job_id)}" if many[spec.name] > 1 else spec.name
        for spec in specs
    }


def _last(shown: Sequence[Outlook], *, is_paused: bool) -> str:
    if any(one.vague for one in shown):
        return "nobody knows when"
    starts = [one.start.median_s for one in shown if one.start is not None]
    return outlook.later(max(starts)) if is_paused else f"at {outlook.at(max(starts))}"


def _cells(one: Outlook, names: dict[str, str], *, is_paused: bool) -> tuple[Any, ...]:
    start, end = one.start, one.end
    assert start is not None  # noqa: S101 - those that run or will start have both
    assert end is not None  # noqa: S101 - likewise
    waits = is_paused and one.verdict != "running"  # then no moment on a clock is known
    begins = "?" if one.vague else _when(start.median_s, waits=waits)
    if one.after is None and start.median_s < outlook.SOON_S:
        begins = "paused" if waits else "now"
    spread = ""
    if one.ends_known and not waits:
        spread = outlook.between(end)
    return (
        names[one.spec.job_id],
        one.host,
        terminal.state("running") if one.verdict == "running" else begins,
        _when(end.median_s, waits=waits) if one.ends_known else "?",
        spread,
        outlook.basis(one),
        names.get(one.after or "", ""),
    )


def _when(in_s: float, *, waits: bool) -> str:
    return outlook.later(in_s) if waits else outlook.at(in_s)


def _left_over(left: Sequence[Outlook], title: str, rows: int) -> Generator[Any, None, bool]:
    """Say what cannot start, and why; return whether there was more than `rows` reasons bear."""
    if not left:
        return False
    yield terminal.paragraph(f"{counted(len(left), 'job')} {title}:", style="yellow")
    groups = outlook.grouped(left)
    for reason, names in groups[:rows]:
        yield terminal.paragraph(f"{some(names, 3)}: {reason}", 2, hang=2)
    if len(groups) > rows:
        yield terminal.paragraph(f"and {len(groups) - rows} more reasons", 2)
    yield ""
    return len(groups) > rows
