"""Machines from the outside: effects of user data on the console, in the API and at the address."""

from __future__ import annotations

import gzip
import json
import socket
import textwrap
import time

import pytest
from botocore.exceptions import ClientError

from tgi_deploy.sandbox.hardware import hardware_of

IMAGE = "ghcr.io/huggingface/text-generation-inference:3.3.7"
TINY = "TinyLlama/TinyLlama-1.1B-Chat-v1.0"


def script(*lines: str) -> str:
    return "#!/bin/bash\n" + "\n".join(lines) + "\n"


def unit(service: str, *, unit_section: str = "", name: str = "job", runcmd: str = "") -> str:
    text = f"[Unit]\nDescription={name}\n{unit_section}\n[Service]\nStandardOutput=journal+console\n{service}\n"
    return (
        "#cloud-config\nwrite_files:\n"
        f"  - path: /etc/systemd/system/{name}.service\n    content: |\n"
        + textwrap.indent(text + "[Install]\nWantedBy=multi-user.target\n", "      ")
        + f"runcmd:\n  - systemctl daemon-reload\n  - {runcmd or f'systemctl enable --now {name}.service'}\n"
    )


def test_gzipped_user_data_runs(cloud):
    data = gzip.compress(script("echo unpacked").encode())
    instance_id = cloud.run(UserData=data)
    assert "unpacked" in cloud.wait_for_line(instance_id, "finished at")


@pytest.mark.parametrize(
    ("user_data", "expected"),
    [
        ("#cloud-config\nwrite_files: [", "Failed loading yaml blob"),
        ("#cloud-config\n- 1\n", "Failed loading yaml blob"),
        ("#cloud-config\npackages: [jq]\n", "module packages is not simulated"),
        ("just text\n", "Unhandled non-multipart"),
        (script("exit 7"), "failed: exit code 7"),
        ("#cloud-config\nwrite_files:\n  - path: /../../../escape\n    content: x\n", "leaves the machine's root"),
    ],
)
def test_user_data_errors_are_reported_on_the_console(cloud, user_data, expected):
    assert expected in cloud.booted(user_data)[1]


def test_the_guest_does_not_inherit_the_environment(cloud):
    _, console = cloud.booted(script("env | cut -d= -f1 | sort | tr '\\n' ' '"))
    names = next(line for line in console.splitlines() if " PATH " in line)
    assert not {"AWS_ACCESS_KEY_ID", "HF_TOKEN", "PYTHONPATH", "TGI_DEPLOY_HOME"} & set(names.split())


def test_the_hardware_matches_the_instance_type(cloud):
    _, console = cloud.booted(
        script(
            "nvidia-smi -L",
            "mountpoint -q /opt/dlami/nvme && echo nvme is there",
        ),
        InstanceType="g6e.12xlarge",
    )
    assert console.count(": NVIDIA L40S\n") == 4
    assert "nvme is there" in console


def test_gpus_have_their_driver_names():
    assert hardware_of("g4dn.xlarge").card_name == "Tesla T4"
    assert hardware_of("p5.48xlarge").card_name == "NVIDIA H100 80GB HBM3"
    assert hardware_of("g6e.xlarge").card_name == "NVIDIA L40S"


def test_a_machine_without_gpus_has_no_driver(cloud):
    _, console = cloud.booted(script("nvidia-smi; echo status $?"), InstanceType="m5.large")
    assert "status 9" in console


def test_the_metadata_service_requires_its_token(cloud):
    instance_id, console = cloud.booted(
        script(
            "base=http://169.254.169.254/latest",
            "curl -sf $base/meta-data/instance-id || echo refused",
            "curl -f $base/meta-data/instance-id || echo refused again",
            "token=$(curl -sX PUT $base/api/token -H 'X-aws-ec2-metadata-token-ttl-seconds: 60')",
            'echo "id $(curl -sf -H "X-aws-ec2-metadata-token: $token" $base/meta-data/instance-id)"',
            "curl -s https://example.org || echo no way out",
        )
    )
    assert "refused again" in console
    assert console.count("curl: (22) The requested URL returned error: 401") == 1, "-s prints no errors"
    assert f"id {instance_id}" in console
    assert "no way out" in console


def make_reader(iam):
    """Create an instance profile whose role may read two parameters."""
    trust = {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}
    names = [f"arn:aws:ssm:*:*:parameter/{name}" for name in ("hub/token", "absent")]
    allowed = {"Effect": "Allow", "Action": "ssm:GetParameter", "Resource": names}
    documents = [json.dumps({"Version": "2012-10-17", "Statement": [item]}) for item in (trust, allowed)]
    iam.create_role(RoleName="reader", AssumeRolePolicyDocument=documents[0])
    iam.put_role_policy(RoleName="reader", PolicyName="read", PolicyDocument=documents[1])
    iam.create_instance_profile(InstanceProfileName="reader")
    iam.add_role_to_instance_profile(InstanceProfileName="reader", RoleName="reader")


