"""What a job needs: of all that the jobs' messages bear, what the plan itself is made of."""

from __future__ import annotations

from pydantic import Field

from broker.protocol.messages.values import Piece


class Needs(Piece):
    """What a job needs of its host; judged again by the agent when it starts the job."""

    require_cuda: bool = False
    prefer_cuda: bool = False
    min_vram_gib: float | None = Field(default=None, ge=0)
    min_ram_gib: float | None = Field(default=None, ge=0)
    min_cores: int | None = Field(default=None, ge=1)
