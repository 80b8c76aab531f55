"""Environments of programs, built by the real uv from wheels that the test makes: no network."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from agent.programs import sandbox
from agent.programs.cached_folders import KEPT_S, mark_of
from agent.programs.environment_keys import key_of
from agent.programs.environments import Environments, find_uv, python_of
from broker.programs.unusable import Unusable
from broker.system import children
from broker.system.machine import system_clock
from tests.harness.processes import DEADLINE_S

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(find_uv() is None, reason="uv is not installed: the extra `programs`"),
]

GIB = 1024**3
OFFLINE = {**os.environ, "UV_OFFLINE": "1"}
PROJECT = """
[project]
name = "vision"
version = "1"
requires-python = ">=3.11"
dependencies = ["tiny"]
[tool.uv.sources]
tiny = { path = "wheels/tiny-1.0-py3-none-any.whl" }
"""
# It is built by a module of its own, which needs nothing else.
SOURCE = """
[project]
name = "source"
version = "1"
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""


def add_wheel(parcel: Path, code: str = "VALUE = 41", name: str = "tiny") -> None:
    """Put a wheel of one module into the folder `wheels` of a parcel."""
    about = f"{name}-1.0.dist-info"
    files = {
        f"{name}.py": code,
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{about}/RECORD"] = "".join(f"{one},,\n" for one in (*files, f"{about}/RECORD"))
    (parcel / "wheels").mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(parcel / "wheels" / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
        for one, text in files.items():
            wheel.writestr(zipfile.ZipInfo(one, (2020, 1, 1, 0, 0, 0)), text)


def add_source(folder: Path, ran: Path) -> None:
    """Put a source distribution into a folder; who builds it makes the file `ran`."""
    folder.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(SOURCE, "utf-8")
    (folder / "backend.py").write_text(f"open({str(ran)!r}, 'w')", "utf-8")


def lock(parcel: Path, project: str) -> None:
    """Put a project and its lock file into a parcel."""
    (parcel / "pyproject.toml").write_text(project, "utf-8")
    command = [str(find_uv()), "lock", "--offline", "--directory", str(parcel), "--python",
               sys.executable]  # fmt: skip
    answer = children.answer_of(command, DEADLINE_S)
    assert answer.code == 0, answer.errors


def parcel_of(folder: Path, requirements: str, code: str = "VALUE = 41") -> Path:
    """Return a parcel with a wheel, and with what it requires of `wheels` alone."""
    add_wheel(folder, code)
    text = f"--no-index\n--find-links wheels\n{requirements}\n"
    (folder / "requirements.txt").write_text(text, "utf-8")
    return folder


def environments(
    root: Path,
    limit_bytes: float = GIB,
    limit_s: float = 600.0,
    inherited: Mapping[str, str] = OFFLINE,
) -> Environments:
    return Environments(
        root / "environments", limit_bytes, system_clock, uses_sandbox=sandbox.works(),
        inherited=inherited, limit_s=limit_s,
    )  # fmt: skip


def value_in(environment: Path) -> str:
    """Return what a program finds that imports the package."""
    command = [str(python_of(environment)), "-c", "import tiny; print(tiny.VALUE)"]
    answer = children.answer_of(command, DEADLINE_S)
    return answer.output.strip() or answer.errors


def test_a_program_imports_what_its_requirements_name(tmp_path: Path) -> None:
    made = environments(tmp_path)
    parcel = parcel_of(tmp_path / "parcel", "tiny==1.0")
    assert made.find(parcel) is None
    environment = made.build(parcel)
    assert value_in(environment) == "41"
    assert made.find(parcel) == environment
    (module,) = environment.rglob("tiny.py")
    assert module.stat().st_nlink > 1, "it takes its room twice"
    assert list(environment.rglob("tiny.*.pyc")), "each start compiles it"


def test_a_program_imports_what_its_lock_file_names(tmp_path: Path) -> None:
    parcel = tmp_path / "parcel"
    add_wheel(parcel)
    lock(parcel, PROJECT)
    made = environments(tmp_path)
    assert value_in(made.build(parcel)) == "41"
    (parcel / "pyproject.toml").write_text(f"{PROJECT}# another", "utf-8")
    add_wheel(parcel, "VALUE = 'changed on its way'")
    with pytest.raises(Unusable, match=r"Hash mismatch for `tiny"):
        made.build(parcel)


def test_a_source_distribution_of_a_lock_file_is_refused(tmp_path: Path) -> None:
    parcel, ran = tmp_path / "parcel", tmp_path / "environments" / "ran"
    add_source(parcel / "source", ran)
    project = PROJECT.replace("wheels/tiny-1.0-py3-none-any.whl", "source").replace(
        "tiny", "source"
    )
    lock(parcel, project)
    ran.unlink(missing_ok=True)
    with pytest.raises(Unusable, match="source"):
        environments(tmp_path).build(parcel)
    assert not ran.exists()


def test_it_is_built_once_for_all_jobs_that_ask_at_the_same_time(tmp_path: Path) -> None:
    made, found = environments(tmp_path), []
    parcel = parcel_of(tmp_path / "parcel", "tiny")
    asking = [threading.Thread(target=lambda: found.append(made.build(parcel))) for _ in range(3)]
    for one in asking:
        one.start()
    for one in asking:
        one.join(DEADLINE_S)
    assert len(set(found)) == 1
    assert len(found) == 3
    assert value_in(found[0]) == "41"
    (found[0] / "not built again").touch()
    assert (made.build(parcel) / "not built again").exists()


@pytest.mark.parametrize(
    ("requirements", "words"),
    [
        ("nosuch==2.0", "nosuch"),
        ("tiny==9.0", r"tiny==9\.0"),
        (f"tiny==1.0 --hash=sha256:{'5a' * 32}", "Hash mismatch for `tiny==1.0`"),
        ("./source", "source"),
        ("--no-binary :all:\n./source", "source"),
    ],
)
def test_the_error_names_the_package_and_not_the_place(
    tmp_path: Path, requirements: str, words: str
) -> None:
    """A source distribution is refused: it would be built by code of its own."""
    parcel = parcel_of(tmp_path / "parcel", requirements)
    ran = tmp_path / "environments" / "ran"
    add_source(parcel / "source", ran)
    made = environments(tmp_path)
    with pytest.raises(Unusable, match=words) as caught:
        made.build(parcel)
    assert f"{parcel}/" not in str(caught.value)
    assert made.find(parcel) is None
    assert not ran.exists()


@pytest.mark.skipif(not sandbox.works(), reason=f"bubblewrap: {sandbox.REMEDY}")
def test_a_file_of_the_host_is_not_read_and_told(tmp_path: Path) -> None:
    (tmp_path / "client.key").write_text("SECRET", "utf-8")
    parcel = parcel_of(tmp_path / "parcel", f"-r {tmp_path / 'client.key'}")
    with pytest.raises(Unusable) as caught:
        environments(tmp_path).build(parcel)
    assert "SECRET" not in str(caught.value)
    assert "client.key" in str(caught.value)


def test_a_package_runs_no_code_while_it_is_installed(tmp_path: Path) -> None:
    ran = tmp_path / "environments" / "ran"
    parcel = parcel_of(tmp_path / "parcel", "tiny", f"open({str(ran)!r}, 'w')")
    with zipfile.ZipFile(parcel / "wheels" / "tiny-1.0-py3-none-any.whl", "a") as wheel:
        wheel.writestr("tiny.pth", "import tiny")
    environment = environments(tmp_path).build(parcel)
    assert list(environment.rglob("tiny.pth"))
    assert not ran.exists()


@pytest.fixture
def index() -> Iterator[socket.socket]:
    """A package index on this machine that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(DEADLINE_S)
        yield server


def asking(folder: Path, index: socket.socket) -> Path:
    """Return a parcel whose packages come from an index."""
    folder.mkdir()
    text = f"--index-url http://127.0.0.1:{index.getsockname()[1]}/\ntiny\n"
    (folder / "requirements.txt").write_text(text, "utf-8")
    return folder


def is_hung_up(index: socket.socket) -> bool:
    """Wait until whoever has asked the index first is gone."""
    connection, _ = index.accept()
    with connection:
        connection.settimeout(DEADLINE_S)
        while connection.recv(4096):
            pass
    return True


def test_a_build_that_takes_too_long_is_ended(tmp_path: Path, index: socket.socket) -> None:
    made = environments(tmp_path, limit_s=2.0, inherited=os.environ)
    parcel = asking(tmp_path / "parcel", index)
    with pytest.raises(Unusable, match="slow"):
        made.build(parcel)
    assert is_hung_up(index)
    assert made.find(parcel) is None


def test_an_agent_that_ends_does_not_wait_for_a_build(tmp_path: Path, index: socket.socket) -> None:
    made = environments(tmp_path, inherited=os.environ)
    parcel = asking(tmp_path / "parcel", index)
    said = []

    def build() -> None:
        with pytest.raises(Unusable) as caught:
            made.build(parcel)
        said.append(str(caught.value))

    building = threading.Thread(target=build)
    building.start()
    connection, _ = index.accept()
    with connection:
        made.stop()
        building.join(DEADLINE_S)
    assert said == ["leaving"]
    with pytest.raises(Unusable, match="leaving"):
        made.build(parcel)


def test_what_was_half_built_when_the_agent_was_killed_is_built_anew(tmp_path: Path) -> None:
    parcel = parcel_of(tmp_path / "parcel", "tiny")
    environment = environments(tmp_path).build(parcel)
    mark_of(environment.parent).unlink()
    (environment / "half").touch()
    again = environments(tmp_path)
    assert again.find(parcel) is None
    assert value_in(again.build(parcel)) == "41"
    assert not (environment / "half").exists()


def test_a_full_cache_goes_before_an_environment_that_fits(tmp_path: Path) -> None:
    parcel = parcel_of(tmp_path / "parcel", "tiny")
    environment = environments(tmp_path).build(parcel)
    cache = tmp_path / "environments" / "cache"
    (cache / "of another").write_bytes(bytes(8 * 1024**2))
    environments(tmp_path, limit_bytes=4 * 1024**2).collect(())
    assert value_in(environment) == "41"
    assert not any(cache.iterdir())


def test_the_environment_that_was_used_least_lately_is_deleted_and_none_in_use(
    tmp_path: Path,
) -> None:
    parcels = [parcel_of(tmp_path / str(n), "tiny", f"VALUE = {n}") for n in range(3)]
    made = environments(tmp_path, limit_bytes=1)
    built = [made.build(parcel) for parcel in parcels]
    old_s = time.time() - KEPT_S - 60
    for environment in built[:2]:
        os.utime(mark_of(environment.parent), (old_s, old_s))
    made.collect({key_of(parcels[0])})
    assert [environment.exists() for environment in built] == [True, False, True]
    assert made.find(parcels[1]) is None


def test_programs_with_the_same_packages_share_an_environment(tmp_path: Path) -> None:
    """Files beside the requirements count only where the requirements may name them."""
    parcels = [tmp_path / "one", tmp_path / "other"]
    for n, parcel in enumerate(parcels):
        parcel.mkdir()
        (parcel / "train.py").write_text(f"print({n})", "utf-8")

    def keys(requirements: str) -> set[str]:
        for parcel in parcels:
            (parcel / "requirements.txt").write_text(requirements, "utf-8")
        return set(map(key_of, parcels))

    by_name = "# ours\ntorch==2.1  # new\nnumpy[x]>=1,<2 ; python_version>'3'\n\n--hash=sha256:5a"
    assert len(keys(by_name)) == 1
    assert keys(by_name) != keys("torch==2.2")
    for by_file in ("-r more.txt", "--find-links wheels", "./tiny", "tiny @ file:tiny", "tiny.whl"):
        assert len(keys(f"torch\n{by_file}\n")) == 2, by_file
