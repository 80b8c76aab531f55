"""`fleet show`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from broker.machine import new_id
from broker.messages import AskShow
from coordinator.cli.common import client_options, job_argument, json_option

if TYPE_CHECKING:
    from coordinator.cli.client import OperatorClient


@click.command("show")
@job_argument
@json_option
@client_options
def show_command(client: OperatorClient, job: str, as_json: bool) -> None:
    """One job: its spec, its result and its history.

    JOB is a name, an id, or the start of one that fits no other.

    Example: fleet show gbt-realistic
    """
    data = client.ask(AskShow(id=new_id(), job=job))
    from coordinator.cli import render

    if as_json:
        render.print_json(data)
        return
    out = render.console()
    for title, value in _facts(data):
        line = render.Text(f"{title:<12}")
        shown = value if isinstance(value, render.Text) else render.printable(str(value))
        out.print(line.append(shown))
    if data["metrics"]:
        out.print("\nMetrics")
        for name, value in data["metrics"].items():
            if not name.endswith("_ci") and isinstance(value, int | float):
                out.print(f"  {name:<20} {render.figure(data['metrics'], name)}")
    out.print("\nHistory")
    rows = [
        (
            event["at"][:19].replace("T", " "),
            event["event"],
            event["attempt"] or "-",
            event["host"] or "-",
            event["who"].partition(":")[0],  # which host stands beside it, which client in --json
            render.first_line(event["why"], 200),
        )
        for event in data["events"]
    ]
    columns = ("AT (UTC)", "EVENT", ">TRY", "HOST", "BY", "WHY")
    out.print(render.table(columns, rows, wrap=True))


def _facts(data: dict[str, Any]) -> list[tuple[str, Any]]:
    from coordinator.cli import render

    spec = data["spec"]
    needs = [
        f"{name} {value}" if value is not True else name
        for name, value in spec["needs"].items()
        if value not in (None, False)
    ]
    hyper = ", ".join(f"{key} = {value}" for key, value in spec["hyper"].items())
    facts: list[tuple[str, Any]] = [
        ("Job", data["name"]),
        ("Id", data["job_id"]),
        ("State", render.state(data["state"])),
        ("Host", data["host"] or "-"),
        ("Attempt", data["attempt"]),
        ("Priority", data["priority"]),
        *([("Asked for", f"by {data['submitted_by']}")] if data.get("submitted_by") else []),
        ("Model", f"{data['model']}, {data['mode']}"),
        ("Hyper", hyper or "the trainer's defaults"),
        ("Split", f"by {spec['split_recipe']}, seed {spec['seed']}"),
        ("Needs", ", ".join(needs) or "nothing special"),
        ("Took", render.took(data)),
    ]
    progress = data.get("progress")
    if progress and data["state"] == "running":
        done = f"{progress['phase']}, epoch {progress['epoch']} of {progress['epochs']}"
        facts.append(("Progress", done if progress["epoch"] else progress["phase"]))
    if data["artifact_id"]:
        facts.append(("Artifact", data["artifact_id"]))
    if data["error"]:
        facts.append(("Error", render.Text(render.printable(data["error"]), style="red")))
    return facts
