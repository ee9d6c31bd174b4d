"""Starting and stopping a cluster: etcd, the API server, the controller manager, the scheduler, and the nodes' agent.

All servers listen on loopback. One key pair, made at each start, is the certificate of all of them, and what the API
server shows to etcd and the agent; callers have tokens. Everything lies in one folder that only its owner can read.
"""

from __future__ import annotations

import json
import os
import secrets
import shlex
import shutil
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Final

import tgi_deploy
from tgi_deploy.errors import DeployError, InputError
from tgi_deploy.sandbox.addresses import free_ports
from tgi_deploy.sandbox.kubernetes import CERTIFICATE, GROUPS, KEY, KUBECONFIG, NODES, access
from tgi_deploy.sandbox.processes import end_group, end_recorded_groups, is_alive, recorded_groups

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

SERVERS: Final = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
DEFAULT_NODES: Final = {f"gpu-{number}": "g6e.2xlarge" for number in (1, 2, 3, 4)}
_AGENT: Final = "tgi_deploy.sandbox.kubernetes.agent"
_NETWORK: Final = "network"
_USERS: Final = {
    "admin": ",system:masters", "system:kube-controller-manager": "", "system:kube-scheduler": "",
}  # fmt: skip
_NOT_READY: Final = "node.kubernetes.io/not-ready"
_START_S: Final = 120.0
_POLL_S: Final = 0.1
# Gated models need a token; any is accepted, because nothing contacts the hub.
_HUB_TOKEN: Final = {"metadata": {"name": "hf-token"}, "stringData": {"HF_TOKEN": "hf_made_up_for_the_sandbox"}}
_MOST_SAID: Final = 600
_GRACE_S: Final = 5.0
# No credentials of the caller; Go looks for proxies.
_PASSED: Final = frozenset({"PATH", "HOME", "TMPDIR", "LANG", "PYTHONPATH"})


def binaries() -> Path:
    """Return the folder where `scripts/control_plane build` puts the servers."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "tgi-deploy" / "control-plane"


def start(home: Path, nodes: Mapping[str, str] = DEFAULT_NODES) -> Path:
    """Start a cluster in a folder, unless it runs already, and return its kubeconfig.

    `nodes`: instance types by the names of their nodes.

    Raises:
        InputError: `control_plane_missing`.
        DeployError: `sandbox_not_started`.
    """
    if is_running(home):
        return home / KUBECONFIG
    programs = _programs()
    stop(home)
    (home / GROUPS).mkdir(parents=True, mode=0o700)
    home.chmod(0o700)
    plane = _Plane(home, programs)
    plane.prepare(nodes)
    plane.launch()
    return home / KUBECONFIG


def is_running(home: Path) -> bool:
    """Return whether the cluster of this folder answers."""
    return (home / KUBECONFIG).exists() and _answers(home, "/readyz")


def stop(home: Path) -> None:
    """End the cluster of a folder with its pods, and remove the folder. Does nothing where there is none."""
    if not (home / GROUPS).is_dir():
        return
    groups = recorded_groups(home / GROUPS, marker=str(home))
    for group, command in groups.items():
        if _AGENT in command:  # first, because it would start its pods again
            end_group(group, grace_s=_GRACE_S)
    # The API server would wait for etcd: all at once, because nothing of them is kept.
    end_recorded_groups(home / GROUPS, marker=str(home))
    deadline = time.monotonic() + _GRACE_S
    while any(map(is_alive, groups)) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    network = home / _NETWORK
    if network.exists():
        _loopback("del", network.read_text(encoding="ascii"))
    shutil.rmtree(home, ignore_errors=True)


def _programs() -> dict[str, str]:
    """Return the paths of all servers. Raises InputError `control_plane_missing`."""
    built = max((path.parent for path in binaries().glob(f"*/{SERVERS[-1]}")), default=binaries())
    found = {"etcd": shutil.which("etcd"), **{name: shutil.which(name, path=str(built)) for name in SERVERS}}
    missing = [name for name, path in found.items() if path is None]
    if missing:
        raise InputError(
            "control_plane_missing",
            f"a local Kubernetes cluster needs {', '.join(missing)}, which can't be found here",
            hint=f"install and build what is missing with: {_build_command(missing)}",
        )
    return {name: str(path) for name, path in found.items()}


def _build_command(missing: Sequence[str]) -> str:
    """Return one line for a shell: Debian's etcd, and the servers from a clone of the repository."""
    steps = ["sudo apt-get install --yes etcd-server"] if "etcd" in missing else []
    if any(name in SERVERS for name in missing):
        script = Path(tgi_deploy.__file__).resolve().parent.parent / "scripts" / "control_plane"
        steps.append(f"{shlex.quote(str(script)) if script.exists() else 'scripts/control_plane'} build")
    return " && ".join(steps)


