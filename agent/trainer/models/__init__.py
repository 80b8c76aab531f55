"""The networks, each with a dataclass of its size, and the boosted trees.

A network takes windows (batch, steps, channels), the mlp features (batch, features), as they come;
it standardises them itself with statistics of the training windows, which are saved among its
weights. It returns logits (batch, classes).
"""
