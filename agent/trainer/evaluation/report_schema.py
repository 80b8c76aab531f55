"""What a report holds: `<model>_<mode>_train.json`, as a model that it is checked against.

    python -m agent.trainer.evaluation.report_schema >docs/reference/report.schema.json

Nothing in it is a time, a path or the name of the machine.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from agent.trainer.evaluation.findings_schema import (
    Curves,
    Events,
    HostThresholds,
    Importance,
    OperatingPoint,
    Part,
)

Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Interval = Annotated[list[float], Field(min_length=2, max_length=2)]
Metrics = dict[str, float | Interval | None]


class Parts(Part):
    """How many labelled windows each part has; those that reach over a border belong to none."""

    training: int
    validation: int
    test: int
    purged: int


class HostParts(Part):
    """The hosts whose windows each part has."""

    training: list[str]
    validation: list[str]
    test: list[str]


class Split(Part):
    """Who was trained on, and who was not."""

    recipe: Literal["host", "sample", "time", "folds"]
    seed: int
    train_hosts: list[str] = Field(description="As asked for; empty: drawn by the seed.")
    folds: int | None = Field(default=None, description="How many there are.")
    fold: int | None = Field(default=None, description="The only one that was tested.")
    windows: Parts
    hosts: HostParts


class Environment(Part):
    """What else than the last machine had a part in a training."""

    device: str
    threads: int
    torch: str
    compiled: bool = Field(description="By torch.compile.")


class Training(Part):
    """How the training went."""

    device: str
    compiled: bool = Field(description="By torch.compile.")
    elsewhere: list[Environment] = Field(
        description="Other devices, threads and versions that had a part in it, by a checkpoint."
    )
    best_epoch: int = Field(description="Whose weights were kept (of trees: the round).")
    epochs_run: int
    curve: list[tuple[float, float]] = Field(
        description="Training and validation loss of each epoch (of trees: of each round)."
    )


class Thresholds(Part):
    """Chosen on validation."""

    decision: float | None = Field(
        description="At or above it a window is called positive: best F1."
    )
    alarm: float | None = Field(description="Above it there is an alarm: the target FPR.")


class Bootstrap(Part):
    """Where the intervals come from."""

    n_resamples: int
    group: str = Field(description="What was resampled: episodes, or blocks of them.")
    hosts: int = Field(description="How many hosts were tested.")
    these_hosts_only: bool = Field(
        description="There are too few of them to be resampled: nothing is said of other hosts."
    )


class HostFigures(Part):
    """A test host's windows and metrics."""

    windows: int
    counts: list[int] = Field(description="Windows of each class.")
    metrics: dict[str, float | None]


class OverHosts(Part):
    """A metric over the test hosts that define it, each counted once."""

    hosts: int
    mean: float
    deviation: float | None = Field(description="Between hosts (n - 1); null of one host.")
    least: float
    most: float


class Mark(Part):
    """What a reader must not miss: a metric that is beyond a limit.

    `below_chance`: even the upper end of the metric's interval is; `below_floor`: the metric is
    below that of the better floor; `brier_above_base_rate`: giving each window the shares of the
    classes has a lower Brier score.
    """

    code: Literal["below_chance", "below_floor", "brier_above_base_rate"]
    metric: str
    value: float
    limit: float


class LabelRule(Part):
    """When a window is of a class."""

    rule: Literal["any", "last", "share", "majority"]
    share: float | None = Field(default=None, description="Of its rows; with `share`.")


class FoldFigures(Part):
    """A fold: its hosts are tested by a model that was trained on others."""

    fold: int = Field(description="Counted from 1.")
    windows: Parts
    hosts: HostParts
    thresholds: Thresholds
    training: Training
    metrics: Metrics


class Pretraining(Part):
    """Self-supervision."""

    windows: int


class Report(Part):
    """One run: what was trained on what, how it went, and how good the result is."""

    version: Literal[1]
    model: str
    mode: Literal["realistic", "oracle"]
    task: Literal["binary", "multiclass", "unlabelled"]
    classes: list[str] = Field(description="In order; of two, the positive one is last.")
    simulated: bool = Field(description="Whether no real machine was measured.")
    label_rule: LabelRule
    data: Sha256 = Field(description="Of the feature schema, which has those of the data files.")
    split: Split
    hyper: dict[str, Any] = Field(description="All hyperparameters.")
    seed: int
    versions: dict[str, str] = Field(description="They decide every byte of the result.")
    training: Training | None = Field(
        description="Of the model that is stored; null: single folds were put together."
    )
    curves: Curves
    metrics: Metrics = Field(description="On the test part, with their 95 % intervals (`_ci`).")
    floors: dict[str, Metrics] = Field(
        description="Those of the best single feature (`threshold`) and of a logistic regression "
        "(`logistic`), trained on the same windows."
    )
    marks: list[Mark]
    undefined: dict[str, str] = Field(description="Why a metric is null.")
    thresholds: Thresholds
    target_fpr: float
    bootstrap: Bootstrap
    confusion: list[list[int]] = Field(
        description="Rows of true, columns of called classes, on the test part."
    )
    per_host: dict[str, HostFigures]
    over_hosts: dict[str, OverHosts] = Field(description="By metric.")
    folds: list[FoldFigures] | None = None
    host_thresholds: HostThresholds | None = Field(
        default=None, description="Null: there is no alarm, or no host has windows enough."
    )
    events: dict[str, Events] = Field(
        default={}, description="By the rule that raises the alarm: called, alarm or host_alarm."
    )
    operating_points: list[OperatingPoint] = Field(default=[])
    importance: Importance | None = Field(
        default=None, description="Null: the test part has one class."
    )
    pretraining: Pretraining | None = None
    probe: Metrics | None = Field(
        default=None, description="Of a linear probe on the frozen encoder, where labels exist."
    )


if __name__ == "__main__":
    import json
    import sys

    sys.stdout.write(json.dumps(Report.model_json_schema(), indent=2) + "\n")
