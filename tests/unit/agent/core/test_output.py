"""What trainers print: understood, numbered, kept while nobody listens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.core import effects as fx
from agent.core.output import TELL_S
from broker.errors import BadMessage
from broker.protocol import messages as m
from broker.protocol.link_events import Connected, Disconnected, Incoming
from broker.protocol.loglines import LogLines, decode_lines, encode_lines, missing
from broker.protocol.topic_table import Kind
from coordinator.cli.logs import Follower
from coordinator.core.effects import AppendLog
from coordinator.store.joblog import JobLogs
from tests.harness.agent import HEX, JOB, Agent
from tests.harness.coordinator import Fleet, spec


def coordinator(agent: Agent, state: str, session: str, *, retained: bool = False) -> None:
    """What the agent hears of the coordinator."""
    status = m.Status.model_validate(
        {"state": state, "reason": "birth" if state == "online" else "lost", "session": session,
         "instance": "c", "boot_id": "b"}
    )  # fmt: skip
    topic = agent.topics.coordinator_status()
    agent.handle(Incoming(topic, m.encode(status), retained=retained))


def heard(agent: Agent) -> list[LogLines]:
    """Take what is said of the trainer's output, a moment later."""
    agent.passes(TELL_S)
    found = [decode_lines(said) for topic, said in agent.sent if topic.kind is Kind.LOG]
    agent.sent.clear()
    return found


def running() -> Agent:
    """An agent that a coordinator listens to, with a trainer."""
    agent = Agent()
    coordinator(agent, "online", "c1", retained=True)
    agent.runs()
    agent.handle(fx.TrainerLine(JOB, 1, "one"))
    assert heard(agent) == [LogLines(1, 1, ("one",))]
    return agent


def test_what_is_put_out_without_a_broker_is_sent_when_there_is_one() -> None:
    """In one message, and before what comes next; a coordinator that comes later has it, too."""
    agent = running()
    agent.handle(Disconnected("gone"))
    for word in ("two", "three"):
        agent.handle(fx.TrainerLine(JOB, 1, word))
    assert heard(agent) == []
    agent.handle(Connected("s2"))
    assert heard(agent) == [LogLines(1, 2, ("two", "three"))]
    coordinator(agent, "online", "c1", retained=True)
    agent.handle(fx.TrainerLine(JOB, 1, "four"))
    assert heard(agent) == [LogLines(1, 2, ("two", "three")), LogLines(1, 4, ("four",))]
    agent.handle(Disconnected("gone"))
    agent.handle(Connected("s3"))
    coordinator(agent, "online", "c1", retained=True)
    assert heard(agent) == []


def test_progress_of_a_moment_is_told_once_and_the_last_before_the_end() -> None:
    """However fast a trainer tells: its newest, and on a new connection what was told to nobody."""
    agent = running()
    for epoch in range(1, 2000):
        agent.handle(fx.TrainerLine(JOB, 1, f'{{"event":"progress","epoch":{epoch}}}'))
    agent.passes(TELL_S)
    assert [(told.first_epoch, told.epoch) for told in agent.said(m.Progress)] == [(1, 1999)]
    agent.handle(Disconnected("gone"))
    agent.handle(fx.TrainerLine(JOB, 1, '{"event":"progress","epoch":2000}'))
    agent.passes(TELL_S)
    agent.sent.clear()
    agent.handle(Connected("s2"))
    agent.passes(1)
    assert [told.epoch for told in agent.said(m.Progress)] == [2000]
    agent.sent.clear()
    agent.ends(0, 1, '{"event":"progress","epoch":2001}')
    told = [said for topic, said in agent.sent if topic.kind is Kind.PROGRESS]
    assert [said and said.epoch for said in told] == [2001, b""]


def test_progress_is_not_told_after_the_end() -> None:
    """It is retained: nobody would clear it."""
    agent = running()
    agent.handle(Disconnected("gone"))
    agent.ends(0, 1, '{"event":"progress","epoch":2}')
    agent.handle(Connected("s2"))
    agent.passes(1)
    assert not agent.said(m.Progress)


def test_what_is_put_out_without_a_coordinator_is_sent_when_one_comes() -> None:
    """Whoever follows it has it at once; what a new coordinator lacks comes before what is new."""
    agent = running()
    coordinator(agent, "offline", "older")
    agent.handle(fx.TrainerLine(JOB, 1, "two"))
    assert heard(agent) == [LogLines(1, 2, ("two",))]
    coordinator(agent, "offline", "c1")
    agent.handle(fx.TrainerLine(JOB, 1, "three"))
    assert heard(agent) == [LogLines(1, 3, ("three",))]
    assert heard(agent) == []
    coordinator(agent, "online", "c2")
    agent.handle(fx.TrainerLine(JOB, 1, "four"))
    agent.passes(1)
    assert heard(agent) == [LogLines(1, 3, ("three", "four"))]


