"""The error for a missing plan: the reasons, and the nearest misses as commands to paste."""

from __future__ import annotations

import shlex
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from tgi_deploy.operations.planning.documents import no_plan_document
from tgi_deploy.values.plan import NoPlanError
from tgi_deploy.values.plan_options import PLAN_OPTIONS

if TYPE_CHECKING:
    from tgi_deploy.operations.planning.option_texts import OptionTexts
    from tgi_deploy.targets.protocol import Target
    from tgi_deploy.values.plan import NoFeasiblePlan

_PROGRAM: Final = "tgi-deploy"


def without_plan(
    command: str, texts: OptionTexts, made: NoFeasiblePlan, *, target: Target | None = None
) -> NoPlanError:
    """Return the error of a command that needs a plan if there is none. `target` is the target of the command.

    `command` has its options other than those in `texts`.

    The suggested commands leave the hardware to the target if `texts` don't name it.
    """
    supplied = made.request.hardware is not None and texts.hardware is None
    named = target is not None and (target.facts.service or supplied)
    words = f"{command} --target {target.name}" if target is not None and named else command
    commands = tuple(_with_option(words, texts, miss.option) for miss in made.near_misses)
    return NoPlanError(
        "no_feasible_plan",
        _why(made),
        hint=f"nearest: {made.near_misses[0].message}: {commands[0]}" if commands else _nothing_near(made),
        data=no_plan_document(made),
        made=made,
        commands=commands,
    )


def _nothing_near(made: NoFeasiblePlan) -> str:
    if made.request.flags:
        return "no change to the request helps, but removing a --set may: --json shows every rejection"
    against_all = set.intersection(*(set(item.codes) for item in made.rejections))
    shared = [item for item in made.rejections if item.code in against_all]
    if shared:
        return f"every machine is rejected: {min(shared, key=attrgetter('distance')).message}"
    return "no change to the request helps: --json shows every rejection; or choose another model"


def _why(made: NoFeasiblePlan) -> str:
    codes = sorted({item.code for item in made.rejections})
    reasons = f" ({', '.join(codes)})" if codes else ""
    return f"planning {made.request.model.name}: none of {made.considered:,} configurations fits{reasons}"


def _with_option(command: str, texts: OptionTexts, option: str) -> str:
    """Return the command with the given options, except those that `option` overrides."""
    changed = shlex.split(option)
    replaced = {word for word in changed if word.startswith("--")}
    kept = [word for flag, words in given_options(texts) if flag not in replaced for word in words]
    return shlex.join([_PROGRAM, *shlex.split(command), texts.model, *kept, *changed])


def given_options(texts: OptionTexts) -> list[tuple[str, list[str]]]:
    """Return the given options: each flag with its words on a command line."""
    given = ((row.flag, getattr(texts, row.field)) for row in PLAN_OPTIONS)
    return [(flag, option_words(flag, value)) for flag, value in given if value]


def option_words(flag: str, value: object) -> list[str]:
    if isinstance(value, bool):
        return [flag]
    values = value if isinstance(value, tuple) else (value,)
    return [word for item in values for word in (flag, str(item))]
