"""The networks and the boosted trees.

A network takes windows (batch, steps, channels), or features (batch, features), standardises them
by statistics that are among its weights, and returns logits (batch, classes).
"""
