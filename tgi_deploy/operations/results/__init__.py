"""Converts the outcomes of use cases into the published results."""
