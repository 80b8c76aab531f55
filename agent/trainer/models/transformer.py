"""A transformer encoder on patches of raw windows: classifier, and masked autoencoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn

from agent.trainer.models.layers import Dropout, Standardise

_ROUNDS: Final = 4  # scoring hides every token once, a quarter of them at a time


@dataclass(frozen=True)
class EncoderSize:
    """Channels and steps in; steps in a token; heads, units in a head, layers."""

    inputs: int
    steps: int
    patch: int
    heads: int
    head_width: int
    layers: int
    dropout: float

    @property
    def width(self) -> int:
        """Return the units of a token."""
        return self.heads * self.head_width

    @property
    def tokens(self) -> int:
        """Return how many tokens a window makes."""
        return -(-self.steps // self.patch)


class _Layer(nn.Module):
    """Attention and a feed-forward network, each after a norm and beside a shortcut."""

    def __init__(self, size: EncoderSize) -> None:
        super().__init__()
        self.heads = size.heads
        self.attention_norm = nn.LayerNorm(size.width)
        self.query_key_value = nn.Linear(size.width, 3 * size.width)
        self.out = nn.Linear(size.width, size.width)
        self.dropout = Dropout(size.dropout)
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(size.width),
            nn.Linear(size.width, 4 * size.width),
            nn.GELU(),
            Dropout(size.dropout),
            nn.Linear(4 * size.width, size.width),
            Dropout(size.dropout),
        )

    def forward(self, tokens: Tensor) -> Tensor:
        batch, count, width = tokens.shape
        three = self.query_key_value(self.attention_norm(tokens))
        query, key, value = three.view(batch, count, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value)
        tokens = tokens + self.dropout(self.out(mixed.transpose(1, 2).reshape(batch, count, width)))
        fed: Tensor = tokens + self.feed_forward(tokens)
        return fed


class Encoder(nn.Module):
    """Cuts standardised windows into tokens, and encodes these."""

    def __init__(self, size: EncoderSize) -> None:
        super().__init__()
        self.size = size
        self.embed = nn.Linear(size.patch * size.inputs, size.width)
        self.position = nn.Parameter(0.02 * torch.randn(size.tokens, size.width))
        self.hidden = nn.Parameter(0.02 * torch.randn(size.width))
        self.layers = nn.ModuleList(_Layer(size) for _ in range(size.layers))
        self.norm = nn.LayerNorm(size.width)

    def patches(self, windows: Tensor) -> Tensor:
        """Return (batch, tokens, patch * inputs); steps that are short of a patch are zero."""
        size = self.size
        short = size.tokens * size.patch - size.steps
        padded = nn.functional.pad(windows, (0, 0, 0, short))
        return padded.reshape(windows.shape[0], size.tokens, size.patch * size.inputs)

    def encode(self, patches: Tensor, masked: Tensor | None = None) -> Tensor:
        """Return tokens (batch, tokens, width), blind to those `masked` (batch, tokens)."""
        tokens = self.embed(patches)
        if masked is not None:
            tokens = torch.where(masked[..., None], self.hidden.to(tokens.dtype), tokens)
        tokens = tokens + self.position
        for layer in self.layers:
            tokens = layer(tokens)
        encoded: Tensor = self.norm(tokens)
        return encoded

    def forward(self, windows: Tensor) -> Tensor:
        """Return the mean token (batch, width) of standardised `windows` (batch, steps, inputs)."""
        return self.encode(self.patches(windows)).mean(1)


class Transformer(nn.Module):
    """The encoder with a linear head on the mean token."""

    def __init__(self, size: EncoderSize, classes: int) -> None:
        super().__init__()
        self.encoder = Encoder(size)
        self.head = nn.Sequential(Dropout(size.dropout), nn.Linear(size.width, classes))

    def forward(self, windows: Tensor) -> Tensor:
        """Return logits (batch, classes) of standardised `windows` (batch, steps, inputs)."""
        logits: Tensor = self.head(self.encoder(windows))
        return logits


class MaskedAutoencoder(nn.Module):
    """The encoder with a head that fills in what was hidden from it."""

    def __init__(self, size: EncoderSize) -> None:
        super().__init__()
        self.standardise = Standardise(size.inputs)
        self.encoder = Encoder(size)
        self.head = nn.Linear(size.width, size.patch * size.inputs)

    def forward(self, windows: Tensor, masked: Tensor) -> Tensor:
        """Return the mean squared error (batch,) of the tokens `masked` (batch, tokens)."""
        patches = self.encoder.patches(self.standardise(windows))
        filled = self.head(self.encoder.encode(patches, masked))
        error = (filled.float() - patches).square().mean(-1)
        mean: Tensor = (error * masked).sum(1) / masked.sum(1)
        return mean

    def embed(self, windows: Tensor) -> Tensor:
        """Return the mean token (batch, width) of `windows` (batch, steps, inputs)."""
        tokens: Tensor = self.encoder(self.standardise(windows))
        return tokens

    def score(self, windows: Tensor) -> Tensor:
        """Return how badly each window (batch,) is filled in, every token hidden once."""
        tokens = self.encoder.size.tokens
        rounds = min(_ROUNDS, tokens)
        place = torch.arange(tokens, device=windows.device) % rounds
        errors = [
            self(windows, (place == at).expand(windows.shape[0], tokens)) for at in range(rounds)
        ]
        return torch.stack(errors).mean(0)
