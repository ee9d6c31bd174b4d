"""Protocols for targets, where engines run. Everything that differs between targets is behind them.

Only its target interprets a location (`place`), a string: the first target uses plain names, such as regions; those of
other targets begin with the target's name, as in `docker` and `docker:tcp://host:2376`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable
from urllib.parse import urlsplit

from tgi_deploy.errors import InputError
from tgi_deploy.values.base import Frozen
from tgi_deploy.values.ends import Ends, Spent, WantedEnds
from tgi_deploy.values.request import Replicas
from tgi_deploy.values.serving import Address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.diagnosis.grammar import LogGrammar
    from tgi_deploy.diagnosis.machine_filter import LogFilter
    from tgi_deploy.errors import Problem
    from tgi_deploy.reconcile.errors import NoCapacityError, QuotaError
    from tgi_deploy.reconcile.ports import Clock, Cloud, Listener, Reporter, Store
    from tgi_deploy.reconcile.retry import Pace
    from tgi_deploy.values.base import Value
    from tgi_deploy.values.deployment import Deployment, ResourceRecord
    from tgi_deploy.values.model import Profile
    from tgi_deploy.values.plan import Candidate, Plan
    from tgi_deploy.values.resource import AutoscalerState, ChangeSet, Found, Resource
    from tgi_deploy.values.serving import Traffic, TunnelEnd
    from tgi_deploy.values.supply import AddedMachine, Headroom

    # Returns the desired deployment and its existing resources at the time of the call.
    Look = Callable[[], tuple[Deployment, Sequence[Found]]]


class UnsupportedOptions(Frozen, frozen=True, kw_only=True):
    """Options that a target does not support: `why` follows the option's name."""

    options: tuple[str, ...]
    code: str
    why: str
    hint: str


class TargetFacts(Frozen, frozen=True, kw_only=True):
    """Constants of a target.

    `machine_kind`: the kind of resource that runs an engine; `state_label` introduces the reason for its state.
    `begins` completes "…, which needs a yes". `shows_at_once`: new resources are visible immediately. `regions`:
    `--region` selects locations. `unsupported`: options that it does not support; `who_connects`: the hint for an
    option of another target. `not_changed`: options of a remedy's `up` that have no effect on this target.
    `one_at_a_time`: why deployments can't be brought up in parallel; empty if they can. `removed_together`: kinds that
    may be deleted in parallel across deployments. `unpriced`: where an unpriced deployment ran, for its receipt; empty
    if unknown. `extra`: the package that the extra with the target's name installs; empty if none. `most_replicas`: how
    many replicas a deployment may have; `range_of_revision`: only an update changes the range of an autoscaler.
    `stops`: machines can be stopped and kept; `restarts`: they can be restarted. `reached`: who can reach an endpoint
    without a port, after "reachable". `service`: the folder of profiles with the target's own machines, prices and
    images; empty for the provider's.
    """

    begins: str
    machine_kind: str
    state_label: str
    who_connects: str
    shows_at_once: bool
    regions: bool
    unsupported: tuple[UnsupportedOptions, ...] = ()
    not_changed: frozenset[str] = frozenset()
    one_at_a_time: str = ""
    removed_together: frozenset[str] = frozenset()
    unpriced: str = ""
    extra: str = ""
    most_replicas: int = 1
    range_of_revision: bool = False
    stops: bool = True
    restarts: bool = True
    reached: str = "through a tunnel, for anyone who may open a session with it"
    service: str = ""


class Supplied(Frozen, frozen=True, kw_only=True):
    """What a target adds to a request before planning.

    `hardware` in the form of `--hardware`, empty to use the catalog's offers. `place` is the location if known in
    advance, `local` whether it is this computer; `devices` are accelerator ids, None if not detected. `machines`: how
    many of the largest `hardware` of one accelerator there are, for several replicas; None if not counted.
    `added`: what of `hardware` the target can add, at a price.
    """

    hardware: str = ""
    machines: int | None = None
    place: str = ""
    local: bool = False
    devices: tuple[str, ...] | None = None
    added: Mapping[str, AddedMachine] = {}
    notices: tuple[Problem, ...] = ()


