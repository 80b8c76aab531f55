"""What a report says beyond metrics: thresholds that travel, events, importance, and curves."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Share = Annotated[float, Field(ge=0.0, le=1.0)]


class Part(BaseModel):
    """Base of a report's parts: no other keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


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
    precision: Share | None = Field(description="Null: it calls nothing.")


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
