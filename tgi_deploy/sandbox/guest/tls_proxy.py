"""The machine's TLS proxy: does what HAProxy does with its configuration `haproxy.cfg`, in a container of its image.

Usage: python -m tgi_deploy.sandbox.guest.tls_proxy FOLDER ADDRESS: the mounted folder, and the machine's address.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

_BIND: Final = re.compile(r"^ *bind :(\d+) ssl crt /tls/(\S+)$", re.MULTILINE)
_SERVER: Final = re.compile(r"^ *server \S+ 127\.0\.0\.1:(\d+)$", re.MULTILINE)
_CHUNK_BYTES: Final = 65536


async def _serve(folder: Path, address: str) -> None:
    text = (folder / "haproxy.cfg").read_text(encoding="utf-8")
    bind, server = _BIND.search(text), _SERVER.search(text)
    if bind is None or server is None:
        sys.exit("[ALERT] config: no listener with a certificate and a server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / bind[2])
    forward = partial(_forward, address, int(server[1]))
    # The cloud reserves the address with its own silent socket.
    listener = await asyncio.start_server(forward, address, int(bind[1]), ssl=context, reuse_port=True)
    await listener.serve_forever()


async def _forward(address: str, port: int, caller: asyncio.StreamReader, answer: asyncio.StreamWriter) -> None:
    try:
        engine, request = await asyncio.open_connection(address, port)
    except OSError:
        answer.transport.abort()
        return
    await asyncio.gather(relay(caller, request), relay(engine, answer))


async def relay(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Pass bytes on until either side ends, then close the sink."""
    with suppress(OSError):
        while data := await source.read(_CHUNK_BYTES):
            sink.write(data)
            await sink.drain()
    sink.close()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(_serve(Path(sys.argv[1]), sys.argv[2]))