class LaunchRequest(Frozen, frozen=True, kw_only=True):
    """A plan to launch. `options` has the target's own type; `wait`: this command will call the engine.

    `first_replicas`: how many replicas an update starts with, next to those that serve; 0 for all.
    """

    plan: Plan
    options: Any
    ends: WantedEnds = WantedEnds()
    supplied: Supplied = Supplied()
    environ: Mapping[str, str]
    wait: bool = True
    first_replicas: int = 0


def no_spending(_deployment: Deployment) -> Spent:
    return Spent()


class Attempt(Frozen, frozen=True, kw_only=True):
    """One candidate in one place, ready to launch.

    `pool` is its capacity pool, `zone` the zone within the place, `cidrs` the networks that may connect.
    `ends` are its machine's limits; a lease starts when the machine is created. `others` are what the cloud may rent
    instead of the candidate, without asking.
    """

    candidate: Candidate
    place: str
    pool: str
    zone: str
    cidrs: tuple[str, ...]
    wanted: tuple[Resource, ...]
    changes: ChangeSet
    artifacts: tuple[tuple[str, str], ...]
    ends: Ends = Ends()
    others: tuple[Candidate, ...] = ()


class TargetContext(Protocol):
    """What the caller provides to a target."""

    @property
    def clock(self) -> Clock: ...
    @property
    def store(self) -> Store: ...
    @property
    def reporter(self) -> Reporter: ...
    @property
    def listener(self) -> Listener: ...
    @property
    def pace(self) -> Pace: ...
    @property
    def templates_dir(self) -> Path | None: ...
    @property
    def loopback(self) -> bool:
        """Whether all traffic to its machines stays on this computer."""

    @property
    def log_grammar(self) -> Callable[[str | None], LogGrammar]:
        """Return the log grammar of an engine."""

    def ready_deadline_s(self, candidate: Candidate) -> int:
        """Return how long a candidate's engine may take to become ready."""

    def starts_s(self, candidate: Candidate) -> int:
        """Return how long it is expected to take to become ready."""


class Launch(Protocol):
    """Launches a plan on a target."""

    @property
    def place(self) -> str:
        """The place of the first attempt."""

    @property
    def traffic(self) -> Traffic:
        """The traffic to its endpoint, according to the options alone."""

    @property
    def options(self) -> Value:
        """The target's own options, as given."""

    @property
    def plaintext(self) -> bool:
        """Whether the user accepted sending an API key unencrypted to a public address."""

    @property
    def tls(self) -> bool:
        """Whether the options explicitly ask for TLS, so that a machine without it has to be replaced."""

    @property
    def marks(self) -> Mapping[str, Any]:
        """What the options add to the request; a deployment without it does not match."""

    @property
    def rare_kinds(self) -> bool:
        """Whether it creates resources of rare kinds, or removes those that no record has."""

    def attempts(self, look: Look) -> Iterator[Attempt]:
        """Yield the attempts, best first, without changing anything. Raises the reason if there are none."""

    def address(self, deployment: Deployment, *, pool: str) -> str:
        """Return the engine's address once the machine runs; `pool` is for messages."""

    def preflight(self, attempt: Attempt, tags: Mapping[str, str]) -> tuple[Problem, ...]:
        """Return findings that would make the attempt fail, and warnings, without changing anything."""


@runtime_checkable
class Scaling(Protocol):
    """A target whose deployments can have several replicas: updating a machine's `replicas` changes the number.

    With a range of `Replicas`, an autoscaler sets it.
    """

    def running(self, deployment: Deployment) -> int:
        """Return the number of replicas that it should have now."""

    def headroom(self, deployment: Deployment, running: int, replicas: Replicas) -> Headroom:
        """Return the room for these replicas, of which so many run. A range needs room for its least number only."""

    def follow(self, deployment: Deployment, replicas: Replicas, options: Any) -> ChangeSet:  # noqa: ANN401 -- its own
        """Return the steps that set up an autoscaler for a range, or remove it for a fixed number.

        Raises DeployError `autoscaling_unavailable`, `replicas_out_of_range`.
        """

    def autoscaler(self, deployment: Deployment) -> AutoscalerState | None:
        """Return the autoscaler's state; None without one."""


