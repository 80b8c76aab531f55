"""What is MQTT 5's alone: properties, packets, the window of what a client takes at once.

A client of level 5 has a conversation and an outbox of its own; all else asks for no level.
"""
