"""A secret value: it prints as `***`, and only `reveal` returns it."""

from __future__ import annotations

from typing import Final, NoReturn

from tgi_deploy.errors import InputError

HIDDEN: Final = "***"
MAX_BYTES: Final = 4096  # of a standard SSM parameter
FROM_ENVIRONMENT: Final = "env:"


class Secret:
    """A secret in memory. It prints and formats as `***`, and can't be pickled."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Return the value, for the one call that needs it."""
        return self._value

    def scrub(self, text: str) -> str:
        """Return `text` without the value."""
        return text.replace(self._value, HIDDEN) if self._value else text

    def __repr__(self) -> str:
        return HIDDEN

    __str__ = __repr__

    def __format__(self, _specification: str) -> str:
        return HIDDEN

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret can't be pickled")


def reference(variable: str) -> str:
    """Return the reference, in records and properties, to a secret in an environment variable."""
    return f"{FROM_ENVIRONMENT}{variable}"


def variable_of(reference_text: str) -> str:
    """Return the variable in a reference. Raises ValueError for anything else."""
    kind, _, name = reference_text.partition(":")
    if f"{kind}:" != FROM_ENVIRONMENT or not name:
        raise ValueError("a reference to a secret has the form env:VARIABLE")
    return name


def checked(value: str | None, variable: str, what: str) -> Secret:
    """Return a variable's value as a secret.

    Raises InputError `secret_missing` or `secret_unusable`, without the value.
    """
    text = (value or "").strip()
    if not text:
        raise InputError(
            "secret_missing", f"reading {what}: the variable {variable} is not set", hint=f"export {variable} first"
        )
    if not (text.isascii() and text.isprintable()) or " " in text or len(text) > MAX_BYTES:
        raise InputError(
            "secret_unusable",
            f"reading {what}: the value of {variable} is too long, or has characters that an HTTP header can't have",
            hint=f"use printable ASCII without spaces, {MAX_BYTES} characters at most",
        )
    return Secret(text)
