"""Removes deployments, and verifies that nothing is left."""
