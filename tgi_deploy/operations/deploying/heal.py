"""`up --heal`: after a failure that a change to the plan can fix, makes that change and tries again, at most twice.

The changes for each failure are data (`profiles/diagnosis/heal.json`). The planner makes every changed plan like any
other, so it stays within the budget, and the failed deployment is removed before the next one starts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tgi_deploy.errors import DeployError, Failure, Healed, InputError, LeftBehindError
from tgi_deploy.operations.deploying.up import up
from tgi_deploy.values.base import replaced
from tgi_deploy.values.plan import NoFeasiblePlan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tgi_deploy.engines.protocol import Engine
    from tgi_deploy.operations.context import Context
    from tgi_deploy.operations.deploying.up import Decision, UpOutcome, UpRequest
    from tgi_deploy.operations.planning.option_texts import OptionTexts
    from tgi_deploy.values.engine import RequestEdit
    from tgi_deploy.values.plan import Plan

MOST: Final = 2
_AGAIN: Final = "again"
_OTHER_MACHINE: Final = "other_machine"
_P2P_OFF: Final = "NCCL_P2P_DISABLE=1"


@dataclass(frozen=True, kw_only=True, slots=True)
class Fix:
    """A change to a plan. `code` is the failure that it fixes, `what` describes it, `texts` and `plan` include it."""

    code: str
    edit: str
    what: str
    texts: OptionTexts
    plan: Plan


@dataclass(frozen=True, kw_only=True, slots=True)
class Healer:
    """Selects changes to a plan after a failure.

    `edits` has the names of changes by code, in the order to try them; `engine` defines some of them. `plan_again`
    plans with changed options. Raises InputError `bad_profile` for an unknown change.
    """

    engine: Engine
    edits: Mapping[str, Sequence[str]]
    plan_again: Callable[[OptionTexts], Plan | NoFeasiblePlan]

    def __post_init__(self) -> None:
        known = (_AGAIN, _OTHER_MACHINE, *self.engine.edits, *_EDITS)
        unknown = next((name for names in self.edits.values() for name in names if name not in known), None)
        if unknown is not None:
            raise InputError(
                "bad_profile",
                f"reading the fixes for failures: unknown change {unknown[:60]!r}",
                hint=f"diagnosis/heal.json may name {', '.join(known)}",
            )

    def fix(self, error: DeployError, texts: OptionTexts, plan: Plan, made: Sequence[Fix]) -> Fix | None:
        """Return the next change that may fix the failure and that the planner accepts, or None."""
        if len(made) >= MOST:
            return None
        code = _cause(error)
        for edit in self.edits.get(code, ()):
            if edit != _AGAIN and (code, edit) in {(fix.code, fix.edit) for fix in made}:
                continue
            changed = self._changed(edit, texts, plan)
            if changed is not None:
                texts, plan, what = changed
                return Fix(code=code, edit=edit, what=what, texts=texts, plan=plan)
        return None

    def _changed(self, edit: str, texts: OptionTexts, plan: Plan) -> tuple[OptionTexts, Plan, str] | None:
        if edit == _AGAIN:
            return texts, plan, "the same plan on a new machine"
        if edit == _OTHER_MACHINE:
            return _other_machine(texts, plan)
        changed, what = self._edited(edit, texts, plan)
        try:
            again = self.plan_again(changed)
        except InputError:  # the change conflicts with the request, such as a disk for your own machine
            return None
        return None if isinstance(again, NoFeasiblePlan) else (changed, again, what)

    def _edited(self, edit: str, texts: OptionTexts, plan: Plan) -> tuple[OptionTexts, str]:
        if edit in self.engine.edits:
            return _pinned(texts, self.engine.edit(edit, plan.chosen.engine.settings))
        return _EDITS[edit](texts, plan)


@dataclass(slots=True)
class _Attempts:
    """The changes made so far, and the next one: with one, the failed machine is removed and `up` tries again."""

    healer: Healer
    texts: OptionTexts
    plan: Plan
    made: list[Fix] = field(default_factory=list)
    next: Fix | None = None

    def decide(self, error: DeployError, otherwise: Callable[[DeployError], Decision]) -> Decision:
        self.next = self.healer.fix(error, self.texts, self.plan, self.made)
        return otherwise(error) if self.next is None else "retry"

    def why_not(self, error: DeployError) -> str:
        """Return in one line why there are no further changes after a failure."""
        code = _cause(error)
        if _is_left(error):
            return "some resources could not be removed, so no new machine is launched next to them"
        if _is_kept_from_before(error):
            return "resources from before this run are kept, so no new machine is launched next to them"
        if len(self.made) >= MOST:
            return f"{code} occurred after {MOST} changes, the maximum"
        if code not in self.healer.edits:
            return f"no change to the plan fixes {code}"
        return f"no other change that fixes {code} fits the request and its budget"

    def take(self, error: DeployError) -> Fix | None:
        """Apply and return the change for a failure; None if there is none, or if resources are left or kept.

        `decide` was not called for a failure before the wait for the engine, so this selects the change.
        """
        if _is_left(error) or _is_kept_from_before(error):
            return None
        fix = self.next or self.healer.fix(error, self.texts, self.plan, self.made)
        self.next = None
        if fix is not None:
            self.made.append(fix)
            self.texts, self.plan = fix.texts, fix.plan
        return fix


def _cause(error: DeployError) -> str:
    diagnosis = error.failure.diagnosis if error.failure else None
    return (diagnosis.finding if diagnosis else None) or error.code


def _is_left(error: DeployError) -> bool:
    return isinstance(error, LeftBehindError) or (error.failure is not None and error.failure.outcome == "not_removed")


def _is_kept_from_before(error: DeployError) -> bool:
    return error.failure is not None and bool(error.failure.before)


def up_and_heal(
    context: Context, texts: OptionTexts, request: Callable[[OptionTexts, Plan], UpRequest], plan: Plan, healer: Healer
) -> tuple[UpOutcome, tuple[Fix, ...]]:
    """Bring a plan up with automatic fixes; return the outcome and the changes. Raises the errors of `up`.

    The failure of an error lists the changes that did not help under `healed`.
    """
    attempts = _Attempts(healer=healer, texts=texts, plan=plan)
    while True:
        asked = request(attempts.texts, attempts.plan)
        if attempts.made:
            asked = replaced(asked, origin="heal")
        try:
            outcome = up(context, replaced(asked, on_failure=_deciding(attempts, asked.on_failure)))
        except DeployError as error:
            fix = attempts.take(error)
            if fix is None:
                context.reporter.note(f"no automatic fix: {attempts.why_not(error)}")
                healed = tuple(Healed(code=made.code, edit=made.edit, what=made.what) for made in attempts.made)
                raise error.copy(failure=replaced(error.failure or Failure(), healed=healed)) from error.__cause__
            context.reporter.note(f"trying to fix {fix.code}: {fix.what} ({len(attempts.made)} of at most {MOST})")
        else:
            return outcome, tuple(attempts.made)


def _deciding(attempts: _Attempts, otherwise: Callable[[DeployError], Decision]) -> Callable[[DeployError], Decision]:
    return lambda error: attempts.decide(error, otherwise)


def _pinned(texts: OptionTexts, edit: RequestEdit) -> tuple[OptionTexts, str]:
    others = tuple(text for text in texts.set if text.lstrip("-").partition("=")[0] != edit.flag)
    pin = f"{edit.flag}={edit.value}"
    return replaced(texts, set=(*others, pin)), f"--set {pin}"


def _more_shards(texts: OptionTexts, plan: Plan) -> tuple[OptionTexts, str]:
    shards = 2 * plan.chosen.num_shard
    return replaced(texts, num_shard=str(shards)), f"--num-shard {shards}"


def _more_disk(texts: OptionTexts, plan: Plan) -> tuple[OptionTexts, str]:
    gib = 2 * plan.chosen.storage.root_volume_gib
    return replaced(texts, disk=str(gib)), f"--disk {gib}"


def _p2p_off(texts: OptionTexts, _plan: Plan) -> tuple[OptionTexts, str]:
    return replaced(texts, env=(*texts.env, _P2P_OFF)), f"--env {_P2P_OFF}"


_EDITS: Final[Mapping[str, Callable[[OptionTexts, Plan], tuple[OptionTexts, str]]]] = {
    "more_shards": _more_shards,
    "more_disk": _more_disk,
    "p2p_off": _p2p_off,
}


def _other_machine(texts: OptionTexts, plan: Plan) -> tuple[OptionTexts, Plan, str] | None:
    """Return the plan with its first fallback of another instance type as the choice; None without one."""
    failed = plan.chosen.offer.instance_type.name
    others = tuple(item for item in plan.fallbacks if item.offer.instance_type.name != failed)
    if not others:
        return None
    name = others[0].offer.instance_type.name
    return texts, replaced(plan, chosen=others[0], fallbacks=others[1:]), f"{name} instead of {failed}"
