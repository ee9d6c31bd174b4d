"""Formats the status of deployments: what runs, whether it serves, what it costs, how to reach it, what to do next."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from tgi_deploy.api import target_of
from tgi_deploy.cli.views.deployment import hourly
from tgi_deploy.cli.views.ends import ends_cell, ends_lines
from tgi_deploy.cli.views.text import heading, prices_line, table, wrapped
from tgi_deploy.text import one_line, plural, printable, usd, usd_spent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tgi_deploy.api import Row, Status
    from tgi_deploy.values.deployment import Deployment
    from tgi_deploy.values.results import AccessData, Starting


_FEW: Final = 4


def none_text(places: Sequence[str], *, asked: bool = True) -> str:
    """Return a sentence that there are no deployments in these locations. `asked` is whether the cloud was searched."""
    if not asked:
        return "no recorded deployments"
    if len(places) > _FEW:
        return f"no deployments in {plural(len(places), 'region')}"
    chosen = any(target_of(place).facts.regions for place in places)
    elsewhere = "; --region searches elsewhere" if chosen else ""
    return f"no deployments in {', '.join(places)}{elsewhere}"


def _standing(status: Status) -> str:
    """Return the status next to the name: a recorded `ready` is not shown while the engine does not respond."""
    if status.recorded is None:
        return "known only from tags"
    phase = status.recorded.status
    if status.missing:
        return f"no running machine; last known state: {phase}"
    return f"not responding; last known state: {phase}" if status.not_responding else phase


def _runs_lines(status: Status) -> Iterator[str]:
    """Yield the model and the machine, from the record or tags."""
    deployment = status.deployment
    if deployment is None or status.missing:
        return
    service, pool = deployment.service, next(iter(deployment.current.pools), None)
    machine = status.machine_seen
    kind = (machine.attributes.get("instance_type") if machine else None) or (pool.instance_type if pool else None)
    market = pool.market if pool and pool.market != "owned" else None
    where = ", ".join(filter(None, (kind, market)))
    words = " on ".join(filter(None, (service.model if service else None, where)))
    if words:
        yield f"  runs      {words}"


def _replica_lines(status: Status) -> Iterator[str]:
    """Yield the number of replicas by status if there are several, and why one is not ready."""
    state = status.machine
    if state is None or not state.replicas or len(status.replicas) < 2:  # noqa: PLR2004 -- more than one replica
        return
    revisions = dict.fromkeys(item.revision for item in status.replicas)
    for title, revision in zip(("replicas", *[""] * len(revisions)), revisions, strict=False):
        counts = Counter(item.status for item in status.replicas if item.revision == revision)
        of = f" of revision {revision}" if len(revisions) > 1 else ""
        yield f"  {title:<9} {', '.join(f'{number} {word}' for word, number in counts.items())}{of}"
    if state.why:
        yield f"            {printable(state.why)}"


def _autoscaler_lines(status: Status) -> Iterator[str]:
    """Yield the autoscaler's range and its problem, if it has one."""
    found = status.autoscaler
    if found is not None:
        yield f"  scaling   {found.least} to {found.most} replicas, with the load, by {found.id}"
        if found.problem:
            yield f"            it does not work: {printable(found.problem)}"
        if found.latest:
            yield wrapped(f"last: {printable(found.latest)}", first=" " * 12, rest=" " * 12)


def _cost_words(status: Status) -> str:
    """Return the current hourly price, and the total spent under this name."""
    estimated = status.deployment is not None and status.deployment.estimated
    total = status.spent.usd if status.spent else None
    so_far = f"; {usd_spent(total, estimated=estimated)} so far" if total else ""
    if status.missing and not status.usd_per_hour:
        return f"nothing now: no running machine{so_far}"
    price = status.usd_per_hour
    stopped = " for its disk" if status.stopped else " without a machine" if status.missing else ""
    most = "at most " if status.recorded is not None and status.recorded.current.any_pool else ""
    if price is None:
        return "-"
    if status.recorded is not None and status.recorded.usd_per_hour is None and not status.missing:
        return f"{hourly(status.recorded)}, by the plan"
    date = status.deployment.price_dated if status.deployment is not None and price else ""
    return f"{most}{usd(price, estimated=estimated)} an hour{stopped}{f' ({date})' if date else ''}{so_far}"


