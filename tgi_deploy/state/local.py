"""Stores deployment records as files, one folder per deployment.

deployments/NAME/deployment.json   the record: temporary file, fsync, rename
deployments/NAME/events.jsonl      its history, one event per line
deployments/NAME/lock              held while a command changes it
deployments/NAME/artifacts/        what was rendered for it
receipts/NAME-ID.json              the proof of a removal; outlives the record
pools.json                         pools that recently had no capacity; expendable
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy import bounded_files, bounded_json
from tgi_deploy.errors import ConflictError, DeployError, InputError
from tgi_deploy.state import codec, lock
from tgi_deploy.values.base import replaced

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tgi_deploy.values.deployment import Deployment, Event

_MOST_BYTES: Final = 32 * bounded_files.MIB
_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class LocalStore:
    """A store in folder `home`. Only the owner can read its files."""

    home: Path

    def load(self, name: str) -> Deployment | None:
        """Return the record, or None. Raises InputError for an unreadable one and leaves the file unchanged."""
        path, text = self._text(name)
        if text is None:
            return None
        try:
            return _named(name, codec.decode(text))
        except codec.NewerSchemaError as error:
            raise InputError(
                "record_from_newer_version",
                f"the record {path} was written by a newer tgi-deploy: {error}",
                hint="upgrade tgi-deploy, then try again",
            ) from error
        except ValueError as error:
            raise InputError(
                "corrupt_record",
                f"the record {path} can't be read: {error}",
                hint=f"repair that file, or move it away and run 'tgi-deploy down {name}', which then works from tags",
            ) from error

    def save(self, deployment: Deployment, *, expected_serial: int) -> Deployment:
        serial = self._serial(deployment.name)
        if serial != expected_serial:
            raise ConflictError(
                "stale_record",
                f"another command changed the record of '{deployment.name}' (serial {serial}, not {expected_serial})",
                hint="run the command again; it starts from the new record",
            )
        saved = replaced(deployment, serial=serial + 1)
        path = self._folder(deployment.name) / "deployment.json"
        with _disk(f"writing {path}"):
            _write_atomically(path, codec.encode(saved))
        return saved

    def _serial(self, name: str) -> int:
        """Return the record's serial, or 0 without a record. `save`, which is called often, needs only that."""
        _, text = self._text(name)
        found = codec.serial(text) if text is not None else 0
        if found is None:
            known = self.load(name)
            return known.serial if known else 0
        return found

    def _text(self, name: str) -> tuple[Path, bytes | None]:
        path = self._folder(name) / "deployment.json"
        with _disk(f"reading {path}"):
            return path, bounded_files.read_bytes(path, most=_MOST_BYTES) if path.exists() else None

    def names(self) -> tuple[str, ...]:
        folder = self.home / "deployments"
        with _disk(f"listing {folder}"):
            return tuple(sorted(path.parent.name for path in folder.glob("*/deployment.json")))

    def remove(self, name: str) -> None:
        """Delete the record and its history. The record goes first, so an interrupted removal has still removed it."""
        folder = self._folder(name)
        with _disk(f"removing {folder}"):
            (folder / "deployment.json").unlink(missing_ok=True)
            shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def lock(self, name: str, *, command: str) -> Iterator[None]:
        folder = self._folder(name)
        with _disk(f"locking {folder}"):
            held = lock.acquire(folder / "lock", what=name, command=command)
        try:
            yield
        finally:
            lock.release(held, folder / "lock", keep=(folder / "deployment.json").exists())

    def append_event(self, event: Event) -> None:
        path = self._folder(event.deployment) / "events.jsonl"
        with _disk(f"writing {path}"), _append(path) as handle:
            os.write(handle, _unless_at_line_start(handle) + codec.encode_event(event).encode())

    def events(self, name: str) -> tuple[Event, ...]:
        """Return its history. A partial line left by a killed process is skipped."""
        path = self._folder(name) / "events.jsonl"
        with _disk(f"reading {path}"):
            text = bounded_files.read_bytes(path, most=_MOST_BYTES) if path.exists() else b""
        lines = text.decode("utf-8", errors="replace").splitlines()
        return tuple(event for event in map(codec.decode_event, lines) if event is not None)

    def save_receipt(self, file_name: str, text: str) -> str:
        path = self.home / "receipts" / Path(file_name).name
        with _disk(f"writing {path}"):
            _write_atomically(path, text)
        return str(path)

    def receipts(self, name: str | None = None) -> tuple[Mapping[str, Any], ...]:
        """Return the receipts of this name, or all; unreadable ones are skipped."""
        folder = self.home / "receipts"
        with _disk(f"reading {folder}"):
            texts = [
                bounded_files.read_bytes(path, most=_MOST_BYTES)
                for path in sorted(folder.glob(f"{name or ''}*-*.json"))
            ]
        documents = (_document(text) for text in texts)
        return tuple(document for document in documents if name is None or document.get("deployment") == name)

    def recall(self, topic: str) -> Mapping[str, Any]:
        path = self.home / f"{topic}.json"
        with _disk(f"reading {path}"):
            text = bounded_files.read_bytes(path, most=_MOST_BYTES) if path.exists() else b"{}"
        return _document(text)

    def remember(self, topic: str, document: Mapping[str, Any]) -> None:
        path = self.home / f"{topic}.json"
        with _disk(f"writing {path}"):
            _write_atomically(path, json.dumps(document, indent=1))

    def save_artifact(self, name: str, file_name: str, text: str) -> None:
        path = self._folder(name) / "artifacts" / Path(file_name).name
        with _disk(f"writing {path}"):
            _write_atomically(path, text)

    def _folder(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise InputError(
                "bad_name",
                f"{name[:60]!r} is not a valid deployment name",
                hint="use 2 to 40 characters of a-z, 0-9 and '-', a letter first; 'tgi-deploy list' shows yours",
            )
        return self.home / "deployments" / name


def _document(text: bytes) -> Mapping[str, Any]:
    """Return the JSON object in a file; empty for anything else."""
    try:
        return bounded_json.parse_object(text)
    except ValueError:
        return {}


def _named(name: str, deployment: Deployment) -> Deployment:
    """Reject a record in another deployment's folder: removing by it would remove that deployment."""
    if deployment.name != name:
        raise ValueError(f"it is the record of '{deployment.name}'")
    return deployment


@contextmanager
def _disk(doing: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DeployError(
            "state_unusable",
            f"{doing} failed: {error.strerror or error}",
            hint="check that folder's owner and free space, or set TGI_DEPLOY_HOME to another one",
        ) from error


def _write_atomically(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _append(path: Path) -> Iterator[int]:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        yield handle
    finally:
        os.close(handle)


def _unless_at_line_start(handle: int) -> bytes:
    """Return a line break if a full disk cut off the previous line."""
    size = os.fstat(handle).st_size
    return b"\n" if size and os.pread(handle, 1, size - 1) != b"\n" else b""
