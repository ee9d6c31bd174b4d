"""What a look around needs from outside; `wiring.py` fills it. Questions are put at the same time."""

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
    """`vcpus` of an instance type, None for one that nobody knows.

    `hub_access(hub_id, revision)` proves that the token in use may read a model's files, or raises DeployError;
    None where the hub is not to be asked, and `hub_quiet` says why. `hub_token` tells whether there is one.
    """

    inspector: Callable[[str], Inspector]
    quotas: Callable[[], Mapping[str, Quota]]
    vcpus: Callable[[str], int | None]
    hub_access: Callable[[str, str], None] | None = None
    hub_quiet: str = "the hub was not asked"
    hub_token: bool = False


def together(questions: Mapping[str, Callable[[], _T]]) -> dict[str, _T | DeployError]:
    """The answers by name, or the error that came instead. All are asked at once."""
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 -- planning asks nothing

    if not questions:
        return {}
    with ThreadPoolExecutor(max_workers=min(_AT_ONCE, len(questions)), thread_name_prefix="survey") as pool:
        asked = {name: pool.submit(attempt, question) for name, question in questions.items()}
        return {name: future.result() for name, future in asked.items()}


def attempt(question: Callable[[], Any]) -> Any:  # noqa: ANN401 -- whatever was asked for
    """The answer, or the DeployError that came instead."""
    try:
        return question()
    except DeployError as error:
        return error
