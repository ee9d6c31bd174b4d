"""The console script. Commands are named here and imported when they run, so that `--help` stays quick."""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
from typing import TYPE_CHECKING, Final, NamedTuple, cast

import click

from tgi_deploy import __version__
from tgi_deploy.cli import frame

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from click.shell_completion import CompletionItem


_COLLECTED_OBJECTS: Final = 100_000


class Entry(NamedTuple):
    """A command that is not imported yet: module `tgi_deploy.cli.<name>` defines it as `<name>_command`."""

    name: str
    help: str


SECTIONS: Final[Mapping[str, tuple[Entry, ...]]] = {
    "Commands": (
        Entry("plan", "Choose the machine and engine settings for a model, and explain the choice."),
        Entry("up", "Bring up or update a deployment: plan, confirm, act, wait, verify that it answers."),
        Entry("status", "Show whether a deployment serves, what exists, and what it costs."),
        Entry("ask", "Send a prompt to a deployment; the answer streams as it is generated."),
        Entry("logs", "Print the engine's log."),
        Entry("open", "Print a deployment's URL, with a curl and a Python command."),
        Entry("scale", "Change the number of replicas of a running deployment."),
        Entry("rollback", "Go back to the previous revision."),
        Entry("extend", "Set, change or remove the limits of a running deployment."),
        Entry("down", "Delete deployments, or all of them, and verify that nothing is left."),
    ),
    "More": (
        Entry("list", "List deployments: recorded ones, and those found only in the cloud."),
        Entry("render", "Print one artifact of the plan: kubernetes, docker, compose, user-data, launch-template."),
        Entry("restart", "Restart the engine on its machine, wait until it is healthy, verify it."),
        Entry("stop", "Stop the machine of a deployment and keep its disk."),
        Entry("start", "Start a stopped machine, wait until it is healthy, verify it."),
        Entry("exec", "Run a command or a shell where the engine runs."),
        Entry("smoke", "Verify a deployment; or bring up models, verify and delete them, for CI."),
        Entry("diagnose", "Find the cause of a failure in a log, with evidence and remedy."),
        Entry("explain", "Explain a code: a diagnosis, an error, a rejection."),
        Entry("doctor", "Check for anything that would make a launch fail; print the IAM policy."),
        Entry("runbook", "Write a runbook for on-call engineers: cost, checks, alerts, removal."),
        Entry("costs", "Show what deployments have cost and cost now, by deployment and owner."),
        Entry("gc", "Find and delete orphaned resources in the cloud."),
        Entry("rehearse", "Rehearse your plan in an isolated sandbox with injected faults."),
        Entry("diff", "Compare two plans, and fail if cost or memory margin got worse."),
        Entry("catalog", "List and show accelerators, instance types, regions, engines, models."),
        Entry("profile", "List, show, validate and create profiles; write a deployment file."),
        Entry("sandbox", "Start, stop or inspect the local cloud that needs no account."),
    ),
}
HIDDEN: Final = ("completion", "predict")
NAMES: Final = (*(entry.name for entries in SECTIONS.values() for entry in entries), *HIDDEN)
WORDS_ELSEWHERE: Final = {
    **dict.fromkeys(("apply", "create", "deploy", "launch", "run"), "up"),
    **dict.fromkeys(("revert", "undo"), "rollback"),
    **dict.fromkeys(("update", "upgrade"), "up"),
    **dict.fromkeys(("delete", "destroy", "kill", "remove", "rm", "teardown", "terminate"), "down"),
    **dict.fromkeys(("ls", "ps"), "list"),
    **dict.fromkeys(("describe", "info", "inspect"), "status"),
    **dict.fromkeys(("bill", "cost", "spend"), "costs"),
    **dict.fromkeys(("clean", "cleanup", "prune"), "gc"),
    **dict.fromkeys(("log", "tail"), "logs"),
    **dict.fromkeys(("check", "preflight"), "doctor"),
    **dict.fromkeys(("curl", "endpoint", "url"), "open"),
    **dict.fromkeys(("shell", "ssh"), "exec"),
    **dict.fromkeys(("chat", "complete", "generate", "prompt", "query"), "ask"),
    **dict.fromkeys(("models",), "catalog"),
    **dict.fromkeys(("test", "verify"), "smoke"),
    **dict.fromkeys(("pause", "suspend"), "stop"),
    **dict.fromkeys(("resume",), "start"),
    **dict.fromkeys(("reboot",), "restart"),
    **dict.fromkeys(("watch",), "status"),
    **dict.fromkeys(("bench", "benchmark"), "smoke"),
    **{word: f"--{word}" for word in ("help", "version")},
}
EXAMPLES: Final = (
    "tgi-deploy plan llama3-13b --budget 5",
    "tgi-deploy up llama3-13b --budget 5 --sandbox",
    "tgi-deploy render llama3-8b --as docker --hardware 1xRTX-4090",
    "tgi-deploy down --all",
)


class LazyGroup(frame.FrameGroup):
    """The root command. It has every name and help line, but imports only the command that runs."""

    words_elsewhere = WORDS_ELSEWHERE

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 -- the signature of click
        return list(NAMES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 -- the signature of click
        if cmd_name not in NAMES:
            return None
        module = importlib.import_module(f"tgi_deploy.cli.{cmd_name}")
        return cast("click.Command", getattr(module, f"{cmd_name}_command"))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 -- the signature of click
        for title, entries in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{entry.name:<10}", entry.help) for entry in entries])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 -- the signature of click
        frame.write_examples(formatter, EXAMPLES)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem  # noqa: PLC0415 -- needed only for completion

        entries = [entry for section in SECTIONS.values() for entry in section if entry.name.startswith(incomplete)]
        found = [CompletionItem(entry.name, help=entry.help) for entry in entries]
        return found or click.Command.shell_complete(self, ctx, incomplete)


ROOT: Final = LazyGroup(
    frame.PROGRAM,
    help="Plan, bring up, check and remove Text Generation Inference deployments.",
    params=[
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=lambda ctx, _param, wanted: _print_version(ctx) if wanted else None,
            help="Print the version.",
        ),
        click.Option(["--json"], is_flag=True, expose_value=False, hidden=True),
    ],
    context_settings=dict(frame.CONTEXT),
)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the program and exit with its exit code."""
    for stream in (sys.stdout, sys.stderr):
        _never_fail_on_encoding(stream)
    if frame.COMPLETE_VARIABLE in os.environ:
        ROOT.main(prog_name=frame.PROGRAM, complete_var=frame.COMPLETE_VARIABLE)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # Garbage collection frees nothing in the short life of a command, and took 7% of a plan: 3% here, the rest at exit.
    gc.set_threshold(_COLLECTED_OBJECTS)
    code = frame.run(ROOT, sys.argv[1:] if argv is None else argv)
    gc.freeze()
    sys.exit(code)


def _print_version(ctx: click.Context) -> None:
    from tgi_deploy.cli.output import Result, write_result  # noqa: PLC0415 -- not needed for --help

    as_json = isinstance(ctx.obj, frame.Invocation) and ctx.obj.as_json
    result = Result(data={"version": __version__}, text=f"{frame.PROGRAM} {__version__}")
    write_result("", result, as_json=as_json)
    ctx.exit()


def _never_fail_on_encoding(stream: object) -> None:
    """Print an escape for a character that the terminal can't show: an odd name must never end the program."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")
