"""The operator's client against a real broker, with a small coordinator on the other side."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.address import parse_addresses
from broker.auth import OperatorKey, answered_by
from broker.link import Link, LinkSettings, feed
from broker.machine import new_id
from broker.mailbox import Mailbox
from broker.messages import (
    GRANT,
    OPERATOR_REQUEST,
    AskCancel,
    AskList,
    AskStatus,
    AskWorkers,
    OperatorResponse,
    Status,
    Stored,
    decode,
    encode,
)
from broker.settings import BrokerSettings
from broker.topics import Kind, Topics
from broker.wire import Connected, Incoming, LinkEvent, Outgoing
from coordinator.cli import NotDone, Unreachable, main
from coordinator.cli.client import OperatorClient
from coordinator.cli.patience import OFFLINE_S, USUAL_S, Patience
from tests.harness.brokers import BrokerProcess, embedded
from tests.harness.secure import House

RUN = ("run", "--model", "gbt", "--mode", "oracle")
CHUNK_BYTES = 64 * 1024
DEADLINE_S = 20.0
Answer = Callable[[Any, str], list[Outgoing]]


class Peer:
    """Answers operators as told: `answer(request, client)` gives what is published."""

    def __init__(self, url: str, topics: Topics, answer: Answer) -> None:
        self.requests: list[Any] = []
        self._topics = topics
        self._answer = answer
        self._mailbox: Mailbox[LinkEvent | None] = Mailbox()
        self._link = Link(
            LinkSettings(parse_addresses(url), f"peer-{new_id()[:12]}", topics.for_coordinator()),
            feed(self._mailbox), will=None, new_id=new_id, rng=random.Random(1),
        )  # fmt: skip
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        """Connect and begin to answer."""
        self._link.start()
        self._thread.start()
        assert self._ready.wait(DEADLINE_S)

    def stop(self) -> None:
        """End."""
        self._mailbox.put(None)
        self._thread.join(DEADLINE_S)
        self._link.stop()

    def _run(self) -> None:
        while True:
            for event in self._mailbox.take(None):
                if event is None:
                    return
                if isinstance(event, Connected):
                    self._ready.set()
                if isinstance(event, Incoming):
                    self._on_message(event)

    def _on_message(self, event: Incoming) -> None:
        topic = self._topics.parse(event.topic)
        match topic.kind:
            case Kind.OPERATOR_REQUEST:
                request: Any = decode(OPERATOR_REQUEST, event.payload)
            case Kind.DOWNLOAD_GRANT:
                request = decode(GRANT, event.payload)
            case _:
                return  # its own chunks: a coordinator's filters match them as well
        self.requests.append(request)
        for message in self._answer(request, topic.host):
            self._link.publish(message)


@pytest.fixture
def topics(topic_root: str) -> Topics:
    """The topics of the test's own fleet."""
    return Topics(topic_root)


@pytest.fixture
def where(embedded_broker: Any, topics: Topics) -> BrokerSettings:
    """Where that fleet is."""
    return BrokerSettings(url=embedded_broker.url, topic_root=topics.root)


@pytest.fixture
def peer(where: BrokerSettings, topics: Topics) -> Iterator[Callable[[Answer], Peer]]:
    """`peer(answer)`: a coordinator that answers so."""
    made: list[Peer] = []

    def start(answer: Answer) -> Peer:
        made.append(Peer(where.url, topics, answer))
        made[-1].start()
        return made[-1]

    yield start
    for one in made:
        one.stop()


@pytest.fixture
def says(topics: Topics) -> Callable[..., Outgoing]:
    """`says(client, id, data)`: a response."""

    def make(client: str, request_id: str, data: Any = None, **more: Any) -> Outgoing:
        response = OperatorResponse(id=request_id, ok=not more, data=data, **more)
        return Outgoing(topics.operator_response(client), encode(response))

    return make


def test_it_asks_until_it_is_answered(where: BrokerSettings, peer: Any, says: Any) -> None:
    """A request that got lost is sent again, with the same id; others' answers are not ours."""

    def answer(ask: Any, client: str) -> list[Outgoing]:
        if len(coordinator.requests) == 1:
            return [says(client, "somebody-elses", {"active": 9})]
        return [says(client, ask.id, {"active": 1})]

    coordinator = peer(answer)
    with OperatorClient(where) as client:
        assert client.ask(AskStatus(id=new_id())) == {"active": 1}
    first, second = coordinator.requests
    assert first == second


