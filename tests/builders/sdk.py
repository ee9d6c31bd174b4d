"""The AWS SDK's service models, parsed and compiled once for all sessions of a process.

Each command makes its own session and clients, for which the SDK otherwise reads megabytes of JSON: half of the CPU
time of a command in the sandbox.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import botocore.session
from botocore.client import ClientCreator
from botocore.loaders import Loader

if TYPE_CHECKING:
    from collections.abc import Callable

    from botocore.model import ServiceModel


class _Folders(list[str]):
    """Where models are found. Each session of boto3 appends its own folder."""

    def append(self, folder: str) -> None:
        if folder not in self:
            super().append(folder)


def share_models(replace: Callable[[object, str, object], None] = setattr) -> None:
    """Share models and client classes; `replace` sets an attribute. Models have no state, nor do the classes."""
    loader, classes, create = Loader(extra_search_paths=_Folders()), {}, ClientCreator._create_client_class

    def create_once(self: ClientCreator, service: str, model: ServiceModel) -> type:
        if service not in classes:
            classes[service] = create(self, service, model)
        return classes[service]

    replace(botocore.session, "create_loader", lambda _folders: loader)
    replace(ClientCreator, "_create_client_class", create_once)
