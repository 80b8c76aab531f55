"""The client's connection to a broker; the only importer of paho."""
