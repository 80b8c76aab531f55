"""A whole fleet for tests: the real programs as real processes on a real broker."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.harness.browser import Browser
from tests.harness.fleet import LONG, SHORT, Fleet, Program, patient, prepared_data, wait_until
from tests.harness.owner import Owner
from tests.harness.shown import Shown, slow_fleet
from tests.harness.verbs import Done, is_program, process, verb


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="session")
def system_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The embedded broker as a process; its address."""
    log = tmp_path_factory.mktemp("broker") / "broker.log"
    program = Program("broker.embedded", ["--listen", "127.0.0.1:0"], dict(os.environ), log)
    ready = program.start()
    yield f"mqtt://127.0.0.1:{ready['port']}"
    program.stop()


@pytest.fixture
def fleet(tmp_path: Path, system_broker: str, data: Path) -> Iterator[Fleet]:
    """A fleet without any program running yet."""
    made = Fleet(tmp_path, system_broker, data)
    yield made
    made.close()


@pytest.fixture
def cli(fleet: Fleet) -> Callable[..., Done]:
    """The command line, aimed at the test's fleet; in this process, where it can be."""

    def run(*arguments: str) -> Done:
        call = process if is_program(arguments) else verb
        return call(*patient(*arguments), environment=fleet.environment)

    return run


@pytest.fixture
def make_fleet() -> Iterator[Callable[[Path, str, Path], Fleet]]:
    """`make_fleet(folder, broker's address, data)`: a fleet on a broker of the test's own."""
    made: list[Fleet] = []

    def make(folder: Path, broker_url: str, data: Path) -> Fleet:
        made.append(Fleet(folder, broker_url, data))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests; each page has cookies of its own."""
    made = Browser()
    yield made
    made.close()


@pytest.fixture(scope="module")
def shown(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, system_broker: str,
    browser: Browser,
) -> Iterator[Shown]:  # fmt: skip
    """The web page of a fleet that trains slowly, as large as the module's `FLEET` says."""
    tmp = tmp_path_factory.mktemp("fleet")
    with slow_fleet(tmp, system_broker, browser, **request.module.FLEET) as made:
        yield made


@pytest.fixture
def windows(browser: Browser) -> Iterator[None]:
    yield
    browser.close_pages()


@pytest.fixture
def short() -> str:
    """The body of a gbt job that takes about two seconds."""
    return f'model = "gbt"\nmode = "oracle"\n{SHORT}'


@pytest.fixture
def long() -> str:
    """The body of a gbt job that goes on for minutes."""
    return f'model = "gbt"\nmode = "oracle"\n{LONG}'


@pytest.fixture
def wait_for() -> Callable[[Callable[[], bool], str], None]:
    """`wait_until` for the tests."""
    return wait_until


@pytest.fixture
def owner(tmp_path: Path) -> Owner:
    return Owner(tmp_path / "owner")


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Callable[..., Program]]:
    """`program(owner, module, *arguments)`: one of the fleet's programs; ended with the test."""
    made: list[Program] = []

    def start(who: Owner, module: str, *arguments: str) -> Program:
        log = tmp_path / f"{len(made)}.log"
        made.append(Program(module, list(arguments), who.environment, log))
        made[-1].start()
        return made[-1]

    yield start
    for one in reversed(made):
        one.kill()
