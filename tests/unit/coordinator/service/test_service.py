"""The coordinator's loop: what it does with its mailbox when it is to end."""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.client.access import PEOPLE, open_access
from broker.clock import backoff_s
from broker.protocol.link_events import Incoming
from broker.protocol.messages import AskStatus, encode
from broker.protocol.topics import Topics
from broker.system.machine import system_clock
from broker.system.settings import BrokerSettings
from broker.system.systemd import Notifier
from coordinator.core.effects import ReloadAsked, Tick
from coordinator.manifest.problems import ManifestError
from coordinator.service.service import Service
from coordinator.service.settings import CoordinatorSettings, HomeAssistantSettings
from tests.harness.brokers import free_port
from tests.harness.disks import hanging

PLAN = 'schema_version = 1\n[[jobs]]\nname = "one"\nmodel = "gbt"\nmode = "oracle"\n'


def _ends(service: Service) -> None:
    service.stop()
    service.run(lambda: None)


def a_service(settings: CoordinatorSettings) -> Service:
    """A coordinator whose broker is not there."""
    broker = BrokerSettings(url=f"mqtt://127.0.0.1:{free_port()}")
    access = open_access(broker, PEOPLE, system_clock().wall_s)
    home = HomeAssistantSettings()
    return Service(settings, broker, access, {}, Notifier.take({}, 1), home)


def test_who_asks_for_its_end_does_not_wait_for_the_backlog(tmp_path: Path) -> None:
    """It ends after what it is at; the rest would be asked again of the next coordinator."""
    service = a_service(CoordinatorSettings(state=tmp_path))
    topic = Topics().operator_request("operator:local/cli")
    for number in range(5_000):
        service.mailbox.put(Incoming(topic, encode(AskStatus(id=str(number)))))
    _ends(service)
    assert service.mailbox.unread()["local"] > 1_000


def test_a_faulty_manifest_leaves_the_plan_of_the_ledger_in_force(tmp_path: Path) -> None:
    """Its rules for hosts and its name, too; by wish the coordinator ends instead."""
    manifest = tmp_path / "plan.toml"
    settings = CoordinatorSettings(state=tmp_path / "state", manifest=manifest)
    around = 'name = "n"\n', "[defaults]\nprefer_cuda_grace_s = 7\n[hosts.pi]\nslots = 3\n"
    manifest.write_text(PLAN.join(around))
    _ends(a_service(settings))
    manifest.write_text(PLAN.replace("gbt", "gbtt"))
    service = a_service(settings)
    world = service._shell.core.world
    assert "gbtt" in world.manifest_fault["text"]
    assert (world.plan.name, world.grace_s(), world.policy("pi").slots) == ("n", 7.0, 3)
    assert [job.spec.name for job in world.book.all() if job.in_plan] == ["one"]
    with pytest.raises(ManifestError, match="gbtt"):
        service._first_plan(may_fall_back=False)
    _ends(service)


def _turns_until(service: Service, is_so: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline_s
        service.mailbox.put(Tick())
        service._turn(lambda: None)


def test_a_manifest_that_is_written_right_after_a_reload_is_told_again(tmp_path: Path) -> None:
    """Though it was told of one that was written in the same minute, and is looked at but now."""
    manifest = tmp_path / "plan.toml"

    def write(name: str, at_s: float) -> None:
        manifest.write_text(PLAN.replace("one", name))
        os.utime(manifest, (at_s, at_s))

    write("one", 1e9)
    service = a_service(CoordinatorSettings(state=tmp_path / "state", manifest=manifest))
    world = service._shell.core.world
    write("second", 2e9)
    _turns_until(service, lambda: bool(world.manifest_changed))
    said = world.manifest_changed
    service.mailbox.put(ReloadAsked())
    _turns_until(service, lambda: not world.manifest_changed)
    write("third-one", 2e9 + 1)
    _turns_until(service, lambda: bool(world.manifest_changed))
    assert world.manifest_changed == said == {"code": "file_changed", "at": "2033-05-18T03:33Z"}
    _ends(service)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no such files")
def test_a_manifest_that_is_no_file_stops_nobody(tmp_path: Path) -> None:
    """It has become a FIFO: a coordinator that runs goes on, and so does one that is started."""
    manifest = tmp_path / "plan.toml"
    settings = CoordinatorSettings(state=tmp_path / "state", manifest=manifest)
    manifest.write_text(PLAN)
    service = a_service(settings)
    world = service._shell.core.world
    manifest.unlink()
    os.mkfifo(manifest)
    _turns_until(service, lambda: bool(world.manifest_changed))
    service.mailbox.put(ReloadAsked())
    _turns_until(service, lambda: bool(world.manifest_fault))
    said = "plan.toml: cannot be read: it is no regular file; check the path"
    assert said in world.manifest_fault["text"]
    _ends(service)
    again = a_service(settings)
    assert again._shell.core.world.manifest_fault
    _ends(again)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="leases are Linux's")
def test_a_manifest_whose_disk_hangs_stops_nobody(tmp_path: Path) -> None:
    """Neither a look at it, nor a reload, nor the next start, which goes on with the last good."""
    manifest = tmp_path / "plan.toml"
    settings = CoordinatorSettings(state=tmp_path / "state", manifest=manifest)
    manifest.write_text(PLAN)
    service = a_service(settings)
    world = service._shell.core.world
    manifest.write_text(PLAN + "seed = 7\n")
    with hanging(manifest):
        begun_s, turns = time.monotonic(), 0
        service.mailbox.put(ReloadAsked())
        while not world.manifest_fault:
            service.mailbox.put(Tick())
            service._turn(lambda: None)
            turns += 1
            assert time.monotonic() < begun_s + 30
        assert turns > 100
        assert "has not answered in 10 s; see whether its disk" in world.manifest_fault["text"]
        _ends(service)
        again = a_service(settings)
        assert "has not answered in 10 s" in again._shell.core.world.manifest_fault["text"]
        _ends(again)


def test_a_broker_that_comes_back_is_found_within_seconds(tmp_path: Path) -> None:
    """However long it was away: this is one program, no herd, and every verb waits for it."""
    service = a_service(CoordinatorSettings(state=tmp_path))
    settings, rng = service._link._settings, random.Random(1)
    pauses_s = [
        backoff_s(failures, settings.backoff_base_s, settings.backoff_cap_s, rng)
        for failures in range(50)
    ]
    assert 2 < max(pauses_s) <= 5
    _ends(service)