def status_text(status: Status, *, alone: bool = False) -> str:
    """Return a status as lines. `alone` leaves out the next step, because the error includes it."""
    recorded, probe, url = status.recorded, status.probe, status.url
    lines = [heading(printable(status.name), _standing(status)), *_runs_lines(status)]
    if recorded is not None:
        lines.append(f"  revision  {_revision_words(status, recorded)}")
    lines.extend(_replica_lines(status))
    lines.extend(_autoscaler_lines(status))
    if url is not None:
        answer = "not checked: no running machine" if probe is None else str(probe)
        lines.append(f"  endpoint  {url}  {answer}")
        if status.tunneled:
            how = f"'tgi-deploy open {printable(status.name)}' prints how to connect"
            lines.append(f"  tunnel    the URL needs one: {how}")
    if message := status.unencrypted:
        lines.append(wrapped(message, first="  traffic   ", rest=" " * 12))
    if status.starting is not None and (status.starting.phase != "ready" or status.starting.exit_code is not None):
        lines.append(f"  start     {_starting(status.starting, status.name)}")
    lines.append(f"  cost      {_cost_words(status)}")
    if not status.missing:
        lines.extend(f"  ends      {line}" for line in ends_lines(status.ends))
    if status.spot_notice is not None:
        lines.append(f"  spot      {status.spot_notice}")
    lines.extend(f"  owner     {printable(owner)}" for owner in status.owners)
    lines.extend(f"  resource  {found.kind} {found.id} {found.state} in {found.place}" for found in status.seen)
    # The first line already shows that there is no record.
    drift = (item for item in status.drift if recorded is not None or item.code != "unrecorded")
    lines.extend(f"  drift     {one_line(item.message)}" for item in drift)
    if not alone and (problem := status.failure):
        lines.append(f"  next      {problem.hint}")
    return "\n".join(lines)


def _revision_words(status: Status, recorded: Deployment) -> str:
    """Return the number of the running revision, and the state of an unfinished update."""
    current, rollout = recorded.current, recorded.rollout
    if rollout is None:
        return f"{current.number}, {current.state}"
    if status.two_revisions:
        begun = f"the update from revision {rollout.source} is not finished"
        return f"{current.number}, {current.state}; {begun}: {status.two_revisions}"
    if rollout.stage == "promoted":
        old = f"the machine of revision {rollout.source} is still running: 'up' removes it"
        return f"{current.number}, {current.state}; {old}"
    stage = "serves" if recorded.rolling else "is being removed" if rollout.stage == "ending" else "is removed"
    back = f"; 'tgi-deploy rollback {recorded.name}' goes back to {rollout.source}" if rollout.source else ""
    return (
        f"{current.number}; an update to {rollout.destination} is not finished, the old machine {stage}: "
        f"the same 'up' resumes it{back}"
    )


def _starting(starting: Starting, name: str) -> str:
    words = starting.phase.replace("_", " ")
    if starting.exit_code is not None:
        why = f": {starting.cause}" if starting.cause else ""
        return f"{words}: the engine exited{why}; 'tgi-deploy diagnose {name}' finds the cause"
    return f"{words}: {starting.detail}" if starting.detail else words


def rows_text(rows: Sequence[Row]) -> str:
    header = ("name", "now", "model", "machine", "region", "$/h", "endpoint", "ends")
    cells = [
        (
            printable(row.name),
            row.now if row.recorded else f"{row.now}, no record",
            (row.model or "-").rpartition("/")[2],
            row.instance_type or "-",
            row.region,
            "-" if row.missing and not row.usd_per_hour else usd(row.usd_per_hour, estimated=row.estimated),
            row.endpoint or "-",
            "-" if row.missing else ends_cell(row.ends),
        )
        for row in rows
    ]
    return table(header, cells, right=frozenset({5})) + prices_line(rows)


def access_text(access: AccessData) -> str:
    return "\n".join(
        (
            access.url,
            "",
            *([f"first   {access.first}"] if access.first else []),
            f"curl    {access.curl}",
            f'python  python3 -c "{access.python}"',
            *([f"sha256  {access.certificate} of its certificate"] if access.certificate else []),
            *([f"tunnel  {access.tunnel}"] if access.tunnel else []),
            *(["", wrapped(access.unencrypted, first="", rest="")] if access.unencrypted else []),
        )
    )
