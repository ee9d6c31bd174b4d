"""Extends the error of a failed removal with what is left, what that costs, and how to remove it."""

from __future__ import annotations

from contextlib import contextmanager
from decimal import Decimal
from typing import TYPE_CHECKING

from tgi_deploy.errors import (
    ConflictError,
    DefectError,
    DeployError,
    Failure,
    InputError,
    LeftBehindError,
    LeftResource,
    ResourceRef,
)
from tgi_deploy.operations.watching.broken_off import recorded
from tgi_deploy.operations.watching.ledger import Ledger, recorded_events
from tgi_deploy.values.resource import KEPT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tgi_deploy.operations.context import Context
    from tgi_deploy.operations.removing.receipt import Receipt
    from tgi_deploy.operations.watching.ledger import Line
    from tgi_deploy.values.deployment import Deployment


@contextmanager
def removing(context: Context, *names: str) -> Iterator[None]:
    """Add the resources that are left to any error, even an unexpected one, that ends the removal of deployments."""
    again = f"'tgi-deploy down {names[0] if len(names) == 1 else '--all'}' resumes it"
    with naming_what_is_left(context, lambda: _left_of(context, names), again=again):
        yield


@contextmanager
def naming_what_is_left(context: Context, left: Callable[[], Sequence[Line]], *, again: str) -> Iterator[None]:
    """Add the resources that are `left` to an error raised in the block. Before the removal has begun, there are none.

    Raises LeftBehindError with the same code, or DefectError.
    """
    try:
        yield
    except (LeftBehindError, ConflictError, InputError, DefectError):
        raise
    except DeployError as error:
        raise _unfinished(context, error, left(), again) from error
    except Exception as error:
        defect = DefectError(error)
        report = _unfinished(context, defect, left(), again)
        if report is not defect:
            defect = defect.copy(hint=f"{report.message}; {report.hint}", failure=report.failure)
        raise defect from error


def _left_of(context: Context, names: Sequence[str]) -> tuple[Line, ...]:
    begun = [item for item in (recorded(context, name) for name in names) if item and item.status == "deleting"]
    return tuple(line for item in begun for line in _not_seen_gone(context, item))


def _not_seen_gone(context: Context, deployment: Deployment) -> tuple[Line, ...]:
    ledger = Ledger.of((*context.store.events(deployment.name), *recorded_events(deployment)))
    kept = {item.attributes.get("id") for item in deployment.resources if KEPT in item.notes}
    return tuple(line for line in ledger.lines.values() if line.removed_at is None and line.id not in kept)


def _unfinished(context: Context, error: DeployError, left: Sequence[Line], again: str) -> DeployError:
    if not left:
        return error
    items = [ResourceRef(kind=line.kind, id=line.id, region=line.region) for line in left]
    message = ", ".join(f"{item.kind} {item.id} in {item.region}" for item in items)
    hint = f"{again}; {until_then(sum((line.usd_per_hour or Decimal(0) for line in left), Decimal(0)))}"
    return left_error(
        context,
        f"removing {message} did not finish: {error.message}",
        items,
        code=error.code,
        hint=error.hint_and(hint),
    )


def until_then(usd_per_hour: Decimal | None) -> str:
    """Return the words for the cost of leftovers; `usd_per_hour` is the price of the machines among them."""
    return f"until then it costs ${usd_per_hour:.3f} an hour" if usd_per_hour else "until then it may cost money"


def left_error(
    context: Context,
    message: str,
    items: Sequence[ResourceRef],
    *,
    hint: str | None,
    code: str = "left_behind",
    receipts: Sequence[Receipt] = (),
) -> LeftBehindError:
    """Return the error for leftovers, each with the command that removes it by hand."""
    left = tuple(
        LeftResource(kind=item.kind, id=item.id, region=item.region, command=_removal_command(context, item))
        for item in items
    )
    failure = Failure(not_removed=left, receipt_files=tuple(receipt.path for receipt in receipts))
    return LeftBehindError(code, message, hint=hint, failure=failure)


def _removal_command(context: Context, item: ResourceRef) -> str | None:
    return context.target_at(item.region).manual_commands.removal_command(item.kind, item.id, item.region)


def raise_all(failures: Sequence[DeployError]) -> None:
    """Raise all errors as one, if any. A defect decides the exit code, then leftovers, then the first error."""
    defect = next((error for error in failures if isinstance(error, DefectError)), None)
    if defect is not None:
        raise defect
    left = [error for error in failures if isinstance(error, LeftBehindError)]
    others = [error for error in failures if not isinstance(error, LeftBehindError)]
    if left:
        error = _all_left(left)
        message = "; ".join(item.message for item in (error, *others))
        raise error.copy(message=message)
    if len(others) > 1:
        raise others[0].copy(message="; ".join(item.message for item in others))
    if others:
        raise others[0]


def _all_left(failures: Sequence[LeftBehindError]) -> LeftBehindError:
    """Return one error with all messages, ids and commands."""
    if len(failures) == 1:
        return failures[0]
    known = [error.failure for error in failures if error.failure]
    merged = Failure(
        not_removed=tuple(item for failure in known for item in failure.not_removed or ()),
        receipt_files=tuple(path for failure in known for path in failure.receipt_files or ()),
    )
    return failures[0].copy(message="; ".join(error.message for error in failures), failure=merged)
