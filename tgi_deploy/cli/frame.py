"""The frame around every command: it parses arguments, writes one `Result`, and turns any error into one line.

A command is a function that returns a `Result`:

    @command("status", examples=("tgi-deploy status llama3-13b",))
    @name_argument
    def status_command(name: str) -> Result:
        '''Compare the record with the existing resources.'''
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tgi_deploy.cli.output import Result

PROGRAM: Final = "tgi-deploy"
COMPLETE_VARIABLE: Final = "_TGI_DEPLOY_COMPLETE"
_WHOLE_LINE: Final = 200
# The last headings of each help page by their order; those above them come in the order of the options.
_LAST: Final = {title: at for at, title in enumerate(("Places", "Network", "Keys and tokens", "Options", "Output"), 1)}
CONTEXT: Final[Mapping[str, Any]] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class Invocation:
    """One run of the program. It is filled in while arguments are parsed, so that any failure can be reported.

    `given` has what the commands in its result need to work when pasted (`Pasted`).
    """

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.command = ""
        self.given: dict[str, Any] = {}


class SectionOption(click.Option):
    """An option under a heading in `--help`; `into` names the argument that collects it with others."""

    def __init__(self, *args: Any, section: str = "Options", into: str = "", **kwargs: Any) -> None:  # noqa: ANN401 -- the signature of click
        super().__init__(*args, **kwargs)
        self.section, self.into = section, into


class _NamedInEnvelope(click.Command):
    """A command that records its name for the envelope before anything can fail."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,  # noqa: ANN401 -- the signature of click
    ) -> click.Context:
        _note_command(info_name, parent)
        return super().make_context(info_name, args, parent, **extra)


class FrameCommand(_NamedInEnvelope):
    """A command with examples, and options under headings."""

    def __init__(self, *args: Any, examples: tuple[str, ...] = (), **kwargs: Any) -> None:  # noqa: ANN401 -- the signature of click
        super().__init__(*args, **kwargs)
        self.examples = examples

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 -- the signature of click
        for param in self.params:
            if isinstance(param, SectionOption) and param.into:
                given = ctx.params.setdefault(param.into, {})
                value = ctx.params.pop(str(param.name))
                if value not in (None, (), False):  # an empty text stays, because it was given and is an error
                    given[param.name] = value
        if isinstance(ctx.obj, Invocation):
            ctx.obj.given = _repeated(ctx)
        return super().invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and isinstance(param, click.Option):
                sections.setdefault(getattr(param, "section", "Options"), []).append(record)
        for title in sorted(sections, key=lambda title: _LAST.get(title, 0)):
            with formatter.section(title):
                formatter.write_dl(sections[title])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(formatter, self.examples)
        super().format_epilog(ctx, formatter)


def _repeated(ctx: click.Context) -> dict[str, Any]:
    """Return what suggested commands repeat of this one: the name, and the options that were given.

    Only commands that search for deployments have `regions`; for others, --target is where to launch.
    """
    given = {key: ctx.params.get(key) for key in ("name", "sandbox", "regions", "target")}
    usual = next((param.default for param in ctx.command.params if param.name == "target"), None)
    given |= {"target": given["target"] if given["target"] != usual else "", "searches": "regions" in ctx.params}
    given["profiles_dir"] = str(ctx.params.get("profiles_dir") or "")
    return {key: value for key, value in given.items() if value}


class FrameGroup(_NamedInEnvelope, click.Group):
    """A command with subcommands. Without one, it prints its help.

    `words_elsewhere` maps other tools' names for its commands to its own, for hints.
    """

    words_elsewhere: ClassVar[Mapping[str, str]] = {}

    def __init__(self, name: str, **kwargs: Any) -> None:  # noqa: ANN401 -- the signature of click
        kwargs |= {"invoke_without_command": True, "subcommand_metavar": "COMMAND [ARGS]...", "callback": _need_command}
        super().__init__(name, **kwargs)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the named subcommand. Raises UnknownCommandError with the nearest names."""
        known = self.list_commands(ctx)
        if args[0] not in known and not args[0].startswith("-") and not ctx.resilient_parsing:
            from tgi_deploy.cli.removed import check_removed  # noqa: PLC0415 -- needed only for an unknown name

            check_removed(self, " ".join([*ctx.command_path.split()[1:], args[0]]), args[1:])
            close = self.words_elsewhere.get(args[0].lower())
            raise UnknownCommandError(args[0], (close,) if close else nearest(args[0], known), ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 -- the signature of click
        with formatter.section("Commands"):
            formatter.write_dl([(name, item.get_short_help_str(_WHOLE_LINE)) for name, item in self.commands.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 -- the signature of click
        members = (item for item in self.commands.values() if isinstance(item, FrameCommand))
        write_examples(formatter, [item.examples[0] for item in members])


def _need_command() -> None:
    """Print the group's help if there is no subcommand. Raises click.UsageError with --json."""
    ctx = click.get_current_context()
    if ctx.invoked_subcommand is not None:
        return
    if ctx.obj.as_json:
        raise click.UsageError("a command is missing", ctx)
    click.echo(ctx.get_help())
    ctx.exit()


