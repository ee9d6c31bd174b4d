"""The Hugging Face hub through huggingface_hub: what a repository holds, small files, and pieces of large ones.

Only what is the same in its versions 0.30 to 2.x is used; what carries the requests differs between them (requests,
httpx), so its exceptions are looked up. `HF_ENDPOINT` and `HF_TOKEN` count as the environment has them at the call.
"""

from __future__ import annotations

import importlib
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from huggingface_hub import HfApi, get_session, get_token, hf_hub_url
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import build_hf_headers, hf_raise_for_status  # type: ignore[attr-defined]

from tgi_deploy.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_TIMEOUT_S: Final = 20.0
_PUBLIC: Final = "https://huggingface.co"
_SMALL_BYTES: Final = 32 * 2**20
_PARTIAL: Final = 206
_LICENSE: Final = "license:"
_EVERY_MODELS: Final = "config.json"
_FORBIDDEN: Final = frozenset({401, 403})


@dataclass(frozen=True, kw_only=True, slots=True)
class HubSource:
    """One model at one commit."""

    name: str
    revision: str
    gated: bool
    license: str | None
    sizes: Mapping[str, int]
    endpoint: str

    def files(self) -> Mapping[str, int]:
        return self.sizes

    def read(self, file: str) -> bytes:
        if self.sizes.get(file, 0) > _SMALL_BYTES:
            raise InputError(
                "bad_checkpoint",
                f"Reading {self.name}/{file}: it is far too big for what it should be.",
                hint="Give the repository of the original weights.",
            )
        return self._get(file, {})[1]

    def read_range(self, file: str, start: int, length: int) -> bytes:
        status, content = self._get(file, {"Range": f"bytes={start}-{start + length - 1}"})
        skipped = 0 if status == _PARTIAL else start
        return content[skipped : skipped + length]

    def _get(self, file: str, headers: Mapping[str, str]) -> tuple[int, bytes]:
        """Status and body. A mirror that knows no ranges answers with all of the file."""
        url = hf_hub_url(self.name, file, revision=self.revision, endpoint=self.endpoint)
        with _errors(self.name, self.endpoint):
            response = get_session().get(
                url, headers={**build_hf_headers(token=get_token()), **headers}, timeout=_TIMEOUT_S
            )
            hf_raise_for_status(response)
            return response.status_code, response.content


class HuggingFaceHub:
    """Models by their ids, at `endpoint`."""

    def __init__(self, endpoint: str | None = None) -> None:
        self._endpoint = (endpoint or _PUBLIC).rstrip("/")

    def open(self, hub_id: str, revision: str) -> HubSource:
        """One request: the commit, the files with their sizes, whether it is gated.

        Raises:
            InputError: `hub_not_found`, `hub_gated`, `hub_unreachable`.
        """
        with _errors(hub_id, self._endpoint):
            info = HfApi(endpoint=self._endpoint, token=get_token()).model_info(
                hub_id, revision=revision, files_metadata=True, timeout=_TIMEOUT_S
            )
        sizes = {item.rfilename: item.size or 0 for item in info.siblings or ()}
        return HubSource(
            name=hub_id,
            revision=info.sha or revision,
            gated=bool(info.gated or info.private),  # both need a token, everywhere
            license=_license(info.tags),
            sizes=MappingProxyType(sizes),
            endpoint=self._endpoint,
        )

    def check_access(self, hub_id: str, revision: str) -> None:
        """One request: whether the token in use may read the model's files. Raises like `open`."""
        empty: Mapping[str, int] = MappingProxyType({})
        source = HubSource(
            name=hub_id, revision=revision, gated=True, license=None, sizes=empty, endpoint=self._endpoint
        )
        source.read_range(_EVERY_MODELS, 0, 1)


def _license(tags: list[str] | None) -> str | None:
    named = (tag.removeprefix(_LICENSE) for tag in tags or () if tag.startswith(_LICENSE) and tag.isprintable())
    return next((name for name in named if name), None)


@cache
def _transport_error() -> type[Exception]:
    """What the HTTP library in use raises when a request can't be made."""
    library: Any = importlib.import_module(type(get_session()).__module__.partition(".")[0])
    error: type[Exception] = getattr(library, "RequestException", None) or library.HTTPError
    return error


@contextmanager
def _errors(hub_id: str, endpoint: str) -> Iterator[None]:
    """Turns what the hub's library raises into errors a user can act on, without its own texts: they hold URLs."""
    try:
        yield
    except GatedRepoError:
        raise _gated(hub_id) from None
    except (RevisionNotFoundError, EntryNotFoundError) as problem:
        raise _not_found(
            hub_id, "no such revision" if isinstance(problem, RevisionNotFoundError) else "a file is gone"
        ) from None
    except (RepositoryNotFoundError, HFValidationError):
        raise _not_found(hub_id, "no such model, or a private one") from None
    except HfHubHTTPError as problem:
        raise _http(hub_id, endpoint, problem) from None
    except OfflineModeIsEnabled:
        raise _unreachable(hub_id, endpoint, "offline mode is on") from None
    except (OSError, _transport_error()) as problem:
        raise _unreachable(hub_id, endpoint, type(problem).__name__) from None


def _http(hub_id: str, endpoint: str, problem: HfHubHTTPError) -> InputError:
    status = getattr(problem.response, "status_code", None)
    return _gated(hub_id) if status in _FORBIDDEN else _unreachable(hub_id, endpoint, f"it answered {status}")


def _gated(hub_id: str) -> InputError:
    had = "the token in use has no access to it" if get_token() else "there is no token"
    return InputError(
        "hub_gated",
        f"Reading {hub_id}: its files are gated and {had}.",
        hint=f"Accept its terms on {_PUBLIC}/{hub_id}, then set HF_TOKEN to a token that may read it.",
    )


def _not_found(hub_id: str, problem: str) -> InputError:
    return InputError(
        "hub_not_found",
        f"Reading {hub_id} from the hub: {problem}.",
        hint="Check the spelling; a private model needs HF_TOKEN.",
    )


def _unreachable(hub_id: str, endpoint: str, problem: str) -> InputError:
    return InputError(
        "hub_unreachable",
        f"Reading {hub_id} from {endpoint} failed: {problem}.",
        hint="Check the network and HF_ENDPOINT, or give a directory with the model's config.json.",
    )
