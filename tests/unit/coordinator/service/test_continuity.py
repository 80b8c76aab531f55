"""A ledger that has lost what was in it is not taken for that of a new fleet."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from broker.errors import StorageError
from coordinator.ledger.database import back_up
from coordinator.ledger.ledger import FILE_NAME, Ledger
from coordinator.service import continuity
from coordinator.service.state_files import load_key
from tests.system.test_ledger_kill import batches

WAL = f"{FILE_NAME}-wal"
ARTIFACT = f"models/gbt_oracle/{'ab' * 32}/bundle.tar.zst"


class Scene:
    """A coordinator's state folder; `ledger` is open while its coordinator runs."""

    def __init__(self, state: Path) -> None:
        self.state = state

    def opens(self, *, accept: bool = False) -> Ledger:
        ledger = continuity.open_ledger(self.state, accept=accept)
        load_key(self.state)
        return ledger

    def works(self, *, stops: bool = True) -> None:
        """It adds jobs and moves them; then it stops, or is killed."""
        ledger = self.opens()
        for batch in batches():
            ledger.commit(batch)
        if not stops:
            living = self.state.with_name("living")
            shutil.copytree(self.state, living)
            ledger.close()
            shutil.rmtree(self.state)
            living.rename(self.state)
        else:
            ledger.close()

    def refused(self) -> str:
        """It does not start, and says why; nor does it the second time."""
        before = {path.name for path in self.state.iterdir()}
        said = []
        for _ in range(2):
            with pytest.raises(StorageError) as refusal:
                self.opens()
            said.append(str(refusal.value))
        assert {path.name for path in self.state.iterdir()} <= before
        assert said[0] == said[1]
        assert "`fleet backup`" in said[0]
        assert f"--accept-ledger --state {self.state}" in said[0]
        return said[0]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """A folder in which nothing has ever been."""
    state = tmp_path / "state"
    state.mkdir()
    return Scene(state)


@pytest.mark.parametrize("stops", [True, False])
def test_a_ledger_that_is_whole_is_opened(scene: Scene, stops: bool) -> None:
    """After a clean end and after a kill; so is that of a fleet which never had a job."""
    for _ in range(2):
        scene.opens().close()
    scene.works(stops=stops)
    for _ in range(2):
        ledger = scene.opens()
        assert len(ledger.load()) == 3
        ledger.close()


@pytest.mark.parametrize("trace", ["mark", "receipt.key", "artifact"])
@pytest.mark.parametrize("empty", [True, False])
def test_a_ledger_that_is_gone_is_missed(scene: Scene, trace: str, empty: bool) -> None:
    """Whatever else is left of the fleet."""
    scene.works()
    for path in scene.state.iterdir():
        path.unlink()
    path = {
        "mark": scene.state / continuity.MARK,
        "receipt.key": scene.state / "receipt.key",
        "artifact": scene.state / ARTIFACT,
    }[trace]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"1")
    if empty:
        (scene.state / FILE_NAME).touch()
    assert "is missing or empty" in scene.refused()
    path.unlink()
    scene.opens().close()


@pytest.mark.parametrize("has_mark", [True, False])
def test_a_log_that_is_gone_is_missed(scene: Scene, *, has_mark: bool) -> None:
    """All that a fleet did in its first days may be in it; the store tells where no mark does."""
    scene.works(stops=False)
    (scene.state / WAL).unlink()
    if has_mark:
        assert "ends with event 0, and the coordinator has written" in scene.refused()
        return
    (scene.state / continuity.MARK).unlink()
    (scene.state / ARTIFACT).parent.mkdir(parents=True)
    (scene.state / ARTIFACT).touch()
    assert "has no job" in scene.refused()


def test_a_file_that_was_copied_without_its_log_is_no_backup(scene: Scene, tmp_path: Path) -> None:
    """Nor is one from before: it would have jobs trained again that are completed."""
    ledger = scene.opens()
    for number, batch in enumerate(batches()):
        ledger.commit(batch)
        if number == 2:
            shutil.copyfile(scene.state / FILE_NAME, tmp_path / "copy.db")
    ledger.close()
    shutil.copyfile(tmp_path / "copy.db", scene.state / FILE_NAME)
    scene.refused()


def test_a_backup_is_taken_however_old_it_is(scene: Scene, tmp_path: Path) -> None:
    """That it lacks what came later is known to whoever restores it."""
    ledger = scene.opens()
    work = batches()
    ledger.commit(next(work))
    back_up(scene.state / FILE_NAME, tmp_path / "copy.db")
    for batch in work:
        ledger.commit(batch)
    ledger.close()
    (tmp_path / "copy.db").replace(scene.state / FILE_NAME)
    for _ in range(2):
        ledger = scene.opens()
        assert {job.state.value for job in ledger.load().values()} == {"pending"}
        ledger.close()


@pytest.mark.parametrize("what", [FILE_NAME, WAL])
def test_what_is_lost_is_gone_without_when_somebody_says_so(scene: Scene, what: str) -> None:
    """Once; from then on the ledger is as good as any, and its loss would be missed again."""
    scene.works(stops=False)
    for path in scene.state.glob(f"{what}*"):
        path.unlink()
    scene.refused()
    key = load_key(scene.state)
    scene.opens(accept=True).close()
    assert load_key(scene.state) == key
    scene.works(stops=False)
    (scene.state / WAL).unlink()
    scene.refused()
