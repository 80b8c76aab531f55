"""Topics and messages: what goes out comes back, and garbage is told from it."""

from __future__ import annotations

import contextlib
import json
import math
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from broker.errors import BadMessage, BadTopic, ConfigError
from broker.protocol import messages as m
from broker.protocol.asyncapi import CONTENTS
from broker.protocol.topic_table import Kind
from broker.protocol.topics import Topic, Topics

HEX = "0f" * 32
ADAPTERS = {
    kind: content for kind, (content, _) in CONTENTS.items() if isinstance(content, TypeAdapter)
}
LEAVING = m.Why(code="leaving")
ABOUT = {"id": "r1", "session": "s", "instance": "i", "job_id": HEX, "attempt": 1}
ABOUT_HOST = (
    '"session":"s","instance":"i","os":"o","arch":"a","python":"3",'
    '"physical_cores":1,"ram_total_bytes":1,"ram_available_bytes":1,'
)
SAID = {"kind": "program", "job": "x", "host": "x", "name": "x", "action": "revoke", "made_at": 1.0}
SAMPLES: list[tuple[TypeAdapter[Any], m.Wire]] = [
    (m.STATUS, m.Status(state="offline", reason="lost", session="s", instance="i", boot_id="b")),
    (m.CAPABILITY, m.Capability(
        session="s", instance="i", os="Linux", arch="x", python="3", physical_cores=4,
        ram_total_bytes=1, ram_available_bytes=1, gpus=(m.Gpu(index=0, name="G"),),
        trainers={"gbt": m.TrainerInfo(hyper_schema={"type": "object"})}, data_id="d")),
    (m.HEARTBEAT, m.Heartbeat(
        session="s", instance="i", seq=3, ram_available_bytes=5,
        jobs=(m.HeldJob(job_id=HEX, attempt=2, phase="running", progress=0.5),))),
    (m.PROGRESS, m.Progress(attempt=1, epoch=1, epochs=2, train_loss=0.1, metrics={"a": 1.0})),
    (m.AGENT_REQUEST, m.Assign(
        instance="i", id="a", job_id=HEX, attempt=1, name="n", model="gbt", mode="oracle",
        hyper={"epochs": 3}, needs=m.Needs(require_cuda=True, min_ram_gib=2.0))),
    (m.AGENT_REQUEST, m.Cancel(id="a", job_id=HEX, attempt=1, why="w")),
    (m.AGENT_REQUEST, m.Noted(id="a", report_id="r", job_id=HEX, attempt=1, verdict="stored")),
    (m.AGENT_REQUEST, m.Rebirth(id="a")),
    (m.AGENT_REQUEST, m.Release(id="a", job_id=HEX, attempt=1, why=LEAVING)),
    (m.AGENT_REQUEST, m.Rules(id="a", digest="d", rules=m.HostRules(quiet_hours=("Sat",)))),
    (m.AGENT_RESPONSE, m.Accepted(**ABOUT, request_id="q")),
    (m.AGENT_RESPONSE, m.Refused(**ABOUT, request_id="q", reasons=(m.Objection(code="no"),))),
    (m.AGENT_RESPONSE, m.Started(**ABOUT, slot=0, pid=7)),
    (m.AGENT_RESPONSE, m.Finished(**ABOUT, artifact_id=HEX, size_bytes=9, metrics={"f1": None})),
    (m.AGENT_RESPONSE, m.Failed(**ABOUT, error="e", exit_code=1)),
    (m.AGENT_RESPONSE, m.Released(**ABOUT, why=LEAVING)),
    (m.AGENT_RESPONSE, m.Released(**ABOUT, why=LEAVING, artifact_id=HEX, size_bytes=9)),
    (m.AGENT_RESPONSE, m.Stopped(**ABOUT, request_id="q")),
    (m.CERTIFICATE_REQUEST, m.CertificateRequest(id="a", request="pem")),
    (m.CERTIFICATE_RESPONSE, m.CertificateResponse(id="a", certificate="pem")),
    (m.CERTIFICATE_RESPONSE, m.CertificateResponse(id="a", error="no")),
    (m.GRANT, m.Grant(missing=((0, 2),), horizon=2, window_chunks=16)),
    (m.GRANT, m.Stored()),
    (m.GRANT, m.Rejected(reason="corrupt")),
    (m.SUMMARY, m.Summary(jobs={"pending": 1}, hosts={"online": 1})),
    (m.BROKER_REFUSED, m.BrokerRefusals(refused={"tls": 1})),
    (m.JOB_ROW, m.JobRow(
        job_id=HEX, name="n", model="gbt", mode="oracle", state="pending", priority=1, attempt=0,
        host=None, error=None, artifact_id=None, metrics=None, created_at="t", started_at=None,
        finished_at=None)),
    *[(m.OPERATOR_REQUEST,
       kind(id="a", **{key: word for key, word in SAID.items() if key in kind.model_fields}))
      for kind in get_args(get_args(m.OperatorRequest)[0]) if kind not in
      (m.AskRun, m.AskSnooze, m.AskEach, m.AskCurves, m.AskPush)],
    (m.OPERATOR_REQUEST, m.AskCurves(id="a", jobs=("1b" * 32,))),
    (m.OPERATOR_REQUEST, m.AskPush(id="a", offer=m.ProgramOffer(
        name="vision", trainer=m.TrainerInfo(hyper_schema={"type": "object"}, program=m.Program(
            digest=HEX, size_bytes=9, signers=("ann",), environment="none")),
        signatures=(m.ProgramSignature(signer="ann", certificate="pem", value="AA=="),)))),
    (m.OPERATOR_REQUEST, m.AskPush(id="a", offer=m.DataOffer(
        name="cifar", digest=HEX, size_bytes=9, files=2, layout=m.Blob(HEX, 3),
        packs=(m.Blob("1b" * 32, 9),)))),
    (m.OPERATOR_REQUEST, m.AskRun(id="a", job={"model": "gbt", "hyper": {"a": 1.5}})),
    (m.OPERATOR_REQUEST, m.AskSnooze(id="a", host="x", for_s=60.0, now=True)),
    (m.OPERATOR_REQUEST, m.AskEach(id="a", action="cancel", jobs=("x", "y"))),
    (m.OPERATOR_RESPONSE, m.OperatorResponse(id="a", ok=True, data={"x": [1, None, "é"]})),
    (m.HOME_STATE, m.HomeHost(
        state="working", online=True, accepts=True, problem=False, job="n", progress=50,
        jobs=(m.HomeJob(name="n", job_id=HEX, phase="running", progress=0.5),), power_w=180.0)),
    (m.HOME_STATE, m.HomeFleet(
        state="idle", problem=False, jobs={"failed": 1}, progress=3, hosts_online=1, hosts=2)),
    (m.HOME_EVENT, m.HomeEvent(event_type="job_failed", job="n", host="pi", error="e")),
    (m.HOME_COMMAND, m.HomeCommand(type="drain")),
]  # fmt: skip
T = Topics("site/fleet")
TOPICS = {
    T.broker_refused(): Topic(Kind.BROKER_REFUSED),
    T.status("pi"): Topic(Kind.STATUS, "pi"),
    T.capability("pi"): Topic(Kind.CAPABILITY, "pi"),
    T.heartbeat("pi"): Topic(Kind.HEARTBEAT, "pi"),
    T.echo("pi"): Topic(Kind.ECHO, "pi"),
    T.echo("coordinator"): Topic(Kind.COORDINATOR_ECHO),
    T.request("pi"): Topic(Kind.REQUEST, "pi"),
    T.response("pi"): Topic(Kind.RESPONSE, "pi"),
    T.log("pi", HEX): Topic(Kind.LOG, "pi", HEX),
    T.progress("pi", HEX): Topic(Kind.PROGRESS, "pi", HEX),
    T.chunk("pi", HEX, 7): Topic(Kind.CHUNK, "pi", artifact_id=HEX, index=7),
    T.grant("pi", HEX): Topic(Kind.GRANT, "pi", artifact_id=HEX),
    T.checkpoint_chunk("pi", HEX, 7): Topic(Kind.CHECKPOINT_CHUNK, "pi", artifact_id=HEX, index=7),
    T.checkpoint_grant("pi", HEX): Topic(Kind.CHECKPOINT_GRANT, "pi", artifact_id=HEX),
    T.identity_request("pi"): Topic(Kind.IDENTITY_REQUEST, "pi"),
    T.identity_response("pi"): Topic(Kind.IDENTITY_RESPONSE, "pi"),
    T.coordinator_status(): Topic(Kind.COORDINATOR_STATUS),
    T.summary(): Topic(Kind.SUMMARY),
    T.holder(): Topic(Kind.HOLDER),
    T.job(HEX): Topic(Kind.JOB, job_id=HEX),
    T.operator_request("operator:ann/cli-1"): Topic(Kind.OPERATOR_REQUEST, "operator:ann/cli-1"),
    T.operator_response("operator:ann/cli-1"): Topic(Kind.OPERATOR_RESPONSE, "operator:ann/cli-1"),
    T.download_chunk("operator:ann/cli-1", 0): Topic(Kind.DOWNLOAD_CHUNK, "operator:ann/cli-1"),
    T.download_grant("operator:ann/cli-1"): Topic(Kind.DOWNLOAD_GRANT, "operator:ann/cli-1"),
    T.push_chunk("operator:ann/cli-1", 0): Topic(Kind.PUSH_CHUNK, "operator:ann/cli-1"),
    T.push_grant("operator:ann/cli-1"): Topic(Kind.PUSH_GRANT, "operator:ann/cli-1"),
    T.home_state("pi"): Topic(Kind.HOME_STATE, "pi"),
    T.home_state("coordinator"): Topic(Kind.HOME_STATE, "coordinator"),
    T.home_event("coordinator"): Topic(Kind.HOME_EVENT, "coordinator"),
    T.home_command("pi"): Topic(Kind.HOME_COMMAND, "pi"),
}


