"""Parcels: which files of a folder are packed, and what is refused."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from broker.errors import ConfigError
from broker.programs.packing import LIMIT_BYTES, files_of, pack
from broker.system.archive import unpack

GIT = shutil.which("git")
with_git = [pytest.mark.system, pytest.mark.skipif(GIT is None, reason="there is no git")]
BARE = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull}


def fill(folder: Path, *more: str) -> Path:
    """A program's files, and more empty ones."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "program.toml").write_bytes(b'name = "a"\n')
    (folder / "train.py").write_text("print(1)\n")
    for name in more:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


def git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(
        [str(GIT), "-C", folder, *who, *words], check=True, capture_output=True, env=BARE
    )


def test_a_folder_is_packed_without_caches_and_hidden_folders(tmp_path: Path) -> None:
    folder = fill(
        tmp_path / "p", "lib/net.py", ".python-version",
        ".venv/bin/python", "lib/__pycache__/net.pyc", ".cache/x", "lib/.idea/y",
    )  # fmt: skip
    assert list(files_of(folder)) == [".python-version", "lib/net.py", "program.toml", "train.py"]


def test_the_same_files_are_the_same_parcel(tmp_path: Path) -> None:
    one, two = fill(tmp_path / "one", "lib/net.py"), fill(tmp_path / "two", ".venv/x", "lib/net.py")
    (two / "train.py").chmod(0o755)
    os.utime(two / "train.py", (1, 1))
    info = pack(one, tmp_path / "1")
    assert pack(two, tmp_path / "2") == info
    unpack(tmp_path / "1", tmp_path / "got")
    assert (tmp_path / "got" / "train.py").read_text() == "print(1)\n"
    (two / "train.py").write_text("print(2)\n")
    assert pack(two, tmp_path / "3").artifact_id != info.artifact_id


@pytest.mark.posix
@pytest.mark.parametrize("target", ["train.py", "lib", "gone"])
def test_a_link_is_refused(tmp_path: Path, target: str) -> None:
    folder = fill(tmp_path / "p", "lib/net.py")
    (folder / "link").symlink_to(target)
    with pytest.raises(ConfigError, match=r"link: is no regular file; put a copy in place of"):
        pack(folder, tmp_path / "parcel")
    assert not (tmp_path / "parcel").exists()


@pytest.mark.words
def test_a_program_that_is_too_large_is_told_its_largest_files(tmp_path: Path) -> None:
    folder = fill(tmp_path / "p", "d.bin")
    for name, size_bytes in (("a.bin", 1), ("b.bin", 2), ("w/c.bin", LIMIT_BYTES)):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).touch()
        os.truncate(folder / name, size_bytes)
    with pytest.raises(ConfigError) as refusal:
        pack(folder, tmp_path / "parcel")
    assert "has 64.0 MiB, and a program at most 64.0 MiB; " in str(refusal.value)
    largest = str(refusal.value).partition("the largest files are ")[2].split(", ")
    assert len(largest) == 3
    assert largest[:2] == ["w/c.bin (64.0 MiB)", "program.toml (11 B)"]


@pytest.mark.posix  # nor a system
def test_a_name_that_no_bundle_may_hold_is_refused(tmp_path: Path) -> None:
    folder = fill(tmp_path / "p", "a\nb")
    wrong = rf"{folder}: 'a\\nb' is no plain relative name of text; rename it, or leave it out"
    with pytest.raises(ConfigError, match=wrong):
        pack(folder, tmp_path / "parcel")


def test_a_folder_without_a_program_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"program\.toml: is missing; each program needs it"):
        files_of(tmp_path)
    with pytest.raises(ConfigError, match="nothing: is no folder"):
        files_of(tmp_path / "nothing")


class TestGit:
    pytestmark = with_git

    def test_what_git_ignores_is_left_out(self, tmp_path: Path) -> None:
        git(tmp_path, "init", "-q")
        folder = fill(
            tmp_path / "p", "tracked.csv", "new.py", "secret.env", "é ö.py", ".github/x",
            "lib/__pycache__/y.pyc", ".venv/z", "gone.py",
        )  # fmt: skip
        (tmp_path / "beside.py").touch()
        (folder / ".gitignore").write_text("*.env\n*.csv\n")
        git(folder, "add", "-f", "tracked.csv", "train.py", "program.toml", "gone.py")
        git(folder, "commit", "-qm", "x")
        (folder / "gone.py").unlink()
        (folder / "train.py").write_text("print(3)\n")
        files = files_of(folder, BARE)
        assert list(files) == [
            ".github/x", ".gitignore", "new.py", "program.toml", "tracked.csv", "train.py",
            "é ö.py",
        ]  # fmt: skip
        assert files["train.py"].read_text() == "print(3)\n"

    def test_another_repository_of_the_environment_changes_nothing(self, tmp_path: Path) -> None:
        folder, other = fill(tmp_path / "p"), fill(tmp_path / "other")
        for one in (folder, other):
            git(one, "init", "-q")
        (other / ".git" / "info" / "exclude").write_text("train.py\n")
        inherited = {**BARE, "GIT_DIR": str(other / ".git")}
        assert list(files_of(folder, inherited)) == ["program.toml", "train.py"]

    @pytest.mark.parametrize("name", ["program.toml", "uv.lock"])
    def test_a_file_that_each_host_needs_must_not_be_ignored(
        self, tmp_path: Path, name: str
    ) -> None:
        folder = fill(tmp_path, name)
        git(folder, "init", "-q")
        (folder / ".gitignore").write_text(f"{name}\n")
        with pytest.raises(ConfigError, match=f"{name}: git ignores it; take it out of"):
            files_of(folder, BARE)

    def test_a_repository_within_is_refused(self, tmp_path: Path) -> None:
        folder = fill(tmp_path, "sub/x")
        for one in (folder, folder / "sub"):
            git(one, "init", "-q")
        with pytest.raises(ConfigError, match="sub: is a git repository of its own"):
            files_of(folder, BARE)

    def test_a_program_that_a_repository_names_is_not_started(self, tmp_path: Path) -> None:
        folder = fill(tmp_path / "p")
        git(folder, "init", "-q")
        git(folder, "config", "core.fsmonitor", f"touch {tmp_path}/started; false")
        files_of(folder, BARE)
        assert not (tmp_path / "started").exists()

    def test_where_git_fails_nothing_is_packed(self, tmp_path: Path) -> None:
        folder = fill(tmp_path / "p", "secret.env")
        (folder / ".git").write_text("gitdir: nowhere\n")
        with pytest.raises(ConfigError, match=r"git cannot list its files: .*; mend git, or copy"):
            pack(folder, tmp_path / "parcel", BARE)
        with pytest.raises(ConfigError, match="there is no git here"):
            pack(folder, tmp_path / "parcel", {"PATH": str(tmp_path)})
