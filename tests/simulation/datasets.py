"""Datasets in a simulation: which jobs read one, where it is stored, what hosts have of it."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from agent.programs.host_data import HostData
from broker.protocol.messages import Assign, Blob, DataOffer
from broker.system.files import write_atomically
from coordinator.jobs.records import PushedRecord
from coordinator.store.store import BUNDLE
from tests.harness.datasets import Made

from .nodes import ROOT, Machine
from .trainer_checks import Violation

if TYPE_CHECKING:
    from .coordinatornode import SimLedger
    from .scenario import JobPlan

SHARED: Final = {"a/shared": b"in both".ljust(3000, b"."), "none": b""}
MADE: Final = {
    made.dataset.digest: made
    for made in (
        Made(SHARED | {f"own/{n}": f"in {n} only".encode().ljust(2000, b".")}, 1 + n, "prepared")
        for n in range(2)
    )
}


def draw(seed: int, jobs: tuple[JobPlan, ...]) -> tuple[bool, tuple[JobPlan, ...]]:
    """Some fleets have datasets: some jobs read one of them."""
    rng = random.Random(f"data {seed}")
    if rng.random() < 0.8:
        return False, jobs
    return True, tuple(_with_data(job, rng.choice([*MADE, ""])) for job in jobs)


def _with_data(job: JobPlan, digest: str) -> JobPlan:
    if not digest:
        return job
    return replace(job, spec=replace(job.spec, data=(MADE[digest].dataset,)))


def store(machine: Machine, ledger: SimLedger) -> None:
    """Have them pushed before the coordinator starts."""
    disk = machine.disk
    for made in MADE.values():
        for digest, data in made.blobs.items():
            folder = ROOT / "models" / "prepared_datasets" / digest
            disk.make_folder(folder)
            write_atomically(disk, folder / BUNDLE, data)
            for one in (folder, folder.parent, folder.parent.parent, ROOT):
                disk.sync_folder(one)
        given = made.dataset
        offer = DataOffer(
            name="prepared", digest=given.digest, size_bytes=given.size_bytes,
            files=len(made.files), layout=Blob(given.layout, given.layout_bytes),
            packs=tuple(Blob(*pack) for pack in made.packs),
        )  # fmt: skip
        ledger.keep(PushedRecord(offer, machine.now().text(), "op"))


def of_host(machine: Machine) -> HostData:
    """Return the datasets of a host: the real ones, on its disk; none is kept that nobody uses."""
    return HostData(ROOT / "data", 0.0, machine.now, machine.disk)


def check_read(machine: Machine, assign: Assign) -> None:
    """A trainer reads its dataset, when it starts and when it ends: it is whole."""
    for one in assign.data:
        folder = ROOT / "data" / "whole" / one.digest / "files"
        for path, data in MADE[one.digest].files.items():
            if machine.disk.bytes_of(folder / path) != data:
                text = f"{machine.name} has another {path}, or none"
                raise Violation("whole dataset", text, assign.job_id)
