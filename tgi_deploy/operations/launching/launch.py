"""From a plan to a running machine: zone by zone, then fallback by fallback, never two at once."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from tgi_deploy.errors import DeployError, InputError, NotHealthyError, warning
from tgi_deploy.operations.artifacts import Deployable, launch_template_data, render
from tgi_deploy.operations.launching.attempt import (
    Attempt,
    described,
    expiry,
    is_under_way,
    seconds_left,
    spent_words,
)
from tgi_deploy.operations.launching.extras import make_extras
from tgi_deploy.operations.launching.quota import counts_vcpus, headroom, quota_code, with_rooms
from tgi_deploy.operations.launching.traffic import Traffic
from tgi_deploy.operations.planning.documents import choice
from tgi_deploy.planner.time_to_ready import ready_deadline_s
from tgi_deploy.reconcile.claim import own
from tgi_deploy.reconcile.clocks import may_be_new
from tgi_deploy.reconcile.diff import diff
from tgi_deploy.reconcile.ends import Spent
from tgi_deploy.reconcile.errors import NoCapacityError, QuotaError
from tgi_deploy.reconcile.observe import observe
from tgi_deploy.reconcile.retry import looks
from tgi_deploy.targets.ec2.resources import INSTANCE, NAME, Machine, pool_name, resources
from tgi_deploy.targets.ec2.secrets import SecretWishes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tgi_deploy.operations.context import Context
    from tgi_deploy.operations.launching.pools import PoolMemory
    from tgi_deploy.operations.launching.traffic import Reach
    from tgi_deploy.reconcile.model import Deployment, Found, MachineImage, Placement
    from tgi_deploy.reconcile.ports import Cloud
    from tgi_deploy.values.plan import Candidate, Plan
    from tgi_deploy.values.plan_document import Choice

_MISSING_GRACE_S: Final = 60.0
# What a region lacks: fallbacks in another one go on without it.
_NOT_IN_REGION: Final = frozenset({"no_machine_image", "unknown_subnet", "no_default_subnet"})
ENGINE_ARCHITECTURE: Final = "x86_64"


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchSettings:
    """What only a launch needs. `lifetime_s` gives seconds to live at a price an hour, None for ever.

    `max_spend_usd` is the ceiling for all machines of the name together. `plaintext`: an API key may travel unencrypted
    to a public address.
    """

    lifetime_s: Callable[[Decimal], int | None]
    cidrs: tuple[str, ...]
    subnet: str | None = None
    ami: str | None = None
    secrets: SecretWishes = field(default_factory=SecretWishes)
    external_ttl: bool = False
    idle_s: int | None = None
    lease_s: int | None = None
    plaintext: bool = False
    max_spend_usd: Decimal | None = None

    @property
    def hub_token_parameter(self) -> str | None:
        """The one that exists already, if any."""
        return self.secrets.hub_token.parameter if self.secrets.hub_token else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Launcher:
    """`spent` gives what a name's machines have cost so far."""

    context: Context
    plan: Plan
    settings: LaunchSettings
    pools: PoolMemory
    spent: Callable[[Deployment], Spent] = lambda _deployment: Spent()
    images: dict[str, MachineImage] = field(default_factory=dict)

    @property
    def target(self) -> str:
        return NAME

    @property
    def place(self) -> str:
        return self.plan.chosen.offer.region

    @property
    def traffic(self) -> Traffic:
        abroad: Reach = "public" if self.plan.request.public_ipv4 else "private"
        reach: Reach = "loopback" if self.context.loopback else abroad
        return Traffic(reach=reach, api_key=self.settings.secrets.api_key is not None)

    def address(self, deployment: Deployment) -> str:
        return await_running(self.context, deployment, pool="")

    def first(self, deployment: Deployment, seen: Sequence[Found]) -> Attempt:
        """The attempt that `launch` would begin with. Raises NoCapacityError when there is no place at all."""
        for candidate, placement in self._ladder(deployment, seen):
            return self._attempt(deployment, candidate, placement, seen)
        raise self._exhausted()

    def launch(self, deployment: Deployment) -> tuple[Deployment, Candidate]:
        """Carry out attempts until a machine runs; the deployment as recorded, and what was launched.

        Raises NoCapacityError or QuotaError when every pool has been tried; what stops at once is raised as it is.
        """
        executor = self.context.executor()
        seen = self._observe(deployment)
        for candidate, placement in self._ladder(deployment, seen):
            attempt = self._attempt(deployment, candidate, placement, self._observe(deployment))
            deployment = executor.save(described(deployment, attempt, self.plan, self.context.clock))
            for file_name, text in attempt.artifacts:
                self.context.store.save_artifact(deployment.name, file_name, text)
            try:
                deployment = executor.execute(deployment, attempt.changes)
                await_running(self.context, deployment, pool=attempt.pool)
            except NoCapacityError as error:
                self._no_capacity(attempt, error)
            except QuotaError as error:
                self._no_quota(attempt, error)
            else:
                return executor.save(replace(deployment, phase="running")), candidate
            deployment = self.context.store.load(deployment.name) or deployment
        raise self._exhausted()

    def _observe(self, deployment: Deployment) -> tuple[Found, ...]:
        seen = observe(deployment.name, deployment, cloud=self.context.cloud, places=deployment.places)
        return own(seen, deployment.id)

    def _ladder(self, deployment: Deployment, seen: Sequence[Found]) -> Iterator[tuple[Candidate, Placement]]:
        """Every (candidate, zone) worth a try, best first; where something may exist already comes before all."""
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
                    self._tell(pool, f"{pool}: {earlier[pool]}; skipped for now")
                    later.append((candidate, placement))
                elif self._is_open(candidate, placement):
                    yield candidate, placement
        if later:
            self._tell("later", "nothing else is left: trying what had no capacity a moment ago")
        yield from (item for item in later if self._is_open(*item))

    def _is_open(self, candidate: Candidate, placement: Placement) -> bool:
        pool = pool_name(candidate, placement.zone)
        return _family(candidate) not in self.pools.families and not self.pools.is_out(pool)

    def _tell(self, what: str, text: str) -> None:
        """Once a run: the ladder is looked at before the question and after it."""
        if what not in self.pools.told:
            self.pools.told.add(what)
            self.context.reporter.note(text)

    def _placements(self, candidate: Candidate, begun: Sequence[str]) -> list[Placement]:
        offer = candidate.offer
        try:
            found = self._cloud(candidate).placements(offer.instance_type.name, subnet=self.settings.subnet)
            self._image(candidate)
        except NoCapacityError:
            self.pools.unusable(pool_name(candidate, "*"), "not offered in a zone with a subnet")
            return []
        except DeployError as error:
            if offer.region == self.place or error.code not in _NOT_IN_REGION:
                raise
            self.pools.unusable(pool_name(candidate, "*"), error.message)
            return []
        return sorted(found, key=lambda place: pool_name(candidate, place.zone) not in begun)

    def _cloud(self, candidate: Candidate) -> Cloud:
        return self.context.cloud(candidate.offer.region)

    def _attempt(
        self, deployment: Deployment, candidate: Candidate, placement: Placement, seen: Sequence[Found]
    ) -> Attempt:
        """A machine that is there, or on its way, keeps the end that it was made with."""
        ceiling = self.settings.max_spend_usd
        if ceiling is not None and is_under_way(deployment, seen, self.context.clock):
            before = Spent(usd=deployment.spent_usd or Decimal(0))
            with suppress(InputError):
                attempt = self._attempt_after(before, deployment, candidate, placement, seen)
                if attempt.ttl_s == deployment.ttl_s and not attempt.replaces_a_machine:
                    return attempt
        spent = Spent() if ceiling is None else self.spent(deployment)
        if ceiling is not None and spent.usd:
            self._tell("spent", spent_words(spent, ceiling))
        return self._attempt_after(spent, deployment, candidate, placement, seen)

    def _lifetime_s(self, name: str, usd_per_hour: Decimal, spent: Spent) -> int | None:
        own_s, ceiling = self.settings.lifetime_s(usd_per_hour), self.settings.max_spend_usd
        if ceiling is None or not usd_per_hour:
            return own_s
        left_s = seconds_left(name, ceiling, spent, usd_per_hour)
        return left_s if own_s is None else min(own_s, left_s)

    def _attempt_after(
        self, spent: Spent, deployment: Deployment, candidate: Candidate, placement: Placement, seen: Sequence[Found]
    ) -> Attempt:
        ttl_s = self._lifetime_s(deployment.name, candidate.cost.usd_per_hour, spent)
        image = self._image(candidate)
        expires = expiry(deployment, ttl_s, seen, self.context.clock)
        extras = make_extras(self.settings, deployment, candidate.offer.region, expires)
        deployable = replace(self._deployable(deployment.name, candidate, image, ttl_s), **extras.names)
        user_data = render("user-data", deployable, templates_dir=self.context.templates_dir)
        machine = Machine(
            name=deployment.name,
            deployment_id=deployment.id,
            candidate=candidate,
            data=launch_template_data(deployable, user_data=user_data.text, root_device_name=image.root_device),
            placement=placement,
            image=image,
            cidrs=self.settings.cidrs,
            before=extras.before,
            after=extras.after,
            notes=extras.notes,
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
            ttl_s=ttl_s,
            idle_s=self.settings.idle_s,
            lease_s=self.settings.lease_s,
            expires=expires,
            spent_usd=None if self.settings.max_spend_usd is None else spent.usd,
            artifacts=((user_data.file_name, user_data.text),),
        )

    def _image(self, candidate: Candidate) -> MachineImage:
        region = candidate.offer.region
        if region not in self.images:
            cloud = self._cloud(candidate)
            self.images[region] = cloud.image(architecture=ENGINE_ARCHITECTURE, wanted=self.settings.ami)
        return self.images[region]

    def _deployable(self, name: str, candidate: Candidate, image: MachineImage, ttl_s: int | None) -> Deployable:
        return Deployable(
            name=name,
            candidate=candidate,
            model=self.plan.request.model,
            log_filter=self.context.log_grammar(candidate.engine.name).log_filter,
            ttl_s=ttl_s,
            idle_s=self.settings.idle_s,
            lease_s=self.settings.lease_s,
            region=candidate.offer.region,
            image_id=image.id,
            public_ipv4=self.plan.request.public_ipv4,
            ready_deadline_s=ready_deadline_s(candidate),
        )

    def _no_capacity(self, attempt: Attempt, error: NoCapacityError) -> None:
        why = error.cause or error.message
        self.pools.failed(attempt.pool, why)
        self.context.reporter.warn(warning("no_capacity", f"{attempt.pool}: {why}; trying the next"))

    def _no_quota(self, attempt: Attempt, error: QuotaError) -> None:
        family = _family(attempt.candidate)
        why = error.cause or error.message
        room = headroom(self.context.survey, attempt.candidate) if counts_vcpus(error.cause) else None
        self.pools.no_quota(family, why, room)
        advice = f"; {room.text()}; ask for more: {room.command}" if room is not None else ""
        told = f"{family}: {why}{advice}; trying another family or market"
        self.context.reporter.warn(warning("quota_exceeded", told))

    def _exhausted(self) -> NoCapacityError | QuotaError:
        tried = "; ".join(f"{pool} {why}" for pool, why in self.pools.why())
        only_quota = self.pools.families and not self.pools.failures
        error: NoCapacityError | QuotaError
        if only_quota:
            told = f"launching {self.plan.chosen.offer.instance_type.name}: the quota does not allow it ({tried})"
            error = QuotaError(told, hint="allow more regions or markets")
        else:
            error = NoCapacityError(
                f"every machine of the plan was tried in vain: {tried or 'no zone has a subnet for one'}"
            )
        return with_rooms(error, tuple(self.pools.rooms.values()))


