"""The default region, by the rules of the AWS CLI, without importing an SDK."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

FALLBACK_REGION: Final = "us-east-1"


def default_region(environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the region and its source: the environment, the AWS configuration file, or `us-east-1`."""
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        if environ.get(name):
            return environ[name], name
    configured = _from_config_file(environ)
    if configured is not None:
        return configured, "the AWS configuration file"
    return FALLBACK_REGION, "default"


def _from_config_file(environ: Mapping[str, str]) -> str | None:
    path = Path(environ.get("AWS_CONFIG_FILE") or Path(environ.get("HOME", "~")).expanduser() / ".aws" / "config")
    if not path.is_file():
        return None
    import configparser  # noqa: PLC0415 -- most machines that only plan have no such file

    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read(path, encoding="utf-8")
    except (configparser.Error, OSError, UnicodeDecodeError):
        return None
    profile = environ.get("AWS_PROFILE", "default")
    section = "default" if profile == "default" else f"profile {profile}"
    return parser.get(section, "region", fallback=None) or None
