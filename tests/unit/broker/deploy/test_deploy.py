"""`fleet broker config`: what it writes, what it refuses, and what it never overwrites."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from pathlib import Path, PurePosixPath

import pytest

from broker.deploy import RENDERERS, Site
from broker.pki import certificates as certs
from broker.pki.ca import Authority
from broker.protocol.acl import Principal, covers, rights_of
from broker.protocol.topics import Topics
from coordinator.cli import main
from tests.harness.tree import EVERYBODY, tree

BROKERS = pytest.mark.parametrize("kind", list(RENDERERS))


@pytest.fixture(autouse=True)
def no_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody who was enrolled by whoever runs the tests is known."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "nowhere"))


def _config(kind: str, folder: Path, *arguments: str) -> int:
    return main(["broker", "config", kind, "-o", str(folder), *arguments])


@BROKERS
def test_a_second_run_changes_nothing_and_says_so(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _config(kind, tmp_path / "out") == 0
    assert "is current" not in capsys.readouterr().out
    before = {path: path.read_text("utf-8") for path in (tmp_path / "out").iterdir()}
    assert _config(kind, tmp_path / "out") == 0
    assert "written" not in capsys.readouterr().out
    assert _config(kind, tmp_path / "out", "--person", "operator:alice") == 0
    after = {path: path.read_text("utf-8") for path in (tmp_path / "out").iterdir()}
    assert after != before
    assert any("operator:alice" in text for text in after.values())


@BROKERS
def test_a_file_that_somebody_else_made_is_left_alone(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site = Site(PurePosixPath("/x"), PurePosixPath("/x"), PurePosixPath("/x"))
    name = list(RENDERERS[kind](site))[-1]  # the last, so that others would be written before
    (tmp_path / name).write_text("listener 1883\n", "utf-8")
    assert _config(kind, tmp_path) == 2
    said = capsys.readouterr().err
    assert str(tmp_path / name) in said
    assert "--force" in said
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text("utf-8") == "listener 1883\n"
    assert _config(kind, tmp_path, "--force") == 0
    assert (tmp_path / name).read_text("utf-8") != "listener 1883\n"


@BROKERS
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--person", "alice"], "--person alice: write it as operator:NAME"),
        (["--person", "homeassistant"], "--person homeassistant"),
        (["--person", "operator:a\nb"], "--person operator:a"),
        (["--host", "operator:alice"], "--host operator:alice: is no host's name"),
        (["--host", "coordinator"], "--host coordinator"),
        (["--root", "a/+/b"], "--root: topic root 'a/+/b'"),
        (["--at", "relative"], "folder relative: must be absolute"),
        (["--certificates", "/a\nallow_anonymous true"], "has a character"),
        (["--data", '/a"b'], "has a character"),
        (["--origin", "desk.lan"], "--origin desk.lan: write it as a browser does"),
    ],
)
def test_what_is_wrong_is_told_in_a_line_and_nothing_is_written(
    kind: str, arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _config(kind, tmp_path / "out", *arguments) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_what_a_broker_cannot_do_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for kind, name in (("mosquitto", "mosquitto"), ("rabbitmq", "RabbitMQ")):
        assert _config(kind, tmp_path, "--origin", "https://desk.lan") == 2
        assert f"--origin: {name} does not look where a page is from" in capsys.readouterr().err
    for kind in ("rabbitmq", "nats"):
        assert _config(kind, tmp_path, "--loopback") == 2
        assert "take mosquitto" in capsys.readouterr().err
    for kind, name in (("nats", "NATS"), ("rabbitmq", "RabbitMQ")):
        for arguments in (["--host", "pi4.attic"], ["--root", "site/lab.2"]):
            assert _config(kind, tmp_path, *arguments) == 2
            said = capsys.readouterr().err
            assert f"{arguments[1].split('/')[-1]}: {name} has no topics with a dot" in said


@pytest.mark.posix  # the broker's machine has such paths
def test_certificates_with_a_list_of_the_revoked_are_used_with_it(tmp_path: Path) -> None:
    """It reads crl.pem where there is one, and does not start where it is missing."""
    for there in (False, True):
        if there:
            (tmp_path / "crl.pem").touch()
        assert _config("mosquitto", tmp_path / "out", "--certificates", str(tmp_path)) == 0
        conf = (tmp_path / "out" / "mosquitto.conf").read_text("utf-8")
        assert conf.count(f"crlfile {tmp_path / 'crl.pem'}\n") == (2 if there else 0)


def test_a_clusters_nodes_have_a_folder_each(tmp_path: Path) -> None:
    nodes = ["--node", "a.lan", "--node", "b.lan", "--node", "spare@c.lan"]
    folders = {"a.lan": "a.lan", "b.lan": "b.lan", "spare": "c.lan"}
    assert _config("nats", tmp_path / "nats", *nodes) == 0
    for name in folders:
        conf = (tmp_path / "nats" / name / "nats.conf").read_text("utf-8")
        assert f'server_name: "{name}"\n' in conf
        for host in folders.values():
            assert f'"nats://{host}:6222"' in conf
        assert "verify_cert_and_check_known_urls: true" in conf
    assert _config("rabbitmq", tmp_path / "rabbitmq", *nodes) == 0
    for name, host in folders.items():
        folder = tmp_path / "rabbitmq" / name
        own = f"{'spare' if name == 'spare' else 'rabbit'}@{host}"
        environment = (folder / "rabbitmq-env.conf").read_text("utf-8")
        assert f"NODENAME={own}\nUSE_LONGNAME=true\n" in environment
        assert "/etc/rabbitmq/inter_node_tls.config" in environment
        assert "classic_config.nodes.3 = spare@c.lan\n" in (folder / "rabbitmq.conf").read_text()
        assert json.loads((folder / "definitions.json").read_text())["policies"]


@pytest.mark.parametrize(
    ("kind", "nodes", "words"),
    [
        ("nats", ["a", "b"], "a cluster needs 3 nodes"),
        ("nats", ["a", "b", "b"], "a cluster needs 3 nodes with different names"),
        ("nats", ["a", "b", "c:0"], "--node c:0: write it as"),
        ("nats", ["a", "b", "../c"], "--node ../c: write it as"),
        ("rabbitmq", ["a", "b", "c:1"], "--node c:1: RabbitMQ's nodes need no port"),
        ("mosquitto", ["a", "b", "c"], "mosquitto has no cluster; take NATS or RabbitMQ"),
    ],
)
def test_what_is_no_cluster_is_refused(
    kind: str, nodes: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _config(kind, tmp_path / "out", *(f"--node={node}" for node in nodes)) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_whoever_was_enrolled_is_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    now_s = time.time()
    authority = Authority.create(tmp_path / "home" / "ca", now_s)
    for name in ("coordinator", "operator:alice", "observer:bob", "pi", "gpu"):
        authority.issue(certs.new_key().public_key(), name, now_s)
    authority.revoke("gpu", now_s)
    authority.revoke("observer:bob", now_s)
    (tmp_path / "home" / "ca" / "ca.key").unlink()
    home = ("--home", str(tmp_path / "home"))
    assert _config("mosquitto", tmp_path / "mosquitto", *home) == 0
    assert "name people" not in capsys.readouterr().err
    acl = (tmp_path / "mosquitto" / "acl").read_text("utf-8")
    assert "\nuser operator:alice\ntopic" in acl
    assert "\nuser gpu\ntopic deny #\n" in acl
    assert "\nuser observer:bob\ntopic deny #\n" in acl
    assert "user pi\n" not in acl
    assert _config("nats", tmp_path / "nats", *home) == 0
    conf = (tmp_path / "nats" / "nats.conf").read_text("utf-8")
    assert {*re.findall(r'user: "CN=([^"]+)"', conf)} == {
        "coordinator", "homeassistant", "operator:alice", "pi",
    }  # fmt: skip
    assert _config("nats", tmp_path / "nats", "--home", str(tmp_path / "elsewhere")) == 2
    assert "registry.json: cannot be read" in capsys.readouterr().err


@BROKERS
def test_ports_can_be_chosen(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _config(kind, tmp_path / "usual") == 0
    text = "".join(path.read_text("utf-8") for path in (tmp_path / "usual").iterdir())
    assert "8883" in text
    assert "web" not in text.replace(str(tmp_path), "")
    assert _config(kind, tmp_path / "out", "--port=9883", "--websocket=9001") == 0
    text = "".join(path.read_text("utf-8") for path in (tmp_path / "out").iterdir())
    assert "9883" in text
    assert "9001" in text
    assert "8883" not in text
    assert _config(kind, tmp_path / "out", "--port=9001", "--websocket=9001") == 2
    assert "--websocket 9001: is another listener's" in capsys.readouterr().err
    if kind != "mosquitto":
        assert _config(kind, tmp_path / "out", "--people-port=9884") == 2
        assert "only mosquitto has a port of people's own" in capsys.readouterr().err


@pytest.mark.parametrize(("url", "is_told"), [(9000, True), (9883, True), (9884, False)])
def test_a_url_of_this_machine_with_another_port_is_told(
    url: int,
    is_told: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FLEET_BROKER", f"mqtts://pi.lan:{url}")
    assert _config("mosquitto", tmp_path / "out", "--port=9883", "--people-port=9884") == 0
    assert (f"mqtts://pi.lan:{url} is set for this machine" in capsys.readouterr().err) == is_told


def test_an_unwritable_folder_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert _config("nats", tmp_path / "file" / "out") == 1
    assert str(tmp_path / "file") in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["file"]  # noqa: PTH208 - names alone


def test_rabbitmqs_expressions_say_what_the_table_says() -> None:
    hosts = ("one", "two")
    people = tuple(who.name for who in EVERYBODY if ":" in who.name)
    folder = PurePosixPath("/x")
    topics = Topics("site/fleet")
    site = Site(folder, folder, folder, topics=topics, people=people, hosts=hosts)
    definitions = json.loads(RENDERERS["rabbitmq"](site)["definitions.json"])
    rules = {rule["user"]: rule for rule in definitions["topic_permissions"]}
    assert set(rules) == {who.name for who in EVERYBODY}
    table = str.maketrans({"/": ".", "+": "*"})
    ends = ["#", "+/status", "one/#", "one/checkpoint/+/chunk/#", "two/artifact/+/grant"]
    wild = ["#", *(f"{topics.root}/{end}" for end in ends)]
    for name, rule in rules.items():
        rights = rights_of(Principal.parse(name), topics)
        for _, _, topic in tree(topics):
            key = topic.translate(table)
            assert bool(re.search(rule["write"], key)) == rights.may_publish(topic), (name, topic)
            assert bool(re.search(rule["read"], key)) == rights.may_receive(topic), (name, topic)
        for filter_ in wild:
            asked = bool(re.search(rule["read"], filter_.translate(table)))
            assert asked == any(covers(one, filter_) for one in rights.subscribe), (name, filter_)


@pytest.mark.parametrize(
    ("setting", "values"),
    [
        ("autosave_interval", {1: 20, 5000: 50_000}),
        ("max_queued_bytes", {1: 256 * 1024**2, 5000: 5000 * 64 * 1024}),
    ],
)
def test_mosquitto_is_set_for_the_size_of_the_fleet(
    tmp_path: Path, setting: str, values: dict[int, int]
) -> None:
    found = {}
    for count in values:
        hosts = [word for number in range(count) for word in ("--host", f"h{number}")]
        assert _config("mosquitto", tmp_path / str(count), *hosts) == 0
        conf = (tmp_path / str(count) / "mosquitto.conf").read_text("utf-8")
        found[count] = int(re.findall(rf"^{setting} (\d+)$", conf, re.MULTILINE)[0])
    assert found == values


@pytest.mark.posix  # likewise
@BROKERS
def test_how_the_certificates_get_to_the_broker_is_told_step_by_step(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home, there = tmp_path / "home", tmp_path / "etc"
    assert main(["init", "--broker", "pi.lan", "-o", str(home)]) == 0
    capsys.readouterr()
    where = ("--home", str(home), "--certificates", str(there))

    def told() -> str:
        assert _config(kind, tmp_path / "out", *where) == 0
        return capsys.readouterr().err

    said, made = told(), home / "broker"
    assert f"-m 400 {made}/broker.key {there}\n" in said
    assert f"-m 644 {made}/ca.crt {made}/broker.crt" in said
    assert (f"{made}/crl.pem" in said) == (kind == "mosquitto"), "which alone reads it"
    assert f"sudo systemctl restart {kind}" in said.replace("nats-server", "nats")
    there.mkdir()
    for name in ("ca.crt", "broker.crt", "broker.key"):
        shutil.copy(made / name, there)
    said = told()
    if kind == "mosquitto":
        assert f"{there} has no crl.pem yet: nobody can be revoked" in said
        shutil.copy(made / "crl.pem", there)
        said = told()
        assert "crlfile" in (tmp_path / "out" / "mosquitto.conf").read_text("utf-8")
    assert "install" not in said


def test_certificates_that_are_yet_to_be_made_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _config("nats", tmp_path / "out", "--at", "/etc/nats") == 0
    said = capsys.readouterr().err
    assert "`fleet init --broker NAME`" in said
    assert f"copy what was written into {tmp_path / 'out'} to /etc/nats" in said
