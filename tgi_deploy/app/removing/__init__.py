"""Removal with proof."""