def test_the_output_of_an_attempt_that_has_ended_meanwhile_comes_before_its_report() -> None:
    """Of a long one the last 16 KiB; the numbers say what is missing."""
    agent = running()
    agent.handle(Disconnected("gone"))
    for number in range(2, 1000):
        agent.handle(fx.TrainerLine(JOB, 1, f"{number:0100}"))
        agent.passes(0.1)
    agent.ends(0, 1, '{"event":"result","metrics":{"auroc":0.9},"files":[]}')
    agent.handle(fx.BundleMade(JOB, 1, HEX, 2000))
    agent.sent.clear()
    agent.handle(Connected("s2"))
    coordinator(agent, "online", "c2")
    agent.sent.clear()
    agent.passes(1)
    kinds = [topic.kind for topic, _ in agent.sent]
    assert kinds.index(Kind.LOG) < kinds.index(Kind.RESPONSE)
    (said,) = heard(agent)
    assert (said.number, len(said.lines)) == (838, 163), "1,000 lines"
    assert (said.lines[0], said.lines[-1]) == (f"{838:0100}", "done")


def test_a_result_that_cannot_be_read_is_marked_and_leaves_what_was_printed() -> None:
    agent = running()
    printed = {f"m{number}": number for number in range(64)}
    agent.handle(fx.TrainerLine(JOB, 1, json.dumps({"event": "result", "metrics": printed})))
    agent.ends(0, 1, '{"event": "result", "metrics": null}')
    agent.handle(fx.BundleMade(JOB, 1, HEX, 2000))
    (report,) = agent.said(m.Finished)
    del printed["m63"]
    assert report.metrics == {"marks": ["metrics_unread"]} | printed, "no more than a report bears"


def test_a_log_says_where_lines_are_missing(tmp_path: Path) -> None:
    """What comes twice or late is put in its place; another attempt's are another log."""
    logs = JobLogs(tmp_path, 10_000)
    for number, *lines in ((3, "c"), (4, "d"), (8, "h"), (4, "d", "e"), (9, "i 9")):
        logs.append(JOB, LogLines(1, int(number), tuple(map(str, lines))), 1e9 + int(number))
    tail = logs.tail(JOB, 1, 100)
    assert tail.lines == [missing(2), "c", "d", "e", missing(2), "h", "i 9"]
    assert tail.times == [None, *(1e9 + n for n in (3, 4, 4)), None, 1e9 + 8, 1e9 + 9]
    assert (tail.last, tail.truncated) == (9, False)
    assert logs.tail(JOB, 1, 2).lines == ["h", "i 9"]
    assert logs.tail(JOB, 1, 2).truncated
    assert logs.tail(JOB, 2, 100).last == 0


def test_a_log_that_was_let_go_at_its_beginning_is_not_a_hole(tmp_path: Path) -> None:
    logs = JobLogs(tmp_path, 1000)
    for number in range(1, 500):
        logs.append(JOB, LogLines(1, number, (f"line {number}",)), 1e9)
    tail = logs.tail(JOB, 1, 1000)
    assert tail.truncated
    assert not any("missing" in line for line in tail.lines)
    assert tail.lines[-1] == "line 499"


def test_who_follows_sees_each_line_once_and_is_told_of_holes() -> None:
    follower = Follower(JOB, 1, 2)
    said = [(1, 2, ["b"]), (1, 3, ["c"]), (1, 5, ["e"]), (1, 4, ["d", "e", "f"]), (2, 2, ["B"])]
    shown = [follower.news(encode_lines(a, n, [one.encode() for one in t])) for a, n, t in said]
    assert shown == [[], ["c"], [missing(1), "e"], ["f"], [missing(1), "B"]]
    assert follower.news(b"1.7 old") == follower.news(b"no number") == []
    assert missing(1) != missing(2)


@pytest.mark.parametrize(
    "payload", [b"", b"epoch 1", b"1. x", b"1.1", b"-1.1 x", b"1." + b"9" * 30]
)
def test_output_without_its_number_is_garbage(payload: bytes) -> None:
    """M2."""
    with pytest.raises(BadMessage):
        decode_lines(payload)


