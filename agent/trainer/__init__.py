"""The trainers: programs with a command line that know nothing of the fleet.

`python -m agent.trainer.run --help` and `python -m agent.trainer.prepare --help` are their face;
`agent.trainer.common.config` is what a supervisor may import without loading numpy or torch, and
what they train is in `MODELS`.
"""

from typing import Final

MODELS: Final = ("gbt", "mlp", "cnn", "gru", "lstm", "transformer", "transformer_ssl")