def test_a_no_is_told_with_what_the_coordinator_said(
    where: BrokerSettings, peer: Any, says: Any
) -> None:
    """Message and data."""
    peer(lambda ask, client: [says(client, ask.id, [1], code="refused", message="it is done")])
    with OperatorClient(where) as client, pytest.raises(NotDone, match="it is done") as refused:
        client.ask(AskCancel(id=new_id(), job="gbt"))
    assert refused.value.data == [1]


@pytest.mark.parametrize("how", ["unsigned", "another key"])
def test_a_forged_answer_to_a_command_is_not_believed(
    how: str, where: BrokerSettings, peer: Any, says: Any, topics: Topics, tmp_path: Path
) -> None:
    """O13: whoever is quicker than the coordinator is waited out; without it, the command fails."""
    keys = {name: OperatorKey(name * 32) for name in "ab"}
    path = tmp_path / "key"
    path.touch(0o600)
    path.write_text("a" * 32)
    where = where.model_copy(update={"operator_key_file": path})

    def response(client: str, ask: Any, message: str, key: str = "") -> Outgoing:
        made = OperatorResponse(id=ask.id, ok=True, data=message, message=message)
        topic = topics.operator_response(client)
        made = answered_by(keys[key], topic, made, 1.8e9) if key else made
        return Outgoing(topic, encode(made))

    def forge(ask: Any, client: str) -> list[Outgoing]:
        forged = response(client, ask, "forged", "b" if how == "another key" else "")
        return [forged] if ask.job == "alone" else [forged, response(client, ask, "true", "a")]

    coordinator = peer(forge)
    with OperatorClient(where, 20.0) as client:
        assert client.ask(AskCancel(id=new_id(), job="both")) == "true"
        with pytest.raises(NotDone, match="may be forged: 'forged'"):
            client.ask(AskCancel(id=new_id(), job="alone"))
    assert len(coordinator.requests) == 2, "it is not asked again and again"


def test_garbage_in_place_of_an_answer_is_overlooked(
    where: BrokerSettings, peer: Any, says: Any, topics: Topics
) -> None:
    """The answer comes after it."""

    def answer(ask: Any, client: str) -> list[Outgoing]:
        topic = topics.operator_response(client)
        garbage = [Outgoing(topic, payload) for payload in (b"", b"\xff\x00", b"{}", b"[1]")]
        return [*garbage, says(client, ask.id, "at last")]

    peer(answer)
    with OperatorClient(where) as client:
        assert client.ask(AskStatus(id=new_id())) == "at last"


def test_lists_come_in_pages(where: BrokerSettings, peer: Any, says: Any) -> None:
    """All rows, in order, whatever a page holds."""

    def answer(ask: Any, client: str) -> list[Outgoing]:
        end = min(7, ask.offset + 3)
        key = "jobs" if isinstance(ask, AskList) else "workers"
        assert isinstance(ask, AskList | AskWorkers)
        rows = [{"job_id": str(n)} for n in range(ask.offset, end)]
        return [says(client, ask.id, {key: rows, "next": end if end < 7 else None})]

    peer(answer)
    with OperatorClient(where) as client:
        seven = [{"job_id": str(n)} for n in range(7)]
        assert client.list_jobs() == seven
        assert client.list_workers() == seven


def test_the_next_page_is_asked_for_once_and_before_this_one_is_looked_at(
    where: BrokerSettings, peer: Any, says: Any
) -> None:
    """So that the coordinator makes it meanwhile; one that gets lost is asked for again."""
    asked: list[tuple[int, float]] = []
    came = threading.Condition()

    def answer(ask: Any, client: str) -> list[Outgoing]:
        with came:
            is_lost = ask.offset == 2 and len(asked) == 2
            asked.append((ask.offset, time.monotonic()))
            came.notify_all()
        following = ask.offset + 1 if ask.offset < 3 else None
        page = {"workers": [{"host": str(ask.offset)}], "next": following}
        return [] if is_lost else [says(client, ask.id, page)]

    peer(answer)
    with OperatorClient(where) as client:
        seen = []
        for page in client.host_pages():
            seen += [row["host"] for row in page["workers"]]
            with came:
                while page["next"] not in {None, *(offset for offset, _ in asked)}:
                    assert came.wait(DEADLINE_S)
    assert seen == ["0", "1", "2", "3"]
    assert sum(offset == 2 for offset, _ in asked) > 1
    for offset in range(4):
        times_s = [at_s for asked_for, at_s in asked if asked_for == offset]
        assert all(later - at_s > 0.5 for at_s, later in itertools.pairwise(times_s))


