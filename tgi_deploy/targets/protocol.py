"""What a target is: where engines run. Everything that differs between targets is asked of these protocols.

A location (`place`) is a text that only its target reads: the first target's have names of their own, such as regions;
those of any other target begin with its name, as in `docker` and `docker:tcp://host:2376`.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, runtime_checkable

from tgi_deploy.errors import InputError
from tgi_deploy.values.base import Frozen
from tgi_deploy.values.ends import Ends, Spent, WantedEnds

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
    from tgi_deploy.values.resource import ChangeSet, Found, Resource

    # What is wanted, and everything found of it, at the moment of the call.
    Look = Callable[[], tuple[Deployment, Sequence[Found]]]

Reach = Literal["loopback", "private", "public"]

_WHERE: Final = {
    "private": "inside the private network, by plain HTTP",
    "public": "to a public address, by plain HTTP: anybody on the way can read and change them",
}


class Refusal(Frozen, frozen=True, kw_only=True):
    """Options that mean nothing on a target: `why` follows the option's name."""

    options: tuple[str, ...]
    code: str
    why: str
    hint: str


class TargetFacts(Frozen, frozen=True, kw_only=True):
    """What is always true of a target.

    `machine_kind` is the kind of resource that runs an engine, `state_label` introduces the reason that is given for
    its state. `begins` completes "…, which needs a yes".
    `shows_at_once`: all that was made shows from then on. `regions`: `--region` chooses locations.
    `refuses`: options that mean nothing there; `who_connects` is the hint where another target's option is given.
    `not_changed` are options of a remedy's `up` that would change what the target does not have.
    `one_at_a_time`: why deployments are not brought up beside each other, empty where they are.
    `removed_together`: kinds of which things of many deployments may be deleted side by side.
    `unpriced` says of a receipt without a price where it ran; empty where that is not known.
    `extra` is the package that the extra of the target's name brings, empty where it needs none.
    `no_shell`: why no command can be run on its machines, and `shell_by_hand` what a person can do about it, with
    `{place}` and `{id}`; both empty where the target is a `Shell`.
    """

    begins: str
    machine_kind: str
    state_label: str
    who_connects: str
    shows_at_once: bool
    regions: bool
    refuses: tuple[Refusal, ...] = ()
    not_changed: frozenset[str] = frozenset()
    one_at_a_time: str = ""
    removed_together: frozenset[str] = frozenset()
    unpriced: str = ""
    extra: str = ""
    no_shell: str = ""
    shell_by_hand: str = ""


class Supplied(Frozen, frozen=True, kw_only=True):
    """What a target adds to a request before it is planned.

    `hardware` as `--hardware` takes it, empty where the catalog's offers count. `place` is the location where it is
    known beforehand, `local` whether that is this computer; `devices` are accelerators by id, None where nobody looked.
    """

    hardware: str = ""
    place: str = ""
    local: bool = False
    devices: tuple[str, ...] | None = None
    notices: tuple[Problem, ...] = ()


class LaunchRequest(Frozen, frozen=True, kw_only=True):
    """What is to be launched. `options` is a value of the target's own type; `wait`: the engine will be asked."""

    plan: Plan
    options: Any
    ends: WantedEnds = WantedEnds()
    supplied: Supplied = Supplied()
    environ: Mapping[str, str]
    wait: bool = True


def no_spending(_deployment: Deployment) -> Spent:
    return Spent()


def reach_of(host: str) -> Reach:
    """Return how far what goes to `host` travels. A name, and an address of every interface, may be public."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "loopback" if host == "localhost" else "public"
    address = getattr(address, "ipv4_mapped", None) or address
    if address.is_loopback:
        return "loopback"
    return "public" if address.is_global or address.is_unspecified else "private"


class Traffic(Frozen, frozen=True, kw_only=True):
    """What goes to an endpoint. `api_key`: whether its engine asks for one."""

    reach: Reach
    api_key: bool

    @property
    def unencrypted(self) -> str | None:
        """The sentence about it; None where nothing leaves the computer."""
        if self.reach == "loopback":
            return None
        what = "the API key, prompts and answers" if self.api_key else "prompts and answers"
        return f"{what} travel unencrypted {_WHERE[self.reach]}"

    def check(self, *, plaintext: bool) -> None:
        """Raise InputError `plaintext_key` for a key that would be shown to whoever listens, unless `plaintext`."""
        if self.api_key and self.reach == "public" and not plaintext:
            raise InputError(
                "plaintext_key",
                "the API key would travel unencrypted to a public address: whoever listens on the way could use it",
                hint="add --plaintext to 'up' to accept that, or leave the key out: --allow-cidr says who may connect",
            )


class Attempt(Frozen, frozen=True, kw_only=True):
    """One candidate in one place, ready to be carried out.

    `pool` is what capacity is counted by, `zone` where in the place it goes, `cidrs` who may connect.
    `ends` are those that its machine is made with; the lease begins when it is.
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


