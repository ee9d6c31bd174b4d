"""Runs the rendered user data on a fake machine: its files in a folder, its commands replaced by recording fakes."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import yaml

_PATHS = (
    "/opt/tgi-deploy",
    "/run/tgi-deploy",
    "/var/lib/tgi-deploy",
    "/opt/dlami/nvme",
    "/proc/net/dev",
    "/proc/sysrq-trigger",
    "/proc/uptime",
)
_TOOLS = ("bash", "cat", "date", "dirname", "mkdir", "mv", "rm")
# The real programs that create the certificate.
TLS_TOOLS = {name: f'PATH=/usr/bin:/bin exec {name} "$@"\n' for name in ("openssl", "sha256sum", "base64", "chmod")}
# One write per call, because background calls such as `sleep` record themselves concurrently.
_RECORD = """#!/bin/bash
format='%s\\0'
for _ in "$@"; do format+='%s\\0'; done
printf "$format\\n" "${0##*/}" "$@" >>"$RECORD"
"""
_DOCKER = (
    _RECORD
    + """
case $1 in
  image) exit "${IMAGE_CODE:-1}" ;;
  pull) exit "${PULL_CODE:-0}" ;;
  run)
    printf '%s' "${HF_TOKEN-unset}" >"$RECORD.token"
    cat "$ENGINE_LOG"
    exit "${ENGINE_CODE:-0}"
    ;;
esac
"""
)


@dataclass(kw_only=True)
class Machine:
    """Runs scripts of a user data. `engine_log` and `engine_code` are the container's output and exit code. `inside` is
    the command that runs scripts, for example in a separate mount namespace.
    """

    folder: Path
    user_data: str
    engine_log: str = ""
    engine_code: int = 0
    commands: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    inside: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        fakes = dict.fromkeys(("nvidia-smi", "sleep", "shutdown"), _RECORD)
        # No time passes here, so a loop that reports the time would never stop.
        fakes["sleep"] += "[[ ${1-} != 10 ]]\n"
        fakes |= {"docker": _DOCKER, "mountpoint": _RECORD + "exit 1\n", "aws": _RECORD + "exit 255\n"}
        self.bin.mkdir(parents=True)
        for name, text in (fakes | {name: _RECORD + text for name, text in self.commands.items()}).items():
            (self.bin / name).write_text(text)
            (self.bin / name).chmod(0o755)
        for name in [tool for tool in _TOOLS if tool not in self.commands]:
            (self.bin / name).symlink_to(
                next(Path(d) / name for d in ("/bin", "/usr/bin") if (Path(d) / name).exists())
            )
        self.received(eth0=0)
        for file in yaml.safe_load(self.user_data)["write_files"]:
            path = self.at(file["path"])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self._moved(file["content"]), encoding="utf-8")
            path.chmod(int(file.get("permissions", "0644"), 8))

    @property
    def bin(self) -> Path:
        return self.folder / "bin"

    def at(self, path: str) -> Path:
        return self.folder / path.lstrip("/")

    def _moved(self, text: str) -> str:
        for path in _PATHS:
            text = text.replace(path, f"{self.folder}{path}")
        return text

    def received(self, *, eth0: int, **cards: int) -> None:
        """Set the bytes that the network cards have received."""
        lines = [
            f"{name:>6}: {count:7} 10 0 0 0 0 0 0 99 7 0 0 0 0 0 0" for name, count in {"eth0": eth0, **cards}.items()
        ]
        path = self.at("/proc/net/dev")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("Inter-|   Receive  |  Transmit\n face |bytes packets|bytes\n" + "\n".join(lines) + "\n")

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(script),
            check=False,
            capture_output=True,
            text=True,
            env=self.surroundings(),
            timeout=300,
        )

    def command(self, *words: str) -> list[str]:
        """The command that runs a script of the machine with arguments."""
        return [*self.inside, str(self.at(f"/opt/tgi-deploy/{words[0]}")), *words[1:]]

    def surroundings(self) -> dict[str, str]:
        """The environment variables of the machine's scripts."""
        log = self.folder / "engine.log"
        log.write_text(self.engine_log, encoding="utf-8")
        return {
            "PATH": str(self.bin),
            "RECORD": str(self.folder / "calls"),
            "ENGINE_LOG": str(log),
            "ENGINE_CODE": str(self.engine_code),
            **self.environment,
        }

    def calls(self, command: str | None = None) -> list[list[str]]:
        """The commands that were run, in order."""
        record = self.folder / "calls"
        lines = record.read_text(encoding="utf-8").split("\0\n")[:-1] if record.exists() else []
        found = [line.split("\0") for line in lines]
        return [words for words in found if command in (None, words[0])]

    def docker(self, verb: str) -> list[list[str]]:
        return [words for words in self.calls("docker") if words[1] == verb]

    @property
    def token_seen(self) -> str:
        return (self.folder / "calls.token").read_text(encoding="utf-8")
