"""What Home Assistant is told that there is: entities that every version takes, and no others."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.protocol import messages as m
from broker.protocol.acl import Principal, rights_of
from broker.protocol.topics import HOST_PATTERN, Topics
from coordinator.faces.discovery import COORDINATOR, OF_COORDINATOR, OF_HOST, Discovery, Shape

ALL = frozenset({"gpu", "vram", "power"})
HOST = Shape("gaming-pc", "RTX 4070", "0.1", ALL)
FLEET = Shape(COORDINATOR, "Coordinator", "0.1")
# Home Assistant's own words, of what is used here: developers.home-assistant.io.
UNITS = {
    "power": {"W"}, "energy": {"kWh"}, "data_size": {"GiB"}, "duration": {"min"}, "enum": {None},
    None: {"%", "jobs", "hosts", None},
}  # fmt: skip
CLASSES = {"energy": "total_increasing", "power": "measurement", "data_size": "measurement"}


def configs(shape: Shape, *, commands: bool = True, root: str = "fleet") -> dict[str, Any]:
    """The messages by topic; an empty one is none."""
    found = Discovery(Topics(root), "1.0", commands=commands).messages(shape)
    return {one.topic: json.loads(one.payload) if one.payload else None for one in found}


@pytest.mark.parametrize("shape", [HOST, FLEET], ids=lambda shape: shape.node)
def test_every_entity_is_whole(shape: Shape) -> None:
    found = configs(shape)
    assert len(found) == len(OF_HOST if shape is HOST else OF_COORDINATOR)
    ids = {config["unique_id"] for config in found.values()}
    assert len(ids) == len(found)
    for topic, config in found.items():
        assert re.fullmatch(r"homeassistant/[a-z_]+/[A-Za-z0-9_-]+/[a-z_]+/config", topic)
        component = topic.split("/")[1]
        assert config["origin"] == {"name": "training-fleet", "sw_version": "1.0"}
        assert config["device"]["identifiers"] == [topic.split("/")[2]]
        assert not {"object_id", "default_entity_id"} & config.keys()
        assert config["device"]["name"].lower() not in config["name"].lower()
        assert config.get("entity_category") in {None, "diagnostic"} or component == "button"
        if component == "sensor":  # or Home Assistant refuses it
            kind, unit = config.get("device_class"), config.get("unit_of_measurement")
            assert unit in UNITS[kind], topic
            measured = CLASSES.get(kind, "measurement" if unit else None)
            assert config.get("state_class") == measured, topic
            assert (kind == "enum") == ("options" in config)


def test_a_host_without_gpu_has_no_entity_for_one() -> None:
    bare = {topic.split("/")[3] for topic in configs(Shape("pi"))}
    assert not {"gpu", "vram", "vram_free_gib", "power_w", "energy_kwh"} & bare
    quiet = {topic.split("/")[3] for topic in configs(Shape("pi", measures=frozenset({"vram"})))}
    assert quiet - bare == {"vram", "vram_free_gib"}


def test_every_template_names_a_key_that_is_published() -> None:
    """Misspelt ones would be accepted in silence, and stay unknown."""
    samples = {
        "fleet/homeassistant/gaming-pc/state": m.HomeHost(
            state="idle", online=True, accepts=True, problem=False, job="idle"
        ),
        "fleet/homeassistant/coordinator/state": m.HomeFleet(
            state="idle", problem=False, jobs={}, progress=0, hosts_online=0, hosts=0
        ),
    }
    read = 0
    for config in (*configs(HOST).values(), *configs(FLEET).values()):
        for name in ("value_template", "json_attributes_template"):
            for key in re.findall(r"value_json\.([a-z_]+)", config.get(name, "")):
                topic = config["state_topic" if name == "value_template" else
                               "json_attributes_topic"]  # fmt: skip
                if topic in samples:
                    assert key in type(samples[topic]).model_fields, config["unique_id"]
                    read += 1
    assert read > 20


def test_every_topic_is_one_that_both_sides_may_use() -> None:
    topics = Topics("site/fleet")
    fleet = rights_of(Principal.parse("coordinator"), topics)
    home = rights_of(Principal.parse("homeassistant"), topics)
    for shape in (HOST, FLEET):
        for topic, config in configs(shape, root="site/fleet").items():
            assert fleet.may_publish(topic)
            assert home.may_receive(topic)
            listened = [config.get("state_topic"), config.get("json_attributes_topic")]
            listened += [one["topic"] for one in config.get("availability", [])]
            assert all(home.may_receive(one) for one in listened if one)
            if "command_topic" in config:
                assert home.may_publish(config["command_topic"])
                assert fleet.may_receive(config["command_topic"])


def test_commands_are_what_the_coordinator_takes() -> None:
    said = []
    for config in (*configs(HOST).values(), *configs(FLEET).values()):
        for name in ("payload_on", "payload_off", "payload_press"):
            if name in config:
                said.append(m.decode(m.HOME_COMMAND, config[name].encode()).type)
                assert config.get("qos", 0) == (0 if name == "payload_press" else 1)
                assert not config.get("retain")
    assert sorted(said) == ["cancel", "drain", "release", "reload", "requeue", "resume"]


def test_where_no_commands_are_taken_there_are_no_switches() -> None:
    for shape in (HOST, FLEET):
        some, none = configs(shape), configs(shape, commands=False)
        for topic, config in some.items():
            assert none[topic] == (None if "command_topic" in config else config)


def test_hosts_hang_below_their_fleet() -> None:
    for root in ("fleet", "site/lab.1/fleet"):
        fleet = next(iter(configs(FLEET, root=root).values()))["device"]
        host = next(iter(configs(HOST, root=root).values()))["device"]
        assert host["via_device"] == fleet["identifiers"][0]
        assert host["name"] == "gaming-pc"
        assert fleet["name"] == "Training fleet" + ("" if root == "fleet" else f" {root}")


def test_what_is_known_of_a_host_that_is_off_is_not_unavailable() -> None:
    """A host's needs the coordinator alone; the coordinator's needs nobody."""
    host = configs(HOST)["homeassistant/binary_sensor/fleet__gaming-pc/online/config"]
    assert [one["topic"] for one in host["availability"]] == ["fleet/coordinator/status"]
    own = configs(FLEET)["homeassistant/binary_sensor/fleet__coordinator/online/config"]
    assert "availability" not in own
    assert own["state_topic"] == "fleet/coordinator/status"
    meter = configs(HOST)["homeassistant/sensor/fleet__gaming-pc/energy_kwh/config"]
    assert (meter["device_class"], meter["state_class"]) == ("energy", "total_increasing")
    assert [one["topic"] for one in meter["availability"]] == ["fleet/coordinator/status"]
    load = configs(HOST)["homeassistant/sensor/fleet__gaming-pc/cpu/config"]
    assert {one["topic"] for one in load["availability"]} == {
        "fleet/coordinator/status", "fleet/gaming-pc/status"
    }  # fmt: skip
    assert load["availability_mode"] == "all"


names = st.from_regex(HOST_PATTERN, fullmatch=True)


@given(st.lists(st.tuples(st.sampled_from(["fleet", "a.b", "a_b", "a/b", "a__b"]), names),
                min_size=2, max_size=2, unique=True))  # fmt: skip
def test_no_two_hosts_share_an_id(pair: list[tuple[str, str]]) -> None:
    one, other = ({c["unique_id"] for c in configs(Shape(name), root=root).values()}
                  for root, name in pair)  # fmt: skip
    assert not one & other
