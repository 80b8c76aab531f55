"""The operator's client against a real broker, with a small coordinator on the other side."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from broker.protocol import messages as m
from broker.protocol.link_events import Outgoing
from broker.protocol.signing import OperatorKey, answered_by
from broker.protocol.topic_table import Kind
from broker.protocol.topics import Topics
from broker.system.machine import new_id
from broker.system.settings import BrokerSettings
from broker.wrapping import json_text
from coordinator.cli import main
from coordinator.client.client import OperatorClient
from coordinator.client.contact import NotDone
from tests.harness.peer import DEADLINE_S

RUN = ("run", "--model", "gbt", "--mode", "oracle")


def test_it_asks_until_it_is_answered(
    where: BrokerSettings, peer: Any, says: Any, topics: Topics
) -> None:
    def answer(ask: Any, client: str) -> list[Outgoing]:
        if len(coordinator.requests) == 1:
            topic = topics.operator_response(client)
            garbage = [Outgoing(topic, payload) for payload in (b"", b"\xff\x00", b"{}", b"[1]")]
            return [*garbage, says(client, "somebody-elses", {"active": 9})]
        return [says(client, ask.id, {"active": 1})]

    coordinator = peer(answer)
    with OperatorClient(where) as client:
        assert client.ask(m.AskStatus(id=new_id())) == {"active": 1}
    first, second = coordinator.requests
    assert first == second


def test_what_a_trainer_puts_out_does_nothing_to_a_terminal(
    at: list[str], peer: Any, says: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    line = "\x1b[31mred\x1b[0m\x07 \x9b2J\x7f\x85 \u202eexe.\u2066\u2028é\t!"
    data = {"job_id": "gbt", "attempt": 1, "last": 1, "lines": [line], "times": [None]}
    peer(lambda ask, client: [says(client, ask.id, data)])
    assert main(["logs", "gbt", *at]) == 0
    assert capsys.readouterr().out == "red  exe.é\t!\n"
    assert main(["logs", "gbt", "--json", *at]) == 0
    said = capsys.readouterr().out
    assert json.loads(said)["lines"] == [line]
    assert "é" in said
    assert all(one.isprintable() for one in said.strip())
    text = json_text({line: line}, indent=2)
    assert json.loads(text) == {line: line}
    assert all(one.isprintable() for one in text.replace("\n", ""))


def test_a_no_is_told_with_what_the_coordinator_said(
    where: BrokerSettings, peer: Any, says: Any
) -> None:
    why = {"code": "over_already", "name": "gbt", "state": "failed"}
    peer(lambda ask, client: [says(client, ask.id, [1], code="refused", why=why)])
    with OperatorClient(where) as client, pytest.raises(NotDone) as refused:
        client.ask(m.AskCancel(id=new_id(), job="gbt"))
    assert (refused.value.data, refused.value.why) == ([1], why)


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
        made = m.OperatorResponse(id=ask.id, ok=True, data=message, why={"code": message})
        topic = topics.operator_response(client)
        made = answered_by(keys[key], topic, made, 1.8e9) if key else made
        return Outgoing(topic, m.encode(made))

    def forge(ask: Any, client: str) -> list[Outgoing]:
        forged = response(client, ask, "forged", "b" if how == "another key" else "")
        return [forged] if ask.job == "alone" else [forged, response(client, ask, "true", "a")]

    coordinator = peer(forge)
    with OperatorClient(where, 20.0) as client:
        assert client.ask(m.AskCancel(id=new_id(), job="both")) == "true"
        with pytest.raises(NotDone, match="may be forged: "):
            client.ask(m.AskCancel(id=new_id(), job="alone"))
    assert len(coordinator.requests) == 2, "it is not asked again and again"


def test_lists_come_in_pages(where: BrokerSettings, peer: Any, says: Any) -> None:
    def answer(ask: Any, client: str) -> list[Outgoing]:
        end = min(7, ask.offset + 3)
        key = "jobs" if isinstance(ask, m.AskList) else "workers"
        assert isinstance(ask, m.AskList | m.AskWorkers)
        rows = [{"job_id": str(n)} for n in range(ask.offset, end)]
        return [says(client, ask.id, {key: rows, "next": end if end < 7 else None})]

    peer(answer)
    with OperatorClient(where) as client:
        seven = [{"job_id": str(n)} for n in range(7)]
        assert client.list_jobs() == seven
        assert client.list_workers() == seven


def test_nothing_watched_is_lost_around_an_answer(
    where: BrokerSettings, peer: Any, says: Any, topics: Topics
) -> None:
    job = topics.job("a" * 64)

    def answer(ask: Any, client: str) -> list[Outgoing]:
        if coordinator.requests[:-1] and ask.id == coordinator.requests[-2].id:
            return [says(client, ask.id)]  # repeated, on a machine that is busy
        number = str(len({one.id for one in coordinator.requests})).encode()
        before, after = Outgoing(job, b"before " + number), Outgoing(job, b"after " + number)
        return [before, says(client, ask.id), after]

    coordinator = peer(answer)
    with OperatorClient(where, watch=[topics.job("+")]) as client:
        rounds = 100
        for _ in range(rounds):
            client.ask(m.AskStatus(id=new_id()))
        seen: list[bytes] = []
        deadline_s = time.monotonic() + DEADLINE_S
        while len(seen) < 2 * rounds and time.monotonic() < deadline_s:
            seen += [payload for topic, payload in client.messages(1.0) if topic.kind is Kind.JOB]
    expected = [f"{when} {n + 1}".encode() for n in range(rounds) for when in ("before", "after")]
    assert seen == expected


@pytest.mark.system
@pytest.mark.parametrize("arguments", [("list",), ("list", "--json")])
def test_whoever_reads_only_the_first_line_is_told_of_no_failure(
    at: list[str], peer: Any, says: Any, arguments: tuple[str, ...]
) -> None:
    peer(lambda ask, client: [says(client, ask.id, {"jobs": [], "next": None})])
    ends = os.pipe()
    os.close(ends[0])
    try:
        ran = subprocess.run(
            [sys.executable, "-m", "coordinator.cli", *arguments, *at],
            stdout=ends[1], stderr=subprocess.PIPE, text=True, timeout=60, check=False,
        )  # fmt: skip
    finally:
        os.close(ends[1])
    assert (ran.returncode, ran.stderr) == (0, "")


LATE = ("--since", "6000-01-01")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("show", "x" * 2001), "job: longer than 2000 characters"),
        (("show", "\udcff"), "job: "),
        ((*RUN, "-H", "lr=nan"), "job.hyper.lr: must be a finite number, not nan"),
        ((*RUN, "--min-ram-gib", "inf"), "job.min_ram_gib: must be a finite number, not inf"),
        ((*RUN, "-H", "day=[2026-01-02]"), "job.hyper.day.0: input was not a valid JSON value"),
        ((*RUN, "--name", "\udcff"), "no text in UTF-8"),
        *(
            pytest.param(verb, "since: must be at most 100000000000", marks=pytest.mark.posix)
            for verb in (("events", *LATE), ("stats", *LATE, "--json"))
        ),
    ],
)
def test_what_no_request_can_hold_is_an_error_of_who_typed_it(
    at: list[str], arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, *at, "--timeout", "1"]) == 2
    told = capsys.readouterr()
    assert told.err.startswith("error: ")
    assert said in told.err
    assert len(told.err.splitlines()) == 1
    if "--json" in arguments:
        assert json.loads(told.out)["ok"] is False
