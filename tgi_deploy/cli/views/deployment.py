"""Formats deployments, change sets and removals as text of at most 100 columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tgi_deploy.cli.views.ends import terms
from tgi_deploy.cli.views.text import accelerated, heading, wrapped
from tgi_deploy.text import count, dated, duration, one_line, plural, usd
from tgi_deploy.values.supply import is_added, usd_per_month

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tgi_deploy.api import Proof, Proposal, Removal, Resizing, Update, UpOutcome
    from tgi_deploy.values.deployment import Deployment
    from tgi_deploy.values.request import Request
    from tgi_deploy.values.resource import ChangeSet

_SIGNS: Final = {"create": "+", "adopt": "~", "keep": " ", "delete": "-", "start": "~"}
# Codes of changes to a machine that stays.
_IN_PLACE: Final = frozenset({"limits_moved", "networks_changed", "replicas_changed"})


def changes_text(changes: ChangeSet) -> str:
    return "\n".join(
        " ".join(filter(None, (f"  {_SIGNS[step.action]}", step.kind, step.attributes.get("id"), f"({step.reason})")))
        for step in changes.steps
    )


def proposal_text(proposal: Proposal, request: Request | None = None) -> str:
    """Return the proposed changes, the `request` that they are for, and their cost."""
    if proposal.unfinished is not None:
        said = f"{proposal.unfinished.message}; {proposal.unfinished.hint}"
        return f"{heading(f'{proposal.deployment.name}: an unfinished update')}\n{wrapped(said)}"
    if proposal.resizing is not None:
        return _resizing_text(proposal, proposal.resizing)
    if proposal.changes_networks_alone:
        head = heading(f"{proposal.deployment.name}: who may connect")
        return f"{head}\n{changes_text(proposal.changes)}"
    if proposal.ends_surplus_alone:
        return _surplus_text(proposal)
    if [step.action for step in proposal.changes.steps] == ["start"]:
        return _start_text(proposal)
    from tgi_deploy.cli.views.plan import credits_lines, interruptions_text  # noqa: PLC0415 -- status needs no plan

    offer, cost = proposal.candidate.offer, proposal.candidate.cost
    owned = offer.market == "owned"
    update = () if proposal.update is None else (update_text(proposal.update),)
    lines = [
        heading(f"{proposal.deployment.name}: {offer.instance_type.name} in {proposal.zone} ({offer.market})"),
        *(_service_lines(proposal, request) if request else ()),
        *update,
        changes_text(proposal.changes),
        f"  published on {proposal.cidrs[0]}" if owned and proposal.cidrs else f"  reachable {_who(proposal)}",
        _price_line(proposal),
        *credits_lines(proposal.credits, cost.usd_per_hour),
        interruptions_text(proposal.interruptions, first="  "),
    ]
    return "\n".join(filter(None, lines))


def _price_line(proposal: Proposal) -> str:
    """Return the price with its date, and how long it is paid."""
    offer, price = proposal.candidate.offer, proposal.candidate.cost.usd_per_hour
    if offer.market == "owned" and not is_added(offer):
        return "  no price: it runs on your own hardware; only 'down' removes the deployment"
    end = terms(proposal.ends) or f"about {usd(usd_per_month(price))} a month if it keeps running"
    date = offer.price_date and f" ({dated(offer.price_date, estimated=offer.estimated)})"
    what = "new nodes" if is_added(offer) else "everything"
    return f"  {usd(price, estimated=offer.estimated)} an hour for {what}{date}; {end}"


def _resizing_text(proposal: Proposal, resizing: Resizing) -> str:
    """Return how many replicas there will be, who may connect if that changes, and what machines are added for it."""
    lines = [
        heading(f"{proposal.deployment.name}: number of replicas"),
        f"  replicas  {resizing.before.words} -> {resizing.after.words}",
        changes_text(proposal.changes),
    ]
    room = resizing.headroom
    if room.added_usd_per_hour:
        date = room.price_date and f" ({dated(room.price_date, estimated=room.estimated)})"
        lines.append(f"  up to {usd(room.added_usd_per_hour, estimated=room.estimated)} an hour more{date}")
    return "\n".join(filter(None, lines))


def _who(proposal: Proposal) -> str:
    return f"from {', '.join(proposal.cidrs)}" if proposal.cidrs else proposal.reached


def _service_lines(proposal: Proposal, request: Request) -> Iterator[str]:
    """Yield the model and its machine, and the predicted performance."""
    from tgi_deploy.cli.views.plan import accelerators_of, precision  # noqa: PLC0415 -- status needs no plan

    candidate = proposal.candidate
    speed, settings = candidate.performance, candidate.engine.settings
    yield (
        f"  runs      {one_line(request.model.model.hub_id)} on {accelerators_of(candidate)}, {precision(candidate)},"
        f" {count(settings.max_total_tokens)} tokens of context"
    )
    yield (
        f"  expected  first token {count(speed.ttft_ms)} ms, {count(speed.output_tokens_per_s)} tokens/s at"
        f" {plural(request.concurrency, 'request')} at once; ready in about {duration(proposal.ready_s)}"
    )


def update_text(update: Update) -> str:
    """Return what the update changes, and how it affects clients."""
    how = (
        "the old machine is removed before the new one starts"
        if update.strategy == "recreate"
        else f"{plural(update.at_a_time, 'replica')} at a time"
        if update.at_a_time
        else "side by side, then the old one is removed"
    )
    rows = [f"  {what:<9} {before} -> {after}" for what, before, after in update.rows]
    notices = _recreating(update) if update.strategy == "recreate" else _rolling(update)
    return "\n".join((f"  update    revision {update.source} -> {update.destination}: {how}", *rows, *notices))


def _recreating(update: Update) -> Iterator[str]:
    yield f"  requests  in-flight ones have {duration(update.drain_s)} to finish; new ones are refused from then on"
    yield f"  downtime  about {duration(update.downtime_s)} after that, until the new one is verified"
    if update.stable:
        yield "  address   stays: the new machine has it once it is verified"


def _rolling(update: Update) -> Iterator[str]:
    """Yield the effects on clients: the URL is that of a proxy, which stays, or that of the new machine."""
    costs = "" if update.extra_usd is None else f": about {usd(update.extra_usd)}"
    more = plural(update.at_a_time, "more replica") if update.at_a_time else "a second machine"
    yield f"  extra     {more} for about {duration(update.overlap_s)}{costs}"
    if update.downtime_s:
        yield "  address   stays: it moves to the new machine once that is verified and the old one has drained"
        yield f"  downtime  new requests are refused for up to {duration(update.downtime_s)}, while the old one drains"
    elif update.stable:
        yield wrapped(f"no requests are refused: {update.moves}", first="  front     ", rest=" " * 12)
    else:
        yield "  address   changes once the new machine is verified; the old one refuses new requests from then on"
        yield "            (with --static-ip it stays in later updates)"
    yield f"  requests  in-flight ones have {duration(update.drain_s)} to finish"


def _start_text(proposal: Proposal) -> str:
    deployment = proposal.deployment
    price = hourly(deployment) or "no price: it runs on your own hardware"
    return "\n".join((heading(f"{deployment.name}: start it again"), changes_text(proposal.changes), f"  {price}"))


def hourly(deployment: Deployment) -> str:
    """Return the price an hour with its date; empty for none."""
    price, date = deployment.billed_usd_per_hour, deployment.price_dated
    what = " for new nodes" if deployment.usd_per_hour is None else ""
    when = f" ({date})" if date else ""
    return "" if price is None else f"{usd(price, estimated=deployment.estimated)} an hour{what}{when}"


def _surplus_text(proposal: Proposal) -> str:
    """Return which machine is removed and what that saves; the serving machine stays."""
    deployment, surplus = proposal.deployment, proposal.surplus
    return "\n".join(
        (
            heading(f"{deployment.name}: {plural(len(surplus), 'machine')} too many"),
            changes_text(proposal.changes),
            f"  {usd(proposal.surplus_usd_per_hour)} an hour less; the recorded machine stays",
        )
    )


def up_text(outcome: UpOutcome, request: Request | None = None) -> str:
    deployment = outcome.deployment
    if outcome.declined:
        done = "the earlier update is finished, and nothing else" if outcome.changed else "nothing"
        return f"declined: {done} was changed"
    if not outcome.changed and outcome.proposal is not None:
        return f"{proposal_text(outcome.proposal, request)}\n\ndry run: nothing was changed"
    if not outcome.changed:
        what = "its machine stays" if _IN_PLACE & {item.code for item in outcome.remarks} else "nothing to do"
        return f"{deployment.name} is {deployment.status} at {deployment.endpoint}: {what}"
    lines = [f"{deployment.name} is {deployment.status} at {deployment.endpoint}"]
    if outcome.proof is not None:
        lines.extend(proof_lines(outcome.proof))
    if outcome.refused_s is not None:
        lines.append(
            f"  new requests were refused for {duration(outcome.refused_s)}; in-flight ones had time to finish"
        )
    update = outcome.proposal.update if outcome.proposal else None
    if update is not None and update.strategy == "rolling" and not update.stable:
        grace = duration(update.drain_s)
        lines.append(f"  the address has changed; in-flight requests at the old one had {grace} to finish")
    price = hourly(deployment) or "it keeps running on your own hardware"
    end = terms(deployment.ends)
    lines.append(f"  {price} until 'tgi-deploy down {deployment.name}'" + (f"; {end}" if end else ""))
    return "\n".join(lines)


def proof_lines(proof: Proof) -> Iterator[str]:
    yield f"  it answered {proof.served.answer!r}"
    if proof.under_load is None:
        return
    measured = proof.under_load.measured
    line = f"  {plural(measured.requests, 'request')} at once"
    if measured.first_token_ms is not None and measured.output_tokens_per_s is not None:
        line += (
            f": first token after {count(measured.first_token_ms)} ms, {count(measured.output_tokens_per_s)} tokens/s"
        )
    yield f"{line}{accelerated()}; the longest planned prompt was answered"


def removals_text(removals: Sequence[Removal]) -> str:
    blocks = []
    for removal in removals:
        attached = [found for found in removal.seen if found.attached]
        more = f"\n  - {plural(len(attached), 'attached resource')}" if attached else ""
        steps = changes_text(removal.changes) or "  - its record: it has no other resources"
        stays = "".join(f"\n    {kept} stays: --volumes removes it unless others use it" for kept in removal.kept)
        begun = f"created by {', '.join(removal.owners)}" if removal.owners else ""
        blocks.append(f"{heading(removal.name, begun)}\n{steps}{more}{stays}")
    return "\n".join(blocks)
