"""A guest command's client half: hands its arguments to the machine and prints what comes back.

Runs as a plain script, outside the package, with only the standard library: it starts dozens of times per boot.
Usage: shim.py SOCKET COMMAND [ARG]...
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys

_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_UNREACHABLE = 69


def _connect(path: str) -> socket.socket:
    """Connect from the socket's folder, because its full path may exceed the limit."""
    folder, _, name = path.rpartition("/")
    os.chdir(folder)
    link = socket.socket(socket.AF_UNIX)
    link.connect(name)
    return link


def main(argv: list[str]) -> int:
    path, command, *arguments = argv
    try:
        link = _connect(path)
    except OSError as problem:
        sys.stderr.write(f"{command}: the machine does not answer: {problem}\n")
        return _UNREACHABLE
    request = {"command": command, "argv": arguments, "env": dict(os.environ)}
    link.sendall(json.dumps(request).encode() + b"\n")
    for number in _FORWARDED:
        signal.signal(number, lambda got, _frame: link.sendall(json.dumps({"signal": got}).encode() + b"\n"))
    return _relay(link)


def _relay(link: socket.socket) -> int:
    with link.makefile("r", encoding="utf-8") as lines:
        for line in lines:
            message = json.loads(line)
            if "rc" in message:
                return int(message["rc"])
            stream = sys.stderr if "err" in message else sys.stdout
            stream.write(message.get("err", message.get("out", "")))
            stream.flush()
    return _UNREACHABLE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
