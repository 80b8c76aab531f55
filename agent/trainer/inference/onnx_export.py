"""A stored model as ONNX, for runtimes that know neither torch nor xgboost.

Input `inputs` is what the model takes, float32: features (n, features), or windows (n, steps,
channels). Output is `probabilities` (n, classes), of a pretrained network `score` (n,). The
description is in the file's metadata.
"""

from __future__ import annotations

import io
import warnings
from typing import Any, Final, cast

from agent.trainer.inference.stored_model import Stored, network_of, trees_of

OPSET: Final = 17
_INPUT: Final = "inputs"


def as_onnx(stored: Stored) -> bytes:
    """Return the model as the bytes of an ONNX file. Needs the extra `onnx`."""
    import onnx

    told = stored.description
    model = _of_trees(stored) if told.model == "gbt" else onnx.load_from_string(_of_network(stored))
    onnx.helper.set_model_props(model, {"model.json": told.model_dump_json()})
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


def _of_trees(stored: Stored) -> Any:
    import onnx
    from onnxmltools.convert import convert_xgboost
    from onnxmltools.convert.common.data_types import FloatTensorType

    told = stored.description
    types = [(_INPUT, FloatTensorType([None, len(told.inputs)]))]
    model = convert_xgboost(trees_of(stored, 1), initial_types=types, target_opset=15)
    graph, make = model.graph, onnx.helper.make_node
    (raw,) = (one.name for one in graph.output if one.name != "label")
    for node in graph.node:
        node.output[:] = ["learnt" if name == raw else name for name in node.output]
    weights = told.class_weights or (1.0,) * len(told.classes)
    graph.initializer.append(
        onnx.helper.make_tensor("class_weights", onnx.TensorProto.FLOAT, [len(weights)], weights)
    )
    graph.node.extend(
        [
            make("Div", ["learnt", "class_weights"], ["odds"]),
            make("ReduceL1", ["odds"], ["whole"], axes=[1], keepdims=1),
            make("Div", ["odds", "whole"], ["probabilities"]),
        ]
    )
    model.opset_import.append(onnx.helper.make_opsetid("", OPSET))
    del graph.output[:]
    shape: list[str | int | None] = ["n", len(told.classes)]
    graph.output.append(
        onnx.helper.make_tensor_value_info("probabilities", onnx.TensorProto.FLOAT, shape)
    )
    return model


def _of_network(stored: Stored) -> bytes:
    import torch
    from torch.onnx.utils import register_custom_op_symbolic

    told = stored.description
    network, _ = network_of(stored)
    shape = (2, len(told.inputs)) if told.takes_features else (2, told.window, len(told.inputs))
    name = "score" if told.model == "transformer_ssl" else "probabilities"
    # torch's newer exporter needs one package more and ten times as long.
    register_custom_op_symbolic("aten::copysign", _copysign, OPSET)
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, about its own exporters
        torch.onnx.export(
            _outputs(network, told.class_weights, pretrained=name == "score"),
            (torch.zeros(shape),),
            cast("Any", file),  # a stream will do
            input_names=[_INPUT],
            output_names=[name],
            dynamic_axes={_INPUT: {0: "n"}, name: {0: "n"}},
            opset_version=OPSET,
            dynamo=False,
        )
    return file.getvalue()


def _copysign(graph: Any, size: Any, sign: Any) -> Any:
    """Return the ONNX nodes for torch's copysign of a `size` that is not negative."""
    return graph.op("Mul", size, graph.op("Sign", sign))


def _outputs(network: Any, class_weights: tuple[float, ...] | None, *, pretrained: bool) -> Any:
    """Return a module whose output is the file's."""
    import torch
    from torch import Tensor, nn

    class Outputs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, inputs: Tensor) -> Tensor:
            if pretrained:
                score: Tensor = self.network.score(inputs)
                return score
            found = torch.softmax(self.network(inputs), dim=1)
            if class_weights is not None:
                found = found / torch.tensor(class_weights, dtype=found.dtype)
            return found / found.sum(dim=1, keepdim=True)

    return Outputs().eval()
