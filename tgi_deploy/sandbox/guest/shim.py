"""A guest command's client half: hands its arguments to the machine and prints what comes back.

Runs as a plain script, outside the package, and imports only built-in modules: it starts dozens of times per boot, and
`json`, `signal` and `socket` would triple its time. Usage: shim.py SOCKET MACHINE COMMAND [ARG]...
"""

from __future__ import annotations

import os
import sys
from _signal import SIGHUP, SIGINT, SIGTERM, signal  # type: ignore[import-not-found]
from _socket import AF_UNIX, SOCK_STREAM, socket

_UNREACHABLE = 69


def _connect(path: str) -> socket:
    """Connect from the socket's folder, because its full path may exceed the limit."""
    folder, _, name = path.rpartition("/")
    os.chdir(folder)
    link = socket(AF_UNIX, SOCK_STREAM)
    link.connect(name)
    return link


def main(argv: list[str]) -> int:
    path, machine, command, *arguments = argv
    try:
        link = _connect(path)
    except OSError as problem:
        sys.stderr.write(f"{command}: the machine does not answer: {problem}\n")
        return _UNREACHABLE
    variables = [f"{name}={value}" for name, value in os.environ.items()]
    request = os.fsencode("\0".join([machine, command, str(len(arguments)), *arguments, *variables]))
    link.sendall(b"%d\n%s" % (len(request), request))
    for number in (SIGTERM, SIGINT, SIGHUP):
        signal(number, lambda got, _frame: link.sendall(b"%d\n" % got))
    with open(link.fileno(), "rb", closefd=False) as messages:
        for head in messages:
            kind, number_read = head[:1], int(head[1:])
            if kind == b"r":
                return number_read
            _print(2 if kind == b"e" else 1, messages.read(number_read))
    return _UNREACHABLE


def _print(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