@runtime_checkable
class Failover(Protocol):
    """A launch that tries other pools if one lacks capacity or quota."""

    def refused(self, attempt: Attempt, error: NoCapacityError | QuotaError) -> None:
        """Record that the cloud refused the attempt."""


class NetworkChange(Frozen, frozen=True, kw_only=True):
    """Networks to allow, and networks to revoke, which this tool allowed and the options no longer name."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


@runtime_checkable
class NetworkUpdates(Protocol):
    """A launch that can change the allowed networks while its machine runs."""

    def networks(self, seen: Sequence[Found]) -> NetworkChange:
        """Return what the networks in the options change; nothing if the options name none."""

    def change_networks(self, seen: Sequence[Found], change: NetworkChange) -> None:
        """Allow the added networks, then revoke the removed ones. Safe to repeat."""


@runtime_checkable
class ImagePull(Protocol):
    """A launch whose images this computer pulls, not the machine."""

    def pull(self, attempt: Attempt) -> None:
        """Pull the attempt's image, reporting progress."""


class Front(Protocol):
    """The entry point in front of a deployment's machines, which can shift traffic between them.

    `machine` is the record of one machine.
    """

    @property
    def stable(self) -> bool:
        """Whether the URL stays the same when traffic shifts."""

    def no_room(self, deployment: Deployment) -> str:
        """Return why the desired machine can't run next to the serving one; empty if no reason is known."""

    @property
    def cuts(self) -> bool:
        """Whether a shift cuts open connections: then the old machine drains before it, otherwise after it."""

    def grace_s(self, deployment: Deployment) -> int:
        """Return how long the serving machine's open requests may take once it starts to shut down."""

    def shift(self, deployment: Deployment, machine: ResourceRecord) -> str | None:
        """Send new requests only to this proved machine. Idempotent.

        Return the host that callers use, for probes; None if it is the machine's own address.
        """

    def drain(self, deployment: Deployment, machine: ResourceRecord, deadline_s: float) -> Iterator[None]:
        """Send no new requests to this machine, and return once none is open, or at the deadline. Idempotent.

        Yields after each poll that finds open requests. The caller then deletes the machine.
        """


@runtime_checkable
class SharedFront(Protocol):
    """A front whose revisions share the resource that enforces their limits."""

    def restore(self, machine: ResourceRecord) -> None:
        """Make the limits in this machine's tags apply again. Idempotent."""


class Deployable(Frozen, frozen=True, kw_only=True):
    """A candidate with a deployment's name, limits and references to secrets.

    `hub_token_parameter`, `api_key_parameter` and `certificate_key_parameter` name SSM SecureStrings that the machine
    reads at boot. `image_id` is an AMI; without one, EC2 resolves the image at launch. `ready_deadline_s` is how long
    the engine may take to become ready; before that it never counts as unhealthy. `ttl_s` counts from the first boot,
    `idle_s` from the last request, `lease_s` from the last renewal; the first to pass terminates the machine.
    `log_filter`: texts by which the machine decides whether to restart an engine. `replicas` is the autoscaler's range,
    `concurrency` the load of the planned replicas, `starts_s` how long one is expected to take to become ready.
    `options` are the target's own, None for its defaults. `tls_image` is the TLS proxy in front of the engine; None for
    plain HTTP. `certificate` is the user's own, in PEM with its chain; None: the machine creates one. `tunneled`: only
    programs on the machine can connect.
    """

    name: str
    candidate: Candidate
    model: Profile
    log_filter: LogFilter
    ttl_s: int | None = None
    idle_s: int | None = None
    lease_s: int | None = None
    hub_token_parameter: str | None = None
    api_key_parameter: str | None = None
    region: str | None = None
    instance_profile: str | None = None
    image_id: str | None = None
    ready_deadline_s: int = 3600
    tls_image: str | None = None
    certificate: str | None = None
    certificate_key_parameter: str | None = None
    tunneled: bool = False
    replicas: Replicas = Replicas()
    concurrency: int = 1
    starts_s: int = 600
    options: Any = None

    @property
    def parameters(self) -> tuple[str, ...]:
        """The SSM parameters that the machine reads."""
        named = (self.hub_token_parameter, self.api_key_parameter, self.certificate_key_parameter)
        return tuple(name for name in named if name is not None)


