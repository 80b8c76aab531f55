"""An agent that loses some of the chunks that it sends, for the benchmark of the artifact stream.

BENCH_LOSS is the share that is lost. At its end it says how many messages with chunks it
sent, and of what size they were.
"""

from __future__ import annotations

import os
import random
import sys
from collections import Counter
from typing import Final

from agent.service.__main__ import main
from broker.client.link import Link
from broker.protocol.link_events import Outgoing

LOSS: Final = float(os.environ.get("BENCH_LOSS", "0"))
_sizes: Counter[int] = Counter()
_rng: Final = random.Random(1)
_publish: Final = Link.publish


def publish(link: Link, message: Outgoing) -> bool:
    """Publish, or lose, what is a chunk; publish everything else."""
    if "/chunk/" in message.topic:
        _sizes[len(message.payload)] += 1
        if _rng.random() < LOSS:
            return True
    return _publish(link, message)


if __name__ == "__main__":
    Link.publish = publish  # type: ignore[method-assign]
    code = main()
    sizes = ", ".join(f"{count} of {size // 1024} KiB" for size, count in _sizes.most_common(6))
    sys.stderr.write(f"messages with chunks: {sizes}\n")
    sys.exit(code)
