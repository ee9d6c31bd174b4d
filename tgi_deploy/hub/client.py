"""The Hugging Face Hub through huggingface_hub: a repository's contents, small files, and ranges of large ones.

Uses only what versions 0.30 to 2.x have in common. `HF_ENDPOINT` and `HF_TOKEN` are read at each call.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from huggingface_hub import get_token, hf_hub_url
from huggingface_hub.errors import HFValidationError, OfflineModeIsEnabled
from huggingface_hub.utils import build_hf_headers, validate_repo_id  # type: ignore[attr-defined]

from tgi_deploy import bounded_json
from tgi_deploy.errors import InputError
from tgi_deploy.hub import transfer as hub_http
from tgi_deploy.hub.answer import HubAnswer, bad_hub_answer, read_answer

if TYPE_CHECKING:
    from collections.abc import Mapping

_PUBLIC: Final = "https://huggingface.co"
# The time limit of all requests about one model: up to two per file.
_LIMIT_S: Final = 60.0
_PARTIAL: Final = 206
_EVERY_MODELS: Final = "config.json"
_UNAUTHORIZED: Final = 401
_FORBIDDEN: Final = frozenset({_UNAUTHORIZED, 403})
_WRONG_TOKEN: Final = "Invalid credentials in Authorization header"  # noqa: S105 -- what the hub answers to one
_NOT_FOUND: Final = {
    "EntryNotFound": "a file no longer exists",
    "RepoNotFound": "no such model, or a private one",
    "RevisionNotFound": "no such revision",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class HubSource:
    """One model at one commit; reads must finish before `deadline`."""

    name: str
    endpoint: str
    answer: HubAnswer
    deadline: hub_http.Deadline

    @property
    def revision(self) -> str:
        return self.answer.commit

    @property
    def gated(self) -> bool:
        return self.answer.gated

    @property
    def license(self) -> str | None:
        return self.answer.license

    def files(self) -> Mapping[str, int]:
        return self.answer.sizes

    def read(self, file: str) -> bytes:
        is_small = self.files().get(file, 0) <= bounded_json.MOST_BYTES
        answer = self._get(file, {}, bounded_json.MOST_BYTES) if is_small else None
        if answer is None or not answer.whole:
            raise InputError(
                "bad_checkpoint",
                f"reading {self.name}/{file}: it is larger than {bounded_json.MOST_BYTES // 2**20} MiB",
                hint="use the repository of the original weights",
            )
        return answer.content

    def read_range(self, file: str, start: int, length: int) -> bytes:
        """Return a range of a file. A mirror without range support sends the file from its start."""
        answer = self._get(file, {"Range": f"bytes={start}-{start + length - 1}"}, start + length)
        skipped = 0 if answer.status == _PARTIAL else start
        return answer.content[skipped : skipped + length]

    def _get(self, file: str, headers: Mapping[str, str], most_bytes: int) -> hub_http.Answer:
        url = hf_hub_url(self.name, file, revision=self.revision, endpoint=self.endpoint)
        return _ask(self.name, self.endpoint, url, headers, most_bytes=most_bytes, deadline=self.deadline)


class HuggingFaceHub:
    """Models by id, at `endpoint`. All reads of one model share `limit_s`."""

    def __init__(self, endpoint: str | None = None, *, limit_s: float = _LIMIT_S) -> None:
        self._endpoint = (endpoint or _PUBLIC).rstrip("/")
        self._limit_s = limit_s

    def open(self, hub_id: str, revision: str) -> HubSource:
        """Read the commit, the files with their sizes, and whether it is gated, in one request.

        Raises:
            InputError: `hub_not_found`, `hub_gated`, `hub_unreachable`, `bad_hub_answer`.
        """
        deadline = hub_http.Deadline(self._limit_s)
        url = f"{self._endpoint}/api/models/{hub_id}/revision/{quote(revision, safe='')}?blobs=true"
        answer = _ask(hub_id, self._endpoint, url, {}, most_bytes=bounded_json.MOST_BYTES, deadline=deadline)
        if not answer.whole:
            raise bad_hub_answer(hub_id, f"it is larger than {bounded_json.MOST_BYTES // 2**20} MiB")
        return HubSource(
            name=hub_id, endpoint=self._endpoint, answer=read_answer(hub_id, answer.content), deadline=deadline
        )

    def check_access(self, hub_id: str, revision: str) -> None:
        """Check with one request that the current token may read the model's files. Raises like `open`."""
        answer = HubAnswer(commit=revision, gated=True, license=None, sizes=MappingProxyType({}))
        deadline = hub_http.Deadline(self._limit_s)
        source = HubSource(name=hub_id, endpoint=self._endpoint, answer=answer, deadline=deadline)
        source.read_range(_EVERY_MODELS, 0, 1)


def _ask(
    hub_id: str,
    endpoint: str,
    url: str,
    headers: Mapping[str, str],
    **bounds: Any,  # noqa: ANN401 -- those of `get`
) -> hub_http.Answer:
    """Return a 2xx response, or raise an InputError without the library's text, which contains URLs."""
    try:
        validate_repo_id(hub_id)
        answer = hub_http.get(url, {**build_hf_headers(token=get_token()), **headers}, **bounds)
    except HFValidationError:
        raise _not_found(hub_id, _NOT_FOUND["RepoNotFound"]) from None
    except OfflineModeIsEnabled:
        raise _unreachable(hub_id, endpoint, "offline mode is on") from None
    except hub_http.BadAnswerError as problem:
        raise bad_hub_answer(hub_id, str(problem)) from None
    except TimeoutError as problem:
        raise _unreachable(hub_id, endpoint, str(problem)) from None
    except hub_http.transport_errors() as problem:
        raise _unreachable(hub_id, endpoint, type(problem).__name__) from None
    if answer.status // 100 != 2:  # noqa: PLR2004 -- 2xx
        raise _refused(hub_id, endpoint, answer)
    return answer


def _refused(hub_id: str, endpoint: str, answer: hub_http.Answer) -> InputError:
    """Return the error for a status, by the rules of huggingface_hub's `hf_raise_for_status`."""
    code, message = answer.headers.get("x-error-code", ""), answer.headers.get("x-error-message")
    if code == "GatedRepo":
        return _gated(hub_id)
    if code in _NOT_FOUND:
        return _not_found(hub_id, _NOT_FOUND[code])
    # Without a token, the real hub answers this for a model that does not exist.
    if answer.status == _UNAUTHORIZED and message != _WRONG_TOKEN and endpoint.startswith("https://"):
        return _not_found(hub_id, _NOT_FOUND["RepoNotFound"])
    if answer.status in _FORBIDDEN:
        return _gated(hub_id)
    return _unreachable(hub_id, endpoint, f"it answered {answer.status}")


def _gated(hub_id: str) -> InputError:
    had = "the current token has no access" if get_token() else "no token is set"
    return InputError(
        "hub_gated",
        f"reading {hub_id}: its files are gated, and {had}",
        hint=f"accept its terms on {_PUBLIC}/{hub_id}, then set HF_TOKEN to a token that can read it",
    )


def _not_found(hub_id: str, problem: str) -> InputError:
    return InputError(
        "hub_not_found",
        f"reading {hub_id} from the hub: {problem}",
        hint="check the spelling; private models need HF_TOKEN",
    )


def _unreachable(hub_id: str, endpoint: str, problem: str) -> InputError:
    return InputError(
        "hub_unreachable",
        f"reading {hub_id} from {endpoint} failed: {problem}",
        hint="check the network and HF_ENDPOINT, or use a folder with the model's config.json",
    )
