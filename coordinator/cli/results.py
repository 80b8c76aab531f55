"""`fleet get`, `report` and `predict`: what the artifact of a job holds, and what is made of it."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import click
from pydantic import AfterValidator

from broker.errors import BadMessage, ConfigError, LocalError
from broker.figures import size, span
from broker.file_names import is_plain
from broker.protocol import messages as m
from broker.system.files import FolderLock, RealDisk, holder, make_wanted, naming
from broker.system.machine import new_id
from coordinator.cli.serve import arguments_of, become_module
from coordinator.client.receiving import STALL_S, Coming, receive, verify
from coordinator.ui import words
from coordinator.ui.candidates import attempt_option, complete_job_or_file
from coordinator.ui.options import PATH, OperatorClient, Where, asking, flag, option
from coordinator.ui.progress import transfer, waiting
from coordinator.ui.several import Choice, choosing, each

_WORKPLACE: Final = ".fleet-get-"
_MODULE: Final = "agent.trainer.predict"
_NEEDED: Final = ("numpy", "pyarrow")  # whatever the model


def _plain(name: str) -> str:
    """Return a name that a folder may have, or raise ValueError."""
    if not is_plain(name):
        raise ValueError("is no name of a folder")
    return name


class Offer(Coming):
    """The artifact of a job that the coordinator says it will send."""

    job_id: m.JobId
    name: Annotated[m.Word, AfterValidator(_plain)]
    model: m.Word
    mode: str
    attempt: int | None = None


@click.command("get")
@choosing
@option("--output -o", "DIR", "Where to put it.  [default: here]", type=PATH, default=Path())
@attempt_option("What attempt N has brought, also where it was set aside.")
@flag("--raw", "Keep the bundle as it is, do not unpack it.")
@option("--stall", "SECONDS", "Give up when nothing comes for so long.",
        type=click.FloatRange(1, 3600), default=STALL_S, show_default=True)  # fmt: skip
@asking
def get_command(
    at: Where, choice: Choice, output: Path, attempt: int | None, raw: bool, stall: float,
) -> int:  # fmt: skip
    """Fetch a job's artifact, check its sha256 and unpack it into DIR/NAME.

    The page of its report is drawn beside the report.

    Of several jobs each is fetched by itself: what is wrong with one is told at the end. What
    --model chooses is what is completed.

    A result that a requeue has set aside is kept for a while (30 days, unless the coordinator is
    told otherwise): with --attempt it is fetched, into DIR/NAME-attempt-N.

    \b
    Examples:
      fleet get gbt-oracle -o models
      fleet get gbt-oracle --raw
      fleet get gbt-oracle --attempt 1
      fleet get --model gbt -o models
    """  # noqa: D301 - \b is click's
    if attempt is not None and choice.only is None:
        raise click.UsageError("--attempt: of one job")

    def get(job: str) -> dict[str, Any]:
        # What still comes of one artifact would be taken for the next: each has its connection.
        with at.connect() as client:
            got = fetch(client, job, output, attempt=attempt, raw=raw, stall_s=stall)
        if not words.is_json():
            got.say()  # at once, of several jobs
        return got.offer.model_dump() | got.in_fields()

    def asked() -> list[str]:
        if choice.names:
            return [*choice.names]
        with at.connect() as client:
            return choice.asked(client, "get")

    return each(choice, asked, get, lambda _row: None)


@dataclass(frozen=True, slots=True)
class Got:
    """What was fetched, and where it lies; `took_s` seconds."""

    offer: Offer
    target: Path
    files: list[Path]
    took_s: float

    def in_fields(self) -> dict[str, Any]:
        """Return as JSON values where it lies."""
        return {"path": str(self.target), "files": [str(path) for path in self.files]}

    def say(self) -> None:
        """Say what it is, and name each file."""
        took = span(max(1.0, self.took_s))
        sha256 = words.short(self.offer.artifact_id)
        words.say(f"{self.target}: {size(self.offer.size_bytes)} in {took}, sha256 {sha256}")
        for path in self.files:
            is_one = path == self.target
            click.echo(f"  {path.name if is_one else path.relative_to(self.target)}")


def fetch(
    client: OperatorClient, job: str, output: Path, *, attempt: int | None = None,
    raw: bool = False, draws: bool = True, stall_s: float = STALL_S,
) -> Got:  # fmt: skip
    """Put a job's artifact into the folder `output`, checked, and unpacked unless `raw`.

    If it `draws`, the page of the report is drawn beside it.
    """
    offer = ask(client, job, attempt)
    make_wanted(output)
    name = offer.name if attempt is None else f"{offer.name}-attempt-{attempt}"
    target = output / (f"{name}.tar.zst" if raw else name)
    if target.exists():
        raise LocalError(f"{target} exists already; remove it, or choose another -o")
    begun_s = time.monotonic()
    with _workplace(output) as folder:
        part = folder / "bundle.part"
        with naming(part), part.open("x+b") as file:
            with transfer(offer.name, offer.size_bytes) as advance:
                receive(client, offer, lambda: ask(client, job, attempt), file, advance, stall_s)
            with waiting(f"{offer.name}: checking its sha256"):
                verify(file, offer.artifact_id)
        if raw:
            RealDisk().replace(part, target)
            files = [target]
        else:
            from broker.system.archive import unpack

            with waiting(f"{offer.name}: unpacking"), naming(target):
                unpacked = folder / target.name
                files = [target / path.relative_to(unpacked) for path in unpack(part, unpacked)]
                RealDisk().replace(unpacked, target)
    got = Got(offer, target, files, time.monotonic() - begun_s)
    if draws:
        _add_page(got)
    return got


@contextlib.contextmanager
def fetched(at: Where, job: str, attempt: int | None) -> Iterator[Path]:
    """Yield the folder with what a job's artifact holds, without a page; it is then removed."""
    with tempfile.TemporaryDirectory(prefix="fleet-") as folder:
        with at.connect() as client:
            got = fetch(client, job, Path(folder), attempt=attempt, draws=False)
        yield got.target


