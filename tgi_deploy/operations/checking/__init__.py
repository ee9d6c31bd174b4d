"""Checks before any money is spent."""
