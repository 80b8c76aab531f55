"""`fleet drain`, `snooze`, `resume`, `pause` and `forget`: who may use a host, and when."""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import click

from broker.errors import ConfigError
from broker.protocol.messages import AskDrain, AskForget, AskPause, AskResume, AskSnooze
from broker.system.machine import new_id
from broker.wrapping import printable, quoted
from coordinator.cli.serve import become_module
from coordinator.client.contact import NotDone
from coordinator.jobs import reason_words
from coordinator.jobs.result_words import begins_again
from coordinator.ui import EXIT_REFUSED
from coordinator.ui.candidates import complete_first_host, complete_host, host_argument
from coordinator.ui.options import (
    PATH,
    OperatorClient,
    Where,
    asking,
    client_options,
    flag,
    is_confirmed,
    option,
)
from coordinator.ui.words import answer, is_json, say

now_option = flag("--now", "What runs is given back at once, rather than finished.")
yes_option = flag("--yes -y", "With --now: do not ask.")
here_option = flag("--here", "This machine, by its owner.")
state_option = option("--state", "DIR", "With --here: the agent's state folder.", type=PATH)


@click.command("drain")
@host_argument
@now_option
@yes_option
@client_options
def drain_command(client: OperatorClient, host: str, now: bool, yes: bool) -> int:
    """Give a host no new jobs; what runs is finished there. `fleet resume` lifts it.

    With --now, what runs is asked to end and leaves a checkpoint, from which it goes on elsewhere;
    that costs the job no attempt. On a terminal it is asked first where a trainer keeps none.

    Example: fleet drain gaming-pc --now
    """
    if now and not yes and not _is_meant(client, host):
        return EXIT_REFUSED
    data = client.ask(AskDrain(id=new_id(), host=host, now=now))
    lifts = f"; `fleet resume {data['host']}` lifts it"
    answer(data, f"{data['host']} is drained{_held(data)}{lifts}")
    return 0


_HOW_TO_SNOOZE: Final = (
    "say which host and for how long: `fleet snooze gaming-pc 3h`, or `--here 3h` on this machine; "
    "--off in place of a time ends it, and takes no --now"
)


@click.command("snooze")
@click.argument("words", metavar="HOST TIME | --here [TIME]", nargs=-1,
                shell_complete=complete_first_host)  # fmt: skip
@now_option
@yes_option
@flag("--off", "End it, and nothing else that keeps jobs off.")
@here_option
@state_option
@asking
def snooze_command(
    at: Where, words: tuple[str, ...], now: bool, yes: bool, off: bool, here: bool,
    state: Path | None,
) -> int:  # fmt: skip
    """Give a host no new jobs for a while; what runs is finished there, as after `fleet drain`.

    With --now, what runs is given back at once, with its checkpoint, and goes on elsewhere.

    TIME is 30m, 3h, 2d, or 18:00. It ends by itself, or by --off; `fleet resume HOST` lifts a drain
    with it. With --here the owner says it on the machine itself, without a broker, and no operator
    can lift it; without TIME it then holds until `fleet snooze --here --off`, or `fleet resume
    --here`.

    \b
    Examples:
      fleet snooze gaming-pc 3h
      fleet snooze gaming-pc --off
      fleet snooze --here 22:30 --now
    """  # noqa: D301 - \b is click's
    where_, times = (None, words) if here else (words[:1], words[1:])
    if where_ == () or len(times) > 1 or (off and (now or times)) or not (times or off or here):
        raise click.UsageError(_HOW_TO_SNOOZE)
    if here:
        _check_words()
        flags = {"end": off or None, "now": now or None, "yes": yes or None}
        return _of_owner(at, {"time": next(iter(times), None), "state": state} | flags)
    if state is not None:
        raise click.UsageError("--state: only with --here")
    for_s = 0.0 if off else _seconds(times[0])
    host = words[0]
    with at.connect() as client:
        if now and not yes and not _is_meant(client, host):
            return EXIT_REFUSED
        try:
            data = client.ask(AskSnooze(id=new_id(), host=host, for_s=for_s, now=now))
        except NotDone:
            if host == "here" and times:
                hint = f"for this machine: `fleet snooze --here {quoted(times[0])}`"
                say(f"{hint}, with dashes", err=True)
            raise
    name = data["host"]
    if off:
        was = reason_words.without_remedy(data["was"])
        text = f"{name} is no longer {was}" if was else f"{name} is not snoozed"
        against = reason_words.all_words(data["refuses"])
        text += f", but takes no jobs: {against}" if against else ""
    else:
        until = reason_words.moment(data["until"])
        text = f"{name} is snoozed until {until}{_held(data)}; `fleet resume {name}` ends it"
    answer(data, text)
    return 0