def _add_page(got: Got) -> None:
    """Draw the page of the report that was fetched, unless the trainer has written one."""
    from coordinator.ui.processes import REPORT_ENDS, draw

    reports = [path for path in got.files if path.name.endswith(REPORT_ENDS)]
    if not reports or reports[0].with_suffix(".html") in got.files:
        return
    try:
        got.files.extend(draw(got.target))
    except LocalError as error:
        words.say(f"{got.offer.name}: no page was drawn: {error}", err=True)


@contextlib.contextmanager
def _workplace(output: Path) -> Iterator[Path]:
    """Yield a hidden, locked folder, removed at the end; remove those of processes that died."""
    for left in output.glob(f"{_WORKPLACE}*"):
        with contextlib.suppress(OSError):
            if (left / "lock").exists() and holder(left) is None:
                shutil.rmtree(left, ignore_errors=True)
    folder = output / f"{_WORKPLACE}{new_id()[:12]}"
    with contextlib.ExitStack() as at_end:
        at_end.callback(shutil.rmtree, folder, ignore_errors=True)
        with contextlib.suppress(ConfigError):  # a disk without locks: then nobody clears it either
            at_end.callback(FolderLock(folder, "`fleet get`").release)
        yield folder


def ask(client: OperatorClient, job: str, attempt: int | None = None) -> Offer:
    """Return what the coordinator will send: a job's artifact, or that of an attempt."""
    data = client.ask(m.AskFetch(id=new_id(), job=job, attempt=attempt))
    offer = Offer.of(data)
    words.tell_of_namesakes(data, job)
    return offer


@click.command("report")
@click.argument("job", metavar="JOB|FOLDER", shell_complete=complete_job_or_file)
@option("--output -o", "DIR|FILE.html", "Where to put a job's page.  [default: here]", type=PATH,
        default=Path())  # fmt: skip
