"""Server-sent events: the data payloads of a stream of lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_END: Final = "[DONE]"


def payloads(lines: Iterable[bytes]) -> Iterator[str]:
    """One payload an event, up to `[DONE]` or the end of the stream.

    `data:` may or may not be followed by a blank; comments (keep-alives) and other fields are left out; several data
    lines of one event are joined. An event that the end of the stream cuts off counts as well.
    """
    data: list[str] = []
    for raw in lines:
        line = raw.decode("utf-8", "replace").rstrip("\r\n")
        if line.startswith("data:"):
            data.append(line.removeprefix("data:").removeprefix(" "))
        elif not line and data:
            if data == [_END]:
                return
            yield "\n".join(data)
            data = []
    if data and data != [_END]:
        yield "\n".join(data)
