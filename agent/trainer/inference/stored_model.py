"""A stored model, loaded to score windows."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
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


@dataclass(frozen=True)
class StoredModel:
    """`score` takes windows (n, channels, steps) and returns columns (n,).

    Column `score` is the anomaly score, with two classes the positive one's probability;
    `p_<class>` are the probabilities of several classes or of a linear probe.
    """

    description: Description
    score: Score


def load_model(bundle: Path, threads: int) -> StoredModel:
    """Load the model in a bundle, or in the folder it was unpacked to. Raises BadInputError."""
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
    load = _trees if description.model == "gbt" else _network
    try:
        score = load(description, files[description.weights], threads)
    except (ValueError, KeyError, TypeError, RuntimeError) as error:
        problem = " ".join(str(error).split())[:200]
        raise BadInputError.at(description.weights, "file", problem, _REMEDY) from error
    return StoredModel(description, score)


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


def _trees(description: Description, weights: bytes, threads: int) -> Score:
    import xgboost as xgb

    from agent.trainer.common.ubjson import check_trees, parse
    from agent.trainer.models.gbt import class_probabilities

    check_trees(parse(weights), len(description.inputs))
    trees = xgb.Booster({"nthread": threads}, model_file=bytearray(weights))

    def score(windows: Floats) -> dict[str, Floats]:
        return _told(description, class_probabilities(trees, _features(windows), threads))

    return score


def _network(description: Description, weights: bytes, threads: int) -> Score:
    import torch

    from agent.trainer.common.checkpoint import tensors_from_bytes, tensors_under
    from agent.trainer.training.fit import autocast, start_torch
    from agent.trainer.training.networks import build, check_size

    device = start_torch(threads, 0)
    tensors = tensors_from_bytes(weights)
    check_size(description.size)
    with torch.device("meta"):  # takes no memory, whatever size the file states
        network = build(description.model, description.size)
    of_network = {name: one for name, one in tensors.items() if not name.startswith("probe.")}
    network.load_state_dict(of_network, assign=True)
    network = network.to(device).eval()
    probe = tensors_under("probe", tensors)

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
    return np.asarray(summarise(windows).reshape(len(windows), -1), dtype=np.float32)
