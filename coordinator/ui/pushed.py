"""What people push: programs and datasets, shown alike by the verbs, `fleet top` and the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.text import Text

from broker.protocol.messages import AskPushed, PushKind
from broker.system.machine import new_id
from coordinator.client.rows import pushed_row
from coordinator.ui import terminal
from coordinator.ui.fitted_table import Table
from coordinator.ui.fleet_columns import DATASETS, PROGRAMS, FleetColumn


@dataclass(frozen=True, slots=True)
class PushedKind:
    """Programs, or datasets: how they are asked for and shown; what is said of none."""

    kind: PushKind
    columns: Sequence[FleetColumn]
    none: str

    @property
    def title(self) -> str:
        """What they are called."""
        return f"{self.kind.capitalize()}s"

    def ask(self) -> AskPushed:
        """Return a request for their rows, which are `pushed` in the answer."""
        return AskPushed(id=new_id(), kind=self.kind)

    def shown(self, told: Sequence[Mapping[str, Any]]) -> Table | Text:
        """Return a table of the rows that were told."""
        rows = [pushed_row(one) for one in told]
        return terminal.fleet_table(self.columns, rows) if rows else Text(self.none)


KINDS: Final = (
    PushedKind("program", PROGRAMS, "no programs; `fleet push DIR` sends one"),
    PushedKind("dataset", DATASETS, "no datasets; `fleet data push NAME DIR` sends one"),
)
