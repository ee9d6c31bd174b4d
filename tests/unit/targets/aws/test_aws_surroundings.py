from __future__ import annotations

import socket

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    EndpointConnectionError,
    NoCredentialsError,
    ParamValidationError,
    ProfileNotFound,
    ReadTimeoutError,
)
from builders.aws_profiles import profile_data
from fakes.computer import FakeClock

from tgi_deploy.clock import SystemClock
from tgi_deploy.errors import DeployError, InputError
from tgi_deploy.reconcile.errors import (
    BadRequestError,
    LostReplyError,
    NoCapacityError,
    NotYetError,
    ThrottledError,
)
from tgi_deploy.targets.aws.api import Api, acknowledged, each
from tgi_deploy.targets.aws.errors import ErrorTable, translate
from tgi_deploy.targets.aws.retry import NOT_YET_ATTEMPTS, THROTTLED_ATTEMPTS, Retrier
from tgi_deploy.targets.aws.session import SessionFactory


@pytest.fixture(scope="module")
def table():
    return ErrorTable.of(profile_data("errors.json"))


def test_zones_must_offer_the_type_and_have_a_subnet(bench):
    places = bench.cloud().placements("g6e.xlarge", subnet=None)
    assert [place.zone for place in places] == sorted(place.zone for place in places)
    assert len(places) > 1
    assert all(place.subnet.startswith("subnet-") for place in places)


def test_a_given_subnet_determines_the_zone(bench):
    wanted = bench.cloud().placements("g6e.xlarge", subnet=None)[1]
    assert bench.cloud().placements("g6e.xlarge", subnet=wanted.subnet) == (wanted,)


def test_a_type_that_no_zone_offers_is_a_capacity_error(bench):
    with pytest.raises(NoCapacityError, match="not offered"):
        bench.cloud().placements("g9z.metal", subnet=None)


@pytest.mark.parametrize("subnet", ["subnet-0123456789abcdef0", "nonsense"])
def test_an_unknown_subnet_is_a_wrong_input(bench, subnet):
    with pytest.raises(InputError, match=subnet) as caught:
        bench.cloud().placements("g6e.xlarge", subnet=subnet)
    assert (caught.value.code, "--subnet" in caught.value.hint) == ("unknown_subnet", True)


@pytest.mark.parametrize("image", ["ami-0123456789abcdef0", "nonsense"])
def test_an_unknown_image_is_a_wrong_input(bench, image):
    with pytest.raises(InputError, match=image) as caught:
        bench.cloud().image(architecture="x86_64", wanted=image)
    assert (caught.value.code, "--ami" in caught.value.hint) == ("no_machine_image", True)


def test_the_image_is_the_first_parameter_that_exists(bench):
    image = bench.cloud().image(architecture="x86_64", wanted=None)
    assert image.id.startswith("ami-")
    assert "ubuntu-22.04" in image.source
    assert image.root_device.startswith("/dev/")


def test_a_given_image_is_only_described(bench):
    known = bench.cloud().image(architecture="x86_64", wanted=None)
    again = bench.cloud().image(architecture="x86_64", wanted=known.id)
    assert (again.id, again.root_device, again.source) == (known.id, known.root_device, "--ami")


def test_without_an_image_parameter_an_image_is_required(bench):
    with pytest.raises(DeployError) as caught:
        bench.cloud().image(architecture="riscv", wanted=None)
    assert caught.value.code == "no_machine_image"
    assert "--ami" in caught.value.hint


def test_an_unreachable_cloud_is_a_one_line_error(table):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    sessions = SessionFactory(table=table, endpoint_url=url)
    made = Api(region="us-east-1", sessions=sessions, retrier=Retrier(FakeClock()))
    with pytest.raises(DeployError) as caught:
        made.change("create_key_pair", "making a key", acknowledged, KeyName="k")
    assert caught.value.code == "cloud_unreachable"


@pytest.mark.parametrize(
    "url", ["nonsense", "ftp://127.0.0.1", "http://", "127.0.0.1:5000", "http://[::1", "http://a:70000"]
)
def test_an_invalid_endpoint_url_is_bad_input(table, url):
    with pytest.raises(InputError) as caught:
        SessionFactory(table=table, endpoint_url=url)
    assert caught.value.code == "bad_url"
    assert url in caught.value.message
    assert "AWS_ENDPOINT_URL" in caught.value.hint


def test_explicit_credentials_need_no_aws_settings(table, tmp_path, monkeypatch):
    """A sandbox works where no account, or a broken one, is set up."""
    broken = tmp_path / "config"
    broken.write_text("[default\nregion", encoding="utf-8")
    for name, value in {
        "AWS_PROFILE": "nobody",
        "AWS_CONFIG_FILE": str(broken),
        "AWS_SHARED_CREDENTIALS_FILE": str(broken),
    }.items():
        monkeypatch.setenv(name, value)
    url = "http://127.0.0.1:1"
    client = SessionFactory(table=table, endpoint_url=url, access_key="k").client("ec2", "us-east-1")
    assert client.meta.endpoint_url == url
    with pytest.raises(DeployError, match="parse config file"):
        SessionFactory(table=table, endpoint_url=url).client("ec2", "us-east-1")


def test_invalid_parameters_are_not_sent(bench):
    with pytest.raises(BadRequestError, match="parameters are invalid"):
        bench.cloud().api.change("run_instances", "launching", acknowledged, MinCount="many", MaxCount=1)
    assert bench.calls("RunInstances") == []


