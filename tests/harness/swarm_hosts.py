"""The hosts of a simulated fleet, what they are at, and a plan that suits them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from broker.protocol import messages as m
from broker.system.machine import new_id

GIB = 1024**3
# How long a model takes on a host of speed 1, in seconds.
MODELS_S = {
    "gbt": 40.0, "mlp": 60.0, "cnn": 240.0, "gru": 420.0, "lstm": 480.0, "transformer": 900.0,
    "transformer_ssl": 1500.0,
}  # fmt: skip
KINDS = (
    # name, description, cores, RAM GiB, speed, GPU and its VRAM GiB, W at work
    ("attic-pi", "Raspberry Pi 5", 4, 8, 0.2, None, 0.0),
    ("gaming-pc", "desktop", 8, 32, 1.5, ("GeForce RTX 3060", 12), 170.0),
    ("lab-ws", "workstation", 24, 128, 2.5, ("RTX A5000", 24), 230.0),
    ("laptop", "laptop", 6, 16, 0.6, None, 0.0),
    ("media-box", "small desktop", 4, 16, 0.5, None, 0.0),
)


@dataclass
class Work:
    """One attempt that a host is at."""

    assign: m.Assign
    begun_s: float
    takes_s: float
    fails: bool
    phase: m.Phase = "running"
    data: bytes = b""
    said: int = 0  # lines of output

    @property
    def artifact_id(self) -> str:
        return hashlib.sha256(self.data).hexdigest()


@dataclass
class Host:
    """One simulated host. `refuses` goes into its heartbeats."""

    name: str
    description: str
    cores: int
    ram_gib: float
    speed: float
    gpu: tuple[str, float] | None
    power_w: float
    refuses: tuple[m.Why, ...] = ()
    online: bool = True
    session: str = field(default_factory=new_id)
    instance: str = field(default_factory=new_id)
    seq: int = 0
    works: dict[str, Work] = field(default_factory=dict)

    def gpus(self) -> tuple[m.Gpu, ...]:
        """Its CUDA device, at work or not."""
        if self.gpu is None:
            return ()
        busy = any(work.assign.use_cuda for work in self.works.values())
        total = int(self.gpu[1] * GIB)
        return (
            m.Gpu(
                index=0,
                name=self.gpu[0],
                uuid=f"GPU-{self.name}",
                vram_total_bytes=total,
                vram_free_bytes=int(total * (0.4 if busy else 0.9)),
                use_percent=92.0 if busy else 1.0,
                power_w=self.power_w if busy else self.power_w / 10,
            ),
        )


def make_hosts(count: int) -> list[Host]:
    """So many hosts, of a few kinds in turn."""
    hosts = []
    for number in range(count):
        name, *rest = KINDS[number % len(KINDS)]
        hosts.append(Host(f"{name}-{number // len(KINDS) + 1}", *rest))
    return hosts


def manifest(jobs: int) -> str:
    """A plan of so many jobs that such hosts can carry out, but for a few."""
    out = ["schema_version = 1", "", "[hosts.attic-pi-1]", 'allow_jobs = ["gbt*"]', ""]
    models = list(MODELS_S)
    for number in range(jobs):
        model = models[number % len(models)]
        mode = ("oracle", "realistic")[number // len(models) % 2]
        out += [
            "[[jobs]]",
            f'name = "{model}-{mode}-{number:04}"',
            f'model = "{model}"',
            f'mode = "{mode}"',
            f"seed = {number}",
            f"priority = {(number * 7) % 5 * 10}",
        ]
        if model in {"gru", "lstm"}:
            out.append("prefer_cuda = true")
        if model.startswith("transformer"):
            out += ["require_cuda = true", f"min_vram_gib = {(8, 16, 8, 48)[number % 4]}"]
        out.append("")
    return "\n".join(out)