def test_only_the_newest_attempts_output_on_its_host_is_kept() -> None:
    """Also what comes after its report, as what the agent has kept may do."""
    fleet = Fleet(spec())
    pi, attic = fleet.host().joins(), fleet.host("attic").joins()
    job = fleet.job()
    for host, attempt in ((pi.name, 1), (attic.name, 1), (pi.name, 2)):
        said = encode_lines(attempt, 7, [f"{host} {attempt}".encode()])
        fleet.handle(Incoming(fleet.topics.log(host, job.job_id), said))
    assert fleet.took(AppendLog) == [
        AppendLog(job.job_id, LogLines(1, 7, ("pi 1",)), fleet.now.wall_s)
    ]


def test_a_flood_of_lines_does_not_flood_the_broker() -> None:
    agent = Agent()
    agent.runs()
    agent.sent.clear()
    for number in range(1000):
        agent.handle(fx.TrainerLine(JOB, 1, f"line {number}"))
    (said,) = heard(agent)
    assert said.lines == tuple(f"line {number}" for number in range(50))
    agent.passes(1)
    last = [f"line {number}" for number in range(950, 1000)]
    assert heard(agent) == [LogLines(1, 51, ("... 900 lines left out", *last))]
    agent.handle(fx.TrainerLine(JOB, 1, "later"))
    assert heard(agent) == [LogLines(1, 102, ("later",))]


def test_what_is_printed_last_in_a_flood_is_not_lost() -> None:
    """A report or a traceback is what people look for."""
    agent = running()
    agent.passes(1)
    agent.sent.clear()
    agent.ends(0, 1, *(f"row {number}" for number in range(120)), "accuracy 0.97")
    lines = [line for one in heard(agent) for line in one.lines]
    assert lines[:50] == [f"row {number}" for number in range(50)]
    assert lines[50] == "... 21 lines left out"
    assert lines[51:] == [*(f"row {number}" for number in range(71, 120)), "accuracy 0.97"]


def test_what_a_trainer_prints_last_comes_before_its_end() -> None:
    agent = running()
    agent.ends(0, 1, "bye", '{"event":"result","metrics":{"auroc":0.9},"files":[]}')
    agent.handle(fx.BundleMade(JOB, 1, HEX, 2000))
    kinds = [topic.kind for topic, _ in agent.sent]
    assert kinds.index(Kind.LOG) < kinds.index(Kind.RESPONSE)


def test_long_lines_come_whole_though_many_come_at_once() -> None:
    """More than is kept for a coordinator that is away."""
    agent = Agent()
    coordinator(agent, "online", "c1", retained=True)
    agent.runs()
    agent.sent.clear()
    for number in range(20):
        agent.handle(fx.TrainerLine(JOB, 1, str(number).ljust(5000, "x")))
    said = heard(agent)
    assert [int(line.rstrip("x")) for one in said for line in one.lines] == [*range(20)]
    assert len(said) < 20


def test_whatever_a_trainer_prints_the_agent_goes_on() -> None:
    agent = Agent()
    agent.runs()
    for line in (
        '{"event":"error","kind":3,"message":"\\ud800"}', '{"event":"result","metrics":{"a":NaN}}',
        '{"event":"progress","epoch":-1,"epochs":"x","train_loss":1e999,"metrics":[]}',
        '{"event":"progress","epoch":1,"epochs":0,"eta_s":-5,"metrics":{"\\ud800":"\\udfff"}}',
        '{"event":"phase","phase":"' + "x" * 999 + '"}', '{"event":', "{}", "[" * 5000,
        '{"event":"result","metrics":{"n":' + "9" * 4000 + "}}", "\x00\x1b[31m", "é" * 9000,
    ):  # fmt: skip
        agent.handle(fx.TrainerLine(JOB, 1, line))
    agent.finishes()


@pytest.mark.parametrize(
    "said",
    ['"train_loss":' + "9" * 400, '"epoch":' + "9" * 400 + ',"epochs":1',
     *(f'"metrics":{{"a":{"[" * levels}{"]" * levels}}}' for levels in (240, 300, 600, 900, 4000))],
    ids=["a loss", "an epoch", "240 levels", "300 levels", "600 levels", "900 levels", "4000"],
)  # fmt: skip
@pytest.mark.parametrize("event", ["progress", "result"])
def test_no_number_and_no_nesting_of_a_trainers_ends_the_agent(event: str, said: str) -> None:
    agent = Agent()
    agent.runs()
    agent.ends(0, 1, f'{{"event":"{event}","metrics":{{}},{said}}}')
    assert agent.phase() == "bundling"
    agent.handle(fx.BundleMade(JOB, 1, HEX, 2000))
    assert agent.said(m.Finished)
