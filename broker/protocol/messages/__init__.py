"""Every payload on the wire but the raw ones (log lines and chunks), as pydantic models.

Going out, a message has exactly its fields. Coming in, unknown fields are tolerated, so that an old
agent and a new coordinator work together; everything else that does not fit raises `BadMessage`.

Modules are loaded on demand (PEP 562): all models take 25 ms and 2 MiB, and no program needs all.
None of them postpones its annotations (PEP 563), since pydantic would evaluate each of these texts.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from broker.protocol.messages.fleet import *
    from broker.protocol.messages.grants import *
    from broker.protocol.messages.homeassistant import *
    from broker.protocol.messages.hosts import *
    from broker.protocol.messages.jobs import *
    from broker.protocol.messages.offers import *
    from broker.protocol.messages.operators import *
    from broker.protocol.messages.values import *
else:
    # In the order of the search, after those that are loaded: what every program needs, then what
    # an agent needs. A command of an operator needs few of them, and is waited for.
    _MODULES: Final = (
        "values", "hosts", "jobs", "grants", "offers", "operators", "fleet", "homeassistant",
    )  # fmt: skip
    _OF_OPERATORS: Final = ("Ask", "MAX_JOBS", "Operator", "OPERATOR")
    _OF_FLEET: Final = ("JOB_ROW", "JobRow", "Summary", "WaitsFor")

    def __getattr__(name: str) -> Any:
        first = "operators" if name.startswith(_OF_OPERATORS) else "values"
        loaded = [module for module in _MODULES if f"{__name__}.{module}" in sys.modules]
        for module in ("fleet" if name in _OF_FLEET else first, *loaded, *_MODULES):
            found = getattr(import_module(f"{__name__}.{module}"), name, None)
            if found is not None:
                globals()[name] = found
                return found
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
