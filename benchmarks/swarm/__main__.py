"""One process of the swarm; it says how it fares, a line of JSON a second, until its input ends."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import resource
import sys

from broker.protocol.topics import Topics

from . import name_of
from .host import Host, Swarm, Words


async def serve(arguments: argparse.Namespace) -> None:
    """Run the hosts until standard input ends."""
    rng = random.Random(arguments.first)
    swarm = Swarm(
        arguments.port, arguments.source, Topics(arguments.root), Words(),
        arguments.beat, arguments.progress, rng,
    )  # fmt: skip
    first = arguments.first
    hosts = [Host(swarm, name_of(number)) for number in range(first, first + arguments.hosts)]
    for host in hosts:
        host.start(rng.random() * arguments.spread)
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), lambda: sys.stdin.read(1) or ended.set())
    while not ended.is_set():
        print(json.dumps({**swarm.counts, "held": sum(host.holds() for host in hosts)}), flush=True)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), 1.0)


def main() -> None:
    """Take the options, lift the limit on open files, serve."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.swarm", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--root", default="fleet")
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="number of the first host")
    parser.add_argument("--source", default="127.0.0.1", help="address to connect from")
    parser.add_argument("--spread", type=float, default=5.0, help="seconds until all connect")
    parser.add_argument("--beat", type=float, default=30.0, help="seconds between heartbeats")
    parser.add_argument("--progress", type=float, default=10.0, help="seconds between progress")
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(serve(parser.parse_args()))


main()
