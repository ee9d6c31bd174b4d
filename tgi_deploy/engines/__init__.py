"""Inference servers: the protocol in `protocol.py`, and one folder per engine."""
