"""Waiting for an engine with deadlines, and proving that it serves."""
