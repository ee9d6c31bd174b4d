"""cloud-init's part of a boot: user data fetched through the API, files written, commands run, once an instance.

`write_files`, `bootcmd` and `runcmd` are simulated; other modules are named on the console and skipped. User data
that starts with `#!` runs as a script. Commands run as the user who started the sandbox, with the guest's paths
mapped below the machine's root.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import os
import shlex
import time
import zlib
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import yaml

if TYPE_CHECKING:
    from collections.abc import Callable

    from tgi_deploy.sandbox.guest.machine import System

_VERSION: Final = "25.2-0ubuntu1~22.04.1"
_GZIP_MAGIC: Final = b"\x1f\x8b"
_SIMULATED: Final = frozenset({"write_files", "runcmd", "bootcmd", "merge_how", "output"})


class CloudInit:
    def __init__(self, host: System) -> None:
        self._layout = host.layout
        self._host = host

    def log(self, text: str) -> None:
        self._host.console.program("cloud-init", os.getpid(), text)

    def announce(self, what: str) -> None:
        """Print a stage as cloud-init does."""
        now = time.strftime("%a, %d %b %Y %H:%M:%S +0000", time.gmtime())
        source, end = (" Datasource DataSourceEc2Local. ", "") if what == "finished" else ("", ".")
        up_s = self._host.console.uptime_s()
        self.log(f"Cloud-init v. {_VERSION} {what} at {now}.{source} Up {up_s:.2f} seconds{end}")

    def run(self, encoded: str) -> None:
        """Run the user data. Known errors in it are printed on the console, as on a real machine."""
        try:
            text = decode(encoded)
            self._layout.at("/var/lib/cloud/instance/user-data.txt").write_text(text, encoding="utf-8")
            document = (yaml.safe_load(text) or {}) if text.startswith("#cloud-config") else {}
        except (binascii.Error, OSError, EOFError, UnicodeDecodeError, zlib.error) as problem:
            self.log(f"[WARNING]: Unhandled user data: {problem}")
            return
        except yaml.YAMLError as problem:
            self.log(f"[WARNING]: Failed loading yaml blob. Invalid format: {' '.join(str(problem).split())}")
            return
        if not isinstance(document, dict):
            self.log("[WARNING]: Failed loading yaml blob. Yaml load allows (<class 'dict'>,) root types")
        elif text.startswith("#!"):
            self._script("part-001", self._layout.mapped(text))
        elif not text.startswith("#cloud-config") and text.strip():
            self.log("[WARNING]: Unhandled non-multipart (text/x-not-multipart) userdata")
        self._config(document if isinstance(document, dict) else {})

    def _config(self, document: dict[str, Any]) -> None:
        for module in sorted(set(document) - _SIMULATED):
            self.log(f"module {module} is not simulated by the sandbox: skipped")
        files = document.get("write_files") or []
        paths = [str(item.get("path", "")) for item in files if isinstance(item, dict)]
        mapped = partial(self._layout.mapped, extra=[path for path in paths if path.startswith("/")])
        self._commands("bootcmd", document, mapped)
        for item in files:
            try:
                self._write_file(item, mapped)
            except (OSError, ValueError, KeyError, TypeError) as problem:
                self.log(f"[WARNING]: Undecodable or unwritable file {item!r:.80}: {problem}")
        self._commands("runcmd", document, mapped)

    def _write_file(self, item: dict[str, Any], mapped: Callable[[str], str]) -> None:
        path, content = self._layout.at(item["path"]), str(item.get("content", ""))
        if str(item.get("encoding", "text/plain")) != "text/plain":
            content = decode(content)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a" if item.get("append") else "w", encoding="utf-8") as file:
            file.write(mapped(content))
        path.chmod(int(str(item.get("permissions", "0644")), 8))

    def _commands(self, name: str, document: dict[str, Any], mapped: Callable[[str], str]) -> None:
        items = document.get(name) or []
        lines = [shlex.join(map(str, item)) if isinstance(item, list) else str(item) for item in items]
        if lines:
            self._script(name, "#!/bin/sh\n" + mapped("\n".join(lines)) + "\n")

    def _script(self, name: str, text: str) -> None:
        path = self._layout.at(f"/var/lib/cloud/instance/scripts/{name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o700)
        status = self._host.spawner.run([str(path)], line=self.log)
        if status != 0:
            self.log(f"[WARNING]: Running {name} failed: exit code {status}")


def decode(encoded: str) -> str:
    """Decode user data, or the content of a file in it: base64, optionally with gzip inside."""
    data = base64.b64decode(encoded)
    return (gzip.decompress(data) if data.startswith(_GZIP_MAGIC) else data).decode("utf-8")
