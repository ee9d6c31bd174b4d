"""Extends the error of a command that fails halfway: the resources that exist, their cost, and how to remove them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from tgi_deploy.errors import DefectError, DeployError, Failure, LeftBehindError, RecordedResource, StillRunning
from tgi_deploy.operations.watching.lookup import price_of
from tgi_deploy.values.base import replaced
from tgi_deploy.values.resource import KEPT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from decimal import Decimal

    from tgi_deploy.operations.context import Context
    from tgi_deploy.values.deployment import Deployment
    from tgi_deploy.values.resource import Found


@contextmanager
def naming_what_exists(context: Context, name: str, *, next_step: str, machine: Found | None = None) -> Iterator[None]:
    """Add the existing resources of `name` to any error of the block, even an unexpected one.

    `next_step` is the hint about how to continue. `machine` is the current machine, for deployments without a record.
    """
    try:
        yield
    except DeployError as error:
        raise _named(context, name, error, next_step, machine) from error.__cause__
    except Exception as error:
        raise _named(context, name, DefectError(error), next_step, machine) from error


def _named(context: Context, name: str, error: DeployError, next_step: str, machine: Found | None) -> DeployError:
    """Return the error with the existing resources, unless it already names them."""
    deployment = recorded(context, name)
    exists = recorded_resources(deployment)
    failure = error.failure or Failure()
    if failure.outcome or isinstance(error, LeftBehindError) or not (exists or machine):
        return error
    words = f"{_words(deployment, exists, machine)}: {next_step}, 'tgi-deploy down {name}' removes it"
    hint = error.hint if "tgi-deploy down" in (error.hint or "") else error.hint_and(words)
    failure = replaced(failure, deployment=name, exists=exists)
    if deployment and deployment.machine:
        failure = replaced(failure, outcome="kept", still_running=still_running(deployment))
    return error.copy(hint=hint, failure=failure)


def recorded(context: Context, name: str) -> Deployment | None:
    try:
        return context.store.load(name)
    except DeployError:  # the failure may be the disk's
        return None


def recorded_resources(deployment: Deployment | None) -> tuple[RecordedResource, ...]:
    """Return the recorded resources, except those that are kept on purpose."""
    return tuple(
        RecordedResource(kind=item.kind, id=item.attributes.get("id", ""), region=item.place, phase=item.state)
        for item in (deployment.resources if deployment else ())
        if KEPT not in item.notes
    )


def _words(deployment: Deployment | None, exists: tuple[RecordedResource, ...], machine: Found | None) -> str:
    record = deployment.machine if deployment else None
    if record is None and machine is None:
        resources = ", ".join(f"{item.kind} {item.id or '(requested, not confirmed)'}" for item in exists)
        return f"the existing resources are not billed by the hour ({resources})"
    known = machine.id if machine else record.attributes.get("id") if record else None
    price = price_words(price_of(deployment, () if machine is None else (machine,)))
    return f"the machine {known} is running{price}" if known else f"a machine may have been launched{price}"


def price_words(usd_per_hour: Decimal | None) -> str:
    """Return the price as the continuation of a sentence about a machine; empty without a price."""
    return f" and costs ${usd_per_hour:.3f} an hour" if usd_per_hour else ""


def still_running(deployment: Deployment) -> StillRunning:
    """Return the facts about a machine that is or may still be running."""
    machine = deployment.machine
    ends = [at for at in (deployment.ends.expires_at, deployment.ends.lease_until) if at is not None]
    return StillRunning(
        machine=machine.attributes.get("id") if machine else None,
        region=machine.place if machine else deployment.region,
        usd_per_hour=deployment.billed_usd_per_hour,
        ends_at=min(ends, default=None),
        ends_with=f"tgi-deploy down {deployment.name}",
    )
