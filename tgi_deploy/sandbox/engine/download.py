"""The download phase: access, disk, network, progress."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from tgi_deploy.sandbox.engine.checkpoint import hub_token
from tgi_deploy.sandbox.engine.failures import LauncherError
from tgi_deploy.sandbox.engine.host import Fault
from tgi_deploy.sandbox.engine.tracebacks import Kind, traceback

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.sandbox.engine.checkpoint import Checkpoint
    from tgi_deploy.sandbox.engine.host import Host
    from tgi_deploy.sandbox.engine.situation import Situation, Stage

SPAN: Final = "download"
_BYTES_PER_S: Final = 400_000_000
_SLOW_FACTOR: Final = 40
_START_S: Final = 8.0
_RETRIES: Final = 5
_RETRY_S: Final = 5.0
_COMPLETE: Final = ".complete"


def deny_unknown(model_id: str, stage: Stage) -> NoReturn:
    """Fail like the hub for a repository that does not exist, or not for this caller.

    Raises:
        LauncherError: `DownloadError`.
    """
    _begin(model_id, stage)
    if model_id.startswith("/"):
        reason = f"Repo id must be in the form 'repo_name' or 'namespace/repo_name': '{model_id}'."
        _fail(stage, model_id, f"HFValidationError: {reason} Use `repo_type` argument if needed.")
    _fail(
        stage,
        model_id,
        "huggingface_hub.errors.RepositoryNotFoundError: 401 Client Error. Repository Not Found for url: "
        f"{_url(model_id)}.\nInvalid username or password.",
    )


def check_access(situation: Situation, stage: Stage) -> None:
    """Start the download process and query the hub.

    Raises:
        LauncherError: `DownloadError`, after logging the hub client's message.
    """
    checkpoint, faults = situation.checkpoint, situation.faults
    _begin(checkpoint.model_id, stage)
    if checkpoint.is_local:
        if not checkpoint.has_weights:
            _fail(stage, checkpoint.model_id, "", kind="no_weights")
        return
    if Fault.NETWORK in faults:
        _fail_on_network(checkpoint.model_id, stage)
    token = hub_token(situation.environ)
    if Fault.GATED in faults and token is not None:
        _deny(stage, checkpoint.model_id, "403", " and you are not in the authorized list. Visit it to ask for access.")
    if token is None and (checkpoint.model.gated or Fault.GATED in faults):
        _deny(stage, checkpoint.model_id, "401", ". You must have access to it and be authenticated to access it.")


def _begin(model_id: str, stage: Stage) -> None:
    stage.log.launcher(f"Starting check and download process for {model_id}", span=SPAN)
    stage.pace.pause(_START_S)


def _url(model_id: str) -> str:
    return f"https://huggingface.co/api/models/{model_id}"


def _deny(stage: Stage, model_id: str, status: str, ending: str) -> NoReturn:
    _fail(
        stage,
        model_id,
        f"huggingface_hub.errors.GatedRepoError: {status} Client Error.\n"
        f"Cannot access gated repo for url {_url(model_id)}.\nAccess to model {model_id} is restricted{ending}",
    )


def _fail_on_network(model_id: str, stage: Stage) -> NoReturn:
    for _ in range(_RETRIES):
        stage.log.launcher("Retrying in 5 seconds", level="WARN", span=SPAN)
        stage.pace.pause(_RETRY_S)
    _fail(
        stage,
        model_id,
        "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='huggingface.co', port=443): Max retries "
        f"exceeded with url: /api/models/{model_id} ([Errno -2] Name or service not known)",
    )


def _fail(stage: Stage, model_id: str, reason: str, kind: Kind = "download") -> NoReturn:
    evidence = traceback(kind, model_id, reason)
    stage.log.launcher(f"Download encountered an error: \n{evidence}", level="ERROR", span=SPAN)
    raise LauncherError("DownloadError")


def download(situation: Situation, stage: Stage) -> None:
    """Download the weights, or find those of an earlier run."""
    checkpoint = situation.checkpoint
    folder = cache_folder(checkpoint, situation.environ)
    marker = _marker(situation.host, folder)
    if checkpoint.is_local or (marker is not None and marker.exists()):
        stage.log.launcher("Files are already present on the host. Skipping download.")
    else:
        _fetch(situation, stage, folder)
        if marker is not None:
            marker.parent.mkdir(parents=True, exist_ok=True)
            marker.touch()
    stage.log.launcher(f"Successfully downloaded weights for {checkpoint.model_id}", span=SPAN)


def cache_folder(checkpoint: Checkpoint, environ: Mapping[str, str]) -> str:
    """Return the path inside the container. `HF_HOME` adds a level that `HUGGINGFACE_HUB_CACHE` does not."""
    root = environ.get("HUGGINGFACE_HUB_CACHE") or environ.get("HF_HUB_CACHE")
    if root is None:
        root = environ.get("HF_HOME", "/data") + "/hub"
    return f"{root}/models--{checkpoint.model_id.replace('/', '--')}/snapshots/{checkpoint.commit}"


def _marker(host: Host, folder: str) -> Path | None:
    path = Path(folder)
    if host.data is None or not path.is_relative_to("/data"):
        return None
    return host.data / path.relative_to("/data") / _COMPLETE


def _fetch(situation: Situation, stage: Stage, folder: str) -> None:
    files = situation.checkpoint.files()
    slow = _SLOW_FACTOR if Fault.SLOW_DOWNLOAD in situation.faults else 1
    each_s = situation.checkpoint.stored_bytes * slow / len(files) / _BYTES_PER_S
    for done, name in enumerate(files, start=1):
        stage.log.launcher(f"Download file: {name}")
        stage.pace.pause(each_s)
        if Fault.DISK_FULL in situation.faults and done > len(files) // 2:
            _fail(stage, situation.checkpoint.model_id, "OSError: [Errno 28] No space left on device")
        took = timedelta(seconds=int(each_s))
        left = timedelta(seconds=int(each_s * (len(files) - done)))
        stage.log.launcher(f"Downloaded {folder}/{name} in {took}.")
        stage.log.launcher(f"Download: [{done}/{len(files)}] -- ETA: {left}")