def test_nothing_watched_is_lost_around_an_answer(
    where: BrokerSettings, peer: Any, says: Any, topics: Topics
) -> None:
    """What comes just before and just after an answer is there when it is looked at."""
    job = topics.job("a" * 64)

    def answer(ask: Any, client: str) -> list[Outgoing]:
        number = str(len(coordinator.requests)).encode()
        before, after = Outgoing(job, b"before " + number), Outgoing(job, b"after " + number)
        return [before, says(client, ask.id), after]

    coordinator = peer(answer)
    with OperatorClient(where, watch=[topics.job("+")]) as client:
        rounds = 100
        for _ in range(rounds):
            client.ask(AskStatus(id=new_id()))
        seen: list[bytes] = []
        deadline_s = time.monotonic() + DEADLINE_S
        while len(seen) < 2 * rounds and time.monotonic() < deadline_s:
            seen += [payload for topic, payload in client.messages(1.0) if topic.kind is Kind.JOB]
    expected = [f"{when} {n + 1}".encode() for n in range(rounds) for when in ("before", "after")]
    assert seen == expected


def test_a_broker_without_a_coordinator_is_told(where: BrokerSettings) -> None:
    """Within the deadline, with what to do."""
    began_s = time.monotonic()
    with OperatorClient(where, 1.0) as client, pytest.raises(Unreachable) as gone:
        client.ask(AskStatus(id=new_id()))
    assert "answers, but no coordinator did" in str(gone.value)
    assert "`fleet coordinator`" in str(gone.value)
    assert "its log says what keeps it" in str(gone.value)  # it may be there, with a full disk
    assert "it may be coming back to this broker still" in str(gone.value)
    assert "may still be done" not in str(gone.value)  # it was but a question
    assert time.monotonic() - began_s < 3


def test_a_command_that_nobody_answered_is_not_said_to_be_void(where: BrokerSettings) -> None:
    """A coordinator that comes to itself takes it for a minute longer than it was waited for."""
    ask = AskCancel(id=new_id(), job="x", expires_at=time.time() + 1.0)
    with OperatorClient(where, 1.0) as client, pytest.raises(Unreachable) as gone:
        client.ask(ask)
    assert str(gone.value).endswith("\nwhat was asked may still be done within a minute")


@pytest.mark.parametrize(
    ("state", "reason", "says"),
    [
        ("online", "birth", r"coordinator has been silent for 1 s, though it is online.*--timeout"),
        ("offline", "lost", r"offline \(its connection was lost.*may be coming .* else start"),
        ("offline", "goodbye", r"it is offline \(it was stopped\).*goes on; start it again"),
    ],
)
def test_a_silent_coordinator_is_told_by_its_status(
    where: BrokerSettings, topics: Topics, peer: Any, state: Any, reason: Any, says: str
) -> None:
    """One that runs and hangs is not one that is missing, and needs another step."""
    status = Status(state=state, reason=reason, session="s", instance="i", boot_id="b")
    told = Outgoing(topics.coordinator_status(), encode(status), 1, retain=True)
    peer(lambda *_: [told])
    with OperatorClient(where, 1.0) as client:
        with pytest.raises(Unreachable, match=f"(?s){says}"):
            client.ask(AskStatus(id=new_id()))
        if state == "online":
            with pytest.raises(Unreachable, match="silent for 2 s"):  # all in all
                client.ask(AskStatus(id=new_id()))