def metadata(path):
    return script(
        "base=http://169.254.169.254/latest",
        "token=$(curl -sX PUT $base/api/token -H 'X-aws-ec2-metadata-token-ttl-seconds: 60')",
        f'echo "value: $(curl -sf -H "X-aws-ec2-metadata-token: $token" $base/meta-data/{path})"',
    )


@pytest.mark.parametrize(("switch", "expected"), [("enabled", "value: blue"), ("disabled", "value: \n")])
def test_tags_are_in_the_metadata_if_enabled(cloud, switch, expected):
    tags = [{"ResourceType": "instance", "Tags": [{"Key": "team:colour", "Value": "blue"}]}]
    options = {"HttpTokens": "required", "InstanceMetadataTags": switch}
    user_data = metadata("tags/instance/team:colour")
    _, console = cloud.booted(user_data, MetadataOptions=options, TagSpecifications=tags)
    assert f"]: {expected}" in console


def test_without_a_spot_notice_its_page_is_missing(cloud):
    assert "]: value: \n" in cloud.booted(metadata("spot/instance-action"))[1]


def test_a_machine_reaches_only_its_own_ports(cloud):
    _, console = cloud.booted(script("curl -s http://127.0.0.1:8123/metrics; echo status $?"))
    assert "status 7" in console


def test_parameters_are_read_with_an_instance_profile_only(cloud):
    cloud.client("ssm").put_parameter(Name="/hub/token", Value="hf_secret", Type="SecureString")
    get = "aws ssm get-parameter --with-decryption --query Parameter.Value --output text --name"
    user_data = script(f"{get} /hub/token; echo status $?", f"{get} /absent; echo then $?")
    _, without = cloud.booted(user_data)
    assert "Unable to locate credentials" in without
    assert "hf_secret" not in without
    make_reader(cloud.client("iam"))
    _, having = cloud.booted(user_data, IamInstanceProfile={"Name": "reader"})
    assert "hf_secret" in having
    assert "ParameterNotFound" in having
    assert "then 254" in having


def test_a_failing_service_is_restarted_until_the_limit(cloud):
    service = "ExecStart=/bin/sh -c 'echo try; exit 1'\nRestart=on-failure\nRestartSec=1"
    instance_id = cloud.run(unit(service, unit_section="StartLimitIntervalSec=1h\nStartLimitBurst=3"))
    console = cloud.wait_for_line(instance_id, "Start request repeated too quickly")
    assert console.count("]: try\n") == 3


@pytest.mark.parametrize("status", [2, 64])
def test_a_service_stays_down_after_a_status_that_prevents_restarts(cloud, status):
    service = f"ExecStart=/bin/sh -c 'echo try; exit {status}'\nRestart=on-failure\nRestartPreventExitStatus=2 64"
    console = cloud.wait_for_line(cloud.run(unit(service)), "Failed with result 'exit-code'")
    assert console.count("]: try\n") == 1


def test_a_service_that_exits_cleanly_is_not_restarted(cloud):
    console = cloud.wait_for_line(cloud.run(unit("ExecStart=/bin/echo once\nRestart=on-failure")), "Deactivated")
    assert console.count("]: once\n") == 1


def test_a_started_service_is_stopped_by_its_command(cloud):
    instance_id, console = cloud.booted(
        unit(
            "ExecStart=/bin/sleep 600\nExecStop=/bin/echo stopping",
            runcmd="systemctl start job && systemctl stop job && echo stopped",
        )
    )
    assert "]: Started job.\n" in console
    assert console.index("]: stopping\n") < console.index("]: stopped\n")
    assert cloud.state(instance_id) == "running"


@pytest.mark.parametrize(("behavior", "state"), [("terminate", "terminated"), ("stop", "stopped")])
def test_a_power_off_follows_the_shutdown_behavior(cloud, behavior, state):
    instance_id = cloud.run(script("shutdown -h now"), InstanceInitiatedShutdownBehavior=behavior)
    found = cloud.wait_for_state(instance_id, state)
    assert found["StateReason"]["Code"] == "Client.InstanceInitiatedShutdown"


def test_a_machine_whose_boot_fails_terminates_with_a_message(cloud):
    """With user data of an unexpected type."""
    instance_id = cloud.run("#cloud-config\nruncmd: 7\n")
    found = cloud.wait_for_state(instance_id, "terminated")
    assert found["StateReason"]["Code"] == "Server.InternalError"
    assert "Kernel panic - not syncing: boot failed (TypeError: " in cloud.console(instance_id)


def test_a_timer_terminates_the_machine(cloud):
    user_data = textwrap.dedent("""\
        #cloud-config
        write_files:
          - path: /etc/systemd/system/expire.service
            content: |
              [Service]
              Type=oneshot
              ExecStart=/sbin/shutdown -h now
          - path: /etc/systemd/system/expire.timer
            content: |
              [Timer]
              OnBootSec=1s
        runcmd:
          - systemctl daemon-reload
          - systemctl enable --now expire.timer
        """)
    instance_id, _ = cloud.booted(user_data, InstanceInitiatedShutdownBehavior="terminate")
    assert cloud.state(instance_id) == "running"
    found = cloud.wait_for_state(instance_id, "terminated")
    assert found["StateReason"]["Code"] == "Client.InstanceInitiatedShutdown"