class UnknownCommandError(click.UsageError):
    """A command that does not exist; `close` are similar names."""

    def __init__(self, name: str, close: Sequence[str], ctx: click.Context) -> None:
        super().__init__(f"unknown command {name!r}", ctx)
        self.close = close


def command(name: str, *, examples: tuple[str, ...]) -> Callable[[Callable[..., Result]], FrameCommand]:
    """Turn a function that returns a `Result` into a click command; its docstring is the help."""

    def build(function: Callable[..., Result]) -> FrameCommand:
        params: list[click.Parameter] = list(reversed(getattr(function, "__click_params__", ())))
        return FrameCommand(
            name,
            callback=function,
            params=[*params, *_cloud_params(params), _json_option()],
            help=function.__doc__,
            examples=examples,
            context_settings=dict(CONTEXT),
        )

    return build


def wrap_command(wrapper: Callable[..., Result], function: Callable[..., Result]) -> Callable[..., Result]:
    """Give `wrapper` the help and the options of `function`."""
    wrapper.__doc__ = function.__doc__
    wrapper.__click_params__ = list(getattr(function, "__click_params__", ()))  # type: ignore[attr-defined]
    return wrapper


def group(name: str, *, help_text: str, commands: Sequence[click.Command]) -> FrameGroup:
    return FrameGroup(
        name,
        commands=list(commands),
        help=help_text,
        params=[_json_option(hidden=True)],
        context_settings=dict(CONTEXT),
    )


def run(root: click.Group, argv: Sequence[str]) -> int:
    """Run the program with `argv` (without its own name); write the result; return the exit code."""
    invocation = Invocation(as_json=_asks_json(argv))
    result = _result(root, list(argv), invocation)
    if result is None:
        return _flushed()
    from tgi_deploy.cli.outcome import write  # noqa: PLC0415 -- not needed for --help

    return write(result, invocation)


def _result(root: click.Group, argv: list[str], invocation: Invocation) -> Result | None:
    """Return the result; None if it is already printed (help, version) or stdout is closed."""
    try:
        with root.make_context(PROGRAM, argv, obj=invocation) as ctx:
            return cast("Result", root.invoke(ctx))
    except (click.exceptions.Exit, BrokenPipeError):
        return None
    except KeyboardInterrupt:
        from tgi_deploy.cli.outcome import interrupted  # noqa: PLC0415 -- needed only for a failure

        return interrupted()
    except Exception as error:  # noqa: BLE001 -- the outermost frame: for any error, users get one line and a crash file
        from tgi_deploy.cli.outcome import result_of  # noqa: PLC0415 -- startup time

        return result_of(error, invocation.command)


def _flushed() -> int:
    """Flush stdout and return 0, even if it is closed."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        from tgi_deploy.cli.output import silence  # noqa: PLC0415 -- needed only for a closed pipe

        silence(sys.stdout)
    return 0


def nearest(name: str, known: Sequence[str]) -> tuple[str, ...]:
    from difflib import get_close_matches  # noqa: PLC0415 -- needed only for a typo

    return tuple(get_close_matches(name[:100], known, n=2))


def write_examples(formatter: click.HelpFormatter, examples: Sequence[str]) -> None:
    if not examples:
        return
    with formatter.section("Examples"):
        formatter.write("".join(f"{'':>{formatter.current_indent}}{line}\n" for line in examples))


def _cloud_params(params: Sequence[click.Parameter]) -> tuple[click.Option, ...]:
    """Return --verbose for commands that call a target.

    Others accept --sandbox without effect, so that users can replace `up` by `plan` in a command line.
    """
    names = {param.name for param in params}
    verbose = () if names.isdisjoint({"sandbox", "target"}) else (_verbose_option(),)
    help_text = "Accepted by every command; this one needs no cloud."
    accepted = SectionOption(["--sandbox"], is_flag=True, expose_value=False, hidden=True, help=help_text)
    return verbose if "sandbox" in names else (*verbose, accepted)


def _verbose_option() -> click.Option:
    return SectionOption(
        ["-v", "--verbose"],
        is_flag=True,
        expose_value=False,
        callback=lambda _ctx, _param, wanted: _show_calls() if wanted else None,
        help="Log each call to the target, the engine and the hub to stderr, without parameters.",
        section="Output",
    )


def _show_calls() -> None:
    import logging  # noqa: PLC0415 -- needed only for --verbose

    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s  %(message)s", datefmt="%H:%M:%S"))
    calls = logging.getLogger("tgi_deploy.calls")
    calls.handlers = [handler]
    calls.setLevel(logging.INFO)


def _json_option(*, hidden: bool = False) -> click.Option:
    return SectionOption(
        ["--json"],
        is_flag=True,
        expose_value=False,
        hidden=hidden,
        help="Print one JSON object, on success and on failure.",
        section="Output",
    )


def _asks_json(argv: Sequence[str]) -> bool:
    """Return whether `--json` is anywhere on the command line: even a parse error is then printed as JSON."""
    options = argv[: argv.index("--")] if "--" in argv else argv
    return "--json" in options


def _note_command(info_name: str | None, parent: click.Context | None) -> None:
    """Record the words of this command (`catalog list`) for the envelope."""
    if parent is None or not isinstance(parent.obj, Invocation):
        return
    words = parent.command_path.split()[1:]
    parent.obj.command = " ".join([*words, info_name or ""]).strip()
