"""Frozen values shared by the packages. They have no side effects and know no engine or cloud."""