class Artifact(Frozen, frozen=True, kw_only=True):
    """A rendered text and its SHA-256 in hexadecimal."""

    kind: str
    file_name: str
    text: str
    sha256: str

    @classmethod
    def of(cls, kind: str, file_name: str, text: str) -> Artifact:
        import hashlib  # noqa: PLC0415 -- planning writes nothing

        return cls(kind=kind, file_name=file_name, text=text, sha256=hashlib.sha256(text.encode()).hexdigest())


class Commands(Frozen, frozen=True, kw_only=True):
    """Commands to inspect and remove a deployment without this tool.

    `removal` is for resources without a record. `proof` shows that nothing is left; its comment says how to read it.
    """

    inspections: tuple[str, ...]
    removal: tuple[str, ...]
    proof: str


class ManualCommands(Protocol):
    """Commands to run by hand. Modules can implement it."""

    def commands(self, name: str, place: str, machine_id: str, *, nvidia: bool = True) -> Commands:
        """Return the commands for a deployment; `machine_id` is a placeholder if the machine is unknown.

        `nvidia`: it has NVIDIA accelerators.
        """

    def look_command(self, kind: str, thing_id: str, place: str) -> str | None:
        """Return the command to inspect a resource; None if its kind has none."""

    def removal_command(self, kind: str, thing_id: str, place: str) -> str | None:
        """Return the command to remove a resource; None if its kind has none."""

    def tunnel(self, end: TunnelEnd) -> str:
        """Return the command that opens a tunnel to `end`; empty if none is needed."""


class Target(Protocol):
    """A place to run engines."""

    @property
    def name(self) -> str: ...
    @property
    def facts(self) -> TargetFacts: ...
    @property
    def options(self) -> type[Value]:
        """Return the type of its options, which raises InputError for invalid ones."""

    @property
    def forms(self) -> Mapping[str, str]:
        """The artifact formats with their titles."""

    def locations(self, named: tuple[str, ...]) -> tuple[str, ...]:
        """Return the locations to search for unrecorded resources; `named` by the caller. Raises InputError."""

    def supply(self, catalog: Catalog, *, release: str, hardware: bool) -> Supplied:
        """Return the target's additions to a request; `hardware`: the request names some. Raises InputError."""

    def rejection(self, plan: Plan) -> InputError | None:
        """Return why this target can't run the plan, or None."""

    def launch(
        self, context: TargetContext, request: LaunchRequest, *, spent: Callable[[Deployment], Spent] = no_spending
    ) -> Launch:
        """Return the launch of a plan. `spent` returns what a name's machines have cost so far.

        Raises InputError for missing or undeliverable secrets.
        """

    def front(self, context: TargetContext, deployment: Deployment) -> Front | None:
        """Return the front that shifts traffic between the recorded revisions' machines.

        None if two machines of this deployment can't run side by side: then it is updated with `recreate`.
        """

    def cloud(self, place: str) -> Cloud:
        """Return the cloud of one place."""

    def artifact(self, form: str, deployable: Deployable, *, templates_dir: Path | None) -> Artifact:
        """Render the deployable, deterministically. Raises InputError."""

    @property
    def manual_commands(self) -> ManualCommands:
        """Return the commands for use without this tool."""


class AccountRequest(Frozen, frozen=True, kw_only=True):
    """What to examine. `options` are the target's own; without a plan, only the account is examined."""

    options: Any
    plan: Plan | None
    place: str
    environ: Mapping[str, str]


class Policy(Frozen, frozen=True, kw_only=True):
    """The required permissions. `features`: name → purpose; `boundary` bounds the roles that the tool creates.

    `notice` is what an administrator has to do once; empty for nothing.
    """

    document: Mapping[str, Any] | None
    features: Mapping[str, str]
    boundary: Mapping[str, Any] | None
    notice: str = ""


@runtime_checkable
class DoctorChecks(Protocol):
    """A target that `doctor` can check for everything that would make a launch fail."""

    def examine(self, context: TargetContext, request: AccountRequest) -> tuple[Problem, ...]:
        """Return what would make a launch fail. Failures are findings, never exceptions."""


