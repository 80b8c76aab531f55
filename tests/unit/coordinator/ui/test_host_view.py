"""What there is to say of a host."""

from __future__ import annotations

import pytest

from broker.protocol.messages import Gpu, ProgramsAllowed
from coordinator.ui import host_view
from coordinator.ui.facts import Link
from tests.harness.mirrored import GIB, Mirrored, job_id


@pytest.mark.parametrize(
    ("programs", "said"),
    [
        (None, "none"),
        (ProgramsAllowed(signed_by=("alice", "bob"), pinned=("ab" * 32,)),
         "signed by alice, bob; 1 pinned; in bwrap"),
        (ProgramsAllowed(unsigned=True, sandbox="none"), "unsigned; without a sandbox"),
    ],
)  # fmt: skip
def test_a_host_says_which_programs_its_owner_lets_in(
    programs: ProgramsAllowed | None, said: str
) -> None:
    assert host_view.admitted(programs) == said


@pytest.mark.words
def test_a_host_is_told_with_what_it_is_at_and_each_of_its_gpus() -> None:
    fleet = Mirrored()
    fleet.job("cnn", "running", host="pc")
    gpu = Gpu(index=1, name="RTX 3090", vram_total_bytes=24 * GIB, vram_free_bytes=20 * GIB,
              use_percent=50.0, power_w=220.0)  # fmt: skip
    fleet.host("pc", "cnn", gpus=(gpu,))

    def now() -> dict[str, object]:
        row = fleet.host_row("pc")
        return dict(host_view.now(fleet.seen.hosts["pc"], row))

    told = now()
    assert told["Job"] == Link("cnn", f"/job/{job_id('cnn')}")
    assert (told["CPU"], told["RAM"]) == ("30 %", "6.0 GiB of 8.0 GiB")
    assert told["GPU 1"] == "RTX 3090, 4.0 GiB of 24.0 GiB, 50 %, 220 W"
    fleet.beats("pc", "cnn", "unknown")
    assert now()["Job"] == "cnn", "of two that it holds no one link is right"
    fleet.job("cnn", "completed")
    fleet.beats("pc")
    assert now()["Job"] == "idle"
