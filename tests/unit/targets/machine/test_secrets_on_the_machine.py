"""Hub token and API key on the machine: read from their parameters, handed on by name, kept out of the log."""

from __future__ import annotations

import pytest
from builders import plans
from builders.machine import Machine

from tgi_deploy.errors import InputError
from tgi_deploy.targets.ec2.launch_data import launch_template_data
from tgi_deploy.wiring import render_artifact

TOKEN_PARAMETER, KEY_PARAMETER = "/tgi-deploy/demo-0/hub-token", "/tgi-deploy/demo-0/api-key"
READ = 'case "$*" in *hub-token*) echo hf_planted ;; *) echo key_planted ;; esac\n'


def deployable(**changes):
    named = {
        "hub_token_parameter": TOKEN_PARAMETER,
        "api_key_parameter": KEY_PARAMETER,
        "instance_profile": "tgi-deploy-0-us-east-1",
    } | changes
    return plans.deployable(**named)


@pytest.fixture
def boot(tmp_path):
    def make(log="", **changes):
        text = render_artifact("user-data", deployable(**changes)).text
        return Machine(folder=tmp_path / "machine", user_data=text, engine_log=log, commands={"aws": READ})

    return make


def test_both_secrets_are_read_at_boot_and_passed_by_name(boot):
    machine = boot()
    done = machine.run("run-engine")
    assert done.returncode == 0, done.stderr
    assert [words[6] for words in machine.calls("aws")] == [TOKEN_PARAMETER, KEY_PARAMETER]
    words = machine.docker("run")[0]
    assert [words[at + 1] for at, word in enumerate(words) if word == "-e"] == ["HF_TOKEN", "API_KEY"]
    assert machine.token_seen == "hf_planted"
    assert all("planted" not in word for call in machine.calls() for word in call)


def test_the_key_alone_needs_no_token(boot):
    machine = boot(hub_token_parameter=None)
    machine.run("run-engine")
    assert [words[6] for words in machine.calls("aws")] == [KEY_PARAMETER]
    assert "HF_TOKEN" not in machine.docker("run")[0]


@pytest.mark.parametrize(
    ("log", "shown"),
    [
        ("asking with hf_planted\n", "asking with ***"),
        ("router --listen 80 bearer KEY_PLANTED ok\n", "router --listen 80 bearer *** ok"),
        ('{"fields":{"message":"got hf_planted and key_planted"}}\n', '{"fields":{"message":"got *** and ***"}}'),
        ("plain line\n", "plain line"),
    ],
)
def test_a_secret_in_the_log_is_redacted(boot, log, shown):
    done = boot(log).run("run-engine")
    assert "planted" not in (done.stdout + done.stderr).lower()
    assert shown in done.stdout.splitlines()


def test_an_unreadable_key_is_final(tmp_path):
    text = render_artifact("user-data", deployable(hub_token_parameter=None)).text
    machine = Machine(folder=tmp_path / "machine", user_data=text, commands={"aws": "exit 254"})
    done = machine.run("run-engine")
    assert done.returncode == 64
    assert f"error=the API key could not be read from the parameter {KEY_PARAMETER}" in done.stdout


def test_a_key_needs_a_role():
    with pytest.raises(InputError) as caught:
        launch_template_data(deployable(hub_token_parameter=None, instance_profile=None), user_data="")
    assert caught.value.code == "instance_profile_missing"


def test_a_parameter_must_be_a_valid_name():
    with pytest.raises(InputError) as caught:
        render_artifact("user-data", deployable(api_key_parameter="$(id)"))
    assert caught.value.code == "bad_option_value"
