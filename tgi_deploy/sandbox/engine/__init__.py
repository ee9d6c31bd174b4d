"""A stand-in for the TGI container: its command line, its phases, its routes and its failures, without a GPU.

It computes no model. What it reproduces is what a deployer meets: which flags a release takes, when and how a start
fails, what the log says, and how the HTTP API answers.
"""

from __future__ import annotations
