"""The `model.json` beside a model's weights: what a program needs to know to score with them."""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from agent.trainer.evaluation.report_schema import HostThreshold, Thresholds

WeightsFile = Literal["model.ubj", "model.safetensors"]
TREES_FILE: Final = "model.ubj"
TENSORS_FILE: Final = "model.safetensors"


class Description(BaseModel):
    """`weights` names the file beside it; `size` is what `build` takes.

    `inputs` are features or channels in the model's order. The model's probabilities are divided
    by `class_weights` and normalised (None: it was trained without). `data` is the fingerprint of
    the data that it was trained on. `host_threshold` is how a host's own alarm threshold is set.
    """

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)

    version: Literal[1]
    model: str
    mode: str
    task: Literal["binary", "multiclass", "unlabelled"]
    classes: tuple[str, ...]
    inputs: tuple[str, ...] = Field(min_length=1)
    window: int = Field(ge=2, le=1_000_000)
    stride: int = Field(ge=1)
    period_s: float
    size: dict[str, Any]
    thresholds: Thresholds
    host_threshold: HostThreshold | None = None
    weights: WeightsFile
    class_weights: tuple[float, ...] | None
    data: str = ""
    simulated: bool = False

    @property
    def channels(self) -> tuple[str, ...]:
        """Return the channels that the model reads, in its order."""
        if not self.takes_features:
            return self.inputs
        return tuple(dict.fromkeys(name.rpartition("__")[0] for name in self.inputs))

    @property
    def takes_features(self) -> bool:
        """Whether it takes summary features, not raw windows."""
        return self.model in {"gbt", "mlp"}
