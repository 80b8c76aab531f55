"""The training loop that all networks share."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import Tensor, nn

from agent.trainer.arrays import Ints
from agent.trainer.config import TorchHyper
from agent.trainer.errors import DivergedError
from agent.trainer.progress import Progress

# (network, windows (batch,), generator) -> loss (batch,); the generator is for masks and the like.
LossOf = Callable[[nn.Module, Tensor, torch.Generator], Tensor]

_FLOOR: Final = 0.01  # of the peak learning rate, where the cosine ends


@dataclass
class Fitted:
    """How the training went; `curve` has (train loss, validation loss) of each epoch."""

    best_epoch: int = 0
    best_loss: float = math.inf
    curve: list[tuple[float, float]] = field(default_factory=list)

    def facts(self, device: str) -> dict[str, Any]:
        """Return what the report says of the training."""
        return {
            "device": device,
            "best_epoch": self.best_epoch,
            "epochs_run": len(self.curve),
            "curve": self.curve,
        }


def start_torch(threads: int, seed: int) -> torch.device:
    """Seed torch, bind it to `threads` threads and deterministic algorithms; return the device."""
    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    # On CUDA a few backward passes have no deterministic form: better a warning than no model.
    torch.use_deterministic_algorithms(True, warn_only=device.type == "cuda")
    return device


def fit(
    network: nn.Module,
    loss_of: LossOf,
    train: Ints,
    validation: Ints,
    *,
    hyper: TorchHyper,
    seed: int,
    progress: Progress,
) -> Fitted:
    """Train `network` in place and leave it with the weights of the best validation loss.

    AdamW, a warm-up and a cosine over all epochs, gradients clipped; on CUDA in bfloat16. Stops
    after `patience` epochs without a better validation loss. Raises DivergedError.
    """
    device = next(network.parameters()).device
    optimiser = torch.optim.AdamW(
        network.parameters(),
        lr=hyper.lr,
        weight_decay=hyper.weight_decay,
        fused=device.type == "cuda",
    )
    steps = hyper.epochs * -(-len(train) // hyper.batch_size)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, _warm_cosine(steps, hyper))
    generator = torch.Generator().manual_seed(seed)
    windows, held_out = torch.from_numpy(train), torch.from_numpy(validation)
    fitted = Fitted()
    best = copy.deepcopy(network.state_dict())

    for epoch in range(1, hyper.epochs + 1):
        network.train()
        total = torch.zeros((), dtype=torch.float64, device=device)
        shuffled = windows[torch.randperm(len(windows), generator=generator)]
        for batch in _batches(shuffled, hyper.batch_size):
            optimiser.zero_grad(set_to_none=True)
            with _autocast(device):
                loss = loss_of(network, batch, generator).mean()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(network.parameters(), hyper.clip_norm)
            optimiser.step()
            schedule.step()
            total += loss.detach() * len(batch)  # no .item(): it would wait for the device
        train_loss = total.item() / len(windows)
        val_loss = mean_loss(network, loss_of, held_out, hyper.batch_size, seed)
        _check_finite(train_loss, val_loss, epoch)
        fitted.curve.append((train_loss, val_loss))
        progress.epoch(epoch, hyper.epochs, train_loss, val_loss)
        if val_loss < fitted.best_loss:
            fitted.best_epoch, fitted.best_loss = epoch, val_loss
            best = copy.deepcopy(network.state_dict())
        elif epoch - fitted.best_epoch >= hyper.patience:
            break

    network.load_state_dict(best)
    return fitted


def mean_loss(
    network: nn.Module, loss_of: LossOf, windows: Tensor, batch_size: int, seed: int
) -> float:
    """Return the mean loss over `windows` (n,), with the same random masks at each call."""
    generator = torch.Generator().manual_seed(seed)
    losses = over_batches(
        network, lambda batch: loss_of(network, batch, generator), windows, batch_size
    )
    return losses.mean().item()


def over_batches(
    network: nn.Module, compute: Callable[[Tensor], Tensor], windows: Tensor, batch_size: int
) -> Tensor:
    """Return what `compute` says of `windows` (n,), float64, the network set to evaluate."""
    network.eval()
    device = next(network.parameters()).device
    with torch.no_grad(), _autocast(device):
        found = [compute(batch).double().cpu() for batch in _batches(windows, batch_size)]
    return torch.cat(found)


def _batches(windows: Tensor, batch_size: int) -> Iterator[Tensor]:
    for at in range(0, len(windows), batch_size):
        yield windows[at : at + batch_size]


def _autocast(device: torch.device) -> torch.autocast:
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda")


def _warm_cosine(steps: int, hyper: TorchHyper) -> Callable[[int], float]:
    warm = max(1, round(hyper.warmup_fraction * steps))

    def factor(step: int) -> float:
        if step < warm:
            return (step + 1) / warm
        share = (step - warm) / max(1, steps - warm)
        return _FLOOR + (1 - _FLOOR) * 0.5 * (1 + math.cos(math.pi * min(1.0, share)))

    return factor


def _check_finite(train_loss: float, val_loss: float, epoch: int) -> None:
    if not (math.isfinite(train_loss) and math.isfinite(val_loss)):
        raise DivergedError(
            f"the loss is not finite in epoch {epoch} (train {train_loss}, validation {val_loss}); "
            "lower --lr or --clip-norm"
        )
