"""This computer: the interpreter, the records' folder, optional packages."""

from __future__ import annotations

import importlib.util
import platform
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tgi_deploy.errors import DeployError

if TYPE_CHECKING:
    from pathlib import Path


class Workstation(Protocol):
    """This computer."""

    @property
    def python(self) -> str: ...

    def state_folder(self) -> str:
        """The folder of records, proved writable. Raises DeployError `state_unusable`."""

    def has(self, package: str) -> bool: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalWorkstation:
    """`home` is the folder of records."""

    home: Path

    @property
    def python(self) -> str:
        return platform.python_version()

    def state_folder(self) -> str:
        try:
            self.home.mkdir(parents=True, exist_ok=True, mode=0o700)
            with tempfile.NamedTemporaryFile(dir=self.home, prefix=".doctor."):
                pass
        except OSError as error:
            raise DeployError(
                "state_unusable",
                f"writing to {self.home} failed: {error.strerror or error}",
                hint="check that folder's owner and space, or set TGI_DEPLOY_HOME to another one",
            ) from error
        return str(self.home)

    def has(self, package: str) -> bool:
        return importlib.util.find_spec(package) is not None
