"""`fleet get`."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BufferedRandom
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import click
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from broker.errors import BadMessage, BadStream, ConfigError, LocalError
from broker.file_names import is_plain
from broker.protocol.messages import (
    MAX_CHUNK_BYTES,
    ArtifactId,
    AskFetch,
    Grant,
    JobId,
    Stored,
    Word,
)
from broker.protocol.topic_table import Kind
from broker.sentences import span
from broker.stream.ranges import RangeSet
from broker.stream.stream import Complete, Receiver, WriteChunk
from broker.system.files import FolderLock, holder, make_wanted, naming
from broker.system.machine import new_id
from coordinator.client.contact import Unreachable
from coordinator.ui import words
from coordinator.ui.candidates import complete_attempt
from coordinator.ui.options import (
    PATH,
    connect,
    flag,
    json_option,
    option,
    timeout_option,
    where,
    where_options,
)
from coordinator.ui.progress import transfer, waiting
from coordinator.ui.several import Choice, choosing, one_by_one, tell

if TYPE_CHECKING:
    from coordinator.client.client import OperatorClient

ASK_AGAIN_S: Final = 10.0
STALL_S: Final = 60.0
_WORKPLACE: Final = ".fleet-get-"


def _plain(name: str) -> str:
    """Return a name that a folder may have, or raise ValueError."""
    if not is_plain(name):
        raise ValueError("is no name of a folder")
    return name


class Offer(BaseModel):
    """What the coordinator says it will send."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    job_id: JobId
    name: Annotated[Word, AfterValidator(_plain)]
    model: Word
    mode: str
    artifact_id: ArtifactId
    attempt: int | None = None
    size_bytes: int = Field(ge=1)
    chunk_bytes: int = Field(ge=1, le=MAX_CHUNK_BYTES)


@click.command("get")
@choosing
@option("--output -o", "DIR", "Where to put it.  [default: here]", type=PATH, default=Path())
@option("--attempt", "N", "What attempt N has brought, also where it was set aside.",
        type=click.IntRange(1), shell_complete=complete_attempt)  # fmt: skip
@flag("--raw", "Keep the bundle as it is, do not unpack it.")
@option("--stall", "SECONDS", "Give up when nothing comes for so long.",
        type=click.FloatRange(1, 3600), default=STALL_S, show_default=True)  # fmt: skip
@timeout_option
@json_option
@where_options
def get_command(
    choice: Choice, output: Path, attempt: int | None, raw: bool, stall: float, timeout: float,
    as_json: bool, **at: Any,
) -> int:  # fmt: skip
    """Fetch a job's artifact, check its sha256 and unpack it into DIR/NAME.

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
    settings = where(**at)

    def get(job: str) -> dict[str, Any]:
        # What still comes of one artifact would be taken for the next: each has its connection.
        with connect(settings, timeout) as client:
            got = fetch(client, job, output, attempt=attempt, raw=raw, stall_s=stall)
        if not as_json:
            got.say()
        return got.offer.model_dump() | got.in_fields()

    if choice.only is not None:
        row = get(choice.only)
        if as_json:
            words.print_json(row)
        return 0
    asked = [*choice.names]
    if not asked:
        with connect(settings, timeout) as client:
            asked = choice.asked(client, "get")
    return tell([*one_by_one(asked, get)], choice, lambda _row: None, as_json=as_json)


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
        size, took = words.size(self.offer.size_bytes), span(max(1.0, self.took_s))
        sha256 = words.short(self.offer.artifact_id)
        words.say(f"{self.target}: {size} in {took}, sha256 {sha256}")
        for path in self.files:
            is_one = path == self.target
            click.echo(f"  {path.name if is_one else path.relative_to(self.target)}")


def fetch(
    client: OperatorClient, job: str, output: Path, *, attempt: int | None = None,
    raw: bool = False, stall_s: float = STALL_S,
) -> Got:  # fmt: skip
    """Put a job's artifact into the folder `output`, checked, and unpacked unless `raw`."""
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
                receive(client, job, offer, file, stall_s, advance)
            with waiting(f"{offer.name}: checking its sha256"):
                verify(file, offer.artifact_id)
        if raw:
            part.replace(target)
            files = [target]
        else:
            from broker.system.archive import unpack

            with waiting(f"{offer.name}: unpacking"), naming(target):
                unpacked = folder / target.name
                files = [target / path.relative_to(unpacked) for path in unpack(part, unpacked)]
                unpacked.rename(target)
    return Got(offer, target, files, time.monotonic() - begun_s)


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
    data = client.ask(AskFetch(id=new_id(), job=job, attempt=attempt))
    try:
        offer = Offer.model_validate(data)
    except ValidationError:
        # Its names become paths here: none is used unread.
        raise BadMessage("the answer makes no sense; is the coordinator of this version?") from None
    words.tell_of_namesakes(data, job)
    return offer


def receive(
    client: OperatorClient, job: str, offer: Offer, file: BufferedRandom, stall_s: float,
    advance: Callable[[int], object],
) -> None:  # fmt: skip
    """Write an artifact into `file`; `advance(bytes)` is told of each chunk that is new.

    Raises `Unreachable` when nothing comes for `stall_s`, `BadStream` for another artifact, and
    OSError. What has come is yet to be checked by `verify`.
    """
    receiver = Receiver(offer.size_bytes, offer.chunk_bytes, RangeSet())
    heard_s = asked_s = time.monotonic()
    effects: list[Any] = list(receiver.ask(heard_s))
    while not any(isinstance(effect, Complete) for effect in effects):
        for effect in effects:
            if isinstance(effect, Grant):
                client.grant(effect)
        now_s = time.monotonic()
        if now_s - heard_s > stall_s:
            raise Unreachable(f"nothing of the artifact came for {stall_s:g} s; try again")
        if now_s - max(heard_s, asked_s) > ASK_AGAIN_S:
            asked_s = now_s
            # One that was started again knows of no download; one that is away may return.
            with contextlib.suppress(Unreachable):
                if ask(client, job, offer.attempt).artifact_id != offer.artifact_id:
                    raise BadStream(f"{offer.name} has got another artifact meanwhile; try again")
        due_s = receiver.next_deadline()
        wait_s = 1.0 if due_s is None else min(1.0, max(0.0, due_s - now_s))
        effects = []
        for topic, payload in client.messages(wait_s):
            if topic.kind is Kind.DOWNLOAD_CHUNK:
                heard_s = time.monotonic()
                effects += _write(receiver, topic.index, payload, file, advance, heard_s)
        effects += receiver.on_timer(time.monotonic())
    client.grant(Stored())


def _write(
    receiver: Receiver, index: int, payload: bytes, file: BufferedRandom,
    advance: Callable[[int], object], now_s: float,
) -> list[Any]:  # fmt: skip
    try:
        effects = receiver.on_chunk(index, len(payload), now_s)
    except BadStream:
        return []
    for effect in effects:
        if isinstance(effect, WriteChunk):
            file.seek(effect.offset)
            file.write(payload[effect.begin : effect.end])
            advance(effect.end - effect.begin)
    return [*effects, *receiver.on_written(len(payload), now_s)]


def verify(file: BufferedRandom, artifact_id: str) -> None:
    """Check what has come against the artifact's id. Raises `BadStream` where it differs."""
    file.seek(0)
    if hashlib.file_digest(file, "sha256").hexdigest() != artifact_id:
        raise BadStream("what came does not hash to the artifact's id; try again")