def _seconds(text: str) -> float:
    from broker.protocol.quiet_hours import seconds_until

    try:
        return seconds_until(text, datetime.now().astimezone())
    except ConfigError as error:
        raise click.BadParameter(str(error), param_hint="TIME") from None


@click.command("resume")
@click.argument("host", required=False, shell_complete=complete_host)
@here_option
@state_option
@asking
def resume_command(at: Where, host: str | None, here: bool, state: Path | None) -> int:
    """Give a host jobs again: lifts a drain, a snooze and a quarantine, and says which.

    What its owner has said on the machine, or the manifest, holds all the same. With --here the
    owner's own snooze ends.

    Example: fleet resume gaming-pc
    """
    if here is (host is not None):
        raise click.UsageError(
            "name a host, or say --here for this machine; the whole fleet goes on with "
            "`fleet pause --off`"
        )
    if here:
        _check_words()
        return _of_owner(at, {"end": True, "state": state})
    if state is not None:
        raise click.UsageError("--state: only with --here")
    with at.connect() as client:
        data = client.ask(AskResume(id=new_id(), host=host))
    text = f"{data['host']} is given jobs again"
    if data.get("refuses"):
        text = f"{data['host']} may have jobs again, but {reason_words.all_words(data['refuses'])}"
    answer(data, f"{text}; it was {reason_words.without_remedy(data['was'])}")
    return 0


@click.command("pause")
@flag("--off", "Give jobs out again.")
@client_options
def pause_command(client: OperatorClient, off: bool) -> None:
    """Give out no new jobs, to no host; what runs goes on.

    It holds until `fleet pause --off`, over restarts too; `fleet status` says so.

    Example: fleet pause
    """
    data = client.ask(AskPause(id=new_id(), off=off))
    paused = "the fleet is paused{}; `fleet pause --off` lifts it"
    given = "jobs are given out again"
    if data["was_so"]:
        paused, given = paused.format(" already"), "the fleet is not paused: jobs are given out"
    answer(data, paused.format("") if data["paused"] else given)


def _check_words() -> None:
    if is_json():
        raise click.UsageError("--json: not with --here, which answers in words")


def _of_owner(at: Where, options: dict[str, Any]) -> int:
    """Become the program that keeps the owner's own snooze, of the agent that `at` names."""
    which = {"identity": at.identity, "config": at.config}
    return become_module("agent.service.snooze", options | which)


def _is_meant(client: OperatorClient, host: str) -> bool:
    """Ask, at a terminal, whether jobs that keep no checkpoint are to begin again elsewhere."""
    if not sys.stdin.isatty():
        return True
    rows = (row for page in client.host_pages(brief=True) for row in page["workers"])
    row = next((row for row in rows if row["host"] == host), None)
    costs = begins_again(row["jobs"]) if row else []
    for text in costs:
        say(printable(text), err=True)
    return not costs or is_confirmed(f"Have {printable(host)} give it back?")


def _held(data: dict[str, Any]) -> str:
    if not data["jobs"]:
        return ""
    jobs = ", ".join(data["jobs"])
    if data.get("gives_back"):
        return f"; it gives back {jobs}"
    return f"; it finishes {jobs} (--now has it given back)"


@click.command("forget")
@host_argument
@client_options
def forget_command(client: OperatorClient, host: str) -> None:
    """Forget a host that is gone for good; what its jobs came to stays.

    It is refused while the host is online or holds a job. A drain is forgotten as well: should the
    agent come back, it is a new host. To keep it out, `fleet revoke HOST`.

    Example: fleet forget old-laptop
    """
    data = client.ask(AskForget(id=new_id(), host=host))
    answer(data, f"{data['host']} is forgotten")
