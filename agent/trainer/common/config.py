"""What each trainer is called, how it is started, and which hyperparameters it takes.

The command line, the JSON schema that a host announces and the documentation are generated from
these models. Only the standard library and pydantic are imported here: a daemon can afford it.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Final

from pydantic import BaseModel, ConfigDict, Field

EXIT_DONE: Final = 0
EXIT_FAILED: Final = 1
EXIT_BAD_INPUT: Final = 2  # the same input will fail again: not worth a retry
EXIT_INTERRUPTED: Final = 75  # SIGTERM; sysexits' EX_TEMPFAIL: worth another start
EXIT_CTRL_C: Final = 130  # as a shell tells

MODES: Final = ("realistic", "oracle")
SPLIT_RECIPES: Final = ("host", "sample", "time", "folds")
MAX_FOLDS: Final = 1_000

RUN_MODULE: Final = "agent.trainer.run"
RUN_SSL_MODULE: Final = "agent.trainer.run_ssl"

DEFAULT_N_RESAMPLES: Final = 1000
DEFAULT_FOLDS: Final = 5

ClassWeight = Annotated[
    float, Field(ge=0.0, le=1.0, description="Class balancing: 0 none, 1 full inverse frequency.")
]
Epochs = Annotated[int, Field(ge=1, le=10_000, description="Passes over the training windows.")]
Patience = Annotated[
    int,
    Field(ge=1, le=10_000, description="Epochs without a better validation loss before stopping."),
]
BatchSize = Annotated[int, Field(ge=1, le=65_536, description="Windows in a batch.")]
LearningRate = Annotated[float, Field(gt=0.0, le=1.0, description="Peak learning rate of AdamW.")]
WeightDecay = Annotated[float, Field(ge=0.0, le=100.0, description="AdamW's weight decay.")]
Dropout = Annotated[float, Field(ge=0.0, le=0.9, description="Dropout inside the network.")]
Augment = Annotated[
    bool, Field(description="Train on windows with changed levels, as if of other hosts.")
]
Heads = Annotated[int, Field(ge=1, le=64, description="Attention heads.")]
HeadWidth = Annotated[int, Field(ge=1, le=256, description="Units in a head.")]


class Hyper(BaseModel):
    """Hyperparameters of one trainer: unknown keys and values out of range are refused.

    `module` is the trainer's program, which `python -m` runs. `modules` are those that it imports,
    as far as that takes long, starts no thread and does not touch a GPU.
    """

    # Built when first used: a job is of one model, and each takes a millisecond and 50 KiB.
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)

    module: ClassVar[str] = RUN_MODULE
    modules: ClassVar[tuple[str, ...]] = (
        "agent.trainer.training.testing",
        "agent.trainer.training.loading",
        "agent.trainer.training.report",
        "agent.trainer.training.train",
        "agent.trainer.common.arguments",
        "email.parser",  # which importlib imports when it is first needed, as numpy the others
        "numpy.ctypeslib",
        "numpy.ma",
        "numpy.random",
    )

    target_fpr: float = Field(
        0.05, gt=0.0, lt=1.0, description="False-positive rate that the alarm threshold aims at."
    )


class GbtHyper(Hyper):
    """Gradient-boosted trees (xgboost) on summary features."""

    modules: ClassVar = (*Hyper.modules, "agent.trainer.models.gbt", "xgboost")

    epochs: int = Field(400, ge=1, le=20_000, description="Boosting rounds at most.")
    lr: float = Field(0.05, gt=0.0, le=1.0, description="Shrinkage of each tree (eta).")
    patience: int = Field(
        40, ge=1, le=10_000, description="Rounds without a better validation loss before stopping."
    )
    max_depth: int = Field(5, ge=1, le=16, description="Depth of a tree at most.")
    min_child_weight: float = Field(
        5.0, ge=0.0, le=10_000.0, description="Sum of instance weights that a leaf needs."
    )
    subsample: float = Field(0.8, gt=0.0, le=1.0, description="Share of windows a tree sees.")
    colsample: float = Field(0.2, gt=0.0, le=1.0, description="Share of features a tree sees.")
    reg_lambda: float = Field(1.0, ge=0.0, le=10_000.0, description="L2 penalty on leaf values.")
    class_weight: ClassWeight = 0.5


class TorchHyper(Hyper):
    """What all trainers with a training loop in torch have in common."""

    modules: ClassVar = (*Hyper.modules, "agent.trainer.training.supervised")

    epochs: Epochs = 30
    batch_size: BatchSize = 128
    lr: LearningRate = 1e-3
    patience: Patience = 6
    weight_decay: float = Field(1e-2, ge=0.0, le=10.0, description="AdamW's weight decay.")
    warmup_fraction: float = Field(
        0.05, ge=0.0, le=0.9, description="Share of all steps in which the learning rate rises."
    )
    clip_norm: float = Field(
        1.0, gt=0.0, le=1_000.0, description="Norm that gradients are clipped to."
    )
    dropout: Dropout = 0.2
    compile: bool = Field(
        False, description="Have torch.compile the training step: half a minute, then maybe faster."
    )


class SupervisedHyper(TorchHyper):
    """What the supervised networks have in common."""

    batch_size: BatchSize = 256
    weight_decay: WeightDecay = 1.0
    dropout: Dropout = 0.5
    class_weight: ClassWeight = 0.5
    augment: Augment = False


class MlpHyper(SupervisedHyper):
    """Multi-layer perceptron on summary features."""

    epochs: Epochs = 40
    patience: Patience = 8
    weight_decay: WeightDecay = 3.0
    hidden: int = Field(256, ge=1, le=8_192, description="Units in a hidden layer.")
    layers: int = Field(1, ge=1, le=16, description="Hidden layers.")


class CnnHyper(SupervisedHyper):
    """Residual 1-D convolutional network on raw windows."""

    augment: Augment = True
    hidden: int = Field(16, ge=1, le=2_048, description="Filters in a convolution.")
    layers: int = Field(3, ge=1, le=16, description="Residual blocks.")
    kernel: int = Field(5, ge=1, le=63, description="Steps that a filter spans.")


class GruHyper(SupervisedHyper):
    """Gated recurrent units on raw windows."""

    dropout: Dropout = 0.2
    augment: Augment = True
    hidden: int = Field(64, ge=1, le=2_048, description="Units in a layer and direction.")
    layers: int = Field(1, ge=1, le=8, description="Recurrent layers.")


class LstmHyper(GruHyper):
    """Long short-term memory on raw windows."""

    dropout: Dropout = 0.5


class _EncoderHyper(Hyper):
    """The size of a transformer encoder."""

    heads: Heads = 4
    head_width: HeadWidth = 16
    layers: int = Field(2, ge=1, le=32, description="Encoder layers.")
    patch: int = Field(4, ge=1, le=512, description="Steps that one token holds.")


class TransformerHyper(_EncoderHyper, SupervisedHyper):
    """Transformer encoder on patches of raw windows."""

    heads: Heads = 2
    head_width: HeadWidth = 8


class TransformerSslHyper(_EncoderHyper, TorchHyper):
    """Transformer pretrained on masked windows without labels; scores by reconstruction error."""

    module: ClassVar[str] = RUN_SSL_MODULE
    modules: ClassVar = (*TorchHyper.modules, "agent.trainer.training.pretrain")

    epochs: Epochs = 10
    mask_fraction: float = Field(
        0.4, gt=0.0, lt=1.0, description="Share of the tokens hidden in pretraining."
    )


TRAINERS: Final[Mapping[str, type[Hyper]]] = MappingProxyType(
    {
        "gbt": GbtHyper,
        "mlp": MlpHyper,
        "cnn": CnnHyper,
        "gru": GruHyper,
        "lstm": LstmHyper,
        "transformer": TransformerHyper,
        "transformer_ssl": TransformerSslHyper,
    }
)


@cache  # an agent asks before each job
def schema_of(model: str) -> dict[str, Any]:
    """Return the JSON schema of a model's hyperparameters."""
    return TRAINERS[model].model_json_schema()


def describe() -> dict[str, dict[str, Any]]:
    """Return {model: {"module": ..., "schema": JSON schema of its hyperparameters}}."""
    return {
        name: {"module": hyper.module, "schema": schema_of(name)}
        for name, hyper in TRAINERS.items()
    }


def joined_hosts(names: Iterable[str]) -> str:
    """Return names as `--train-hosts` takes them: a line of CSV, for a name may have a comma."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(names)
    return line.getvalue()


def flag_of(field: str) -> str:
    """Return the command-line flag of a hyperparameter: `batch_size` becomes `--batch-size`."""
    return "--" + field.replace("_", "-")


if __name__ == "__main__":
    import json
    import sys

    sys.stdout.write(json.dumps(describe(), indent=1, sort_keys=True) + "\n")
