"""The training loop that all networks share."""

from __future__ import annotations

import copy
import ctypes
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
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
)
from agent.trainer.common.config import TorchHyper
from agent.trainer.common.errors import DivergedError, InterruptedBySignalError
from agent.trainer.common.progress import Interruption, Progress

# (network, windows (batch,), generator) -> loss (batch,); the generator is for masks and the like.
LossOf = Callable[[nn.Module, Tensor, torch.Generator], Tensor]

# What `_restore` raises for facts and tensors that are not those of a training.
_MISFITS: Final = (
    ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError,
)  # fmt: skip
_M_TRIM_THRESHOLD: Final = -1  # of mallopt(3) in glibc
_M_MMAP_MAX: Final = -4
_FLOOR: Final = 0.01  # of the peak learning rate, where the cosine ends


@dataclass
class Fitted:
    """How the training went: `curve` has the (training, validation) loss of each epoch.

    `elsewhere` has the environments of the processes before the last one.
    """

    best_epoch: int = 0
    best_loss: float = math.inf
    curve: list[tuple[float, float]] = field(default_factory=list)
    elsewhere: list[dict[str, Any]] = field(default_factory=list)
    compiled: bool = False

    def facts(self, device: str) -> dict[str, Any]:
        """Return what the report says of the training."""
        return {
            "device": device,
            "compiled": self.compiled,
            "elsewhere": self.elsewhere,
            "best_epoch": self.best_epoch,
            "epochs_run": len(self.curve),
            "curve": self.curve,
        }


def start_torch(threads: int, seed: int) -> torch.device:
    """Seed torch, bind it to `threads` threads and deterministic algorithms; return the device."""
    _keep_memory()
    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    # On CUDA a few backward passes have no deterministic form: they warn.
    torch.use_deterministic_algorithms(True, warn_only=device.type == "cuda")
    # No code here reads memory that it has not written.
    deterministic: Any = torch.utils.deterministic
    deterministic.fill_uninitialized_memory = False
    return device


