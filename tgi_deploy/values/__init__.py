"""Frozen values that rooms hand to one another. Nothing here acts, and nothing here knows an engine or a cloud."""
