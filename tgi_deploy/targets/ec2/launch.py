"""Launches a plan on EC2: zone by zone, then fallback by fallback, never two machines at once."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.catalog.store import Store
from tgi_deploy.errors import DeployError, InputError, NotHealthyError, warning
from tgi_deploy.reconcile.diff import diff
from tgi_deploy.reconcile.ends import expiry, is_under_way
from tgi_deploy.reconcile.errors import NoCapacityError, QuotaError
from tgi_deploy.reconcile.retry import polls
from tgi_deploy.targets.ec2.artifacts import USER_DATA, render_artifact
from tgi_deploy.targets.ec2.extras import make_extras
from tgi_deploy.targets.ec2.launch_data import launch_template_data
from tgi_deploy.targets.ec2.preflight import launch_findings, launch_of, launches
from tgi_deploy.targets.ec2.quota import counts_vcpus, headroom, quota_code, with_headrooms
from tgi_deploy.targets.ec2.resources import GROUP, INSTANCE, Machine, pool_name, resources
from tgi_deploy.targets.ec2.security_group import SIGNED
from tgi_deploy.targets.protocol import Attempt, Deployable, NetworkChange
from tgi_deploy.values.base import replaced
from tgi_deploy.values.ends import Ends, Spent, spent_words
from tgi_deploy.values.serving import CERTIFICATE_NOTE, UNREAD, Traffic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tgi_deploy.errors import Problem
    from tgi_deploy.targets.certificate import OwnCertificate
    from tgi_deploy.targets.ec2.options import Ec2Options
    from tgi_deploy.targets.ec2.pools import PoolMemory
    from tgi_deploy.targets.ec2.region import MachineImage, Placement, Region
    from tgi_deploy.targets.ec2.secrets import Secrets
    from tgi_deploy.targets.ec2.survey import Survey
    from tgi_deploy.targets.protocol import LaunchRequest, Look, TargetContext
    from tgi_deploy.values.deployment import Deployment
    from tgi_deploy.values.ends import LaunchLimits, WantedEnds
    from tgi_deploy.values.plan import Candidate, Plan
    from tgi_deploy.values.resource import Found
    from tgi_deploy.values.serving import Reach

_MISSING_GRACE_S: Final = 60.0
# Errors of one region: fallbacks in other regions are still tried.
_NOT_IN_REGION: Final = frozenset({"no_machine_image", "unknown_subnet", "no_default_subnet"})
ENGINE_ARCHITECTURE: Final = "x86_64"


@dataclass(frozen=True, kw_only=True, slots=True)
class Ec2Launch:
    """`cidrs` are the networks that may connect. `tunnel_problem` is from `Ec2Target.tunnel_problem`."""

    context: TargetContext
    request: LaunchRequest
    spent: Callable[[Deployment], Spent]
    secrets: Secrets
    cidrs: tuple[str, ...]
    region: Callable[[str], Region]
    survey: Survey | None
    pools: PoolMemory
    certificate: OwnCertificate | None = None
    tunnel_problem: Callable[[], str] | None = None
    images: dict[str, MachineImage] = field(default_factory=dict)

    @property
    def plan(self) -> Plan:
        return self.request.plan

    @property
    def options(self) -> Ec2Options:
        options: Ec2Options = self.request.options
        return options

    @property
    def ends(self) -> WantedEnds:
        return self.request.ends

    @property
    def place(self) -> str:
        return self.plan.chosen.offer.region

    @property
    def traffic(self) -> Traffic:
        reach: Reach = "loopback" if self.context.loopback or self.options.tunnel else "public"
        return Traffic(
            reach=reach, api_key=self.secrets.api_key is not None, encrypted=self._encrypts(self.options.plaintext)
        )

    def _encrypts(self, plaintext: bool) -> bool:  # noqa: FBT001 -- of the options or of the record
        """Return whether its machine answers over TLS. Traffic to a sandbox's machine never leaves this computer."""
        return self.options.secured.encrypted or not (plaintext or self.options.tunnel or self.context.loopback)

    @property
    def plaintext(self) -> bool:
        return self.options.plaintext

    @property
    def tls(self) -> bool:
        return self.options.tls

    @property
    def marks(self) -> Mapping[str, Any]:
        wanted = {"api_key": self.secrets.api_key is not None, "external_ttl": self.options.external_ttl}
        extras = {"extras": wanted} if any(wanted.values()) else {}
        named = {name: True for name in ("static_ip", "tunnel") if getattr(self.options, name)}
        own = {"certificate": self.certificate.shown.sha256} if self.certificate else {}
        return {**extras, **named, **own}

    @property
    def rare_kinds(self) -> bool:
        return self.secrets.makes or self.options.external_ttl

    def attempts(self, look: Look) -> Iterator[Attempt]:
        """Yield the attempts. Raises NoCapacityError or QuotaError after the last; other errors immediately."""
        for candidate, placement in self._in_order(*look()):
            yield self._attempt(*look(), candidate, placement)
        raise self._exhausted()

    def address(self, deployment: Deployment, *, pool: str) -> str:
        """Wait until the machine runs. Raises the error for the reason if it dies first."""
        record = deployment.machine
        if record is None:
            raise ValueError("the record has no machine")
        region, state = self.region(record.place), "missing"
        for waited_s in polls(self.context.clock, self.context.pace.running):
            machine = region.machine(record.attributes["id"])
            state = machine.state
            if state == "running" and machine.address:
                return machine.address
            if state != "missing" or waited_s > _MISSING_GRACE_S:
                region.check_death(machine, pool=pool)
        raise NotHealthyError(
            "not_running",
            f"the machine {record.attributes['id']} is {state} after {self.context.pace.running.deadline_s:.0f} s",
            hint=f"'tgi-deploy down {deployment.name}' removes it, 'tgi-deploy up' keeps waiting",
        )

    def refused(self, attempt: Attempt, error: NoCapacityError | QuotaError) -> None:
        if isinstance(error, NoCapacityError):
            self._no_capacity(attempt, error)
        else:
            self._no_quota(attempt, error)

    def networks(self, seen: Sequence[Found]) -> NetworkChange:
        named, groups = self.options.networks, _groups(seen)
        known = {cidr for group in groups for cidr in group.attributes.get("cidrs", "").split()}
        own = {cidr for group in groups for cidr in group.attributes.get(SIGNED, "").split()}
        added = tuple(cidr for cidr in named if cidr not in known)
        closes = bool(named) or self.options.tunnel
        return NetworkChange(added=added, removed=tuple(sorted(own - set(named))) if closes else ())

    def change_networks(self, seen: Sequence[Found], change: NetworkChange) -> None:
        for group in _groups(seen):
            properties = {"port": self.plan.request.port, "cidrs": change.added, "revoked": change.removed}
            self.region(group.place).handler(GROUP).update(group.attributes, properties)

    def preflight(self, attempt: Attempt, tags: Mapping[str, str]) -> tuple[Problem, ...]:
        """Return no findings if no machine would be created or the account can't be read."""
        if self.survey is None or not launches(attempt):
            return ()
        return launch_findings(
            self.survey,
            self.plan,
            launch_of(attempt, tags),
            token_parameter=self.secrets.hub_token_parameter,
            tunnel_problem=self.tunnel_problem,
        )

    def _in_order(self, deployment: Deployment, seen: Sequence[Found]) -> Iterator[tuple[Candidate, Placement]]:
        """Yield the (candidate, placement) pairs to try: first those where a machine may exist, then the best ones."""
        begun = begun_pools(deployment, seen)
        candidates = sorted(
            (self.plan.chosen, *self.plan.fallbacks),
            key=lambda candidate: (
                not any(pool_of(candidate, pool) for pool in begun),
                not _is_recorded(candidate, deployment),
            ),
        )
        earlier = {pool: why for pool, why in self.pools.earlier().items() if pool not in begun}
        later: list[tuple[Candidate, Placement]] = []
        for candidate in candidates:
            for placement in self._placements(candidate, begun):
                pool = pool_name(candidate, placement.zone)
                if pool in earlier:
                    self._note(pool, f"{pool}: {earlier[pool]}; skipped for now")
                    later.append((candidate, placement))
                elif self._is_open(candidate, placement):
                    yield candidate, placement
        if later:
            self._note("later", "no other pools are left: retrying those that had no capacity")
        yield from (item for item in later if self._is_open(*item))

    def _is_open(self, candidate: Candidate, placement: Placement) -> bool:
        pool = pool_name(candidate, placement.zone)
        return _family(candidate) not in self.pools.families and not self.pools.is_out(pool)

    def _note(self, what: str, text: str) -> None:
        """Print a note once per run: the pools are listed both before and after the confirmation."""
        if what not in self.pools.noted:
            self.pools.noted.add(what)
            self.context.reporter.note(text)

    def _placements(self, candidate: Candidate, begun: Sequence[str]) -> list[Placement]:
        offer = candidate.offer
        try:
            found = self._region(candidate).placements(offer.instance_type.name, subnet=self.options.subnet)
            self._image(candidate)
        except NoCapacityError:
            self.pools.unusable(pool_name(candidate, "*"), "not offered in any zone with a subnet")
            return []
        except DeployError as error:
            if offer.region == self.place or error.code not in _NOT_IN_REGION:
                raise
            self.pools.unusable(pool_name(candidate, "*"), error.message)
            return []
        return sorted(found, key=lambda place: pool_name(candidate, place.zone) not in begun)

    def _region(self, candidate: Candidate) -> Region:
        return self.region(candidate.offer.region)

    def _attempt(
        self, deployment: Deployment, seen: Sequence[Found], candidate: Candidate, placement: Placement
    ) -> Attempt:
        """Return the attempt. A machine that exists or is being created keeps its end: new limits don't replace it."""
        if any(found.is_machine and found.alive for found in seen):
            attempt = self._built(deployment, seen, candidate, placement, deployment.ends)
            if not _replaces_a_machine(attempt):
                return attempt
        ceiling = self.ends.max_spend_usd
        spent = Spent() if ceiling is None else self.spent(deployment)
        if ceiling is not None and is_under_way(deployment, seen, self.context.clock):
            before = replaced(spent, usd=deployment.ends.spent_before_usd or Decimal(0))
            with suppress(InputError):
                attempt = self._attempt_after(before, deployment, candidate, placement, seen)
                if attempt.ends.ttl_s == deployment.ends.ttl_s and not _replaces_a_machine(attempt):
                    return attempt
        if ceiling is not None and spent.usd:
            self._note("spent", spent_words(spent, ceiling))
        return self._attempt_after(spent, deployment, candidate, placement, seen)

    def _attempt_after(
        self, spent: Spent, deployment: Deployment, candidate: Candidate, placement: Placement, seen: Sequence[Found]
    ) -> Attempt:
        asked_s = self.ends.ttl_s
        ttl_s = self.ends.seconds(deployment.name, candidate.cost.usd_per_hour, spent)
        expires = expiry(deployment, ttl_s, seen, self.context.clock)
        own = None if expires is None or asked_s is None else expires + timedelta(seconds=asked_s - (ttl_s or asked_s))
        ends = Ends(
            ttl_s=ttl_s,
            expires_at=expires,
            max_spend_usd=self.ends.max_spend_usd,
            spent_before_usd=None if self.ends.max_spend_usd is None else spent.usd,
            idle_s=self.ends.idle_s,
            lease_s=self.ends.lease_s,
            asked_ttl_s=asked_s,
            ttl_until=own,
        )
        return self._built(deployment, seen, candidate, placement, ends)

    def _built(
        self, deployment: Deployment, seen: Sequence[Found], candidate: Candidate, placement: Placement, ends: Ends
    ) -> Attempt:
        image = self._image(candidate)
        outside = self.options.external_ttl
        extras = make_extras(self.secrets, deployment, candidate.offer.region, ends.expires_at, end_outside=outside)
        encrypts = self._encrypts(deployment.plaintext)
        deployable = replaced(
            self._deployable(deployment.name, candidate, image, ends.first),
            tls_image=tls_image() if encrypts else None,
            certificate=self.certificate.pem if self.certificate else None,
            certificate_key_parameter=self.secrets.certificate_key_parameter,
            tunneled=self.options.tunnel,
            **extras.names,
        )
        user_data = render_artifact(USER_DATA, deployable, templates_dir=self.context.templates_dir)
        machine = Machine(
            name=deployment.name,
            revision=deployment.wanted.number,
            candidate=candidate,
            data=launch_template_data(deployable, user_data=user_data.text, root_device_name=image.root_device),
            placement=placement,
            image=image,
            cidrs=self.cidrs,
            static_ip=self.options.static_ip,
            before=extras.before,
            after=extras.after,
            notes={**extras.notes, **(self._certificate_notes if encrypts else {})},
        )
        wanted = resources(machine)
        return Attempt(
            candidate=candidate,
            place=candidate.offer.region,
            pool=machine.pool,
            zone=placement.zone,
            cidrs=machine.cidrs,
            wanted=wanted,
            changes=diff(wanted, deployment.resources, seen),
            ends=ends,
            artifacts=((user_data.file_name, user_data.text),),
        )

    @property
    def _certificate_notes(self) -> Mapping[str, str]:
        return self.certificate.shown.notes if self.certificate else {CERTIFICATE_NOTE: UNREAD}

    def _image(self, candidate: Candidate) -> MachineImage:
        region = candidate.offer.region
        if region not in self.images:
            self.images[region] = self._region(candidate).image(
                architecture=ENGINE_ARCHITECTURE, wanted=self.options.ami
            )
        return self.images[region]

    def _deployable(self, name: str, candidate: Candidate, image: MachineImage, made_with: LaunchLimits) -> Deployable:
        return Deployable(
            name=name,
            candidate=candidate,
            model=self.plan.request.model,
            log_filter=self.context.log_grammar(candidate.engine.name).log_filter,
            ttl_s=made_with.ttl_s,
            idle_s=made_with.idle_s,
            lease_s=made_with.lease_s,
            region=candidate.offer.region,
            image_id=image.id,
            ready_deadline_s=self.context.ready_deadline_s(candidate),
        )

    def _no_capacity(self, attempt: Attempt, error: NoCapacityError) -> None:
        why = error.cause or error.message
        self.pools.failed(attempt.pool, why)
        self.context.reporter.warn(warning("no_capacity", f"{attempt.pool}: {why}; trying the next"))

    def _no_quota(self, attempt: Attempt, error: QuotaError) -> None:
        family = _family(attempt.candidate)
        why = error.cause or error.message
        room = headroom(self.survey, attempt.candidate) if counts_vcpus(error.cause) else None
        self.pools.no_quota(family, why, room)
        advice = f"; {room.text()}; request an increase: {room.command}" if room is not None else ""
        message = f"{family}: {why}{advice}; trying another family or market"
        self.context.reporter.warn(warning("quota_exceeded", message))

    def _exhausted(self) -> NoCapacityError | QuotaError:
        tried = "; ".join(f"{pool} {why}" for pool, why in self.pools.why())
        only_quota = self.pools.families and not self.pools.failures
        error: NoCapacityError | QuotaError
        if only_quota:
            message = f"launching {self.plan.chosen.offer.instance_type.name}: quota exceeded ({tried})"
            error = QuotaError(message, hint="allow more regions or markets")
        else:
            error = NoCapacityError(
                f"no capacity in any of the plan's pools: {tried or 'no zone has a subnet for them'}"
            )
        return with_headrooms(error, tuple(self.pools.rooms.values()))


