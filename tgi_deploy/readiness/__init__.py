"""Waits for an engine with deadlines and proves that it serves."""