def test_clients_are_created_once_and_creating_calls_never_retry(table):
    sessions = SessionFactory(table=table, endpoint_url="http://127.0.0.1:1", access_key="loopback")
    reading, creating = (sessions.client("ec2", "us-east-1", creating=flag) for flag in (False, True))
    assert sessions.client("ec2", "us-east-1") is reading
    assert reading.meta.config.retries["total_max_attempts"] == 5
    assert creating.meta.config.retries["total_max_attempts"] == 1


def test_without_credentials_no_call_is_made(table):
    made = Api(region="us-east-1", sessions=SessionFactory(table=table), retrier=Retrier(FakeClock()))
    with pytest.raises(DeployError) as caught:
        made.list("describe_instances", "looking", each("Reservations", acknowledged))
    assert caught.value.code == "no_credentials"
    assert "--sandbox" in caught.value.hint


def test_an_unknown_profile_is_an_input_error(table):
    sessions = SessionFactory(table=table, profile="nobody")
    with pytest.raises(InputError) as caught:
        sessions.client("ec2", "us-east-1")
    assert caught.value.code == "unknown_aws_profile"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("InsufficientInstanceCapacity", "capacity"),
        ("VcpuLimitExceeded", "quota"),
        ("RequestLimitExceeded", "throttled"),
        ("InvalidInstanceID.NotFound", "not_yet"),
        ("InvalidVolume.NotFound", "gone"),
        ("UnauthorizedOperation", "permission"),
        ("AccessDeniedException", "permission"),
        ("AuthFailure", "credentials"),
        ("AuthFailure.ServiceLinkedRoleCreationNotPermitted", "permission"),
        ("ExpiredTokenException", "credentials"),
        ("InvalidAMIID.NotFound", "request"),
        ("DependencyViolation", "in_use"),
        ("OperationNotPermitted", "protected"),
        ("IdempotentParameterMismatch", "stale_token"),
        ("InvalidGroup.Duplicate", "exists"),
        ("InvalidPermission.Duplicate", "exists"),
        ("InvalidLaunchTemplateName.AlreadyExistsException", "exists"),
        ("SomethingNew", "unknown"),
    ],
)
def test_codes_have_their_class(table, code, expected):
    assert table.classify(code) == expected


def test_unknown_server_errors_are_retried(table):
    assert table.classify("SomethingNew", status=503) == "failing"


def error_of(table, error, *, creating=True):
    return translate(error, table, doing="launching", service="ec2", creating=creating)


@pytest.mark.parametrize(
    ("error", "creating", "code"),
    [
        (ReadTimeoutError(endpoint_url="u"), True, "lost_reply"),
        (ConnectionClosedError(endpoint_url="u"), True, "lost_reply"),
        (ReadTimeoutError(endpoint_url="u"), False, "cloud_unreachable"),
        (EndpointConnectionError(endpoint_url="u"), True, "cloud_unreachable"),
        (NoCredentialsError(), True, "no_credentials"),
        (ProfileNotFound(profile="p"), False, "unknown_aws_profile"),
        (ParamValidationError(report="r"), True, "request_refused"),
    ],
)
def test_sdk_errors_have_a_hint(table, error, creating, code):
    assert error_of(table, error, creating=creating).code == code


def test_the_clouds_message_is_kept(table):
    response = {
        "Error": {"Code": "VcpuLimitExceeded", "Message": "limit of 0"},
        "ResponseMetadata": {"HTTPStatusCode": 400},
    }
    translated = error_of(table, ClientError(response, "RunInstances"))
    assert translated.message == "launching failed: VcpuLimitExceeded: limit of 0"
    assert translated.cause == "VcpuLimitExceeded"


def flaky(failures):
    def call():
        if failures:
            raise failures.pop()
        return "done"

    return call


def test_throttling_and_not_yet_visible_share_one_retry_budget():
    clock = FakeClock()
    failures = [ThrottledError("t"), NotYetError("n"), ThrottledError("t"), NotYetError("n")]
    assert Retrier(clock).call(flaky(failures)) == "done"
    assert 0 < clock.seconds < 120


@pytest.mark.parametrize(("error", "attempts"), [(ThrottledError, THROTTLED_ATTEMPTS), (NotYetError, NOT_YET_ATTEMPTS)])
def test_retries_end(error, attempts):
    calls = []

    def call():
        calls.append(1)
        raise error("again")

    with pytest.raises(error):
        Retrier(FakeClock()).call(call)
    assert len(calls) == attempts


def test_no_capacity_is_not_repeated():
    failures = [NoCapacityError("none"), NoCapacityError("none")]
    with pytest.raises(NoCapacityError):
        Retrier(FakeClock()).call(flaky(failures))
    assert len(failures) == 1


def test_a_lost_reply_is_raised_to_the_caller():
    failures = [LostReplyError("lost"), LostReplyError("lost")]
    with pytest.raises(LostReplyError):
        Retrier(FakeClock()).call(flaky(failures))
    assert len(failures) == 1


def test_the_real_clock_knows_its_zone():
    clock = SystemClock()
    before = clock.monotonic()
    clock.sleep(0.001)
    assert clock.monotonic() > before
    assert clock.now().utcoffset().total_seconds() == 0
