"""`ask`: sends one prompt to a deployment, and writes the answer as it streams."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any, Final

import click

from tgi_deploy.cli.frame import command
from tgi_deploy.cli.options import cloud_options, name_argument
from tgi_deploy.cli.output import Result, printed, write_stderr
from tgi_deploy.cli.views.text import accelerated
from tgi_deploy.errors import InputError, InterruptedByUserError, Problem
from tgi_deploy.text import plural

if TYPE_CHECKING:
    from tgi_deploy.api import Client
    from tgi_deploy.values.results import AnswerData

_MOST_CHARS: Final = 4 * 1024**2
_STDIN: Final = "-"
# Control characters and bidirectional marks: model output is untrusted.
_STEERING: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@command(
    "ask",
    examples=(
        'tgi-deploy ask llama3-13b "What is a GPU?"',
        "tgi-deploy ask llama3-13b - --no-chat --max-tokens 1000",
    ),
)
@name_argument
@click.argument("prompt", metavar="PROMPT|-")
@click.option(
    "--chat/--no-chat",
    default=None,
    help="Use the model's chat template, or send the bare prompt.  [default: chat if it has one]",
)
@click.option(
    "--max-tokens",
    type=click.IntRange(min=1),
    metavar="N",
    help="Maximum length of the answer.  [default: the planned output length]",
)
@click.option(
    "--api-key-from-env",
    metavar="VARIABLE",
    help="Variable that holds the API key.  [default: the one given to 'up']",
)
@cloud_options
def ask_command(*, client: Client, name: str, prompt: str, **given: Any) -> Result:  # noqa: ANN401 -- the options, each with its own type
    """Send one prompt to a deployment. The answer streams to stdout; time to first token and tokens/s go to stderr."""
    text, streamed = _from_stdin() if prompt == _STDIN else prompt, _Streamed(silent=_as_json())
    try:
        answer = client.ask(name, text, on_piece=streamed, **given)
    except KeyboardInterrupt:
        return _interrupted(name, streamed)
    finally:
        streamed.end()
    if not streamed.silent:
        write_stderr(f"{_speed(answer.data)}\n")
    return printed(answer)


def _as_json() -> bool:
    return bool(click.get_current_context().find_root().obj.as_json)


class _Streamed:
    """Writes each piece of the answer as it arrives, unless `silent`."""

    def __init__(self, *, silent: bool) -> None:
        self.silent = silent
        self.text = ""

    def __call__(self, piece: str) -> None:
        self.text += piece
        if not self.silent:
            sys.stdout.write(_STEERING.sub("", piece))
            sys.stdout.flush()

    def end(self) -> None:
        if self.text and not self.silent and not self.text.endswith("\n"):
            sys.stdout.write("\n")
            sys.stdout.flush()


def _from_stdin() -> str:
    text = sys.stdin.read(_MOST_CHARS + 1) if sys.stdin is not None else ""
    if not text.strip() or len(text) > _MOST_CHARS:
        why = "is longer than 4 million characters" if text.strip() else "is empty"
        raise InputError("no_input", f"reading the prompt: standard input {why}", hint="pipe a prompt in")
    return text


def _speed(answer: AnswerData) -> str:
    first = "" if answer.first_token_ms is None else f"TTFT {answer.first_token_ms:,.0f} ms, "
    rate = "" if answer.tokens_per_s is None else f", {answer.tokens_per_s:.1f} tokens/s"
    return f"{first}{plural(answer.tokens, 'token')}{rate}{accelerated()}"


def _interrupted(name: str, streamed: _Streamed) -> Result:
    problem = Problem(code="interrupted", message="interrupted before the end of the answer")
    data = {"name": name, "answer": streamed.text}
    return Result(data=data, exit_code=InterruptedByUserError.exit_code, errors=(problem,))
