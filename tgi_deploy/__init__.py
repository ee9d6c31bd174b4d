"""Plans, brings up, checks and removes Text Generation Inference deployments.

`from tgi_deploy import Client` is the stable Python API (docs/api.md); it is imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tgi_deploy.api import Client, DeployError, NoPlanError, Stops

__version__: Final = "0.1.0"
__all__ = ["Client", "DeployError", "NoPlanError", "Stops", "__version__"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tgi_deploy import api  # noqa: PLC0415 -- the version is read without the rest

    return getattr(api, name)