def await_running(context: Context, deployment: Deployment, *, pool: str) -> str:
    """Wait until the machine runs; its address. A machine that dies first raises what its reason stands for."""
    record = deployment.machine
    if record is None:
        raise ValueError("there is no record of a machine")
    cloud = context.cloud(record.place)
    state = "missing"
    for waited_s in looks(context.clock, context.pace.running):
        machine = cloud.machine(record.attributes["id"])
        state = machine.state
        if state == "running" and machine.address:
            return machine.address
        if state != "missing" or waited_s > _MISSING_GRACE_S:
            cloud.check_death(machine, pool=pool)
    raise NotHealthyError(
        "not_running",
        f"the machine {record.attributes['id']} is {state} after {context.pace.running.deadline_s:.0f} s",
        hint=f"'tgi-deploy down {deployment.name}' removes it, 'tgi-deploy up' goes on waiting",
    )


def await_visible(context: Context, deployment: Deployment) -> bool:
    """Wait, for a minute at most, until the cloud knows the recorded machine, alive or ended; return whether it does.

    One that was certainly made longer ago is not waited for: it is gone if it does not show.
    """
    record = deployment.machine
    if record is None or "id" not in record.attributes:
        return False
    if not may_be_new(record, context.clock.now(), within_s=_MISSING_GRACE_S):
        return False
    cloud = context.cloud(record.place)
    patience = replace(context.pace.running, deadline_s=_MISSING_GRACE_S)
    states = (cloud.machine(record.attributes["id"]).state for _ in looks(context.clock, patience))
    return any(state != "missing" for state in states)


