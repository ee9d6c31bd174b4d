"""Launches the machines of a plan, on every target."""
