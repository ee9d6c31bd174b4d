"""Account lookups for doctor and preflight, run in parallel; `wiring.py` provides them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from tgi_deploy.errors import DeployError
from tgi_deploy.values.base import Frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tgi_deploy.catalog.quotas import Quota
    from tgi_deploy.targets.ec2.inspection import Inspector

_T = TypeVar("_T")
_AT_ONCE: Final = 8


class Survey(Frozen, frozen=True, kw_only=True):
    """`vcpus` returns those of an instance type, None for an unknown one.

    `hub_access(hub_id, revision)` checks that the current token may read a model's files, or raises DeployError; None
    if the hub must not be contacted, for the reason `hub_skipped_reason`. `hub_token`: whether a token is set.
    """

    inspector: Callable[[str], Inspector]
    quotas: Callable[[], Mapping[str, Quota]]
    vcpus: Callable[[str], int | None]
    hub_access: Callable[[str, str], None] | None = None
    hub_skipped_reason: str = "the hub was not contacted"
    hub_token: bool = False


def ask_all(questions: Mapping[str, Callable[[], _T]]) -> dict[str, _T | DeployError]:
    """Run all questions in parallel; return each one's answer or error by name."""
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 -- planning asks nothing

    if not questions:
        return {}
    with ThreadPoolExecutor(max_workers=min(_AT_ONCE, len(questions)), thread_name_prefix="survey") as pool:
        asked = {name: pool.submit(try_call, question) for name, question in questions.items()}
        return {name: future.result() for name, future in asked.items()}


def try_call(question: Callable[[], Any]) -> Any:  # noqa: ANN401 -- whatever was asked for
    """Return the answer, or the DeployError instead."""
    try:
        return question()
    except DeployError as error:
        return error
