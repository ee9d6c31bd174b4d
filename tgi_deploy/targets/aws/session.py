"""boto3 clients, created once each. The SDK retries reads but not creating calls, whose replies must all be seen."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from botocore.config import Config
from botocore.exceptions import BotoCoreError, NoCredentialsError

from tgi_deploy import bounded_json
from tgi_deploy.errors import InputError
from tgi_deploy.targets.aws.errors import ErrorTable, translate
from tgi_deploy.targets.reply import Reply, ReplyError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import boto3
    import botocore.session
    from botocore.model import OperationModel

_CONNECT_TIMEOUT_S: Final = 10
_READ_TIMEOUT_S: Final = 60
_READ_ATTEMPTS: Final = 5
_MADE_UP: Final = "loopback"
_FIRST_ERROR_STATUS: Final = 300


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionFactory:
    """Creates clients for one account. Raises InputError `bad_url`.

    `endpoint_url` None is the real cloud. `access_key` is sent with a dummy secret instead of the caller's
    credentials; an endpoint on loopback gets dummy credentials if there are none.
    """

    table: ErrorTable
    endpoint_url: str | None = None
    profile: str | None = None
    access_key: str | None = None
    _made: dict[Any, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.endpoint_url is not None and not _is_url(self.endpoint_url):
            raise InputError(
                "bad_url",
                f"the cloud's endpoint {self.endpoint_url!r} is not a URL",
                hint="set AWS_ENDPOINT_URL to one like http://127.0.0.1:5000, or unset it for the real cloud",
            )

    def client(self, service: str, region: str, *, creating: bool = False) -> Any:  # noqa: ANN401 -- boto3 makes clients at run time
        """Return a client of `service`. Raises DeployError `no_credentials` or InputError `unknown_aws_profile`."""
        key = (service, region, creating)
        if key not in self._made:
            try:
                self._made[key] = self._client(service, region, creating=creating)
            except BotoCoreError as error:
                doing = f"connecting to {service} in {region}"
                raise translate(error, self.table, doing=doing, service=service, creating=False) from error
        return self._made[key]

    def check_credentials(self) -> None:
        """Raise DeployError `no_credentials` or InputError `unknown_aws_profile`. Sends no request."""
        try:
            if self._session().get_credentials() is None:
                raise NoCredentialsError
        except BotoCoreError as error:
            raise translate(error, self.table, doing="a launch", service="sts", creating=False) from error

    def _client(self, service: str, region: str, *, creating: bool) -> Any:  # noqa: ANN401 -- see client()
        session = self._session()
        local = self.endpoint_url is not None and is_loopback(self.endpoint_url)
        made_up = self.access_key or (_MADE_UP if local and session.get_credentials() is None else None)
        keys = {"aws_access_key_id": made_up, "aws_secret_access_key": _MADE_UP} if made_up else {}
        make: Any = session.client
        return make(
            service, region_name=region, endpoint_url=self.endpoint_url, config=_config(creating, local), **keys
        )

    def _session(self) -> boto3.Session:
        if "session" not in self._made:
            import boto3  # noqa: PLC0415 -- a third of a second that only a first call pays

            own = None if self.access_key is None else _without_settings()
            made = boto3.Session(profile_name=self.profile, botocore_session=own)
            made.events.register("before-parse", _reject_broken_json)
            self._made["session"] = made
        session: boto3.Session = self._made["session"]
        return session


def _without_settings() -> botocore.session.Session:
    """Return a session that ignores the caller's AWS files and profile."""
    import botocore.session  # noqa: PLC0415 -- as boto3

    nothing = {"profile": None, "config_file": os.devnull, "credentials_file": os.devnull}
    return botocore.session.Session(session_vars={name: (None, None, value, None) for name, value in nothing.items()})


def _reject_broken_json(operation_model: OperationModel, response_dict: Mapping[str, Any], **_rest: object) -> None:
    """Raise ReplyError for a body that the SDK would parse as an empty object. Errors are classified by their codes."""
    body, shape = response_dict["body"], operation_model.output_shape
    if operation_model.has_streaming_output or operation_model.has_event_stream_output:
        return  # the caller checks streamed data
    if (
        "json" not in operation_model.service_model.resolved_protocol
        or response_dict["status_code"] >= _FIRST_ERROR_STATUS
    ):
        return
    if not body and not (shape and shape.members):
        return
    try:
        content = bounded_json.parse(body)
    except ValueError:
        raise ReplyError("its body is not JSON") from None
    Reply.of(content, "its body")


def _config(creating: bool, local: bool) -> Config:  # noqa: FBT001 -- two facts about the client
    attempts = 1 if creating else _READ_ATTEMPTS
    settings: dict[str, Any] = {"proxies": {}} if local else {}
    return Config(
        retries={"mode": "standard", "total_max_attempts": attempts},
        connect_timeout=_CONNECT_TIMEOUT_S,
        read_timeout=_READ_TIMEOUT_S,
        user_agent_extra="tgi-deploy",
        **settings,
    )


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # unclosed brackets, or an invalid port
        return False


def is_loopback(url: str) -> bool:
    """Return whether the URL names this computer."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