def test_every_topic_is_parsed_as_it_was_built() -> None:
    assert {topic.kind for topic in TOPICS.values()} == set(Kind)
    for text, topic in TOPICS.items():
        assert T.parse(text) == topic


@pytest.mark.parametrize(
    "topic",
    [
        "fleet/pi/status", "site/fleet", "site/fleet/", "site/fleet/pi", "site/fleet/pi/",
        "site/fleet/pi/status/", "site/fleet//status", "site/fleet/PI/status",
        "site/fleet/-pi/status", f"site/fleet/{'a' * 64}/status", "site/fleet/../status",
        "site/fleet/pi\n/status", "site/fleet/pi/job/x/log", f"site/fleet/pi/job/{HEX.upper()}/log",
        f"site/fleet/pi/artifact/{HEX}/chunk/-1", f"site/fleet/pi/artifact/{HEX}/chunk/01",
        f"site/fleet/pi/artifact/{HEX}/chunk/99999999", f"site/fleet/pi/artifact/{HEX}/chunk/",
        f"site/fleet/pi/artifact/{HEX}/chunk/1/2", "site/fleet/coordinator/heartbeat",
        "site/fleet/jobs/status", "site/fleet/operator/status", f"site/fleet/{'x/' * 300}",
        "site/fleet/operator/ann/cli/request", "site/fleet/operator/pi/request",
        "site/fleet/operator/operator:/cli/request", "site/fleet/operator/root:ann/cli/request", "",
        "site/fleet/homeassistant/jobs/set", "site/fleet/homeassistant/PI/set",
        "site/fleet/homeassistant/pi", "site/fleet/homeassistant/pi/status", "homeassistant/status",
    ],
)  # fmt: skip
def test_what_is_outside_the_tree_is_refused(topic: str) -> None:
    """T1: reserved names, malformed names, wrong depths."""
    with pytest.raises(BadTopic):
        T.parse(topic)