class Surroundings(Protocol):
    """What a launch uses of its caller's surroundings."""

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
        """Whether nothing that goes to its machines leaves this computer."""

    @property
    def log_grammar(self) -> Callable[[str | None], LogGrammar]:
        """Returns what the log of an engine of that name is read by."""

    def ready_deadline_s(self, candidate: Candidate) -> int:
        """Return how long a candidate's engine may take until it answers."""


class Launch(Protocol):
    """A plan's way to a running machine."""

    @property
    def place(self) -> str:
        """Where the first attempt goes."""

    @property
    def traffic(self) -> Traffic:
        """What will go to its endpoint, by the options: nothing is asked."""

    @property
    def options(self) -> Value:
        """The target's own options, as they were given."""

    @property
    def plaintext(self) -> bool:
        """Whether somebody has agreed that an API key travels unencrypted to a public address."""

    @property
    def marks(self) -> Mapping[str, Any]:
        """What the options add to the request itself: a deployment that lacks it is not the one asked for."""

    @property
    def rare_kinds(self) -> bool:
        """Whether it makes resources of kinds that few deployments have."""

    def attempts(self, look: Look) -> Iterator[Attempt]:
        """Yield every attempt worth making, best first; nothing is changed. Raises what leaves none."""

    def address(self, deployment: Deployment, *, pool: str) -> str:
        """Return where its engine is reached, once the machine runs; `pool` as messages name it."""

    def preflight(self, attempt: Attempt, tags: Mapping[str, str]) -> tuple[Problem, ...]:
        """Return what is known to make the attempt fail, and what is worth a warning; nothing is changed."""


@runtime_checkable
class Failover(Protocol):
    """A launch that has other places to go where one has no room."""

    def refused(self, attempt: Attempt, error: NoCapacityError | QuotaError) -> None:
        """Remember that the attempt found no room."""


@runtime_checkable
class Opening(Protocol):
    """A launch that can let more networks connect while its machine runs."""

    def not_let_in(self, seen: Sequence[Found]) -> tuple[str, ...]:
        """Return the networks that are named by options and may not connect yet."""

    def let_in(self, seen: Sequence[Found], networks: tuple[str, ...]) -> None:
        """Let them connect. What was let in before stays."""


@runtime_checkable
class ImagePull(Protocol):
    """A launch whose images are pulled from here, not by the machine."""

    def pull(self, attempt: Attempt) -> None:
        """Have the attempt's image there, showing the progress."""


class Front(Protocol):
    """What stands before the machines of one deployment: traffic can be moved from one to another beside it.

    `machine` is the record of one of them.
    """

    @property
    def stable(self) -> bool:
        """Whether the URL that callers use stays the same when traffic moves."""

    def no_room(self, deployment: Deployment) -> str:
        """Return why the machine that is wanted can't run beside the one that serves; empty where nothing is known."""

    @property
    def cuts(self) -> bool:
        """Whether a shift cuts connections that are open: then the old machine drains before it, else after it."""

    def shift(self, deployment: Deployment, machine: ResourceRecord) -> str | None:
        """Send new requests to this machine, which is proved, and to no other. Safe to repeat.

        Return the host that callers use, as a probe takes it; None where that is the machine's own address.
        """

    def drain(self, deployment: Deployment, machine: ResourceRecord, deadline_s: float) -> None:
        """Let no new request begin on this machine; return when none runs there, or at the deadline. Safe to repeat.

        The machine is deleted after that.
        """


