"""Finds and parses the files of `profiles/`, the user's folder before the packaged one, each file once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tgi_deploy import bounded_files, bounded_json, data_files
from tgi_deploy.errors import InputError
from tgi_deploy.text import printable
from tgi_deploy.values.base import Where

if TYPE_CHECKING:
    from pathlib import Path

_MOST_BYTES: Final = 16 * bounded_files.MIB


class Store:
    """Layered folders with a cache of texts and of parsed JSON. Names are relative, with `/`."""

    def __init__(self, roots: tuple[Path, ...]) -> None:
        self._roots = roots
        self._texts: dict[Path, str] = {}
        self._parsed: dict[str, Any] = {}

    @classmethod
    def behind(cls, user_dir: Path | None = None) -> Store:
        """Return the packaged folder, layered under the user's folder if there is one."""
        packaged = data_files.profiles_dir()
        return cls((packaged,) if user_dir is None else (user_dir, packaged))

    def find(self, name: str) -> Path | None:
        """Return the file from the first folder that has it."""
        return next((root / name for root in self._roots if (root / name).is_file()), None)

    def names(self, folder: str, suffix: str) -> tuple[str, ...]:
        """Return the stems of a folder's files over all layers, sorted."""
        stems = {
            path.name.removesuffix(suffix)
            for root in self._roots
            if (root / folder).is_dir()
            for path in (root / folder).iterdir()
            if path.name.endswith(suffix) and not path.name.startswith(".")
        }
        return tuple(sorted(stems))

    def text(self, name: str) -> str:
        """Return a file's text.

        Raises:
            InputError: `missing_profile` or `unreadable_path`.
        """
        path = self.find(name)
        if path is None:
            raise InputError(
                "missing_profile",
                f"reading {name}: there is no such file in {' or '.join(str(root) for root in self._roots)}",
                hint="reinstall tgi-deploy, or add the file to your own profiles folder",
            )
        if path not in self._texts:
            self._texts[path] = read_text(path)
        return self._texts[path]

    def json(self, name: str) -> dict[str, Any]:
        """Return a parsed JSON object, which is cached and must not be changed."""
        if name not in self._parsed:
            self._parsed[name] = parse_json(self.text(name), name)
        parsed: dict[str, Any] = self._parsed[name]
        return parsed

    def toml(self, name: str) -> dict[str, Any]:
        import tomllib  # noqa: PLC0415 -- only profiles are TOML, and most commands read one at most

        try:
            return tomllib.loads(self.text(name))
        except (ValueError, RecursionError) as problem:  # ValueError: also a number of more digits than Python reads
            raise Where(name).error(f"is not valid TOML: {problem}") from None


def read_text(path: Path) -> str:
    """Return a text file's content.

    Raises:
        InputError: `unreadable_path` if it can't be read, is not a file, is far too large, or is not UTF-8.
    """
    try:
        return read_bytes(path).decode("utf-8")
    except UnicodeDecodeError:
        raise unreadable(path, "it is not UTF-8 text") from None


def read_bytes(path: Path, *, most: int = _MOST_BYTES) -> bytes:
    """Return a small file's content.

    Raises:
        InputError: `unreadable_path` if it can't be read, is not a file, or has more than `most` bytes.
    """
    try:
        return bounded_files.read_bytes(path, most=most)
    except OSError as problem:
        raise unreadable(path, problem.strerror or str(problem)) from None
    except ValueError:
        raise unreadable(path, "the name is not a valid file name") from None


def unreadable(path: Path, why: str) -> InputError:
    return InputError(
        "unreadable_path",
        f"reading {printable(str(path))}: {why}",
        hint="check the path, its permissions and its content",
    )


def parse_json(content: str, name: str) -> dict[str, Any]:
    """Parse a JSON object.

    Raises:
        InputError: `bad_profile` for anything else.
    """
    try:
        return bounded_json.parse_object(content)
    except ValueError as problem:
        raise Where(name).error(str(problem)) from None
