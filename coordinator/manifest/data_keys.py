"""The key `data` of a job: which of the fleet's datasets each of its trainer's names means."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from broker.protocol.hyperschema import did_you_mean
from broker.protocol.messages import Dataset, TrainerInfo
from broker.toml_lines import Lines
from coordinator.manifest.collector import Collector
from coordinator.manifest.program_keys import ANY_PROGRAM, meant_title

# By NAME@DIGEST, the newest of a name last; none: nobody has told which programs and datasets the
# fleet has, and any will do.
Datasets = Mapping[str, Dataset] | None
NO_DATA: Final[Datasets] = {}
_ANY: Final = Dataset(name="any", digest="0" * 64, size_bytes=0, layout="0" * 64, layout_bytes=1)


class Catalogue(NamedTuple):
    """What a job of a manifest may name."""

    trainers: Mapping[str, TrainerInfo]
    datasets: Datasets = NO_DATA


class DataReader(Collector):
    """A collector that knows the fleet's datasets."""

    def __init__(self, file: str, lines: Lines, datasets: Datasets) -> None:
        """Begin; `lines` are those of the file."""
        super().__init__(file, lines)
        self._datasets = datasets

    def _data(
        self, data: Mapping[str, str], model: str, trainer: TrainerInfo | None, label: str
    ) -> tuple[Dataset, ...]:
        """Return the datasets that a job names, sorted by its own names for them."""
        if trainer is not None and trainer is not ANY_PROGRAM:
            for name, message in _misnamed(data, model, trainer):
                self._problem(label, f"data.{name}", message)
        found: list[Dataset] = []
        for name, text in sorted(data.items()):
            title, message = meant_title(text, self._datasets, "no_dataset")
            if message:
                self._problem(label, f"data.{name}", message)
            else:
                known = _ANY if self._datasets is None else self._datasets[title]
                found.append(known.model_copy(update={"name": name}))
        return tuple(found)


def _misnamed(
    data: Mapping[str, str], model: str, trainer: TrainerInfo
) -> Iterator[tuple[str, str]]:
    """Yield the names that a trainer does not read, or that its job lacks, with what is wrong."""
    for name in sorted(data.keys() - {*trainer.data}):
        hint = did_you_mean(name, trainer.data) or "; leave it out"
        yield name, f"{model} has no data of this name{hint}"
    if trainer.program is not None:
        for name in sorted({*trainer.data} - data.keys()):
            yield name, f'missing; write data.{name} = "NAME", with a name of `fleet data list`'