class Deployable(Frozen, frozen=True, kw_only=True):
    """A candidate with what only a deployment has: a name, ends, references to secrets.

    `hub_token_parameter` and `api_key_parameter` name SSM SecureStrings that the machine reads at boot. `image_id` is
    an AMI; without one the machine image is left to EC2 to resolve at launch. `ready_deadline_s` is how long the
    engine may take until it answers: nothing counts as sick before. `ttl_s` counts from the first boot, `idle_s` from
    the last request, `lease_s` from the last renewal: the first of them to pass ends the machine. `log_filter` is what
    the machine needs to judge a start that failed.
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


class Artifact(Frozen, frozen=True, kw_only=True):
    """Text to run or to send, and its SHA-256 in hexadecimal."""

    kind: str
    file_name: str
    text: str
    sha256: str

    @classmethod
    def of(cls, kind: str, file_name: str, text: str) -> Artifact:
        import hashlib  # noqa: PLC0415 -- planning writes nothing

        return cls(kind=kind, file_name=file_name, text=text, sha256=hashlib.sha256(text.encode()).hexdigest())


class Commands(Frozen, frozen=True, kw_only=True):
    """What a person can paste to look at a deployment and to remove it without this tool.

    `removal` is for what no record names. `proof` shows that nothing is left, and says by what.
    """

    looks: tuple[str, ...]
    removal: tuple[str, ...]
    proof: str


class ByHand(Protocol):
    """Commands for a person. A module can be one."""

    def commands(self, name: str, place: str, machine_id: str, *, nvidia: bool = True) -> Commands:
        """Return what to paste for a deployment; `machine_id` is a word to replace where no machine is known.

        `nvidia`: its accelerators are NVIDIA's.
        """

    def look_command(self, kind: str, thing_id: str, place: str) -> str | None:
        """Return what to paste to look at one thing; None for a kind that has no such command."""

    def removal_command(self, kind: str, thing_id: str, place: str) -> str | None:
        """Return what to paste to remove one thing; None for a kind that has no such command."""

    def tunnel(self, place: str, port: int) -> str:
        """Return the command that reaches a port there without opening it; empty where none is needed."""


class Target(Protocol):
    """Where engines run."""

    @property
    def name(self) -> str: ...
    @property
    def facts(self) -> TargetFacts: ...
    @property
    def options(self) -> type[Value]:
        """Return the type of its own options; creating one raises InputError for what cannot be."""

    @property
    def forms(self) -> Mapping[str, str]:
        """What `artifact` can write, each with its title."""

    def locations(self, named: tuple[str, ...]) -> tuple[str, ...]:
        """Return where to look for what no record names; `named` by the caller. Raises InputError."""

    def supply(self, catalog: Catalog, *, release: str, hardware: bool) -> Supplied:
        """Return what planning has to know of the world; `hardware`: it is named already. Raises InputError."""

    def refusal(self, plan: Plan) -> InputError | None:
        """Return why a plan can't be carried out here."""

    def launch(
        self, around: Surroundings, request: LaunchRequest, *, spent: Callable[[Deployment], Spent] = no_spending
    ) -> Launch:
        """Return the plan's way to a machine. `spent` returns what a name's machines have cost so far.

        Raises InputError for secrets that are missing or can't be delivered.
        """

    def front(self, around: Surroundings, deployment: Deployment) -> Front | None:
        """Return what moves the traffic between machines of all revisions on record, by their options.

        None where two machines of this deployment cannot stand beside each other: then it is updated by `recreate`.
        """

    def cloud(self, place: str) -> Cloud:
        """Return what is found and changed in one place."""

    def artifact(self, form: str, deployable: Deployable, *, templates_dir: Path | None) -> Artifact:
        """Write the deployable down; the same input gives the same text. Raises InputError."""

    @property
    def by_hand(self) -> ByHand:
        """Return what to paste where this tool can't be used."""


class AccountRequest(Frozen, frozen=True, kw_only=True):
    """What an account is examined for. `options` are the target's own; `plan` None asks about the account alone."""

    options: Any
    plan: Plan | None
    place: str
    environ: Mapping[str, str]


class Policy(Frozen, frozen=True, kw_only=True):
    """What an account has to allow. `features`: name → what it is for; `boundary` bounds what the tool makes itself.

    `notice` is what an administrator does once, empty where there is nothing.
    """

    document: Mapping[str, Any] | None
    features: Mapping[str, str]
    boundary: Mapping[str, Any] | None
    notice: str = ""


@runtime_checkable
class Account(Protocol):
    """A target that belongs to somebody's account."""

    def examine(self, around: Surroundings, request: AccountRequest) -> tuple[Problem, ...]:
        """Return what would make a launch fail. Nothing is raised: what fails is a finding."""

    def policy(self, features: tuple[str, ...], *, everything: bool) -> Policy:
        """Return the least that lets this tool work for the features, by default those that every deployment needs.

        Raises InputError `unknown_feature`.
        """

    def boundary(self) -> Policy:
        """Return what bounds the roles that the tool makes."""


@runtime_checkable
class LocalHost(Protocol):
    """A target that can run engines on this computer."""

    def examine_host(self, *, needed: bool) -> tuple[Problem, ...]:
        """Return what this computer has and lacks; where it is `needed`, what is missing is an error."""


@runtime_checkable
class Shell(Protocol):
    """A target whose machines run a command while their engine does."""

    def child(self, place: str, machine_id: str, words: tuple[str, ...], *, terminal: bool) -> tuple[str, ...]:
        """Return the local program that runs `words` on a machine, an interactive shell without any.

        Its streams and exit code are the command's. `terminal`: a person types.
        """


def target_at(targets: Sequence[Target], place: str) -> Target:
    """Return the target that a location belongs to: the one that its name begins with, else the first."""
    named = place.partition(":")[0]
    return next((target for target in targets if target.name == named), targets[0])