@given(st.text(max_size=60))
def test_no_topic_makes_the_parser_fail_otherwise(text: str) -> None:
    for topic in (text, f"site/fleet/{text}", f"site/fleet/pi/artifact/{text}"):
        try:
            T.parse(topic)
        except BadTopic:
            continue


@pytest.mark.parametrize("root", ["", "/fleet", "a/b/c/d/e/f", "fl+eet", "fleet/#", "a b"])
def test_a_root_with_wildcards_or_gaps_is_refused(root: str) -> None:
    with pytest.raises(ConfigError, match="site/fleet"):
        Topics(root)


@pytest.mark.parametrize(("adapter", "message"), SAMPLES, ids=lambda value: type(value).__name__)
def test_every_message_comes_back_as_it_went(adapter: Any, message: m.Wire) -> None:
    """M1: also with a field that this version does not know; which is not passed on."""
    payload = m.encode(message)
    assert m.decode(adapter, payload) == message
    newer = json.loads(payload) | {"v": 2, "news": {"a": 1}}
    again = m.decode(adapter, json.dumps(newer).encode())
    assert b"news" not in m.encode(again)
    assert payload.startswith(b'{"v":1')


@pytest.mark.parametrize("payload", [
    b"", b"null", b"[]", b"{", b'{"v":0}', b"\xff\xfe", b'"\xed\xa0\x80"', b"[" * 10_000,
    b'{"a":' * 5000, b"1" * 10_000, b'{"v":1e999}', b"NaN",
])  # fmt: skip
@pytest.mark.parametrize("adapter", ADAPTERS.values(), ids=ADAPTERS)
def test_garbage_is_a_bad_message(adapter: Any, payload: bytes) -> None:
    """M2: whatever it is, one kind of error, which bears none of the content."""
    with pytest.raises(BadMessage):
        m.decode(adapter, payload)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every value in a JSON document but the document itself."""
    inside: Any = ()
    if isinstance(value, dict | list):
        inside = value.items() if isinstance(value, dict) else enumerate(value)
    below = [place for key, child in inside for place in _places(child, (*path, key))]
    return [path, *below] if path else below


def _nested(levels: int) -> Any:
    value: Any = 0
    for level in range(levels):
        value = [value] if level % 2 else {"a": value}
    return value


ODD_VALUES = st.one_of(
    st.sampled_from([
        math.nan, math.inf, -math.inf, -0.0, 5e-324, 1.8e308, 2**63, -(2**64), 10**400, 10**4000,
        "\ud800", "\udfff\ud800", "\0", "x" * 20_000, True, None, [], {}, [[]] * 300,
        {"\ud800": 1}, {"a": math.nan}, [10**4000], _nested(50), _nested(190), _nested(400),
    ]),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    ),
)  # fmt: skip


@settings(max_examples=600, deadline=None)
@given(st.sampled_from(SAMPLES), st.integers(0, 10**6), ODD_VALUES)
def test_an_odd_value_in_any_field_is_taken_or_refused(sample: Any, at: int, odd: Any) -> None:
    """M2: no other exception; and what was taken can be sent on, by any JSON parser readable."""
    adapter, message = sample
    fields = json.loads(m.encode(message))
    places = _places(fields)
    *path, last = places[at % len(places)]
    inner = fields
    for key in path:
        inner = inner[key]
    inner[last] = odd
    taken = None
    with contextlib.suppress(BadMessage):
        taken = m.decode(adapter, json.dumps(fields).encode())
    if taken is None:
        return
    again = m.encode(taken)
    assert m.encode(m.decode(adapter, again)) == again
    json.loads(again, parse_constant=pytest.fail)


def test_what_is_too_large_is_not_even_parsed() -> None:
    with pytest.raises(BadMessage, match="at most 262144"):
        m.decode(m.STATUS, b" " * (m.MAX_PAYLOAD_BYTES + 1))


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
@pytest.mark.parametrize(
    ("adapter", "fields"),
    [
        (m.PROGRESS, '"attempt":1,"train_loss":%s'),
        (m.PROGRESS, '"attempt":1,"metrics":{"a":%s}'),
        (m.PROGRESS, '"attempt":1,"metrics":{"a":[1,{"b":%s}]}'),
        (m.OPERATOR_RESPONSE, '"id":"a","ok":true,"data":[{"a":%s}]'),
        (m.CAPABILITY, ABOUT_HOST + '"trainers":{"gbt":{"hyper_schema":{"maximum":%s}}}'),
    ],
)
def test_numbers_are_finite(adapter: Any, fields: str, number: str) -> None:
    """Wherever they are: JSON has no word for others, so that they could not be sent on."""
    assert m.decode(adapter, b'{"v":1,' + (fields % "1").encode() + b"}")
    with pytest.raises(BadMessage):
        m.decode(adapter, b'{"v":1,' + (fields % number).encode() + b"}")


@pytest.mark.parametrize(
    ("adapter", "payload"),
    [
        (m.STATUS, '{"v":1,"state":"s3cret"}'),
        (m.STATUS, '{"v":1,"s3cret'),
        (m.STATUS, '"s3cret"'),
        (m.AGENT_REQUEST, '{"v":1,"type":"s3cret"}'),
        (m.GRANT, '{"v":1,"state":["s3cret"]}'),
        (m.PROGRESS, '{"v":1,"attempt":1,"metrics":{"s3cret":NaN}}'),
        (m.CAPABILITY, '{"v":1,"trainers":{"s3cret!":{}}}'),
        (m.CAPABILITY, '{"v":1,"trainers":{"s3cret":1}}'),
        (m.SUMMARY, '{"v":1,"jobs":{"s3cret":"many"}}'),
    ],
)
def test_an_error_repeats_nothing_of_the_payload(adapter: Any, payload: str) -> None:
    """M2: a secret that was sent to the wrong place does not end in a log."""
    with pytest.raises(BadMessage) as refusal:
        m.decode(adapter, payload.encode())
    assert "s3cret" not in str(refusal.value)


def test_an_error_says_what_was_expected() -> None:
    with pytest.raises(BadMessage, match=r"^payload: must be one of 'assign', 'lease', 'cancel', "):
        m.decode(m.AGENT_REQUEST, b'{"v":1,"type":"format"}')
    with pytest.raises(BadMessage, match=r"^gpus\.index: Input should be less than or equal to"):
        m.decode(m.HEARTBEAT, b'{"v":1,"session":"s","instance":"i","seq":1,'
                 b'"ram_available_bytes":1,"gpus":[{"index":2000}]}')  # fmt: skip


def test_a_list_of_messages_has_no_more_than_it_may() -> None:
    """But for one that is longer than that."""
    given = [b"1", b"22", b"3", b"x" * 20, b"4"]
    assert [*m.together(given, 8)] == [b"[1,22,3]", b"x" * 20, b"4"]
    assert [*m.together([], 8)] == []
