"""The frame around every command: arguments in, one `Result` out, errors as one line, never a traceback.

A command is a function that returns a `Result`:

    @command("status", examples=("tgi-deploy status llama3-13b",))
    @name_argument
    def status_command(name: str) -> Result:
        '''Show what was recorded, what is there, and the difference.'''
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

import click

from tgi_deploy import __version__
from tgi_deploy.cli.output import Result, silence, write_result
from tgi_deploy.errors import DefectError, DeployError, InputError, InterruptedByUserError, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

PROGRAM: Final = "tgi-deploy"
COMPLETE_VARIABLE: Final = "_TGI_DEPLOY_COMPLETE"
_WHOLE_LINE: Final = 200
CONTEXT: Final[Mapping[str, Any]] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class Invocation:
    """One run of the program: filled in while arguments are parsed, so that any failure can be reported."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.command = ""
        self.sandbox = False


class SectionOption(click.Option):
    """An option that stands under a heading in `--help`."""

    def __init__(self, *args: Any, section: str = "Options", **kwargs: Any) -> None:  # noqa: ANN401 -- click's own signature
        super().__init__(*args, **kwargs)
        self.section = section


class _NamedInEnvelope(click.Command):
    """Its name is kept for the envelope, before anything of it can fail."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,  # noqa: ANN401 -- click's own signature
    ) -> click.Context:
        _note_command(info_name, parent)
        return super().make_context(info_name, args, parent, **extra)


class FrameCommand(_NamedInEnvelope):
    """A command with examples, and options under headings."""

    def __init__(self, *args: Any, examples: tuple[str, ...] = (), **kwargs: Any) -> None:  # noqa: ANN401 -- click's own signature
        super().__init__(*args, **kwargs)
        self.examples = examples

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 -- click's own signature
        if isinstance(ctx.obj, Invocation):
            ctx.obj.sandbox = bool(ctx.params.get("sandbox"))
        return super().invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and isinstance(param, click.Option):
                sections.setdefault(getattr(param, "section", "Options"), []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(formatter, self.examples)
        super().format_epilog(ctx, formatter)


class FrameGroup(_NamedInEnvelope, click.Group):
    """A command with subcommands. Named alone, it says so and shows its help.

    `words_elsewhere`: what other tools call its commands, for a hint.
    """

    words_elsewhere: ClassVar[Mapping[str, str]] = {}

    def __init__(self, name: str, **kwargs: Any) -> None:  # noqa: ANN401 -- click's own signature
        kwargs |= {"invoke_without_command": True, "subcommand_metavar": "COMMAND [ARGS]...", "callback": _need_command}
        super().__init__(name, **kwargs)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The subcommand asked for. Raises UnknownCommandError with the nearest names."""
        known = self.list_commands(ctx)
        if args[0] not in known and not args[0].startswith("-") and not ctx.resilient_parsing:
            meant = self.words_elsewhere.get(args[0].lower())
            raise UnknownCommandError(args[0], (meant,) if meant else nearest(args[0], known), ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 -- click's
        with formatter.section("Commands"):
            formatter.write_dl([(name, item.get_short_help_str(_WHOLE_LINE)) for name, item in self.commands.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 -- click's
        members = (item for item in self.commands.values() if isinstance(item, FrameCommand))
        write_examples(formatter, [item.examples[0] for item in members])


def _need_command() -> None:
    ctx = click.get_current_context()
    if ctx.invoked_subcommand is None:
        raise MissingCommandError("a command is missing", ctx)


class MissingCommandError(click.UsageError):
    """A group was named without one of its commands."""


class UnknownCommandError(click.UsageError):
    """A command that does not exist; `meant` are the names it may have meant."""

    def __init__(self, name: str, meant: Sequence[str], ctx: click.Context) -> None:
        super().__init__(f"there is no command {name!r}", ctx)
        self.meant = meant


def command(
    name: str, *, examples: tuple[str, ...], hidden: bool = False
) -> Callable[[Callable[..., Result]], FrameCommand]:
    """Make a click command of a function that returns a `Result`; its docstring is the help."""

    def build(function: Callable[..., Result]) -> FrameCommand:
        params: list[click.Parameter] = list(reversed(getattr(function, "__click_params__", ())))
        return FrameCommand(
            name,
            callback=function,
            params=[*params, *_asks_no_cloud(params), _json_option()],
            help=function.__doc__,
            examples=examples,
            hidden=hidden,
            context_settings=dict(CONTEXT),
        )

    return build


def standing_in(wrapper: Callable[..., Result], function: Callable[..., Result]) -> Callable[..., Result]:
    """`wrapper`, with what a command is made of beside the call: the help and the options of `function`."""
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
    result = _outcome(root, list(argv), invocation)
    if result is None:
        return _finish_output(0)
    if invocation.sandbox:
        from tgi_deploy.cli.in_sandbox import in_sandbox  # noqa: PLC0415 -- only the sandbox pays for it

        result = in_sandbox(result)
    try:
        write_result(invocation.command, result, as_json=invocation.as_json)
    except BrokenPipeError:
        silence(sys.stdout)
    except OSError as error:
        silence(sys.stdout)
        sys.stderr.write(f"error[output_failed]: writing the result failed: {error.strerror}\n")
        return result.exit_code or DeployError.exit_code
    except KeyboardInterrupt:
        return InterruptedByUserError.exit_code
    return result.exit_code


def _outcome(  # noqa: PLR0911 -- one way out for each kind of end
    root: click.Group, argv: list[str], invocation: Invocation
) -> Result | None:
    """What came of it. None when click has already printed what was asked for (help, version)."""
    try:
        with root.make_context(PROGRAM, argv, obj=invocation) as ctx:
            return cast("Result", root.invoke(ctx))
    except click.exceptions.Exit:
        return None
    except click.ClickException as error:
        return usage_failure(error, invocation.command)
    except DefectError as error:
        return crash(error)
    except DeployError as error:
        return failure(error)
    except (KeyboardInterrupt, click.Abort, EOFError):
        return _interrupted()
    except BrokenPipeError:
        silence(sys.stdout)
        return None
    except Exception as error:  # noqa: BLE001 -- the outermost frame: whatever it is, people get one line and a file
        return crash(DefectError(error))


def failure(error: DeployError) -> Result:
    result = Result(data=error.data, exit_code=error.exit_code, errors=(error.problem,))
    if error.failure is None:
        return result
    from tgi_deploy.cli.views.failure import told  # noqa: PLC0415 -- only a failed 'up' pays for it

    return replace(result, told=told(error.message, error.failure))


def usage_failure(error: click.ClickException, command_name: str) -> Result:
    """A click complaint as a result: a stable code, one line, and where to read on."""
    hint = f"run '{' '.join([PROGRAM, *command_name.split(), '--help'])}'"
    close = _nearest_of(error)
    if close:
        hint = f"did you mean {' or '.join(repr(name) for name in close)}? Otherwise {hint}"
    item = Problem(code=_usage_code(error), message=_usage_message(error), hint=hint)
    text = error.ctx.get_help() if isinstance(error, MissingCommandError) and error.ctx else ""
    return Result(text=text, exit_code=InputError.exit_code, errors=(item,))


def _usage_code(error: click.ClickException) -> str:
    codes: tuple[tuple[type[click.ClickException], str], ...] = (
        (UnknownCommandError, "unknown_command"),
        (click.NoSuchOption, "unknown_option"),
        (click.MissingParameter, "missing_argument"),
        (click.BadParameter, "bad_option_value"),
        (click.FileError, "bad_file"),
        (MissingCommandError, "missing_command"),
    )
    return next((code for kind, code in codes if isinstance(error, kind)), "bad_usage")


def _usage_message(error: click.ClickException) -> str:
    message = error.message if isinstance(error, click.NoSuchOption) else error.format_message()
    return message[:1].lower() + message[1:].rstrip(".")


def _nearest_of(error: click.ClickException) -> Sequence[str]:
    if isinstance(error, UnknownCommandError):
        return error.meant
    return error.possibilities or () if isinstance(error, click.NoSuchOption) else ()


def nearest(name: str, known: Sequence[str]) -> tuple[str, ...]:
    from difflib import get_close_matches  # noqa: PLC0415 -- only a typo pays for it

    return tuple(get_close_matches(name[:100], known, n=2))


def write_examples(formatter: click.HelpFormatter, examples: Sequence[str]) -> None:
    if not examples:
        return
    with formatter.section("Examples"):
        formatter.write("".join(f"{'':>{formatter.current_indent}}{line}\n" for line in examples))


def _interrupted() -> Result:
    item = Problem(
        code="interrupted",
        message="interrupted before the end",
        hint=f"'{PROGRAM} list' shows what exists; running the same command again goes on from there",
    )
    return Result(exit_code=InterruptedByUserError.exit_code, errors=(item,))


def crash(error: DefectError) -> Result:
    """A defect as a result: one line, what is known to exist, and a file for whoever mends it."""
    path = _write_crash_file(error.cause)
    report = f"please report this defect with the file {path}" if path else "please report this defect"
    hint = f"{error.hint}; {report}" if error.hint else report
    return Result(
        data={**error.data, "crash_file": str(path) if path else None},
        exit_code=error.exit_code,
        errors=(error.copy(hint=hint).problem,),
    )


def _write_crash_file(error: Exception) -> Path | None:
    """Keep the traceback where only the user can read it. None when there is nowhere to write."""
    import traceback  # noqa: PLC0415 -- only a defect pays for it

    from tgi_deploy.data_files import state_home  # noqa: PLC0415 -- likewise

    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    path = state_home() / "crashes" / f"crash-{stamp}-{os.getpid()}.txt"
    text = f"tgi-deploy {__version__}, Python {sys.version}\n\n{''.join(traceback.format_exception(error))}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError:
        return None
    return path


def _asks_no_cloud(params: Sequence[click.Parameter]) -> tuple[click.Option, ...]:
    """`--sandbox` goes with any command, so that a line can be changed from `up` to `plan` by one word."""
    if any(param.name == "sandbox" for param in params):
        return ()
    told = "Accepted by every command; this one asks no cloud."
    return (SectionOption(["--sandbox"], is_flag=True, expose_value=False, hidden=True, help=told),)


def _json_option(*, hidden: bool = False) -> click.Option:
    return SectionOption(
        ["--json"],
        is_flag=True,
        expose_value=False,
        hidden=hidden,
        help="Print one JSON object, on success and on failure alike.",
        section="Output",
    )


def _asks_json(argv: Sequence[str]) -> bool:
    """Whether `--json` stands anywhere: a command line that can't be parsed still gets its answer in JSON."""
    options = argv[: argv.index("--")] if "--" in argv else argv
    return "--json" in options


def _note_command(info_name: str | None, parent: click.Context | None) -> None:
    """Keep the words that lead to this command (`catalog list`) for the envelope."""
    if parent is None or not isinstance(parent.obj, Invocation):
        return
    words = parent.command_path.split()[1:]
    parent.obj.command = " ".join([*words, info_name or ""]).strip()


def _finish_output(exit_code: int) -> int:
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        silence(sys.stdout)
    return exit_code
