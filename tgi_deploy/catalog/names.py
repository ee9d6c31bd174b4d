"""Matches names as typed: lenient when unambiguous, otherwise suggestions, never a guess."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tgi_deploy.errors import InputError
from tgi_deploy.text import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable

_SHOWN_CHARACTERS: Final = 60
# Uncompiled, because few commands parse GPU names and compiling takes half a millisecond.
_VENDOR_WORDS: Final = r"nvidia|geforce|tesla|amd|instinct|intel|habana"
# Memory sizes of GPUs; the "10G" of an A10G is not one.
_SIZE: Final = r"(8|12|16|24|32|40|48|64|80|94|96|128|141|144|180|192|256|288) ?g(i?b)?(?![a-z0-9])"
_HARDWARE: Final = r"(?:(\d{1,3}) ?[x*] ?)?([A-Za-z0-9].*)"
_MOST_CARDS: Final = 999


def suggestion(text: str, known: Iterable[str]) -> str | None:
    """Return a "did you mean" question; None if no known name is similar."""
    import difflib  # noqa: PLC0415 -- only needed when something is wrong

    by_folded: dict[str, str] = {}
    for name in known:
        by_folded.setdefault(name.casefold(), name)
        by_folded.setdefault(name.rpartition("/")[2].casefold(), name)
    near = difflib.get_close_matches(text[:200].casefold(), by_folded, n=6, cutoff=0.6)
    found = list(dict.fromkeys(by_folded[name] for name in near))[:3]
    return f"did you mean {' or '.join(found)}?" if found else None


def unknown(code: str, kind: str, text: str, known: Iterable[str], *, otherwise: str) -> InputError:
    """Return the error for an unknown name: similar names first, then `otherwise`."""
    near = suggestion(text, known)
    return InputError(code, f"there is no {kind} {quoted(text)}", hint=f"{near} {otherwise}" if near else otherwise)


def folded_card(text: str) -> str:
    """Normalize: `NVIDIA GeForce RTX 4090`, `rtx_4090` and `RTX-4090` are equal, as are `80GB`, `80 g` and `80`."""
    letters = re.sub(r"[^a-z0-9]+", " ", text.casefold())
    letters = re.sub(_VENDOR_WORDS, " ", letters)
    return re.sub(_SIZE, r"\1", letters).replace(" ", "")


def hardware(text: str) -> tuple[int, str]:
    """Parse `2xRTX-4090` into (2, "RTX-4090"); the count defaults to 1.

    Raises:
        InputError: `bad_option_value`.
    """
    named = text.strip().replace("\u00d7", "x") if len(text) <= _SHOWN_CHARACTERS else ""
    match = re.fullmatch(_HARDWARE, named, re.IGNORECASE)
    number = int(match[1] or 1) if match else 0
    if match is None or not 1 <= number <= _MOST_CARDS or not match[2].isprintable():
        raise InputError(
            "bad_option_value",
            f"{quoted(text)} is not a count and an accelerator",
            hint=f"write it like 2xRTX-4090 or 8xA100-80GB: 1 to {_MOST_CARDS}, an x, an accelerator in the catalog",
        )
    return number, match[2]
