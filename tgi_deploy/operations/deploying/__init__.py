"""Brings a plan up until its engine is verified, or removes everything that a failed run created."""