def test_a_reboot_runs_enabled_services_but_not_the_user_data_again(cloud):
    instance_id = cloud.run(unit("Type=oneshot\nExecStart=/bin/echo from service"))
    cloud.wait_for_line(instance_id, "finished at")
    cloud.ec2.stop_instances(InstanceIds=[instance_id])
    cloud.wait_for_state(instance_id, "stopped")
    cloud.ec2.start_instances(InstanceIds=[instance_id])
    cloud.wait(lambda: cloud.console(instance_id).count("]: from service\n") == 2)
    cloud.ec2.reboot_instances(InstanceIds=[instance_id])
    cloud.wait(lambda: cloud.console(instance_id).count("]: from service\n") == 3)
    assert cloud.console(instance_id).count("finished at") == 1


def test_a_reboot_empties_memory(cloud):
    """Files below /run/tgi-deploy are deleted, and the uptime is readable."""
    look = (
        "/bin/bash -ec 'read -r up rest </proc/uptime; test $$up; "
        "if test -e /run/tgi-deploy/note; then echo kept; else echo empty; fi; touch /run/tgi-deploy/note'"
    )
    instance_id = cloud.run(unit(f"Type=oneshot\nExecStart={look}"))
    cloud.wait_for_line(instance_id, "finished at")
    cloud.ec2.reboot_instances(InstanceIds=[instance_id])
    cloud.wait(lambda: cloud.console(instance_id).count("]: empty\n") == 2)
    assert "]: kept\n" not in cloud.console(instance_id)


def test_the_console_keeps_its_latest_64_kib(cloud):
    _, console = cloud.booted(script("for i in $(seq 1 3000); do echo line $i of much output; done"))
    assert len(console.encode()) <= 64 * 1024
    assert "line 3000 of" in console


def test_invalid_docker_commands_are_rejected(cloud):
    _, console = cloud.booted(
        script(
            f"docker run --no-such-flag {IMAGE}; echo flag $?",
            f"docker run --gpus 'device=7' {IMAGE}; echo device $?",
            "docker pull ghcr.io/huggingface/text-generation-inference:0.0.0; echo tag $?",
            "docker pull example.org/other:1; echo repository $?",
            "docker stop absent; echo absent $?",
            "docker rm -f absent; echo removed $?",
        )
    )
    assert "unknown flag: --no-such-flag" in console
    assert "flag 125" in console
    assert "7: unknown device" in console
    assert "device 125" in console
    assert "manifest unknown" in console
    assert "tag 1" in console
    assert "pull access denied for example.org/other" in console
    assert "absent 1" in console
    assert "removed 0" in console


def test_an_occupied_port_gives_dockers_error(cloud):
    instance_id = cloud.run(script(f"sleep 30; docker run -p 8124:80 {IMAGE} --model-id {TINY}; echo status $?"))
    address = cloud.instance(instance_id)["PublicIpAddress"]
    with socket.socket() as taken:
        taken.bind((address, 8124))
        taken.listen()
        console = cloud.wait_for_line(instance_id, "status ")
    assert "port is already allocated" in console
    assert "status 125" in console


def test_a_container_is_stopped_and_removed(cloud):
    _, console = cloud.booted(
        script(
            f"docker run -d --name tgi --gpus all -p 8125:80 {IMAGE} --model-id {TINY} >/dev/null",
            f"docker run --name tgi {IMAGE}; echo twice $?",
            "docker stop -t 60 tgi; echo stopped $?",
            "docker rm tgi; docker stop tgi; echo gone $?",
        )
    )
    assert "is already in use by container" in console
    assert "twice 125" in console
    assert "stopped 0" in console
    assert "gone 1" in console


def test_a_failed_pull_can_be_retried(cloud):
    cloud.fault(name="failed-pull", failed_pulls=1)
    _, console = cloud.booted(script(f"docker pull {IMAGE} || docker pull -q {IMAGE} && echo pulled"))
    assert "TLS handshake timeout" in console
    assert "pulled" in console


def test_termination_kills_everything_the_machine_started(cloud):
    instance_id, _ = cloud.booted(
        unit("ExecStart=/bin/sh -c 'trap \"\" TERM; echo up; while :; do /bin/sleep 1; done'")
    )
    cloud.wait_for_line(instance_id, "]: up")
    groups = cloud.home / "machines" / instance_id / "groups"
    assert list(groups.iterdir())
    started = time.monotonic()
    cloud.ec2.terminate_instances(InstanceIds=[instance_id])
    cloud.wait_for_state(instance_id, "terminated")
    assert time.monotonic() - started < 30
    assert list(groups.iterdir()) == []


def test_a_batch_with_one_unknown_id_terminates_nothing(cloud):
    instance_id = cloud.run()
    cloud.wait_for_state(instance_id, "running")
    with pytest.raises(ClientError):
        cloud.ec2.terminate_instances(InstanceIds=[instance_id, "i-00000000000000000"])
    assert cloud.state(instance_id) == "running"
