"""A stored model, loaded to score windows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from pydantic import ValidationError

from agent.trainer.common.arrays import Floats
from agent.trainer.common.errors import BadInputError, key_and_problem
from agent.trainer.data.features import STATISTICS, summarise, unweighted
from agent.trainer.inference.bundle_files import read_model_files
from agent.trainer.models.description import Description

_REMEDY: Final = "fetch it anew (`fleet get JOB`), with the version that trained it"
Score = Callable[[Floats], dict[str, Floats]]


class OutOfRangeError(Exception):
    """A window has no score: what the model computes of it is beyond the range of float32."""


@dataclass(frozen=True)
class StoredModel:
    """`score` takes windows (n, channels, steps) and returns columns (n,).

    Column `score` is the anomaly score, with two classes the positive one's probability;
    `p_<class>` are the probabilities of several classes or of a linear probe. It raises
    OutOfRangeError.
    """

    description: Description
    score: Score


@dataclass(frozen=True)
class Stored:
    """A model as it is stored: its description, and the bytes of its weights."""

    description: Description
    weights: bytes


def load_model(bundle: Path, threads: int) -> StoredModel:
    """Load the model in a bundle, or in the folder it was unpacked to. Raises BadInputError."""
    stored = read_stored(bundle)
    load = _score_of_trees if stored.description.model == "gbt" else _score_of_network
    with damage_named(stored):
        compute = load(stored, threads)

    def score(windows: Floats) -> dict[str, Floats]:
        found = compute(windows)
        for column in found.values():
            _check_range(column)
        return found

    return StoredModel(stored.description, score)


@contextmanager
def damage_named(stored: Stored) -> Iterator[None]:
    """Inside, what a library says of damaged weights becomes a BadInputError."""
    try:
        yield
    except (ValueError, KeyError, TypeError, RuntimeError) as error:
        problem = " ".join(str(error).split())[:200]
        raise BadInputError.at(stored.description.weights, "file", problem, _REMEDY) from error


def read_stored(bundle: Path) -> Stored:
    """Read a model out of a bundle, or a folder. Raises BadInputError."""
    files = read_model_files(bundle)
    try:
        description = Description.model_validate(json.loads(files["model.json"]))
    except ValidationError as error:
        raise BadInputError.at("model.json", *key_and_problem(error), _REMEDY) from error
    except (ValueError, RecursionError) as error:
        raise BadInputError.at("model.json", "file", f"is not JSON: {error}", _REMEDY) from error
    if description.weights not in files:
        raise BadInputError.at(bundle, description.weights, "is missing", _REMEDY)
    _check_inputs(description)
    return Stored(description, files[description.weights])


def _check_inputs(description: Description) -> None:
    if description.takes_features:
        whole = [f"{name}__{one}" for name in description.channels for one in STATISTICS]
        if list(description.inputs) != whole:
            raise BadInputError.at("model.json", "inputs", "are not whole channels", _REMEDY)
    told = {
        "inputs": len(description.inputs),
        "classes": len(description.classes),
        "steps": description.window,
    }
    for name, count in told.items():
        if description.size.get(name, count) != count:
            raise BadInputError.at("model.json", f"size.{name}", f"is not {count}", _REMEDY)


def trees_of(stored: Stored, threads: int) -> Any:
    """Return the xgboost.Booster of a gbt. Raises ValueError for damage."""
    import xgboost as xgb

    from agent.trainer.common.ubjson import check_trees, parse

    check_trees(parse(stored.weights), len(stored.description.inputs))
    return xgb.Booster({"nthread": threads}, model_file=bytearray(stored.weights))


def _score_of_trees(stored: Stored, threads: int) -> Score:
    from agent.trainer.models.gbt import class_probabilities

    trees, told = trees_of(stored, threads), stored.description

    def score(windows: Floats) -> dict[str, Floats]:
        return _told(told, class_probabilities(trees, _features(windows), threads))

    return score


def network_of(stored: Stored) -> tuple[Any, dict[str, Any]]:
    """Return the network on the processor, and the tensors of its linear probe.

    Raises ValueError, KeyError, TypeError or RuntimeError for damage.
    """
    import torch

    from agent.trainer.common.checkpoint import tensors_from_bytes, tensors_under
    from agent.trainer.training.networks import build, check_size

    tensors = tensors_from_bytes(stored.weights)
    check_size(stored.description.size)
    with torch.device("meta"):  # takes no memory, whatever size the file states
        network = build(stored.description.model, stored.description.size)
    of_network = {name: one for name, one in tensors.items() if not name.startswith("probe.")}
    network.load_state_dict(of_network, assign=True)
    return network.eval(), tensors_under("probe", tensors)


def _score_of_network(stored: Stored, threads: int) -> Score:
    import torch

    from agent.trainer.training.fit import autocast, start_torch

    device, description = start_torch(threads, 0), stored.description
    network, probe = network_of(stored)
    network = network.to(device)

    def score(windows: Floats) -> dict[str, Floats]:
        inputs = (
            _features(windows) if description.takes_features else windows.transpose(0, 2, 1).copy()
        )
        batch = torch.from_numpy(inputs).to(device)
        with torch.no_grad(), autocast(device):
            if description.model == "transformer_ssl":
                return _of_autoencoder(description, network, batch, probe)
            found = torch.softmax(network(batch).float(), dim=1).double().cpu().numpy()
        return _told(description, found)

    return score


def _of_autoencoder(
    description: Description, network: Any, batch: Any, probe: Mapping[str, Any]
) -> dict[str, Floats]:
    from agent.trainer.training.pretrain import Probe

    found = {"score": network.score(batch).double().cpu().numpy()}
    if probe:
        linear = Probe(**{name: one.numpy() for name, one in probe.items()})
        chances = linear.score(network.embed(batch).double().cpu().numpy())
        found |= {f"p_{name}": chances[:, at] for at, name in enumerate(description.classes)}
    return found


def _told(description: Description, probabilities: Floats) -> dict[str, Floats]:
    if description.class_weights is not None:
        probabilities = unweighted(probabilities, np.array(description.class_weights))
    if description.task == "binary":
        return {"score": probabilities[:, 1]}
    return {f"p_{name}": probabilities[:, at] for at, name in enumerate(description.classes)}


def _features(windows: Floats) -> Floats:
    with np.errstate(over="ignore", invalid="ignore"):
        found = summarise(windows).reshape(len(windows), -1)
    _check_range(found)
    return np.asarray(found, dtype=np.float32)


def _check_range(figures: Floats) -> None:
    if not np.isfinite(figures).all():
        raise OutOfRangeError
