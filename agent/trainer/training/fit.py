"""The training loop that all networks share."""

from __future__ import annotations

import copy
import ctypes
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from typing import Any, Final, cast

import torch
from torch import Tensor, nn

from agent.trainer.common.arrays import Ints
from agent.trainer.common.checkpoint import (
    Checkpoint,
    Keeper,
    tensors_from_bytes,
    tensors_under,
    weights_to_bytes,
)  # fmt: skip
from agent.trainer.common.config import TorchHyper
from agent.trainer.common.errors import DivergedError, InterruptedBySignalError
from agent.trainer.common.progress import Interruption, Progress
from agent.trainer.training.adamw import AdamW
from agent.trainer.training.loading import Fitted

# (network, windows (batch,), generator) -> loss (batch,); the generator is for masks and the like.
LossOf = Callable[[nn.Module, Tensor, torch.Generator], Tensor]

_M_TRIM_THRESHOLD: Final = -1  # of mallopt(3) in glibc
_M_MMAP_MAX: Final = -4
_FLOOR: Final = 0.01  # of the peak learning rate, where the cosine ends


def start_torch(threads: int, seed: int) -> torch.device:
    """Seed torch, bind it to `threads` threads and deterministic algorithms; return the device."""
    _keep_memory()
    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    # What torch.use_deterministic_algorithms does, less its import of the compiler: a second. On
    # CUDA a few backward passes have no deterministic form: they warn.
    torch._C._set_deterministic_algorithms(True, warn_only=device.type == "cuda")  # noqa: SLF001
    # No code here reads memory that it has not written.
    deterministic: Any = torch.utils.deterministic
    deterministic.fill_uninitialized_memory = False
    return device


