from __future__ import annotations

import configparser
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from builders import plans
from builders.boot_kinds import KINDS
from builders.hostile import HOSTILE

from tgi_deploy.errors import DeployError, InputError
from tgi_deploy.targets.ec2.launch import tls_image
from tgi_deploy.targets.machine.user_data import MAX_BYTES
from tgi_deploy.values.base import replaced
from tgi_deploy.wiring import render_artifact

if TYPE_CHECKING:
    from tgi_deploy.targets.protocol import Deployable


def document(deployable: Deployable) -> dict[str, Any]:
    text = render_artifact("user-data", deployable).text
    assert text.startswith("#cloud-config\n")
    loaded: dict[str, Any] = yaml.safe_load(text)
    assert set(loaded) == {"write_files", "runcmd"}
    return loaded


def files(deployable: Deployable) -> dict[str, dict[str, str]]:
    return {file["path"]: file for file in document(deployable)["write_files"]}


def unit(deployable: Deployable, name: str) -> configparser.ConfigParser:
    parsed = configparser.ConfigParser(interpolation=None, strict=True)
    parsed.optionxform = str  # type: ignore[assignment,method-assign]
    parsed.read_string(files(deployable)[f"/etc/systemd/system/{name}"]["content"])
    return parsed


def with_engine(**changes: object) -> Deployable:
    return plans.deployable(candidate=plans.candidate(engine=plans.engine(**changes)))


def test_the_watch_restarts_and_survives_a_shutdown():
    watch = unit(plans.deployable(ttl_s=60), "tgi-deploy-expire-watch.service")
    assert watch["Service"]["Restart"] == "always"
    assert watch["Unit"]["StartLimitIntervalSec"] == "0"
    assert watch["Unit"]["DefaultDependencies"] == "no"
    assert watch["Service"]["ExecStart"] == "/opt/tgi-deploy/expire watch"


def test_a_hanging_poll_is_not_the_last_one():
    rented = plans.deployable(ttl_s=60, candidate=plans.candidate(offer=plans.offer(market="spot")))
    for name in ("expire", "spot-watch"):
        service = unit(rented, f"tgi-deploy-{name}.service")["Service"]
        assert (service["Type"], service["TimeoutStartSec"]) == ("oneshot", "60")


def test_the_largest_user_data_leaves_room_for_longer_options():
    """Without comments, names or defaults: what a machine does not need is not in it."""
    everything = replaced(KINDS["everything"].deployable(), tls_image=tls_image())
    assert len(render_artifact("user-data", everything).text.encode()) <= MAX_BYTES - 1536


def test_counters_come_from_the_engine():
    text = render_artifact("user-data", plans.deployable(idle_s=60)).text
    assert "^(tgi_request_count|tgi_batch_inference_count)" in text
    other = plans.deployable(
        idle_s=60, candidate=plans.candidate(engine=plans.engine(request_counters=("other_total",), metrics_path="/m"))
    )
    assert "^(other_total)" in render_artifact("user-data", other).text
    assert "127.0.0.1:8080/m)" in render_artifact("user-data", other).text


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"idle_s": 0}, "bad_option_value"),
        ({"lease_s": -1}, "bad_option_value"),
        (
            {"idle_s": 60, "candidate": plans.candidate(engine=plans.engine(request_counters=()))},
            "idle_timeout_unsupported",
        ),
        (
            {"idle_s": 60, "candidate": plans.candidate(engine=plans.engine(metrics_path=None))},
            "idle_timeout_unsupported",
        ),
        ({"candidate": plans.candidate(engine=plans.engine(request_counters=("a)$(x",)))}, "bad_option_value"),
        ({"candidate": plans.candidate(engine=plans.engine(metrics_path="/;x"))}, "bad_option_value"),
    ],
)
def test_impossible_limits_are_rejected(changes: dict[str, Any], code: str):
    with pytest.raises(InputError) as caught:
        render_artifact("user-data", plans.deployable(**changes))
    assert caught.value.code == code
    assert caught.value.hint


