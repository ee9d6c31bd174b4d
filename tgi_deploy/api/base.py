"""The base class of the client: the locations to search, and the identity of the caller."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Final, ParamSpec, Self, TypeVar, cast

from tgi_deploy import wiring
from tgi_deploy.errors import InputError
from tgi_deploy.values.options import REMOVED_OPTIONS
from tgi_deploy.values.pasted import Pasted
from tgi_deploy.wiring import target_names

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.operations.context import Context
    from tgi_deploy.targets.protocol import Target
    from tgi_deploy.values.base import DataT, OutcomeT, Result, Value
    from tgi_deploy.values.plan_request import PlanRequest, TargetOptions
    from tgi_deploy.values.progress import ProgressEvent

    class UpRequest(PlanRequest, TargetOptions, total=False):
        """Options of a plan and of the target."""


_COMMAND: Final = "a program that uses tgi_deploy.Client"
_Given = ParamSpec("_Given")
_Returned = TypeVar("_Returned")


def names_replacements(method: Callable[_Given, _Returned]) -> Callable[_Given, _Returned]:
    """Make a method name the replacement of a removed argument. It raises InputError `unknown_option`."""

    @wraps(method)
    def checked(*args: _Given.args, **given: _Given.kwargs) -> _Returned:
        row = next((row for row in REMOVED_OPTIONS if row.command == method.__name__ and row.name in given), None)
        if row is not None:
            raise InputError("unknown_option", f"{row.name} of {row.command} was removed", hint=f"use {row.argument}")
        return method(*args, **given)

    return checked


def pastable(
    method: Callable[_Given, Result[DataT, OutcomeT]],
) -> Callable[_Given, Result[DataT, OutcomeT]]:
    """Complete the commands that a method's errors and warnings suggest. Its first argument, if any, is a name."""

    @wraps(method)
    def completed(*args: _Given.args, **given: _Given.kwargs) -> Result[DataT, OutcomeT]:
        name = str(given.get("name", args[1] if len(args) > 1 else ""))
        pasted = cast("ClientBase", args[0])._pasted(name)  # noqa: SLF001 -- only methods of clients are decorated
        with pasted.errors():
            return pasted.result(method(*args, **given))

    return completed


class ClientBase:
    """The settings of a client, its target, and the contexts of its calls."""

    def __init__(  # noqa: PLR0913 -- the options of every method
        self,
        *,
        target: str | None = None,
        region: str | Sequence[str] = (),
        sandbox: bool = False,
        profiles_dir: Path | None = None,
        templates_dir: Path | None = None,
        offline: bool = False,
        progress: Callable[[ProgressEvent], None] | None = None,
        command: str = _COMMAND,
        owner: str = "",
    ) -> None:
        self.target: Final = wiring.target_in(target or target_names()[0], sandbox=sandbox)
        self._regions: Final = (region,) if isinstance(region, str) else tuple(region)
        self._sandbox, self._offline = sandbox, offline
        self._profiles_dir, self._templates_dir = profiles_dir, templates_dir
        self._progress: Final = progress
        self._command: Final = command
        self._owner: Final = owner

    def _beside(self, target: str | None, owner: str) -> Self:
        """Return a client with another target and owner; None: the same target."""
        return type(self)(
            target=target or self.target.name,
            region=self._regions,
            sandbox=self._sandbox,
            profiles_dir=self._profiles_dir,
            templates_dir=self._templates_dir,
            offline=self._offline,
            progress=self._progress,
            command=self._command,
            owner=owner,
        )

    def _setup(self, regions: tuple[str, ...], *, key_variable: str | None = None) -> wiring.Setup:
        return wiring.Setup(
            progress=self._progress,
            command=self._command,
            sandbox=self._sandbox,
            regions=regions,
            profiles_dir=self._profiles_dir,
            templates_dir=self._templates_dir,
            offline=self._offline,
            api_key_variable=key_variable,
            owner=self._owner,
        )

    @property
    def places(self) -> tuple[str, ...]:
        """Return the locations to search for deployments without a record."""
        return self.target.locations(self._regions)

    def _pasted(self, name: str = "", *, searches: bool = True) -> Pasted:
        """Return what completes the commands in messages; without `searches`, the client launches the deployment."""
        target = "" if self.target.name == target_names()[0] else self.target.name
        return Pasted(
            name=name,
            sandbox=self._sandbox,
            searches=searches,
            regions=self._regions,
            target=target,
            profiles_dir=str(self._profiles_dir or ""),
        )

    def _look(self) -> Context:
        """Return the context of methods that look for existing deployments."""
        return wiring.context(self._setup(self.places))

    def _catalog(self, target: Target | None = None) -> Catalog:
        """Return the catalog of a target, by default of the client's."""
        service = (target or self.target).facts.service
        return wiring.catalog(self._profiles_dir, offline=self._offline, service=service)

    def _own_options(self, options: Mapping[str, object]) -> tuple[Value, dict[str, object], dict[str, object]]:
        """Return the target's options, as its value and as given, and the rest."""
        from tgi_deploy.operations.launching.target_options import own_options

        every = wiring.targets()
        own = own_options(self.target, every, options)
        of_targets = {name for target in every for name in target.options.__struct_fields__}
        given = {name: value for name, value in options.items() if name in of_targets}
        return own, given, {name: value for name, value in options.items() if name not in of_targets}