def _keep_memory() -> None:
    """Have glibc keep freed memory: each step frees and takes the same tensors.

    Otherwise glibc gives large ones back to the system: an LSTM takes twice the time.
    """
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
    progress: Progress,
    keeper: Keeper,
) -> Fitted:
    """Train `network` in place and leave it with the weights of the best validation loss.

    AdamW, a warm-up and a cosine over all epochs, gradients clipped; on CUDA in bfloat16. Stops
    after `patience` epochs without a better validation loss. A resumed training ends with the same
    bytes as an undisturbed one on such a machine. Raises DivergedError, InterruptedBySignalError.
    """
    training = _Training(network, hyper, train, seed)
    if hyper.compile:
        training.compile(loss_of, progress)
    training.go_on_from(keeper)
    progress.begins(training.epochs_done())
    held_out = torch.from_numpy(validation)
    with keeper.interruption.deferred():
        while training.goes_on():
            training.begin_epoch()
            for batch in training.batches():
                training.step(loss_of, batch)
                keeper.step(training.capture)
            try:
                val_loss = mean_loss(
                    network, loss_of, held_out, hyper.batch_size, seed, keeper.interruption
                )
            except InterruptedBySignalError:
                keeper.keep(training.capture)
                raise
            training.end_epoch(val_loss, progress, keeper)
        keeper.keep(training.capture)  # evaluation may be interrupted, too
        keeper.interruption.check()
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
        self._optimiser = torch.optim.AdamW(
            network.parameters(), lr=hyper.lr, weight_decay=hyper.weight_decay, fused=True
        )
        steps = hyper.epochs * -(-len(train) // hyper.batch_size)
        self._rate = _warm_cosine(steps, hyper)
        self._generator = torch.Generator().manual_seed(seed)
        self._epoch = 0  # the current, or the last one
        self._order = self._windows[:0]  # the windows as the epoch shuffles them
        self._at = 0  # the next window in that order
        self._step = 0
        self._total = self._zero()

    def compile(self, loss_of: LossOf, progress: Progress) -> None:
        """Compile the network for whole batches, or log why that fails.

        Validation, scores and the saved file use the network itself.
        """
        batch = self._windows[: self._hyper.batch_size]
        if len(batch) < self._hyper.batch_size:
            progress.log("not compiled: there are fewer windows than a batch has")
            return
        self._network.train()
        self._compiled = cast("nn.Module", torch.compile(self._network, dynamic=False))
        from torch._inductor import config as inductor  # no other training need import it

        inductor.compile_threads = torch.get_num_threads()
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
        for group in self._optimiser.param_groups:
            group["lr"] = self._hyper.lr * self._rate(self._step)
        loss = self._backward(loss_of, batch)
        nn.utils.clip_grad_norm_(self._network.parameters(), self._hyper.clip_norm)
        self._optimiser.step()
        self._step += 1
        self._total += loss.detach() * len(batch)  # no .item(): it would wait for the device

    def _backward(self, loss_of: LossOf, batch: Tensor) -> Tensor:
        """Compute the gradients of a batch and return its mean loss."""
        # The last batch of an epoch is smaller: compiling again for it would not pay.
        network = self._network
        if self._compiled is not None and len(batch) == self._hyper.batch_size:
            network = self._compiled
        self._optimiser.zero_grad(set_to_none=True)
        with _autocast(self._device):
            loss = loss_of(network, batch, self._generator).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    def end_epoch(self, val_loss: float, progress: Progress, keeper: Keeper) -> None:
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
        progress.epoch(epoch, self._hyper.epochs, train_loss, val_loss)
        if val_loss < fitted.best_loss:
            fitted.best_epoch, fitted.best_loss = epoch, val_loss
            self.best = copy.deepcopy(self._network.state_dict())

    def capture(self) -> Checkpoint:
        """Return the whole state."""
        state = self._optimiser.state_dict()["state"]
        tensors = {f"network.{name}": one for name, one in self._network.state_dict().items()}
        tensors |= {f"best.{name}": one for name, one in self.best.items()}
        tensors |= {
            f"optimiser.{number}.{name}": one
            for number, moments in state.items()
            for name, one in moments.items()
        }
        tensors |= {
            "random.shuffle": self._generator.get_state(),
            "random.torch": torch.get_rng_state(),
            "order": self._order,
            "total": self._total,
        }
        if self._device.type == "cuda":
            tensors["random.cuda"] = torch.cuda.get_rng_state(self._device)
        fitted = self.fitted
        facts = {
            "epoch": self._epoch, "at": self._at, "step": self._step,
            "best_epoch": fitted.best_epoch, "best_loss": fitted.best_loss,
            "curve": fitted.curve, "environment": self._environment(),
            "elsewhere": fitted.elsewhere,
        }  # fmt: skip
        return Checkpoint(facts, weights_to_bytes(tensors))

    def go_on_from(self, keeper: Keeper) -> None:
        """Restore the state of a checkpoint, if there is one that fits."""
        checkpoint = keeper.load()
        if checkpoint is None:
            return
        fresh = self.capture()
        try:
            self._restore(checkpoint)
        except _MISFITS as error:
            keeper.misfit(f"{type(error).__name__}: {error}")
            self._restore(fresh)

    def _restore(self, checkpoint: Checkpoint) -> None:
        facts, tensors = checkpoint.facts, tensors_from_bytes(checkpoint.payload)
        best = tensors_under("best", tensors)
        if best.keys() != self.best.keys():
            raise ValueError("its weights have other names")
        order, at = tensors["order"], int(facts["at"])
        if not 0 <= at <= len(order) == len(self._windows) * bool(facts["epoch"]):
            raise ValueError("it is of another number of windows")
        self._network.load_state_dict(tensors_under("network", tensors))
        moments: dict[int, dict[str, Tensor]] = {}
        for name, one in tensors_under("optimiser", tensors).items():
            number, _, what = name.partition(".")
            moments.setdefault(int(number), {})[what] = one
        groups = self._optimiser.state_dict()["param_groups"]
        self._optimiser.load_state_dict({"state": moments, "param_groups": groups})
        self._generator.set_state(tensors["random.shuffle"])
        torch.set_rng_state(tensors["random.torch"])
        if self._device.type == "cuda" and "random.cuda" in tensors:
            torch.cuda.set_rng_state(tensors["random.cuda"], self._device)
        self.best = {name: one.to(self._device) for name, one in best.items()}
        self._order, self._at = order, at
        self._total = tensors["total"].to(self._device)
        self._epoch, self._step = int(facts["epoch"]), int(facts["step"])
        here, there = self._environment(), facts["environment"]
        if there.keys() != here.keys():
            raise ValueError("it was made by another version")
        parts = [*facts["elsewhere"], *([there] if there != here else [])]
        elsewhere = [one for number, one in enumerate(parts) if one not in parts[:number]]
        curve = [(float(train), float(held_out)) for train, held_out in facts["curve"]]
        best_epoch, best_loss = int(facts["best_epoch"]), float(facts["best_loss"])
        compiled = self._compiled is not None
        self.fitted = Fitted(best_epoch, best_loss, curve, elsewhere, compiled)

    def _environment(self) -> dict[str, Any]:
        """Return what decides the bytes of a result, beside the job."""
        device = self._device
        return {
            "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "compiled": self._compiled is not None,
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
    """Return the mean loss over `windows` (n,), with the same random masks at each call.

    Raises InterruptedBySignalError.
    """
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
    with torch.no_grad(), _autocast(device):
        found = [compute(batch).double().cpu() for batch in torch.split(windows, batch_size)]
    return torch.cat(found)


def _autocast(device: torch.device) -> AbstractContextManager[object]:
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
