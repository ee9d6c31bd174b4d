"""Renders plans as HTML reports."""