@attempt_option("Of what attempt N of a job has brought.")
@asking
def report_command(at: Where, job: str, output: Path, attempt: int | None) -> int:
    """Draw the page of a job's report, and print its path.

    The page is one HTML file that fetches nothing: DIR/NAME.html. FOLDER is what `fleet get` or
    `agent.trainer.combine` has written: its pages are drawn in it. With --json the report itself is
    printed: docs/reference/report.schema.json.

    \b
    Examples:
      fleet report gbt-oracle
      fleet report combined
      fleet report gbt-oracle --json | jq .metrics
    """  # noqa: D301 - \b is click's
    if (folder := Path(job)).is_dir():
        if attempt is not None:
            raise click.UsageError(f"--attempt: of a job, and {job} is a folder here")
        _tell_report(folder, None)
        return 0
    with fetched(at, job, attempt) as folder:
        is_page = output.suffix == ".html"
        _tell_report(folder, output if is_page else output / f"{folder.name}.html")
    return 0


def _tell_report(folder: Path, target: Path | None) -> None:
    """Draw the pages in a folder, or move its page to `target`; print the report if asked for."""
    from coordinator.ui.processes import REPORT_ENDS, draw

    reports = sorted(folder.rglob(f"*{REPORT_ENDS}"))
    if not reports:
        own = "a trainer that is not built in writes none"
        raise LocalError(f"{folder.name}: has no report; {own}, and `fleet get` brings what it has")
    if words.is_json():
        for report in reports:
            try:
                words.print_json_line(json.loads(report.read_bytes()))
            except (ValueError, RecursionError):
                raise BadMessage(f"{report.name}: cannot be read") from None
        return
    for page in draw(folder):
        if target is not None:
            make_wanted(target.parent)
            with naming(target):
                shutil.copyfile(page, target)
        click.echo(target or page)


@click.command("predict")
@click.argument("job", metavar="JOB|BUNDLE", shell_complete=complete_job_or_file)
@option("--raw", "FILE", "Telemetry to score: .parquet or .csv.", type=PATH)
@option("--out", "FILE", "Where the scores go: .parquet or .csv.", type=PATH)
@click.option("--stream", is_flag=True, help="Score rows of standard input as they come.")
@attempt_option("With what attempt N of a job has brought.")
@option("--threads", "N", "Threads to use.", type=click.IntRange(1))
@asking
def predict_command(
    at: Where, job: str, raw: Path | None, out: Path | None, stream: bool, attempt: int | None,
    threads: int | None,
) -> int:  # fmt: skip
    """Score telemetry with a trained model.

    BUNDLE is what `fleet get` has brought: the folder, or the archive of `fleet get --raw`. A JOB's
    model is fetched for this once, and not kept. What stands in the file of scores:
    docs/reference/trainers.md.

    --stream takes JSON lines, or CSV with a header, on standard input, and gives a JSON line for
    each window on standard output as soon as its last row is there.

    \b
    Examples:
      fleet predict gbt-oracle --raw new.parquet --out scores.csv
      fleet predict models/gbt-oracle --raw new.parquet --out scores.csv
      fleet predict gbt-oracle --stream < rows.jsonl > scores.jsonl
    """  # noqa: D301 - \b is click's
    if stream == (raw is not None) or (raw is None) != (out is None):
        raise click.UsageError("give --raw and --out, or --stream")
    if missing := [name for name in _NEEDED if importlib.util.find_spec(name) is None]:
        raise LocalError(
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed here: "
            "pip install 'training-fleet[trainers]', or score where the models are trained"
        )
    form = "json" if words.is_json() else "words"
    options = {"raw": raw, "out": out, "stream": stream or None, "threads": threads, form: True}
    bundle = Path(job)
    if bundle.exists():
        if attempt is not None:
            raise click.UsageError(f"--attempt: of a job, and {job} is a bundle here")
        return become_module(_MODULE, {"bundle": bundle, **options})
    from coordinator.ui.processes import carry_out

    with fetched(at, job, attempt) as folder:
        return carry_out(_MODULE, arguments_of({"bundle": folder, **options}))
