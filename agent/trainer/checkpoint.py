"""Weights, and all that a training needs to go on, as safetensors, which hold no code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from agent.trainer.errors import BadInputError, plain


def weights_to_bytes(weights: Mapping[str, Tensor]) -> bytes:
    """Return named tensors as safetensors; the same tensors give the same bytes.

    There is no metadata: safetensors writes it in no fixed order.
    """
    return save_tensors(
        {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
    )


def tensors_under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose names begin with `prefix.`, without it."""
    start = len(prefix) + 1
    return {
        name[start:]: tensor for name, tensor in tensors.items() if name.startswith(f"{prefix}.")
    }


def tensors_from_bytes(data: bytes) -> dict[str, Tensor]:
    """Return the tensors of `weights_to_bytes`. Raises ValueError for anything else."""
    try:
        return load_tensors(data)
    except SafetensorError as error:
        raise ValueError(str(error)) from error


def load_weights(path: Path) -> dict[str, Tensor]:
    """Read named tensors. Raises BadInputError where the file is missing or damaged."""
    try:
        return load_tensors(path.read_bytes())
    except (OSError, SafetensorError) as error:
        raise BadInputError.at(path, "file", plain(error), "train the model anew") from error
