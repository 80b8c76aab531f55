"""The web page; the only importer of NiceGUI.

It talks to the fleet over MQTT like any client: what it shows is the mirror of
`coordinator.client`, and what it asks for goes the way of the command line's requests.

Rule of this package: **no key of a dictionary that is sent to a browser comes from the wire**.
NiceGUI evaluates values whose key begins with a colon as JavaScript; rows have fields of our own,
and whatever others have named is a value.
"""