@runtime_checkable
class Account(DoctorChecks, Protocol):
    """A target that belongs to a cloud account."""

    def policy(self, features: tuple[str, ...], *, everything: bool) -> Policy:
        """Return the least privileges for the features, by default those that every deployment needs.

        Raises InputError `bad_option_value`.
        """

    def boundary(self) -> Policy:
        """Return the permissions boundary of created roles."""


@runtime_checkable
class Locating(Protocol):
    """A target whose options choose the location."""

    def at(self, options: Value, place: str = "") -> Target:
        """Return the target with the location that its options choose; `place` is that of a recorded deployment."""


def located(target: Target, options: Value, recorded: Deployment | None = None) -> Target:
    """Return the target with the location that its options choose, if they choose one, else the recorded one."""
    if not isinstance(target, Locating):
        return target
    return target.at(options, recorded.region if recorded and recorded.target == target.name else "")


@runtime_checkable
class LocalHost(Protocol):
    """A target that can run engines on this computer."""

    def examine_host(self) -> tuple[Problem, ...]:
        """Return findings about this computer; missing parts are errors."""


@runtime_checkable
class Tunneling(Protocol):
    """A target that can reach its machines through tunnels."""

    def local_port(self, end: TunnelEnd) -> int:
        """Return the local port of the tunnel to `end`, opening it if needed. Raises DeployError."""


class Finished(Frozen, frozen=True, kw_only=True):
    """The result of a command. The output is None if it went directly to this program's streams."""

    exit_code: int
    stdout: str | None = None
    stderr: str | None = None


class Invocation(Frozen, frozen=True, kw_only=True):
    """The engine's answer to a forwarded request. `body` can be read once, and may raise NotHealthyError."""

    status: int
    body: Iterator[bytes]


@runtime_checkable
class Invoking(Protocol):
    """A target whose cloud forwards requests to its engines, with the caller's credentials.

    Its addresses have `invoked`.
    """

    def answers(self, address: Address) -> bool:
        """Return whether the cloud considers the engine healthy. Raises DeployError."""

    def invoke(self, address: Address, body: bytes, *, streamed: bool) -> Invocation:
        """Send a request. Raises NotHealthyError `engine_unreachable`, DeployError."""

    def invocation_lines(self, address: Address, body: Mapping[str, Any], *, streamed: bool) -> tuple[str, str]:
        """Return a shell command and a line of Python that send such a request by hand."""


@runtime_checkable
class RemoteShell(Protocol):
    """A target whose cloud runs commands on its machines."""

    def run(self, place: str, machine_id: str, words: tuple[str, ...], *, terminal: bool) -> Finished:
        """Run `words` on a machine; without words, an interactive shell, which needs the terminal.

        Raises DeployError `not_managed`, `no_shell`.
        """


@runtime_checkable
class Shell(Protocol):
    """A target on whose machines a local program can run commands, next to the engine."""

    def child(self, place: str, machine_id: str, words: tuple[str, ...], *, terminal: bool) -> tuple[str, ...]:
        """Return the local command line that runs `words` on a machine; without words, an interactive shell.

        Its streams and exit code are those of `words`. `terminal`: stdin is interactive.
        """


def near_end(targets: Sequence[Target], address: Address) -> Address:
    """Return where a tunnel to this address begins on this computer, opening it if needed; without one, the address."""
    if address.tunnel is None:
        return address
    target = target_at(targets, address.tunnel.place)
    if not isinstance(target, Tunneling):
        raise InputError(
            "no_tunnel",
            f"the machine {address.tunnel.machine_id} is recorded with a tunnel, which its target does not support",
        )
    here = f"127.0.0.1:{target.local_port(address.tunnel)}"
    return Address(url=urlsplit(address.url)._replace(netloc=here).geturl(), certificate=address.certificate)


def target_at(targets: Sequence[Target], place: str) -> Target:
    """Return a location's target: the one whose name it begins with, else the first."""
    named = place.partition(":")[0]
    return next((target for target in targets if target.name == named), targets[0])
