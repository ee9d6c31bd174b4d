"""Formats the results of smoke tests and of proofs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tgi_deploy.cli.views.receipt import left_text
from tgi_deploy.cli.views.text import accelerated, table
from tgi_deploy.text import usd

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tgi_deploy.api import Proof, Smoked


def smoked_text(results: Sequence[Smoked]) -> str:
    rows = [(item.job.model, verdict(item), str(item.chosen.get("instance_type") or "-"), f"{item.took_s:.0f} s",
             usd(item.usd)) for item in results]  # fmt: skip
    lines = [table(("model", "result", "machine", f"took{accelerated()}", "cost"), rows, right=frozenset({3, 4}))]
    left = [resource for item in results for resource in item.left]
    return "\n".join([*lines, left_text(left)] if left else lines)


def verdict(result: Smoked) -> str:
    """Return `ok`, or the phase and code of the failure."""
    for case, problem in result.failures[:1]:
        return f"{case.name}: {problem.code}"
    return "ok" if result.exit_code == 0 else f"exit {result.exit_code}"


def proofs_text(proofs: Mapping[str, Proof]) -> str:
    lines = []
    for name, proof in proofs.items():
        lines.append(f"{name} passed every check: it answered {proof.served.answer!r}{accelerated()}")
        lines.extend(f"  {step.name:<10}{step.took_ms:>10.0f} ms" for step in proof.steps)
    return "\n".join(lines)
