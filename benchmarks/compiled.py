"""What `--compile true` is worth: a training step compiled by torch, beside the plain one.

    python -m benchmarks.compiled [--models cnn,gru] [--steps 10] [--repeats 5] [--threads 1]

Each network with its defaults and a batch of random windows of 60 steps and 38 channels, plain and
compiled in turn in one process. `pays after` is how long a plain training takes in which compiling
has just paid for itself. On CUDA where torch finds it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from agent.trainer.common.config import TRAINERS, TorchHyper
from agent.trainer.training.fit import start_torch
from agent.trainer.training.networks import build, size_of
from benchmarks.common import machine, table, words

STEPS, CHANNELS, FEATURES = 60, 38, 300


def learning(network: nn.Module, forward: Callable[[Tensor], Tensor], batch: Tensor) -> None:
    """Learn from one batch as `agent.trainer.training.fit` does, but for the optimiser."""
    network.zero_grad(set_to_none=True)
    label = torch.arange(len(batch), device=batch.device) % 2
    with torch.autocast(batch.device.type, torch.bfloat16, enabled=batch.is_cuda):
        loss = nn.functional.cross_entropy(forward(batch).float(), label)
    loss.backward()  # type: ignore[no-untyped-call]
    if batch.is_cuda:
        torch.cuda.synchronize()


def timed_s(work: Callable[[], None], times: int) -> float:
    """Return the seconds that one of `times` runs takes."""
    begun_s = time.perf_counter()
    for _ in range(times):
        work()
    return (time.perf_counter() - begun_s) / times


def row(model: str, arguments: argparse.Namespace) -> list[str]:
    """Measure one model; return its line."""
    device = start_torch(arguments.threads, 0)
    hyper = TRAINERS[model]()
    assert isinstance(hyper, TorchHyper)  # noqa: S101 - only networks are compiled
    shape = (FEATURES,) if model == "mlp" else (STEPS, CHANNELS)
    batch = torch.randn(hyper.batch_size, *shape, device=device)
    network = build(model, size_of(model, hyper, shape[-1], 2, STEPS)).to(device).train()
    compiled = torch.compile(network, dynamic=False)
    ways = (lambda: learning(network, network, batch), lambda: learning(network, compiled, batch))
    ways[0]()
    compile_s = timed_s(ways[1], 1)
    runs = [[timed_s(way, arguments.steps) for way in ways] for _ in range(arguments.repeats)]
    plain_s, quick_s = (statistics.median(times) for times in zip(*runs, strict=True))
    ratio = plain_s / quick_s
    pays = f"{compile_s / (1 - 1 / ratio) / 60:.0f} min" if ratio > 1.02 else "never"
    cells = f"{plain_s * 1e3:.1f}", f"{quick_s * 1e3:.1f}", f"{ratio:.2f}", f"{compile_s:.0f}"
    return [model, *cells, pays]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    networks = [name for name in TRAINERS if name not in {"gbt", "transformer_ssl"}]
    parser.add_argument("--models", type=words, default=networks)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    print(machine("torch"), "\n")
    head = ("model", "plain, ms a step", "compiled", "ratio", "compiling, s", "pays after")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder  # what was compiled before would be free
        print(table(head, [row(model, arguments) for model in arguments.models]))


if __name__ == "__main__":
    main()
