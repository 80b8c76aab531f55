"""What a report holds: `<model>_<mode>_train.json`, as a model that it is checked against.

    python -m agent.trainer.evaluation.report_schema >docs/reference/report.schema.json

Nothing in it is a time, a path or the name of the machine.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Interval = Annotated[list[float], Field(min_length=2, max_length=2)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
Metrics = dict[str, float | Interval | None]


class Part(BaseModel):
    """Base of a report's parts: no other keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


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


class HostThreshold(Part):
    """How a host's own threshold follows from its past scores; a bundle stores it.

    The threshold is what `rate` of the newest `memory` scores of the host exceed. Until the host
    has `needed` scores, the alarm threshold of all hosts holds.
    """

    kind: Literal["empirical"] = "empirical"
    rate: float = Field(gt=0.0, lt=1.0)
    needed: int = Field(ge=1, le=1_000_000)
    memory: int = Field(ge=1, le=1_000_000)


class Realised(Part):
    """Rates of the alarms of both thresholds on the same windows; null: no such window."""

    windows: int
    fpr: Share | None = Field(description="Of the host's own threshold.")
    fpr_pooled: Share | None = Field(description="Of the threshold of all hosts.")
    tpr: Share | None
    tpr_pooled: Share | None


class HostThresholds(Part):
    """A host's own threshold beside the one of all hosts, on windows after the host's first."""

    procedure: HostThreshold | None = Field(
        description="Of the stored model; each fold has its own. Null: no model is stored."
    )
    overall: Realised
    per_host: dict[str, Realised]


class Delay(Part):
    """From the first window of a noticed event to the first alarm, in seconds."""

    mean: float
    median: float
    p90: float


class Events(Part):
    """Runs of positive windows, and which of them were noticed by at least one window."""

    events: int
    noticed: int
    recall: Share
    recall_by_chance: Share = Field(description="Of the same alarms at shifted times.")
    delay_s: Delay | None = Field(description="Null: none was noticed.")
    false_alarms_per_day: float = Field(
        description="Runs of alarms without a positive window, a host and day."
    )


class OperatingPoint(Part):
    """A threshold chosen on validation, and what it does on the test part."""

    target_fpr: float
    threshold: float | None = Field(description="Null: each fold has its own.")
    fpr: Share | None
    recall: Share | None
    precision: Share | None = Field(description="Null: it calls nothing, or nothing is positive.")


class Importance(Part):
    """How much each channel matters, of trees also each feature; the largest come first."""

    windows: int = Field(description="Test windows, between which a channel was exchanged.")
    permutation: dict[str, float] = Field(description="The fall of the AUROC, by channel.")
    gain: dict[str, float] | None = Field(
        description="Of the stored trees: each used feature's share of what all splits gain."
    )


class Curve(Part):
    """A line through points, of a class against the rest."""

    name: str = Field(description="The class.")
    x: list[float]
    y: list[float]


class Calibration(Part):
    """Observed against predicted shares, by bin; bins without windows are left out."""

    given: list[float]
    true: list[float]
    windows: list[int]


class Timeline(Part):
    """A host's scores in order. A point stands for `step` windows, of which it has the highest."""

    host: str
    step: int
    unlabelled: int = Field(description="Windows without a label.")
    alarm: float = Field(description="The threshold of all hosts.")
    score: list[float]
    own: list[float | None] = Field(description="The host's own threshold; null: none yet.")
    event: list[bool] = Field(description="Whether one of the windows is positive.")


class Curves(Part):
    """What the page draws beside the figures above, with no more points than can be told apart."""

    roc: list[Curve] = Field(description="False- and true-positive rates; empty: not defined.")
    precision_recall: list[Curve] = Field(description="Recall and precision.")
    calibration: Calibration | None = Field(description="Null: the score is no probability.")
    timelines: list[Timeline]


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
