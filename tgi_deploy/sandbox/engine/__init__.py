"""A stub server that imitates the TGI container: its command line, phases, routes and failures, without a GPU.

It runs no model. It reproduces what matters for deployment: which flags a release accepts, when and how a start fails,
what is logged, and how the HTTP API answers.
"""

from __future__ import annotations