def test_a_coordinator_that_is_known_to_be_offline_is_not_waited_for_to_the_end(
    where: BrokerSettings, topics: Topics, peer: Any
) -> None:
    """Its retained status is there with the connection; it might be restarted, so a moment is."""
    status = Status(state="offline", reason="goodbye", session="s", instance="i", boot_id="b")
    told = Outgoing(topics.coordinator_status(), encode(status), 1, retain=True)
    peer(lambda *_: [told])
    with (
        OperatorClient(where, USUAL_S) as client,
        pytest.raises(Unreachable, match=r"did in 2 s: it is offline \(it was stopped\)"),
    ):
        client.ask(AskStatus(id=new_id()))


def test_patience_is_short_while_the_coordinator_is_offline() -> None:
    """Long again once it is back; and as long as was asked for, where that is more than usual."""
    patience = Patience(USUAL_S, 100.0)
    assert patience.end_s == 105.0
    patience.on_status(is_offline=True, now_s=101.0)
    patience.on_status(is_offline=True, now_s=102.0)  # as it was
    assert patience.end_s == 101.0 + OFFLINE_S
    patience.on_status(is_offline=False, now_s=102.5)
    assert patience.end_s == 105.0
    patience.on_status(is_offline=True, now_s=104.5)
    assert patience.end_s == 105.0
    patience.end_by(104.6)
    assert patience.end_s == 104.6
    patient = Patience(60.0, 100.0)
    patient.on_status(is_offline=True, now_s=100.0)
    assert patient.end_s == 160.0


