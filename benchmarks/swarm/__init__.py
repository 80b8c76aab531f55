"""A swarm of simulated hosts: real MQTT over real sockets, thousands on one event loop.

`host` is what an agent says and answers, `__main__` a process with many of them. No trainer runs: a
host that is given a job says that it runs, and holds it.
"""


def name_of(number: int) -> str:
    """Return the name of a simulated host."""
    return f"sim{number:05}"
