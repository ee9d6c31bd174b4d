"""Sources of secrets, rejected values, and the type that hides them."""

from __future__ import annotations

import json
import pickle
import traceback

import pytest
from builders.plans import candidate, engine, profile
from fakes.computer import plan

from tgi_deploy.errors import InputError
from tgi_deploy.secret import Secret, checked, reference, variable_of
from tgi_deploy.targets.ec2.options import Ec2Options
from tgi_deploy.targets.ec2.secrets import SecretSource, secrets_of
from tgi_deploy.values.serving import Access

CANARY = "canary0123456789"


def secrets(environment=None, *, gated=False, key_variable="API_KEY", wait=True, **options):
    chosen = candidate(engine=engine(access=Access(key_variable=key_variable)))
    wanted = plan(chosen=chosen, model=profile(gated=gated))
    return secrets_of(Ec2Options(**options), wanted, environment or {}, wait=wait)


@pytest.mark.parametrize("variable", ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"])
def test_a_gated_model_uses_an_available_token(variable):
    assert secrets({variable: CANARY}, gated=True).hub_token == SecretSource(reference=f"env:{variable}")


def test_an_open_model_uses_no_token_unless_requested():
    assert secrets({"HF_TOKEN": CANARY}).hub_token is None
    asked = secrets({"HF_TOKEN": CANARY}, hub_token_from_env=True)
    assert (asked.hub_token, asked.makes) == (SecretSource(reference="env:HF_TOKEN"), True)


def test_an_existing_parameter_overrides_the_environment():
    found = secrets({"HF_TOKEN": CANARY}, gated=True, hub_token_parameter="/team/token", instance_profile="reader")
    assert (found.hub_token, found.makes, found.instance_profile) == (
        SecretSource(parameter="/team/token"),
        False,
        "reader",
    )


def test_the_api_key_is_a_reference():
    found = secrets({"KEY": CANARY}, api_key_from_env="KEY")
    assert (found.api_key, found.api_key_variable) == (SecretSource(reference="env:KEY"), "KEY")
    given = secrets({"KEY": CANARY}, api_key_from_env="KEY", api_key_parameter="/team/key")
    assert given.api_key == SecretSource(parameter="/team/key")


@pytest.mark.parametrize(
    ("environment", "options", "code"),
    [
        ({}, {"hub_token_from_env": True}, "secret_missing"),
        ({"HF_TOKEN": " "}, {"hub_token_from_env": True}, "secret_missing"),
        ({"HF_TOKEN": f"{CANARY}\nx"}, {"hub_token_from_env": True}, "secret_unusable"),
        ({"HF_TOKEN": f"{CANARY}é"}, {"hub_token_from_env": True}, "secret_unusable"),
        ({"HF_TOKEN": CANARY * 999}, {"hub_token_from_env": True}, "secret_unusable"),
        ({"HF_TOKEN": CANARY}, {"hub_token_from_env": True, "hub_token_parameter": "/t"}, "conflicting_options"),
        ({}, {"api_key_from_env": "KEY"}, "secret_missing"),
        ({}, {"api_key_from_env": f"sk-{CANARY}"}, "bad_env"),
        ({}, {"api_key_parameter": "/k"}, "api_key_unknown"),
        ({"KEY": CANARY}, {"api_key_from_env": "KEY", "key_variable": None}, "api_key_unsupported"),
    ],
)
def test_invalid_secrets_are_rejected_without_being_shown(environment, options, code):
    with pytest.raises(InputError) as caught:
        secrets(environment, **options)
    assert caught.value.code == code
    assert CANARY not in "".join(traceback.format_exception(caught.value)) + str(caught.value.hint)


def test_a_key_known_only_to_the_store_needs_no_local_value():
    assert secrets(api_key_parameter="/k", wait=False).api_key == SecretSource(parameter="/k")


def test_a_created_role_cannot_read_foreign_parameters():
    both = {"hub_token_from_env": True, "api_key_parameter": "/team/key", "wait": False}
    with pytest.raises(InputError, match="/team/key is not there") as caught:
        secrets({"HF_TOKEN": CANARY}, **both)
    assert caught.value.code == "parameter_not_accessible"
    assert secrets({"HF_TOKEN": CANARY}, **both, instance_profile="reader").instance_profile == "reader"
    inside = both | {"api_key_parameter": "/tgi-deploy/team/key"}
    assert secrets({"HF_TOKEN": CANARY}, **inside).api_key == SecretSource(parameter="/tgi-deploy/team/key")


def test_a_secret_shows_only_on_request():
    secret = Secret(CANARY)
    shown = f"{secret} {secret!r} {secret!s:>9} {[secret]} {{}}".format(secret) + "%s" % secret  # noqa: UP031 -- every way
    assert CANARY not in shown
    assert secret.reveal() == CANARY
    assert secret.scrub(f"a {CANARY} b") == "a *** b"
    with pytest.raises(TypeError):
        pickle.dumps(secret)
    with pytest.raises(TypeError):
        json.dumps(secret)
    assert not hasattr(secret, "__dict__")


def test_references_contain_only_variable_names():
    assert variable_of(reference("HF_TOKEN")) == "HF_TOKEN"
    for bad in ("HF_TOKEN", "env:", "file:x"):
        with pytest.raises(ValueError, match="env:VARIABLE"):
            variable_of(bad)


def test_a_value_is_stripped():
    assert checked(f" {CANARY}\n", "KEY", "the key").reveal() == CANARY


@pytest.mark.parametrize(
    "option",
    [{"allow_cidr": ("203.0.113.7/32",)}, {"tls": True}, {"plaintext": True}, {"static_ip": True}],
    ids=lambda option: next(iter(option)),
)
def test_a_tunnel_excludes_what_is_about_an_open_port(option):
    with pytest.raises(InputError, match="applies to an open port") as raised:
        Ec2Options(tunnel=True, **option)
    assert raised.value.code == "conflicting_options"


def test_a_tunnel_needs_a_role_unless_a_profile_is_named():
    assert secrets(tunnel=True).makes
    assert not secrets(tunnel=True, instance_profile="mine").makes
