"""Options of `render`: each one has an effect on the artifact, or is rejected."""

from __future__ import annotations

import pytest

from tgi_deploy import Client
from tgi_deploy.errors import InputError

GATED = "llama3-8b"
OPEN = "qwen2.5-7b"
MACHINES = ("user-data", "launch-template", "cloudformation", "terraform")


def rendered(model: str, form: str, **options: object) -> str:
    return Client(offline=True).render(model, form, **options).data.artifact.text


def code(model: str, form: str, **options: object) -> str:
    with pytest.raises(InputError) as caught:
        rendered(model, form, **options)
    assert caught.value.hint
    return caught.value.code


@pytest.mark.parametrize("form", ["docker", "compose"])
@pytest.mark.parametrize("limit", ["ttl", "idle_timeout", "lease", "max_spend"])
def test_a_container_that_nothing_would_end_is_not_rendered_with_a_limit(form: str, limit: str):
    assert code(OPEN, form, hardware="1xL4", **{limit: "2h" if limit != "max_spend" else "5"}) == "limits_unsupported"


def test_manifests_cannot_limit_what_has_no_price():
    assert code(OPEN, "kubernetes", hardware="1xL4", max_spend="5") == "limits_unsupported"


@pytest.mark.parametrize("options", [{"port": 9000}, {"disk": 200}, {"driver": "grid"}, {"hardware": "1xL4"}])
def test_a_stack_of_sagemaker_has_what_sagemaker_decides(options: dict[str, object]):
    assert code(OPEN, "sagemaker", **options) == "not_on_sagemaker"


def test_limits_in_the_environment_are_not_ignored_either(monkeypatch):
    monkeypatch.setenv("TGI_DEPLOY_TTL", "2h")
    assert code(OPEN, "compose", hardware="1xL4") == "limits_unsupported"


@pytest.mark.parametrize("form", ["docker", "compose", *MACHINES])
def test_a_form_with_one_replica_is_not_rendered_for_several(form: str):
    assert code(OPEN, form, replicas="3") == "several_replicas"


def test_forms_of_fleets_have_all_replicas():
    assert "replicas: 3\n" in rendered(OPEN, "kubernetes", hardware="1xL4", replicas="3", max_machines=3)
    assert "InitialInstanceCount: 3\n" in rendered(OPEN, "sagemaker", replicas="3")


@pytest.mark.parametrize("form", MACHINES)
def test_a_gated_model_is_rendered_with_the_parameter_that_has_its_token(form: str):
    given = {"hub_token_parameter": "/tgi-deploy/shared/hub-token", "instance_profile": "reads-parameters"}
    text = rendered(GATED, form, region="us-east-1", **given)
    if form != "user-data":
        assert given["instance_profile"] in text
    if form == "user-data":
        assert given["hub_token_parameter"] in text


def test_the_hint_for_a_gated_model_names_options_of_render():
    with pytest.raises(InputError) as caught:
        rendered(GATED, "terraform", region="us-east-1")
    assert caught.value.code == "hub_token_missing"
    assert "--hub-token-parameter" in caught.value.hint
    with pytest.raises(InputError) as caught:
        rendered(GATED, "terraform", region="us-east-1", hub_token_parameter="/tgi-deploy/shared/hub-token")
    assert caught.value.code == "instance_profile_missing"
    assert "--instance-profile" in caught.value.hint