def _keep_memory() -> None:
    """Have glibc keep freed memory: otherwise an LSTM takes twice the time."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return  # Windows, macOS, musl
    mallopt(_M_MMAP_MAX, 0)
    mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


def fit(
    network: nn.Module,
    loss_of: LossOf,
    train: Ints,
    validation: Ints,
    *,
    hyper: TorchHyper,
    seed: int,
    keeper: Keeper,
) -> Fitted:
    """Train `network` in place and leave it with the weights of the best validation loss.

    AdamW, a warm-up and a cosine over all epochs, gradients clipped; on CUDA in bfloat16. Resumed,
    it ends with the same bytes. Raises DivergedError, InterruptedBySignalError.
    """
    training = _Training(network, hyper, train, seed)
    progress, interruption = keeper.progress, keeper.progress.interruption
    if hyper.compile:
        training.compile(loss_of, progress)
    if (checkpoint := keeper.load()) is not None:
        training.restore(checkpoint)
    progress.begins(training.epochs_done())
    held_out = torch.from_numpy(validation)
    with interruption.deferred():
        while training.goes_on():
            training.begin_epoch()
            for batch in training.batches():
                training.step(loss_of, batch)
                keeper.step(training.capture)
            try:
                val_loss = mean_loss(
                    network, loss_of, held_out, hyper.batch_size, seed, interruption
                )
            except InterruptedBySignalError:
                keeper.keep(training.capture)
                raise
            training.end_epoch(val_loss, keeper)
        keeper.keep(training.capture)  # evaluation may be interrupted, too
        interruption.check()
    network.load_state_dict(training.best)
    return training.fitted


class _Training:
    """The state of a training, which a checkpoint holds, and its steps."""

    def __init__(self, network: nn.Module, hyper: TorchHyper, train: Ints, seed: int) -> None:
        self.fitted = Fitted()
        self.best = copy.deepcopy(network.state_dict())
        self._network = network
        self._compiled: nn.Module | None = None
        self._hyper = hyper
        self._windows = torch.from_numpy(train)
        self._device = next(network.parameters()).device
        self._optimiser = AdamW(network.parameters(), hyper.weight_decay)
        steps = hyper.epochs * -(-len(train) // hyper.batch_size)
        self._rate = _warm_cosine(steps, hyper)
        self._generator = torch.Generator().manual_seed(seed)
        self._epoch = 0  # the current, or the last one
        self._order = self._windows[:0]  # the windows as the epoch shuffles them
        self._at = 0  # the next window in that order
        self._step = 0
        self._total = self._zero()

    def compile(self, loss_of: LossOf, progress: Progress) -> None:
        """Compile the network for whole batches of the training, or log why that fails."""
        batch = self._windows[: self._hyper.batch_size]
        if len(batch) < self._hyper.batch_size:
            progress.log("not compiled: there are fewer windows than a batch has")
            return
        self._network.train()
        self._compiled = cast("nn.Module", torch.compile(self._network, dynamic=False))
        from torch._inductor import config as inductor  # no other training need import it

        inductor.compile_threads = torch.get_num_threads()
        inductor.deterministic = True
        before = copy.deepcopy(self._network.state_dict())  # batch norm counts the batch
        drawn, devices = self._generator.get_state(), [self._device] * (self._device.type == "cuda")
        try:
            with torch.random.fork_rng(devices):
                self._backward(loss_of, batch)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:  # no compiler, or it failed
            self._compiled = None
            progress.log(f"not compiled: {error}")
        self._network.load_state_dict(before)
        self._generator.set_state(drawn)
        self.fitted.compiled = self._compiled is not None

    def epochs_done(self) -> float:
        """Return how many epochs are done, with the share of the current one."""
        done = len(self.fitted.curve)
        return done + self._at / len(self._order) if self._epoch > done else float(done)

    def goes_on(self) -> bool:
        """Whether there is another epoch to begin or to end."""
        if self._epoch > len(self.fitted.curve):
            return True
        stale = self._epoch - self.fitted.best_epoch >= self._hyper.patience
        return self._epoch < self._hyper.epochs and not stale

    def begin_epoch(self) -> None:
        """Shuffle the windows, unless a resumed epoch is to be ended."""
        self._network.train()
        if self._epoch == len(self.fitted.curve):
            self._epoch += 1
            shuffle = torch.randperm(len(self._windows), generator=self._generator)
            self._order, self._at, self._total = self._windows[shuffle], 0, self._zero()

    def batches(self) -> Iterator[Tensor]:
        """Yield the remaining batches of the epoch."""
        while self._at < len(self._order):
            batch = self._order[self._at : self._at + self._hyper.batch_size]
            self._at += len(batch)
            yield batch

    def step(self, loss_of: LossOf, batch: Tensor) -> None:
        """Learn from one batch."""
        loss = self._backward(loss_of, batch)
        nn.utils.clip_grad_norm_(self._network.parameters(), self._hyper.clip_norm)
        self._optimiser.step(self._hyper.lr * self._rate(self._step))
        self._step += 1
        self._total += loss.detach() * len(batch)  # no .item(): it would wait for the device

    def _backward(self, loss_of: LossOf, batch: Tensor) -> Tensor:
        """Compute the gradients of a batch and return its mean loss."""
        # The last batch of an epoch is smaller: compiling again for it would not pay.
        network = self._network
        if self._compiled is not None and len(batch) == self._hyper.batch_size:
            network = self._compiled
        self._network.zero_grad(set_to_none=True)
        with autocast(self._device):
            loss = loss_of(network, batch, self._generator).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    def end_epoch(self, val_loss: float, keeper: Keeper) -> None:
        """Record the losses, report them, keep the best weights. Raises DivergedError."""
        fitted, epoch = self.fitted, self._epoch
        train_loss = self._total.item() / len(self._windows)
        if not (math.isfinite(train_loss) and math.isfinite(val_loss)):
            keeper.forget()
            raise DivergedError(
                f"the loss is not finite in epoch {epoch} (train {train_loss}, validation "
                f"{val_loss}); lower --lr or --clip-norm"
            )
        fitted.curve.append((train_loss, val_loss))
        keeper.progress.epoch(epoch, self._hyper.epochs, train_loss, val_loss)
        if val_loss < fitted.best_loss:
            fitted.best_epoch, fitted.best_loss = epoch, val_loss
            self.best = copy.deepcopy(self._network.state_dict())

    def capture(self) -> Checkpoint:
        """Return the whole state."""
        tensors = {
            "random.shuffle": self._generator.get_state(),
            "random.torch": torch.get_rng_state(),
            "order": self._order,
            "total": self._total,
        }
        groups = {"network": self._network.state_dict(), "best": self.best}
        groups["optimiser"] = self._optimiser.state()
        for group, members in groups.items():
            tensors |= {f"{group}.{name}": one for name, one in members.items()}
        if self._device.type == "cuda":
            tensors["random.cuda"] = torch.cuda.get_rng_state(self._device)
        facts = {
            "epoch": self._epoch,
            "at": self._at,
            "step": self._step,
            "fitted": asdict(self.fitted),
            "environment": self._environment(),
        }
        return Checkpoint(facts, weights_to_bytes(tensors))

    def restore(self, checkpoint: Checkpoint) -> None:
        """Go on from a checkpoint of the same job and data."""
        facts, tensors = checkpoint.facts, tensors_from_bytes(checkpoint.payload)
        self._network.load_state_dict(tensors_under("network", tensors))
        self._optimiser.restore(tensors_under("optimiser", tensors))
        self._generator.set_state(tensors["random.shuffle"])
        torch.set_rng_state(tensors["random.torch"])
        if self._device.type == "cuda" and "random.cuda" in tensors:
            torch.cuda.set_rng_state(tensors["random.cuda"], self._device)
        best = tensors_under("best", tensors)
        self.best = {name: one.to(self._device) for name, one in best.items()}
        self._order, self._total = tensors["order"], tensors["total"].to(self._device)
        self._epoch, self._at, self._step = facts["epoch"], facts["at"], facts["step"]
        compiled, self.fitted = self.fitted.compiled, Fitted(**facts["fitted"])
        self.fitted.compiled = compiled
        there = facts["environment"]
        if there != self._environment() and there not in self.fitted.elsewhere:
            self.fitted.elsewhere.append(there)

    def _environment(self) -> dict[str, Any]:
        """Return what decides the bytes of a result, beside the job."""
        device = self._device
        return {
            "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "compiled": self.fitted.compiled,
        }

    def _zero(self) -> Tensor:
        return torch.zeros((), dtype=torch.float64, device=self._device)


def mean_loss(
    network: nn.Module,
    loss_of: LossOf,
    windows: Tensor,
    batch_size: int,
    seed: int,
    interruption: Interruption | None = None,
) -> float:
    """Return the mean loss over `windows` (n,), with the same random masks at each call."""
    generator = torch.Generator().manual_seed(seed)

    def compute(batch: Tensor) -> Tensor:
        if interruption is not None:
            interruption.check()
        return loss_of(network, batch, generator)

    return over_batches(network, compute, windows, batch_size).mean().item()


def over_batches(
    network: nn.Module, compute: Callable[[Tensor], Tensor], windows: Tensor, batch_size: int
) -> Tensor:
    """Return what `compute` gives for `windows` (n,), float64, with the network in eval mode."""
    network.eval()
    device = next(network.parameters()).device
    with torch.no_grad(), autocast(device):
        found = [compute(batch).double().cpu() for batch in torch.split(windows, batch_size)]
    return torch.cat(found)


def autocast(device: torch.device) -> AbstractContextManager[object]:
    """Return a context in which CUDA computes in bfloat16."""
    if device.type != "cuda":
        return nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)


def _warm_cosine(steps: int, hyper: TorchHyper) -> Callable[[int], float]:
    warm = max(1, round(hyper.warmup_fraction * steps))

    def factor(step: int) -> float:
        if step < warm:
            return (step + 1) / warm
        share = (step - warm) / max(1, steps - warm)
        return _FLOOR + (1 - _FLOOR) * 0.5 * (1 + math.cos(math.pi * min(1.0, share)))

    return factor
