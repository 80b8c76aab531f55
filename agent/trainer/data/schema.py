"""The two schema files: what the raw telemetry is, and what `prepare` made of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from agent.trainer.common.errors import BadInputError, key_and_problem, plain
from agent.trainer.common.files import write_atomically

VALIDATION_FILE: Final = "validation_v1.parquet"
SUMMARY_FILE: Final = "features_window_v1.parquet"
TENSORS_DIR: Final = "tensor_window_v1"
SCHEMA_FILE: Final = "feature_schema_v1.json"
TENSORS_INDEX_FILE: Final = "index.json"

Mode = Literal["realistic", "oracle"]
Task = Literal["binary", "multiclass", "unlabelled"]
LabelRule = Literal["any", "last", "share", "majority"]
ChannelName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.\-]{0,63}$")]
AnyModel = TypeVar("AnyModel", bound=BaseModel)


class _File(BaseModel):
    # People may add notes to a schema: source, licence, ...
    model_config = ConfigDict(extra="ignore", frozen=True)


class Channel(_File):
    """A channel: the name that people know it by, and the modes that may see it."""

    name: str
    modes: tuple[Mode, ...] = Field(min_length=1)


class RawSchema(_File):
    """The `.schema.json` beside a raw telemetry file.

    `label` is the column of labels (None: there is none). `unlabelled` is the label of rows that
    are for self-supervision alone (None: a null label). `positive` names the label of an anomaly
    where it is not 1; `class_names` says what people call labels. `simulated` says that no real
    machine was measured; it is carried into whatever is made of the data.
    """

    label: str | None
    unlabelled: int | str | None = None
    period_s: float = Field(gt=0)
    channels: dict[ChannelName, Channel] = Field(min_length=1)
    positive: int | str | None = None
    class_names: dict[str, str] = {}
    simulated: bool = False

    @model_validator(mode="before")
    @classmethod
    def _is_spelt_right(cls, told: Any) -> Any:
        for key in set(told).difference(cls.model_fields) if isinstance(told, dict) else ():
            lacking = set(cls.model_fields).difference(told)
            if near := get_close_matches(key, sorted(lacking), 1, 0.8):
                raise ValueError(f"unknown key {key!r}; did you mean {near[0]!r}?")
        return told


class Feature(_File):
    """A summary feature: the statistic of the channel that it is, and who may see it."""

    channel: str
    statistic: str
    modes: tuple[Mode, ...]


class SeriesGroup(_File):
    """Channels with the same modes, stored together: a file of (rows, channels), float32."""

    file: str
    channels: tuple[str, ...]
    modes: tuple[Mode, ...]


class EpisodeEntry(_File):
    """Where an episode lies in the series: its first row, its rows, and its first t."""

    host: str
    episode: str
    offset: int
    length: int
    start: int


class TensorsIndex(_File):
    """The `index.json` of the raw series."""

    version: Literal[1] = 1
    rows: int
    groups: tuple[SeriesGroup, ...]
    episodes: tuple[EpisodeEntry, ...]


class FeatureSchema(_File):
    """The `feature_schema_v1.json`: everything that a trainer knows about prepared data.

    `files` has the sha256 of each prepared file; a run checks those that it reads. So the hash of
    this file names the data.
    """

    version: Literal[1] = 1
    simulated: bool
    task: Task
    window: int = Field(ge=2)
    stride: int = Field(ge=1)
    period_s: float
    label_rule: LabelRule
    label_share: float | None = None
    classes: tuple[str, ...]
    class_counts: dict[str, int]
    unlabelled_windows: int
    windows: int
    rows: int
    hosts: tuple[str, ...]
    channels: dict[str, Channel]
    features: dict[str, Feature]
    files: dict[str, str]

    def channels_of(self, mode: str) -> tuple[str, ...]:
        """Return the channels that `mode` may see, in the schema's order."""
        return tuple(name for name, channel in self.channels.items() if mode in channel.modes)

    def features_of(self, mode: str) -> tuple[str, ...]:
        """Return the summary features that `mode` may see, in the schema's order."""
        return tuple(name for name, feature in self.features.items() if mode in feature.modes)


@contextmanager
def readable(path: Path, remedy: str) -> Iterator[None]:
    """Turn what the system, arrow or numpy raises about a file into a BadInputError."""
    try:
        yield
    except (OSError, ValueError, LookupError, EOFError, NotImplementedError) as error:
        raise BadInputError.at(path, "file", plain(error), remedy) from error


def read_json(
    path: Path, model: type[AnyModel], remedy: str = "correct it, or prepare anew"
) -> AnyModel:
    """Read a JSON file into `model`. Raises BadInputError that names the file and the key."""
    with readable(path, "check the path"):
        content = path.read_bytes()
    try:
        return model.model_validate_json(content)
    except ValidationError as error:
        raise BadInputError.at(path, *key_and_problem(error), remedy) from error


def write_json(path: Path, value: BaseModel) -> None:
    """Write `value` with two spaces of indent and a newline at the end, keys as declared."""
    text = json.dumps(value.model_dump(mode="json"), indent=2) + "\n"
    write_atomically(path, text.encode())


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file's bytes in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
