"""User data: the cloud-config that makes a bare GPU machine run the engine and terminate itself in time.

systemd restarts a crashed engine but not a misconfigured one: `run-engine` exits with the launcher's exit code 2, or
with 64 if the log of a start that never became ready shows a failure that the table marks as final. It prints markers
on the console for the `up` that waits: `[tgi-deploy] phase=…` and `[tgi-deploy] verdict=configuration`.
Only the deployment's name goes into a unit file, and its grammar excludes everything that systemd expands.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy import templating as environment
from tgi_deploy.errors import DeployError, InputError
from tgi_deploy.targets.container import container_for, secret_names
from tgi_deploy.targets.deployable import HUB_TOKEN
from tgi_deploy.values.resource import TAG_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tgi_deploy.targets.protocol import Deployable

MAX_BYTES: Final = 16 * 1024  # before base64; EC2 User Guide, "Run commands at launch"
BASE_DIR: Final = "/opt/tgi-deploy"
RUN_DIR: Final = "/run/tgi-deploy"
STATE_DIR: Final = "/var/lib/tgi-deploy"
UNIT_DIR: Final = "/etc/systemd/system"
ENGINE_SERVICE: Final = "tgi-deploy-engine.service"
EXPIRE_TIMER: Final = "tgi-deploy-expire.timer"
EXPIRE_WATCH: Final = "tgi-deploy-expire-watch.service"
SPOT_TIMER: Final = "tgi-deploy-spot-watch.timer"
CERTIFICATE_PATH: Final = f"{BASE_DIR}/certificate.pem"
NVME_MOUNT: Final = "/opt/dlami/nvme"  # where the Deep Learning AMIs mount the instance store
_LOCAL_PORTS: Final = (8081, 8082)
_STOP_MARGIN_S: Final = 30
_SHUTDOWN_MARGIN_S: Final = 300  # for everything stopped along with the engine


@dataclass(frozen=True, kw_only=True, slots=True)
class _File:
    path: str
    template: str
    permissions: str = "0644"


_ENGINE_FILES: Final = (
    _File(path=f"{BASE_DIR}/engine.env", template="engine.env", permissions="0600"),
    _File(path=f"{BASE_DIR}/run-engine", template="run-engine", permissions="0755"),
    _File(path=f"{UNIT_DIR}/{ENGINE_SERVICE}", template="engine.service"),
)
_EXPIRE_FILES: Final = (
    _File(path=f"{BASE_DIR}/expire", template="expire", permissions="0755"),
    _File(path=f"{UNIT_DIR}/tgi-deploy-expire.service", template="expire.service"),
    _File(path=f"{UNIT_DIR}/{EXPIRE_TIMER}", template="expire.timer"),
    _File(path=f"{UNIT_DIR}/{EXPIRE_WATCH}", template="expire-watch.service"),
)
_SPOT_FILES: Final = (
    _File(path=f"{BASE_DIR}/spot-watch", template="spot-watch", permissions="0755"),
    _File(path=f"{UNIT_DIR}/tgi-deploy-spot-watch.service", template="spot-watch.service"),
    _File(path=f"{UNIT_DIR}/{SPOT_TIMER}", template="spot-watch.timer"),
)


def render_user_data(deployable: Deployable, *, templates_dir: Path | None) -> str:
    """Return the cloud-config. Raises DeployError `user_data_too_large`, or InputError if it could not run."""
    _check_reachable(deployable)
    values = _values(deployable)
    written = [
        {
            "path": file.path,
            "permissions": file.permissions,
            "content": environment.render_text(f"user-data/{file.template}.j2", values, templates_dir=templates_dir),
        }
        for file in _files(deployable)
    ]
    if deployable.certificate is not None:
        written.append({"path": CERTIFICATE_PATH, "permissions": "0644", "content": deployable.certificate})
    commands = list(_commands(deployable))
    text = environment.render_text(
        "user-data/cloud-config.yaml.j2", {"files": written, "commands": commands}, templates_dir=templates_dir
    )
    _check_size(text.encode() if deployable.certificate is None else sent(text))
    return text


def sent(text: str) -> bytes:
    """Return the user data as EC2 stores it: compressed if it would be too long. cloud-init reads both.

    A certificate with its chain takes 3 to 6 KB.
    """
    plain = text.encode()
    return plain if len(plain) <= MAX_BYTES else gzip.compress(plain, mtime=0)


def _files(deployable: Deployable) -> Iterator[_File]:
    yield from _ENGINE_FILES
    yield from _EXPIRE_FILES
    if _is_spot(deployable):
        yield from _SPOT_FILES


def _is_spot(deployable: Deployable) -> bool:
    return deployable.candidate.offer.market == "spot"


def _commands(deployable: Deployable) -> Iterator[list[str]]:
    """Return the boot commands. The timer starts before the engine, even without a limit: one may be set later."""
    yield ["systemctl", "daemon-reload"]
    yield ["systemctl", "enable", "--now", EXPIRE_TIMER]
    yield ["systemctl", "enable", "--now", EXPIRE_WATCH]
    if _is_spot(deployable):
        yield ["systemctl", "enable", "--now", SPOT_TIMER]
    yield ["systemctl", "enable", "--now", ENGINE_SERVICE]


def _values(deployable: Deployable) -> dict[str, Any]:
    engine = container_for(deployable)
    return {
        "name": deployable.name,
        "engine": engine,
        "container_port": engine.container_port,
        "base_dir": BASE_DIR,
        "run_dir": RUN_DIR,
        "state_dir": STATE_DIR,
        "nvme_mount": NVME_MOUNT if deployable.candidate.storage.weights_on_nvme else None,
        "stop_deadline_s": engine.stop_timeout_s + _STOP_MARGIN_S,
        "shutdown_deadline_s": engine.stop_timeout_s + _STOP_MARGIN_S + _SHUTDOWN_MARGIN_S,
        "engine_service": ENGINE_SERVICE,
        **_end_values(deployable),
        "secrets": _secrets(deployable),
        "log_filter": deployable.log_filter,
        "region": _parameter_region(deployable),
        "tls_image": deployable.tls_image,
        "certificate_key": deployable.certificate_key_parameter,
        "certificate_path": CERTIFICATE_PATH,
        **_published(deployable, engine.port),
    }


def _published(deployable: Deployable, port: int) -> dict[str, Any]:
    """Return where the engine listens on the machine: behind a proxy, only on loopback."""
    if deployable.tls_image is None:
        return {"published": f"127.0.0.1:{port}" if deployable.tunneled else str(port), "local_port": port}
    local_port = next(other for other in _LOCAL_PORTS if other != port)
    return {"published": f"127.0.0.1:{local_port}", "local_port": local_port}


def _end_values(deployable: Deployable) -> dict[str, Any]:
    metrics = deployable.candidate.engine.metrics
    return {
        "ttl_s": deployable.ttl_s,
        "lease_s": deployable.lease_s,
        "tag_prefix": TAG_PREFIX,
        "idle_s": deployable.idle_s,
        "ready_deadline_s": deployable.ready_deadline_s,
        "metrics_path": metrics.path,
        "request_counters": metrics.request_counters,
    }


def _secrets(deployable: Deployable) -> list[dict[str, str]]:
    """Return the secrets that the machine reads at boot and passes to the container by name."""
    read = (
        (HUB_TOKEN, "hub token", deployable.hub_token_parameter),
        (_key_variable(deployable), "API key", deployable.api_key_parameter),
    )
    return [
        {"variable": variable, "what": what, "parameter": parameter}
        for variable, what, parameter in read
        if variable is not None and parameter is not None
    ]


def _key_variable(deployable: Deployable) -> str | None:
    return deployable.candidate.engine.access.key_variable


def _check_reachable(deployable: Deployable) -> None:
    """Check that user data can provide everything that a rented machine needs."""
    model = deployable.model.model
    if model.local_path is not None:
        raise InputError(
            "local_model",
            f"the model {model.local_path} exists only on this computer: a rented machine can't load it",
            hint="add --target docker to serve it on this computer, or push it to the hub and use its id",
        )
    names = set(secret_names(deployable))
    if HUB_TOKEN in names and deployable.hub_token_parameter is None:
        raise InputError(
            "hub_token_missing",
            f"{model.hub_id} is gated: the machine needs a hub token, which must not be in user data",
            hint="name an SSM SecureString with --hub-token-parameter; 'up' makes one if you export HF_TOKEN",
        )
    lacking = names - {HUB_TOKEN} - ({_key_variable(deployable)} if deployable.api_key_parameter else set())
    if lacking:
        raise InputError(
            "secret_not_deliverable",
            f"{', '.join(sorted(lacking))} can't be passed to a rented machine",
            hint="only the hub token and the API key can be, through SSM parameters",
        )


def _parameter_region(deployable: Deployable) -> str | None:
    """Return the region of the machine's parameters; None without parameters."""
    parameter = next(iter(deployable.parameters), None)
    if parameter is None:
        return None
    offer = deployable.candidate.offer
    if deployable.region is None and offer.market == "owned":
        raise InputError(
            "region_missing",
            f"the region of {parameter} is unknown",
            hint="name the region of the parameter",
        )
    return deployable.region or offer.region


def _check_size(content: bytes) -> None:
    """Check the size. Without a certificate, the text must fit uncompressed, because people also use it by hand."""
    size_bytes = len(content)
    if size_bytes > MAX_BYTES:
        raise DeployError(
            "user_data_too_large",
            f"the user data is {size_bytes} bytes; EC2 allows {MAX_BYTES}",
            hint="shorten the engine's flags or environment, or your own templates",
            data={"size_bytes": size_bytes, "max_bytes": MAX_BYTES},
        )