def test_limits_are_set_before_the_engine_starts():
    assert document(plans.deployable(ttl_s=60))["runcmd"] == [
        ["systemctl", "daemon-reload"],
        ["systemctl", "enable", "--now", "tgi-deploy-expire.timer"],
        ["systemctl", "enable", "--now", "tgi-deploy-expire-watch.service"],
        ["systemctl", "enable", "--now", "tgi-deploy-engine.service"],
    ]


def test_restarts_are_limited_and_never_for_a_configuration_error():
    found = unit(plans.deployable(), "tgi-deploy-engine.service")
    assert found["Service"]["Restart"] == "on-failure"
    assert found["Service"]["RestartPreventExitStatus"].split() == ["2", "64"]
    assert int(found["Unit"]["StartLimitBurst"]) > 0
    assert int(found["Unit"]["StartLimitIntervalSec"]) > 0


def test_engine_has_time_to_drain():
    service = unit(with_engine(stop_timeout_s=200), "tgi-deploy-engine.service")["Service"]
    assert service["ExecStop"] == "-/usr/bin/docker stop -t 200 tgi"
    assert int(service["TimeoutStopSec"]) > 200


def test_units_contain_nothing_that_systemd_expands():
    deployable = plans.deployable(
        ttl_s=60, candidate=plans.candidate(engine=plans.engine(args=HOSTILE, env={"V": "%n $HOME"}))
    )
    units = [file["content"] for path, file in files(deployable).items() if path.startswith("/etc/systemd")]
    assert len(units) == 4
    assert all(not set("%$\\") & set(content) for content in units)


def test_hostile_values_stay_inside_their_files():
    plain, hostile = (
        files(plans.deployable()),
        files(with_engine(args=HOSTILE, env={f"V{n}": v for n, v in enumerate(HOSTILE)})),
    )
    assert set(plain) == set(hostile)
    service = "/etc/systemd/system/tgi-deploy-engine.service"
    assert plain[service] == hostile[service]


def test_user_data_that_is_too_large_is_rejected_with_sizes():
    with pytest.raises(DeployError) as caught:
        render_artifact("user-data", with_engine(args=("--x", "y" * MAX_BYTES)))
    assert caught.value.code == "user_data_too_large"
    assert caught.value.data["size_bytes"] > caught.value.data["max_bytes"] == 16384
    assert str(caught.value.data["size_bytes"]) in caught.value.message
    assert caught.value.hint


def test_size_is_counted_in_bytes():
    room = MAX_BYTES - len(render_artifact("user-data", with_engine(args=("--x", "y"))).text.encode())
    assert render_artifact("user-data", with_engine(args=("--x", "y" + "y" * room)))
    with pytest.raises(DeployError):
        render_artifact("user-data", with_engine(args=("--x", "y" + "y" * (room + 1))))
    with pytest.raises(DeployError):
        render_artifact("user-data", with_engine(args=("--x", "é" * (room // 2 + 1))))


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"model": plans.profile(gated=True)}, "hub_token_missing"),
        ({"model": plans.profile(local_path="/srv/m")}, "local_model"),
        ({"candidate": plans.candidate(engine=plans.engine(secret_env=("API_KEY",)))}, "secret_not_deliverable"),
        (
            {"candidate": plans.candidate(offer=plans.on_hardware(1, "RTX-4090")), "hub_token_parameter": "/t"},
            "region_missing",
        ),
    ],
)
def test_invalid_user_data_is_rejected(changes: dict[str, Any], code: str):
    with pytest.raises(InputError) as caught:
        render_artifact("user-data", plans.deployable(**changes))
    assert caught.value.code == code
    assert caught.value.hint


def test_the_parameter_can_be_in_another_region():
    deployable = plans.deployable(hub_token_parameter="/t", region="eu-west-1")
    assert "--region eu-west-1 " in files(deployable)["/opt/tgi-deploy/run-engine"]["content"]