def tls_image() -> str:
    """Return the proxy that answers over TLS on a machine."""
    named = Store.behind().json("aws/tls.json")
    return f"{named['image']}@{named['digest']}"


def _groups(seen: Sequence[Found]) -> tuple[Found, ...]:
    return tuple(found for found in seen if found.kind == GROUP and found.alive)


def _replaces_a_machine(attempt: Attempt) -> bool:
    """Return whether a machine will be deleted and none kept."""
    actions = {step.action for step in attempt.changes.steps if step.kind == INSTANCE}
    return "delete" in actions and not actions & {"keep", "adopt"}


def begun_pools(deployment: Deployment, seen: Sequence[Found]) -> list[str]:
    """Return the pools in which a machine of this deployment exists or, by the record, may exist.

    While the recorded machine is alive, only its pool: a plan for another pool would replace it.
    """
    record = deployment.machine_at(deployment.wanted.number)
    machines = [found for found in seen if found.kind == INSTANCE and found.alive]
    recorded = [found for found in machines if record is not None and found.id == record.attributes.get("id")]
    pools = [
        "/".join((found.place, *(found.attributes[name] for name in ("zone", "instance_type", "market"))))
        for found in recorded or machines
    ]
    if record is not None and record.state == "intent" and "pool" in record.notes:
        pools.append(record.notes["pool"])
    return pools


def pool_of(candidate: Candidate, pool: str) -> bool:
    """Return whether `pool` is one of the candidate's."""
    region, zone, *_ = pool.split("/")
    return candidate.offer.region == region and pool_name(candidate, zone) == pool


def _is_recorded(candidate: Candidate, deployment: Deployment) -> bool:
    """Return whether the record names this candidate as the last one tried."""
    if deployment.plan is None:
        return False
    recorded, offer = deployment.plan.chosen, candidate.offer
    return (recorded.instance_type, recorded.region, recorded.market, recorded.num_shard, recorded.quantize) == (
        offer.instance_type.name, offer.region, offer.market, candidate.num_shard, candidate.quantize
    )  # fmt: skip


def _family(candidate: Candidate) -> str:
    """Return the key of a quota: the region, and the quota's code (or the type's family if unknown)."""
    offer = candidate.offer
    named = quota_code(candidate) or f"{offer.instance_type.name.partition('.')[0]} {offer.market}"
    return f"{offer.region}/{named}"