def test_no_broker_is_told_at_once() -> None:
    """Whoever has no fleet running need not wait for the deadline."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"mqtt://user:secret@127.0.0.1:{free.getsockname()[1]}"
    began_s = time.monotonic()
    with pytest.raises(Unreachable, match=r"(?s)not reachable .*refused.*--broker") as gone:
        OperatorClient(BrokerSettings(url=url), 5.0).__enter__()
    assert time.monotonic() - began_s < 3
    assert "secret" not in str(gone.value)
    assert "fleet up" not in str(gone.value)  # whoever names a broker has a fleet


@pytest.mark.parametrize(
    ("topic_root", "ca_of", "why"),
    [
        ("other", "one", "refused the subscription"),
        ("fleet", "two", "certificate does not hold"),
    ],
)
def test_a_broker_that_refuses_is_not_called_unreachable(
    tmp_path: Path, topic_root: str, ca_of: str, why: str
) -> None:
    """It is of another root, or of another fleet: to start one more would not help."""
    houses = {name: House.make(tmp_path / name) for name in ("one", "two")}
    folder = tmp_path / "one" / "broker"
    command = [sys.executable, "-m", "broker.server", "--identity", str(folder), "--listen"]
    broker = BrokerProcess(lambda port: [*command, f"127.0.0.1:{port}"], announces=True)
    broker.start()
    try:
        who = houses[ca_of].identity("operator:ann")
        url = f"mqtts://127.0.0.1:{broker.port}"
        other = BrokerSettings(url=url, topic_root=topic_root, identity=who)
        with pytest.raises(Unreachable, match=why) as gone:
            OperatorClient(other, 10.0).__enter__()
    finally:
        broker.end()
    assert "the broker answers, but" in str(gone.value)
    assert "--root" in str(gone.value)
    assert "fleet up" not in str(gone.value)


def test_a_broker_that_goes_away_is_not_said_to_answer() -> None:
    """Whoever watches a fleet is told of the one that is missing now."""
    broker = embedded()
    broker.start()
    try:
        with OperatorClient(BrokerSettings(url=broker.url), 1.0) as client:
            with pytest.raises(Unreachable, match="but no coordinator did"):
                client.ask(AskStatus(id=new_id()))
            broker.end()
            with pytest.raises(Unreachable, match="the broker is not reachable"):
                client.ask(AskStatus(id=new_id()))
    finally:
        broker.end(signal.SIGKILL)


def test_of_a_cluster_one_that_answers_is_enough(
    where: BrokerSettings, peer: Any, says: Any
) -> None:
    """The impatient try each address once before they give up."""
    peer(lambda ask, client: [says(client, ask.id, 1)])
    some = where.model_copy(update={"url": f"mqtt://127.0.0.1:1,{where.url}"})
    with OperatorClient(some, 10.0) as client:
        assert client.ask(AskStatus(id="1")) == 1
    none = where.model_copy(update={"url": "mqtt://127.0.0.1:1,mqtt://127.0.0.1:2"})
    with pytest.raises(Unreachable, match=r"127.0.0.1:2: .*refused"), OperatorClient(none, 10.0):
        pass


def test_a_broker_that_says_nothing_is_told_at_the_deadline() -> None:
    """A port that takes the connection, and one that swallows it."""
    with socket.socket() as silent, contextlib.ExitStack() as pending:
        silent.bind(("127.0.0.1", 0))
        silent.listen(0)
        port = silent.getsockname()[1]
        for _ in range(2):  # the second time, the queue of connections is full
            began_s = time.monotonic()
            with pytest.raises(Unreachable, match=f"127.0.0.1:{port}: no answer in 0.5 s"):
                OperatorClient(BrokerSettings(url=f"mqtt://127.0.0.1:{port}"), 0.5).__enter__()
            assert time.monotonic() - began_s < 3
            for _ in range(3):
                waiting = pending.enter_context(socket.socket())
                waiting.setblocking(False)
                waiting.connect_ex(("127.0.0.1", port))


@pytest.mark.parametrize("arguments", [("list",), ("list", "--json")])
def test_whoever_reads_only_the_first_line_is_told_of_no_failure(
    where: BrokerSettings, peer: Any, says: Any, arguments: tuple[str, ...]
) -> None:
    """`| head -1` ends each command alike, whatever it prints with."""
    peer(lambda ask, client: [says(client, ask.id, {"jobs": [], "next": None})])
    ends = os.pipe()
    os.close(ends[0])
    command = [*arguments, "--broker", where.url, "--root", where.topic_root]
    try:
        ran = subprocess.run(
            [sys.executable, "-m", "coordinator.cli", *command],
            stdout=ends[1], stderr=subprocess.PIPE, text=True, timeout=60, check=False,
        )  # fmt: skip
    finally:
        os.close(ends[1])
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("show", "x" * 2001), "job: string should have at most 2000 characters"),
        (("show", "\udcff"), "job: "),
        ((*RUN, "-H", "lr=nan"), "job.hyper.lr: input should be a finite number"),
        ((*RUN, "--min-ram-gib", "inf"), "job.min_ram_gib: input should be a finite number"),
        ((*RUN, "-H", "day=[2026-01-02]"), "job.hyper.day.0: input was not a valid JSON value"),
        ((*RUN, "--name", "\udcff"), "no text in UTF-8"),
        (("events", "--since", "6000-01-01"), "since: input should be less"),
        (("stats", "--since", "6000-01-01", "--json"), "since: input should be less"),
    ],
)
def test_what_no_request_can_hold_is_an_error_of_who_typed_it(
    where: BrokerSettings,
    arguments: tuple[str, ...],
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Not a fault of the program's own: one line, and the exit code of wrong usage."""
    command = [*arguments, "--broker", where.url, "--root", where.topic_root, "--timeout", "1"]
    assert main(command) == 2
    told = capsys.readouterr()
    assert told.err.startswith("error: ")
    assert said in told.err
    assert len(told.err.splitlines()) == 1
    if "--json" in arguments:
        assert json.loads(told.out)["ok"] is False


def _fetch(where: BrokerSettings, out: Path, *more: str) -> int:
    arguments = ["get", "gbt", "-o", str(out), "--broker", where.url, "--root", where.topic_root]
    return main([*arguments, *more])


class Shop:
    """A coordinator's side of a download, which offers `offer` and sends `content`."""

    def __init__(self, topics: Topics, says: Any, content: bytes, **offer: Any) -> None:
        self.stored = threading.Event()
        self._topics, self._says, self._content = topics, says, content
        self._offer = {
            "job_id": "b" * 64, "name": "gbt", "model": "gbt", "mode": "oracle",
            "artifact_id": hashlib.sha256(content).hexdigest(), "size_bytes": len(content),
            "chunk_bytes": CHUNK_BYTES,
        } | offer  # fmt: skip

    def __call__(self, ask: Any, client: str) -> list[Outgoing]:
        if getattr(ask, "type", "") == "fetch":
            return [self._says(client, ask.id, self._offer)]
        if isinstance(ask, Stored):
            self.stored.set()
            return []
        indices = [index for start, stop in ask.missing for index in range(start, stop)]
        return [
            Outgoing(
                self._topics.download_chunk(client, index),
                self._content[index * CHUNK_BYTES : (index + 1) * CHUNK_BYTES],
                qos=0,
            )
            for index in indices[:16]
        ]


