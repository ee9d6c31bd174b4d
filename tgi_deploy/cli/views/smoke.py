"""Smokes and proofs, as JSON-like documents and as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tgi_deploy.cli.views.receipt import left_text
from tgi_deploy.cli.views.text import accelerated, table
from tgi_deploy.operations.results.changing import proof_data
from tgi_deploy.text import usd
from tgi_deploy.values.base import as_dict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tgi_deploy.operations.deploying.service import Proof
    from tgi_deploy.operations.deploying.smoke import Case, Smoked


def smoked_document(results: Sequence[Smoked]) -> dict[str, Any]:
    return {"results": [_result(result) for result in results]}


def _result(result: Smoked) -> dict[str, Any]:
    return {
        "model": result.job.model,
        "name": result.job.name,
        "exit_code": result.exit_code,
        "took_s": result.took_s,
        "usd": result.usd,
        "chosen": dict(result.chosen),
        "cases": [_case(case) for case in result.cases],
        "left_behind": [as_dict(item) for item in result.left],
    }


def _case(case: Case) -> dict[str, Any]:
    problem = case.problem
    return {
        "name": case.name,
        "took_s": case.took_s,
        "skipped": case.skipped,
        "failure": None if problem is None else {"code": problem.code, "message": problem.message, "text": case.text},
    }


def smoked_text(results: Sequence[Smoked]) -> str:
    rows = [(item.job.model, verdict(item), str(item.chosen.get("instance_type") or "-"), f"{item.took_s:.0f} s",
             usd(item.usd)) for item in results]  # fmt: skip
    lines = [table(("model", "result", "machine", f"took{accelerated()}", "cost"), rows, right=frozenset({3, 4}))]
    left = [thing for item in results for thing in item.left]
    return "\n".join([*lines, left_text(left)] if left else lines)


def verdict(result: Smoked) -> str:
    """Return `ok`, or the phase and code of the failure."""
    for case, problem in result.failures[:1]:
        return f"{case.name}: {problem.code}"
    return "ok" if result.exit_code == 0 else f"exit {result.exit_code}"


def proofs_document(proofs: Mapping[str, Proof]) -> dict[str, Any]:
    return {"proofs": {name: proof_data(proof) for name, proof in proofs.items()}}


def proofs_text(proofs: Mapping[str, Proof]) -> str:
    lines = []
    for name, proof in proofs.items():
        lines.append(f"{name} passed every check: it answered {proof.served.answer!r}{accelerated()}")
        lines.extend(f"  {step.name:<10}{step.took_ms:>10.0f} ms" for step in proof.steps)
    return "\n".join(lines)
