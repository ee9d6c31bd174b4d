"""Stores in a machine's tags what it serves: enough to reach and prove it without a record.

Anybody who may change tags may have written them: a tag that this tool could not have written counts as absent, and a
value that does not fit in a tag is not written. AWS allows 256 characters.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tgi_deploy.values.container import served_as
from tgi_deploy.values.probing import Promise
from tgi_deploy.values.resource import TAG_PREFIX
from tgi_deploy.values.serving import (
    API_KEY_NOTE,
    API_KEY_PARAMETER_NOTE,
    BIND_NOTE,
    CERTIFICATE_NOTE,
    INVOKED_NOTE,
    PUBLIC_KEY_NOTE,
    TUNNEL_NOTE,
    UNREAD,
    YES,
    Service,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

_ENGINE: Final = f"{TAG_PREFIX}engine"
_RELEASE: Final = f"{TAG_PREFIX}release"
_MODEL: Final = f"{TAG_PREFIX}model"
_PORT: Final = f"{TAG_PREFIX}port"
_PROMISE: Final = f"{TAG_PREFIX}promise"
_TOKENS: Final = f"{TAG_PREFIX}max-tokens"
_PLAINTEXT: Final = f"{TAG_PREFIX}plaintext"
_NOTES: Final = {
    f"{TAG_PREFIX}api-key-variable": API_KEY_NOTE,
    f"{TAG_PREFIX}api-key-parameter": API_KEY_PARAMETER_NOTE,
    f"{TAG_PREFIX}bind": BIND_NOTE,
    f"{TAG_PREFIX}certificate": CERTIFICATE_NOTE,
    f"{TAG_PREFIX}public-key": PUBLIC_KEY_NOTE,
    f"{TAG_PREFIX}tunnel": TUNNEL_NOTE,
    f"{TAG_PREFIX}invoked": INVOKED_NOTE,
}
_COUNT: Final = "[1-9][0-9]{0,8}"
_FORMS: Final = {
    tag: re.compile(form, re.ASCII)
    for tag, form in {
        _ENGINE: "[a-z][a-z0-9-]{0,31}",
        _RELEASE: r"[0-9A-Za-z][\w.+-]{0,63}",
        _MODEL: r"[\w/][\w +=.:/@-]{0,255}",
        _PORT: "[1-9][0-9]{0,4}",
        _PROMISE: "/".join([_COUNT] * 3),
        _TOKENS: "/".join([_COUNT] * 2),
        _PLAINTEXT: YES,
        f"{TAG_PREFIX}api-key-variable": r"[A-Za-z_]\w{0,127}",
        f"{TAG_PREFIX}api-key-parameter": r"[\w./-]{1,256}",
        f"{TAG_PREFIX}bind": "[0-9a-fA-F:.]{2,45}",
        f"{TAG_PREFIX}certificate": f"{UNREAD}|[0-9a-f]{{64}}",
        f"{TAG_PREFIX}public-key": "[0-9A-Za-z+/]{43}=",
        f"{TAG_PREFIX}tunnel": YES,
        f"{TAG_PREFIX}invoked": YES,
    }.items()
}
_HIGHEST_PORT: Final = 65535
# A proof holds all prompts in memory: 256 users with 32,768 tokens each are 8 million.
_MOST_ASKED_TOKENS: Final = 20_000_000


def serving_tags(service: Service | None, notes: Mapping[str, str], *, plaintext: bool) -> dict[str, str]:
    """Return the tags of a new machine; `notes` are its record's."""
    if service is None:
        return {}
    tags = {_ENGINE: service.engine, _RELEASE: service.release, _MODEL: service.model, _PORT: str(service.port)}
    if service.promise is not None:
        promise = service.promise
        tags[_PROMISE] = f"{promise.input_tokens}/{promise.output_tokens}/{promise.concurrency}"
        tags[_TOKENS] = f"{promise.max_input_tokens}/{promise.max_total_tokens}"
    if plaintext:
        tags[_PLAINTEXT] = YES
    return _well_formed(tags | note_tags(notes))


def note_tags(notes: Mapping[str, str]) -> dict[str, str]:
    """Return the tags for the notes of a machine's record."""
    return _well_formed({tag: notes[note] for tag, note in _NOTES.items() if note in notes})


def _well_formed(tags: Mapping[str, str]) -> dict[str, str]:
    return {tag: tags[tag] for tag, form in _FORMS.items() if form.fullmatch(tags.get(tag, ""))}


def service_of(tags: Mapping[str, str]) -> Service | None:
    """Return what a machine with these tags serves; None if they lack it, as on old machines."""
    known = _well_formed(tags)
    if not {_ENGINE, _RELEASE, _MODEL, _PORT} <= known.keys() or int(known[_PORT]) > _HIGHEST_PORT:
        return None
    return Service(
        engine=known[_ENGINE],
        release=known[_RELEASE],
        model=known[_MODEL],
        port=int(known[_PORT]),
        promise=_promise(known),
    )


def _promise(known: Mapping[str, str]) -> Promise | None:
    if not {_PROMISE, _TOKENS} <= known.keys():
        return None
    input_tokens, output_tokens, concurrency = map(int, known[_PROMISE].split("/"))
    max_input_tokens, max_total_tokens = map(int, known[_TOKENS].split("/"))
    promise = Promise(
        model_id=served_as(known[_MODEL]),
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        concurrency=concurrency,
        max_input_tokens=max_input_tokens,
        max_total_tokens=max_total_tokens,
    )
    fits = input_tokens <= max_input_tokens <= max_total_tokens and input_tokens + output_tokens <= max_total_tokens
    asked_tokens = concurrency * input_tokens + promise.longest_input_tokens
    return promise if fits and asked_tokens <= _MOST_ASKED_TOKENS else None


def notes_of(tags: Mapping[str, str]) -> dict[str, str]:
    """Return the record notes of a machine with these tags."""
    known = _well_formed(tags)
    return {note: known[tag] for tag, note in _NOTES.items() if tag in known}


def is_plaintext(tags: Mapping[str, str]) -> bool:
    """Return whether the user accepted sending the API key unencrypted to a public address."""
    return _PLAINTEXT in _well_formed(tags)
