"""AdamW by torch's fused kernel; torch.optim would import the compiler, which takes a second."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn


class AdamW:
    """Decoupled weight decay (Loshchilov and Hutter 2019), with the constants of torch.optim's."""

    def __init__(self, parameters: Iterable[nn.Parameter], weight_decay: float) -> None:
        self._parameters = list(parameters)
        self._weight_decay = weight_decay
        self._mean, self._square = (
            [torch.zeros_like(one) for one in self._parameters] for _ in range(2)
        )
        self._steps = [torch.zeros((), device=one.device) for one in self._parameters]

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Move the parameters that have a gradient by it, at a learning rate."""
        every = zip(self._parameters, self._mean, self._square, self._steps)
        known = [(one, one.grad, *rest) for one, *rest in every if one.grad is not None]
        parameters, gradients, mean, square, steps = map(list, zip(*known))
        torch._foreach_add_(steps, 1)  # torch is of one exact version
        torch._fused_adamw_(
            parameters, gradients, mean, square, [], steps, lr=rate, beta1=0.9, beta2=0.999,
            weight_decay=self._weight_decay, eps=1e-8, amsgrad=False, maximize=False,
        )  # fmt: skip

    def state(self) -> dict[str, Tensor]:
        """Return what a checkpoint holds of it."""
        groups = {"mean": self._mean, "square": self._square, "steps": self._steps}
        return {f"{name}.{k}": one for name, of in groups.items() for k, one in enumerate(of)}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go on from there."""
        for name, one in self.state().items():
            one.copy_(state[name])