def begun_pools(deployment: Deployment, seen: Sequence[Found]) -> list[str]:
    """Pools in which a machine of this deployment exists, or may exist for all that is recorded.

    While the recorded machine lives, its pool alone: a plan for another machine's pool would replace it.
    """
    record = deployment.record(INSTANCE)
    machines = [found for found in seen if found.kind == INSTANCE and found.alive]
    recorded = [found for found in machines if record is not None and found.id == record.attributes.get("id")]
    pools = [
        "/".join((found.place, *(found.attributes[name] for name in ("zone", "instance_type", "market"))))
        for found in recorded or machines
    ]
    if record is not None and record.phase == "intent" and "pool" in record.notes:
        pools.append(record.notes["pool"])
    return pools


def pool_of(candidate: Candidate, pool: str) -> bool:
    """Whether `pool` is one of the candidate's."""
    region, zone, *_ = pool.split("/")
    return candidate.offer.region == region and pool_name(candidate, zone) == pool


def _is_recorded(candidate: Candidate, deployment: Deployment) -> bool:
    """Whether this candidate is what the record says was tried last."""
    return deployment.plan is not None and _identity(deployment.plan.chosen) == _identity(choice(candidate))


def _identity(item: Choice) -> tuple[object, ...]:
    return item.instance_type, item.region, item.market, item.num_shard, item.quantize


def _family(candidate: Candidate) -> str:
    """What quota is counted by: the region, and the quota's code (or the type's family, where none is known)."""
    offer = candidate.offer
    named = quota_code(candidate) or f"{offer.instance_type.name.partition('.')[0]} {offer.market}"
    return f"{offer.region}/{named}"
