"""The trainers: programs with a command line that know nothing of the fleet."""

from typing import Final

MODELS: Final = ("gbt", "mlp", "cnn", "gru", "lstm", "transformer", "transformer_ssl")