class _Plane:
    def __init__(self, home: Path, programs: Mapping[str, str]) -> None:
        self._home = home
        self._programs = programs
        self._started: list[subprocess.Popen[bytes]] = []
        self._port, self._etcd, self._peers = free_ports(3)
        self._url = f"https://127.0.0.1:{self._port}"
        self._tokens = {user: secrets.token_hex(16) for user in _USERS}
        self._certificate, self._key = str(home / CERTIFICATE), str(home / KEY)
        self._network = f"198.18.{self._port % 254 + 1}"

    def prepare(self, nodes: Mapping[str, str]) -> None:
        """Write the servers' configuration, keys and tokens."""
        rows = [f"{self._tokens[user]},{user},{user}{group}\n" for user, group in _USERS.items()]
        self._write("tokens.csv", "".join(rows))
        for user in _USERS:
            self._write(self._config_of(user), json.dumps(self._kubeconfig(user)))
        self._write(NODES, json.dumps([{"name": name, "instance_type": kind} for name, kind in nodes.items()]))
        subprocess.run(  # noqa: S603 -- fixed words
            [
                *("openssl", "req", "-x509", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
                *("-subj", "/CN=sandbox", "-days", "30", "-keyout", self._key, "-out", self._certificate),
                *("-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"),
                *("-addext", "keyUsage=critical,digitalSignature,keyCertSign"),
                *("-addext", "extendedKeyUsage=serverAuth,clientAuth"),
            ],
            check=True,
            capture_output=True,
        )
        # The pods' addresses: the API server refuses those of 127/8. Without root they can be reached only through it.
        if _loopback("add", self._network):
            self._write(_NETWORK, self._network)

    def launch(self) -> None:
        """Start all servers, and wait until pods can be created. Raises DeployError `sandbox_not_started`."""
        self._spawn("etcd", *self._etcd_options())
        self._spawn("kube-apiserver", *self._api_options())
        self._await("the API server", lambda: _answers(self._home, "/readyz"))
        self._spawn("kube-controller-manager", *self._controller_options())
        self._spawn("kube-scheduler", f"--kubeconfig={self._home / self._config_of('system:kube-scheduler')}",
                    "--leader-elect=false", "--secure-port=0")  # fmt: skip
        agent = [sys.executable, "-P", "-m", _AGENT, str(self._home), self._network]
        self._start("agent", agent)
        self._await("the nodes", self._is_complete)
        self._await("the Secret", lambda: _answers(self._home, "/api/v1/namespaces/default/secrets", _HUB_TOKEN))

    def _is_complete(self) -> bool:
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        nodes = json.loads((self._home / NODES).read_text(encoding="utf-8"))
        found = (_reply(self._home, f"/api/v1/nodes/{one['name']}") for one in nodes)
        return _answers(self._home, account) and all(node is not None and _takes_pods(node) for node in found)

    def _etcd_options(self) -> Sequence[str]:
        client, peer = f"https://127.0.0.1:{self._etcd}", f"https://127.0.0.1:{self._peers}"
        files = (
            f"--cert-file={self._certificate}",
            f"--key-file={self._key}",
            f"--trusted-ca-file={self._certificate}",
        )
        return (
            f"--data-dir={self._home / 'etcd'}", "--unsafe-no-fsync", "--logger=zap", "--log-level=warn",
            f"--listen-client-urls={client}", f"--advertise-client-urls={client}", "--client-cert-auth", *files,
            f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}",
            "--peer-client-cert-auth", *(option.replace("--", "--peer-", 1) for option in files),
        )  # fmt: skip

    def _api_options(self) -> Sequence[str]:
        return (
            "--bind-address=127.0.0.1", f"--secure-port={self._port}", "--endpoint-reconciler-type=none",
            f"--etcd-servers=https://127.0.0.1:{self._etcd}", f"--etcd-cafile={self._certificate}",
            f"--etcd-certfile={self._certificate}", f"--etcd-keyfile={self._key}",
            f"--tls-cert-file={self._certificate}", f"--tls-private-key-file={self._key}",
            f"--kubelet-certificate-authority={self._certificate}", f"--kubelet-client-certificate={self._certificate}",
            f"--kubelet-client-key={self._key}", "--kubelet-preferred-address-types=InternalIP",
            f"--token-auth-file={self._home / 'tokens.csv'}", "--authorization-mode=RBAC", "--anonymous-auth=false",
            f"--service-account-issuer={self._url}", f"--service-account-key-file={self._certificate}",
            f"--service-account-signing-key-file={self._key}", "--service-cluster-ip-range=10.96.0.0/16",
        )  # fmt: skip

    def _controller_options(self) -> Sequence[str]:
        return (
            f"--kubeconfig={self._home / self._config_of('system:kube-controller-manager')}", "--leader-elect=false",
            "--secure-port=0", "--use-service-account-credentials=true", f"--root-ca-file={self._certificate}",
            f"--service-account-private-key-file={self._key}", "--horizontal-pod-autoscaler-sync-period=2s",
        )  # fmt: skip

    def _config_of(self, user: str) -> str:
        return KUBECONFIG if user == "admin" else f"{KUBECONFIG}.{user.rpartition(':')[2]}"

    def _kubeconfig(self, user: str) -> dict[str, object]:
        cluster = {"server": self._url, "certificate-authority": self._certificate}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "sandbox",
            "clusters": [{"name": "sandbox", "cluster": cluster}],
            "users": [{"name": user, "user": {"token": self._tokens[user]}}],
            "contexts": [{"name": "sandbox", "context": {"cluster": "sandbox", "user": user}}],
        }

    def _spawn(self, program: str, *options: str) -> None:
        self._start(program, [self._programs[program], *options])

    def _start(self, name: str, command: Sequence[str]) -> None:
        with self._path(f"{name}.log").open("wb") as log:
            process = subprocess.Popen(  # noqa: S603 -- our own programs
                command, cwd=self._home, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                env={name: value for name, value in os.environ.items() if name in _PASSED},
            )  # fmt: skip
        self._path(f"{GROUPS}/{process.pid}").touch()
        self._started.append(process)
        threading.Thread(target=process.wait, name=name, daemon=True).start()  # so that it leaves no zombie

    def _path(self, name: str) -> Path:
        return self._home / name

    def _write(self, name: str, text: str) -> None:
        path = self._path(name)
        path.touch(mode=0o600)
        path.write_text(text, encoding="utf-8")

    def _await(self, what: str, is_there: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline and all(process.poll() is None for process in self._started):
            if is_there():
                return
            time.sleep(_POLL_S)
        said = "; ".join(line for log in self._home.glob("*.log") for line in _last_line(log))[:_MOST_SAID]
        stop(self._home)
        raise DeployError(
            "sandbox_not_started",
            f"the local Kubernetes cluster did not start: no answer from {what} ({said})",
            hint="this computer may be busy: run the command again",
        )


def _last_line(log: Path) -> list[str]:
    return log.read_text(encoding="utf-8", errors="replace").splitlines()[-1:]


def _takes_pods(node: bytes) -> bool:
    """Return whether the controllers have removed the taint that every new node has."""
    return _NOT_READY not in {taint["key"] for taint in json.loads(node)["spec"].get("taints", ())}


def _answers(home: Path, path: str, new: object = None) -> bool:
    """Return whether the folder's API server lets its owner read a path, or create `new` there."""
    return _reply(home, path, new) is not None


def _reply(home: Path, path: str, new: object = None) -> bytes | None:
    """Return the body of a successful answer; None for any other."""
    try:
        server, token = access(home)
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        data = None if new is None else json.dumps(new).encode()
        request = urllib.request.Request(server + path, data, headers)  # noqa: S310 -- https, from our own file
        context = ssl.create_default_context(cafile=str(home / CERTIFICATE))
        with urllib.request.urlopen(request, timeout=5, context=context) as reply:  # noqa: S310 -- as above
            return bytes(reply.read()) if reply.status < HTTPStatus.MULTIPLE_CHOICES else None
    except (OSError, ValueError, LookupError):
        return None


def _loopback(action: str, network: str) -> bool:
    """Add or remove the pods' addresses on the loopback interface; return whether that was allowed."""
    try:
        done = subprocess.run(  # noqa: S603 -- fixed words and a number
            ["ip", "address", action, f"{network}.0/24", "dev", "lo"],  # noqa: S607 -- ip lies in different places
            capture_output=True, check=False,
        )  # fmt: skip
    except FileNotFoundError:
        return False
    return done.returncode == 0
