"""Options of targets as data: fields of a value that become command-line options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, get_args, get_type_hints

import msgspec

from tgi_deploy.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tgi_deploy.values.base import Value

EVERYWHERE: Final = ("up", "smoke")
# Headings in `--help`.
NETWORK: Final = "Network"
PLACES: Final = "Places"
SECRETS: Final = "Keys and tokens"


class Option(NamedTuple):
    """One option; without a `metavar`, a flag. `commands` are those that accept it."""

    name: str
    help: str
    metavar: str
    repeats: bool
    commands: tuple[str, ...]
    section: str

    @property
    def flag(self) -> str:
        return flag_of(self.name)


class RemovedOption(NamedTuple):
    """A removed option of a command, and what to give instead: there, and to the API's method of the same name."""

    command: str
    name: str
    now: str
    argument: str

    @property
    def flag(self) -> str:
        return flag_of(self.name)


REMOVED_OPTIONS: Final = (
    RemovedOption("gc", "all_regions", "--region all", "Client(region='all')"),
    RemovedOption("plan", "plot", "--report FILE.svg", "report=Path('FILE.svg')"),
    RemovedOption("diff", "max_memory_margin_decrease", "--min-memory-margin-tokens N", "min_memory_margin_tokens=N"),
)


def option(
    text: str, metavar: str = "", *, commands: tuple[str, ...] = EVERYWHERE, section: str = NETWORK
) -> msgspec.Meta:
    """Return the annotation of a field: its help, the commands that accept it, and its heading there."""
    return msgspec.Meta(description=text, extra={"metavar": metavar, "commands": commands, "section": section})


def options_of(kinds: Iterable[type[Value]], command: str) -> tuple[Option, ...]:
    """Return the options of a command without duplicates, in the order of the targets' types."""
    found = {item.name: item for kind in kinds for item in _options(kind) if command in item.commands}
    return tuple(found.values())


def flag_of(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _options(kind: type[Value]) -> Iterator[Option]:
    for name, hint in get_type_hints(kind, include_extras=True).items():
        if not hasattr(hint, "__metadata__"):
            continue
        meta: Any = hint.__metadata__[0]
        repeats = get_args(hint)[0] == tuple[str, ...]
        yield Option(name=name, help=meta.description, repeats=repeats, **meta.extra)


# Options of more than one target.
_EXPOSES: Final = "Allow connections from everywhere."
_PLAIN: Final = "Allow plain HTTP to a public address, also for the API key."
ExposeToWorld = Annotated[bool, option(_EXPOSES, commands=("up",))]
RenderedExposeToWorld = Annotated[bool, option(_EXPOSES, commands=("up", "render"))]
HubTokenFromEnv = Annotated[bool, option("Store HF_TOKEN as a parameter. Automatic for gated models.", section=SECRETS)]
ApiKeyFromEnv = Annotated[
    str | None, option("Have the engine require the API key in VARIABLE.", "VARIABLE", section=SECRETS)
]
Plaintext = Annotated[bool, option(_PLAIN)]
RenderedPlaintext = Annotated[bool, option(_PLAIN, commands=(*EVERYWHERE, "render"))]
Tls = Annotated[bool, option("Answer over TLS: the default on rented machines, unless --plaintext or --sandbox.")]
CertificateFile = Annotated[str | None, option("Your own certificate (PEM, full chain), instead of a new one.", "FILE")]


class TlsOptions(NamedTuple):
    """What a target's options ask for; `key_option` names the private key of `certificate`, with its metavar."""

    tls: bool
    certificate: str | None
    key: str | None
    key_option: str
    plaintext: bool

    @property
    def encrypted(self) -> bool:
        """Whether TLS is requested."""
        return self.tls or self.certificate is not None

    def check(self, hint: str) -> None:
        """Raise InputError `missing_argument` with this hint, or `conflicting_options`."""
        if (self.certificate is None) != (self.key is None):
            given, lacking = "--certificate FILE", self.key_option
            if self.certificate is None:
                given, lacking = lacking, given
            raise InputError(
                "missing_argument",
                f"{given} needs {lacking}: the file has the certificates without their private key",
                hint=hint,
            )
        if self.encrypted and self.plaintext:
            raise InputError(
                "conflicting_options",
                f"{flag_of('tls' if self.tls else 'certificate')} and --plaintext exclude each other",
                hint="leave out --plaintext: the API key then travels encrypted",
            )
