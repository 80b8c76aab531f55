"""Verbs for several jobs: named one by one, or selected by the options of `fleet list`.

For one named job `--json` prints an object, and an error is the verb's own. For several jobs it
prints an array with an object for each; it has `ok`, and `why` not if that is false. The exit
code is 0 when all succeeded (or none was selected), 3 when an answer is missing, otherwise 1.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import click

from broker.errors import BadMessage, BadStream, LocalError, plain
from broker.wrapping import printable
from coordinator.client.contact import NotDone, Unreachable
from coordinator.jobs.causes import in_words
from coordinator.ui import EXIT_REFUSED, EXIT_UNREACHABLE
from coordinator.ui.candidates import STATES as SUITABLE
from coordinator.ui.candidates import complete_job, complete_model
from coordinator.ui.options import OperatorClient
from coordinator.ui.words import by_row, is_json, print_json, say

F = TypeVar("F", bound=Callable[..., Any])
Row = dict[str, Any]
STATES: Final = ("pending", "claimed", "running", "completed", "failed", "cancelled")
TOLD: Final = 20  # of those that were refused

status_option = click.option(
    "--status", "states", type=click.Choice(STATES), multiple=True,
    help="Only jobs in this state; may be given several times.",
)  # fmt: skip
model_option = click.option(
    "--model", "models", multiple=True, metavar="MODEL", shell_complete=complete_model,
    help="Only jobs of this model; may be given several times.",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Choice:
    """Which jobs are meant: those that are named, or else those that the options choose."""

    names: tuple[str, ...]
    states: tuple[str, ...]
    models: tuple[str, ...]

    @property
    def only(self) -> str | None:
        """The one job that is named; none where there are several, or they are chosen."""
        return self.names[0] if len(self.names) == 1 else None

    def chosen(self, client: OperatorClient, verb: str) -> list[Row]:
        """Return the jobs that the options choose; without a state, those that a verb is for."""
        states = self.states or SUITABLE.get(verb, ())
        rows = client.list_jobs(states, self.models)
        # What no manifest names any more cannot be requeued.
        return sorted((row for row in rows if verb != "requeue" or row["in_plan"]), key=by_row)

    def asked(self, client: OperatorClient, verb: str) -> list[str]:
        """Return the name or id that each job is requested by."""
        return [*self.names] or [row["job_id"] for row in self.chosen(client, verb)]

    def none(self) -> str:
        """Say that no job was chosen."""
        states, models = " or ".join(self.states), " or ".join(self.models)
        return printable(" ".join(filter(None, ("no", states, models, "jobs"))))


def choosing(function: F) -> F:
    """Add the jobs of a verb, by name or by the options of `fleet list`, as its `choice`."""

    @functools.wraps(function)
    def wrapped(
        *args: Any, jobs: tuple[str, ...], states: tuple[str, ...], models: tuple[str, ...],
        **kwargs: Any,
    ) -> Any:  # fmt: skip
        if not (jobs or states or models):
            raise click.UsageError("say which job, or choose several by --status and --model")
        if jobs and (states or models):
            raise click.UsageError("name jobs, or choose them by --status and --model; not both")
        choice = Choice(tuple(dict.fromkeys(jobs)), states, models)
        return function(*args, choice=choice, **kwargs)

    jobs = click.argument("jobs", metavar="[JOB]...", nargs=-1, shell_complete=complete_job)
    return jobs(status_option(model_option(wrapped)))  # type: ignore[return-value] # with options


def one_by_one(asked: Iterable[str], do: Callable[[str], Row]) -> Iterator[Row]:
    """Yield what `do` returns for each job, or why it was not done; after a silence no more."""
    for job in asked:
        try:
            yield {**do(job), "ok": True}
        except Unreachable as error:
            yield failure(job, "unreachable", error)
            return
        except (NotDone, LocalError, BadStream, BadMessage, OSError) as error:
            code = error.code if isinstance(error, NotDone) else "refused"
            yield failure(job, code, error)


def exit_code(rows: Iterable[Row]) -> int:
    """Return the exit code of what came of several jobs."""
    codes = {row["code"] for row in rows if not row["ok"]}
    if "unreachable" in codes:
        return EXIT_UNREACHABLE
    return EXIT_REFUSED if codes else 0


def tell(
    rows: Sequence[Row], choice: Choice, say_done: Callable[[list[Row]], object],
    told_of: Sequence[Row] = (),
) -> int:  # fmt: skip
    """Say what came of several jobs: of those that succeeded by `say_done`; return the exit code.

    Of some that failed it was told already (`told_of`).
    """
    if is_json():
        print_json(rows)
        return exit_code(rows)
    say_done([row for row in rows if row["ok"]])
    if not rows:
        say(choice.none())
    complain(row for row in rows if row not in told_of)
    return exit_code(rows)


def each(
    choice: Choice, asked: Callable[[], Iterable[str]], do: Callable[[str], Row],
    say_row: Callable[[Row], object],
) -> int:  # fmt: skip
    """Do something for the job that is named, or for each of several, and say what came of it.

    `asked` returns by which names or ids several are requested. Returns the exit code.
    """
    if choice.only is None:
        return tell([*one_by_one(asked(), do)], choice, lambda rows: [*map(say_row, rows)])
    row = do(choice.only)
    if is_json():
        print_json(row)
    else:
        say_row(row)
    return 0


def complain(rows: Iterable[Row]) -> None:
    """Say on standard error of each job that failed why."""
    failed = [row for row in rows if not row["ok"]]
    for row in failed[:TOLD]:
        say(f"error: {printable(in_words(row['why']))}", err=True)
    if len(failed) > TOLD:
        say(f"and {len(failed) - TOLD} more errors (--json has them)", err=True)


def failure(job: str, code: str, error: Exception) -> Row:
    """Return why something was not done for a job."""
    message = plain(error) if isinstance(error, OSError) else str(error)
    why = error.why if isinstance(error, NotDone) else {"code": "text", "text": message}
    return {"ok": False, "job": job, "code": code, "why": why}