def test_a_download_is_checked_and_confirmed(
    where: BrokerSettings, peer: Any, says: Any, topics: Topics, tmp_path: Path
) -> None:
    """The bundle lies there whole, nothing else does, and the coordinator is told."""
    content = random.Random(7).randbytes(10 * CHUNK_BYTES + 17)
    shop = Shop(topics, says, content)
    peer(shop)
    assert _fetch(where, tmp_path / "out", "--raw") == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["gbt.tar.zst"]
    assert (tmp_path / "out" / "gbt.tar.zst").read_bytes() == content
    assert shop.stored.wait(DEADLINE_S)


def test_a_bundle_that_is_there_already_is_not_overwritten(
    where: BrokerSettings,
    peer: Any,
    says: Any,
    topics: Topics,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It may be the result of an earlier training; an unpacked one is not overwritten either."""
    peer(Shop(topics, says, b"x" * 1000))
    kept = tmp_path / "gbt.tar.zst"
    kept.write_bytes(b"of an earlier training")
    assert _fetch(where, tmp_path, "--raw") == 1
    assert f"{kept} exists already" in capsys.readouterr().err
    assert kept.read_bytes() == b"of an earlier training"


def test_what_does_not_hash_to_its_id_is_not_kept(
    where: BrokerSettings,
    peer: Any,
    says: Any,
    topics: Topics,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Nor anything else that cannot be unpacked; the folder is left as it was."""
    peer(Shop(topics, says, b"x" * 1000, artifact_id="c" * 64))
    assert _fetch(where, tmp_path / "out", "--raw") == 1
    assert "does not hash" in capsys.readouterr().err
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_is_told_with_the_file(
    where: BrokerSettings,
    peer: Any,
    says: Any,
    topics: Topics,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The system says of a write only that there is no space."""
    shop = Shop(topics, says, b"x" * 3 * CHUNK_BYTES)
    peer(shop)
    part = tmp_path / f".{hashlib.sha256(b'x' * 3 * CHUNK_BYTES).hexdigest()}.part"
    part.symlink_to("/dev/full")
    assert _fetch(where, tmp_path, "--raw") == 1
    assert capsys.readouterr().err.strip() == f"error: {part}: No space left on device"


def test_a_file_for_an_output_folder_is_called_so(
    where: BrokerSettings,
    peer: Any,
    says: Any,
    topics: Topics,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """That it exists is not the trouble."""
    peer(Shop(topics, says, b"x"))
    file = tmp_path / "plan.toml"
    file.write_text("precious")
    assert _fetch(where, file, "--raw") == 2
    assert f"{file}: is a file, and a folder is wanted" in capsys.readouterr().err


def test_what_is_no_bundle_is_not_kept(
    where: BrokerSettings, peer: Any, says: Any, topics: Topics, tmp_path: Path
) -> None:
    """The right hash of the wrong thing."""
    peer(Shop(topics, says, b"no archive" * 100))
    assert _fetch(where, tmp_path / "out") == 1
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(
    "offer",
    [
        {"name": "../escaped"},
        {"name": "aux.txt"},
        {"name": "escaped."},
        {"name": "/tmp/escaped"},  # noqa: S108 - never written to
        {"artifact_id": "../../escaped"},
        {"size_bytes": -1},
        {"chunk_bytes": 1 << 40},
        {"name": None},
    ],
    ids=json.dumps,
)
def test_an_offer_never_leads_out_of_the_folder(
    where: BrokerSettings,
    peer: Any,
    says: Any,
    topics: Topics,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    offer: dict[str, Any],
) -> None:
    """Names and sizes from the wire are checked before they are used."""
    peer(Shop(topics, says, b"x" * 1000, **offer))
    assert _fetch(where, tmp_path / "out" / "deep", "--raw") == 1
    assert "makes no sense" in capsys.readouterr().err
    assert list(tmp_path.rglob("*")) == []
