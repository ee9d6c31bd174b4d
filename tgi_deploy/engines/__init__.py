"""Inference servers. `protocol.py` says what one is; a folder holds all that is known of one."""
