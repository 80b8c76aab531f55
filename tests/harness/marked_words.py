"""`pytest -p tests.harness.marked_words`: each text for people is a marker, `§NAME§`, instead.

NAME is the function that makes the text, so two texts of one function are equal. Whoever parses,
searches, sorts by or compares a text fails. Tests marked `words`, which look at texts, are left
out.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any, Final

import pytest

MODULES: Final = (
    "broker.figures",
    "broker.wrapping",
    "coordinator.jobs.agent_words",
    "coordinator.jobs.causes",
    "coordinator.jobs.reason_words",
    "coordinator.jobs.job_progress",
    "coordinator.jobs.waiting_words",
    "coordinator.jobs.result_words",
    "coordinator.scheduler.unknown_hosts",
    "coordinator.ui.outlook",
    "coordinator.ui.words",
)
# What a function of them returns, if that is text, and none of `NO_WORDS`.
TEXTS: Final = frozenset({
    "str", "list[str]", "Iterator[str]", "tuple[str, str]", "tuple[str, list[str]]",
})  # fmt: skip
# Ids, commands, and texts of others as they are.
NO_WORDS: Final = frozenset({
    "by", "first_line", "held", "in_toml", "json_text", "key", "laid_out", "printable", "quoted",
    "short", "told",
})  # fmt: skip


def marked(value: Any, name: str) -> Any:
    """Return a value of the same form whose texts are markers; an empty text says nothing."""
    match value:
        case str():
            return f"§{name}§" if value else ""
        case tuple():
            return tuple(marked(one, name) for one in value)
        case list():
            return [marked(one, name) for one in value]
        case Iterator():
            return (marked(one, name) for one in value)
        case _:
            return value


def _marking(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def instead(*args: Any, **kwargs: Any) -> Any:
        return marked(function(*args, **kwargs), function.__name__)

    return instead


def _makers(module: ModuleType) -> Iterator[FunctionType]:
    """Yield the functions of a module that make texts."""
    for name, one in inspect.getmembers(module, inspect.isfunction):
        is_own = one.__module__ == module.__name__ and not name.startswith("_")
        if is_own and name not in NO_WORDS and one.__annotations__.get("return") in TEXTS:
            yield one


def mark() -> None:
    """Replace every function that makes texts, wherever it was imported already."""
    found = [one for name in MODULES for one in _makers(importlib.import_module(name))]
    instead = {id(one): _marking(one) for one in found}
    for module in list(sys.modules.values()):
        for name, one in list(vars(module).items()) if isinstance(module, ModuleType) else ():
            if id(one) in instead:
                setattr(module, name, instead[id(one)])


def pytest_configure() -> None:
    mark()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that look at texts."""
    kept = [one for one in items if one.get_closest_marker("words") is None]
    config.hook.pytest_deselected(items=[one for one in items if one not in set(kept)])
    items[:] = kept
