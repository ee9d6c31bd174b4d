"""Properties of every artifact."""

from __future__ import annotations

import hashlib
import itertools
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import yaml
from builders import plans
from builders.case_render import HOSTED
from builders.hostile import UNPRINTABLE
from builders.samples import quick, some

from tgi_deploy.errors import InputError
from tgi_deploy.targets.machine.user_data import MAX_BYTES
from tgi_deploy.values.names import check_name
from tgi_deploy.wiring import forms, render_artifact

if TYPE_CHECKING:
    from pathlib import Path

    from tgi_deploy.targets.protocol import Deployable

RENTED = [kind for kind in forms() if kind != HOSTED]
SECRET_LIKE = re.compile(r"hf_\w{8,}|AKIA\w{8,}|-----BEGIN|password|api_key=\S|HF_TOKEN=(?!\$\()", re.IGNORECASE)


def many() -> list[Deployable]:
    """Every combination of what shapes an artifact."""
    made = []
    for gpus, shards, market, nvme, ttl_s, quantize in itertools.product(
        (1, 2, 4, 8), (1, 2, 4, 8), ("on-demand", "spot"), (True, False), (None, 86400), (None, "awq")
    ):
        if shards <= gpus:
            host = plans.instance_type(name=f"x.{gpus}gpu", accelerator_count=gpus)
            engine = plans.engine(num_shard=shards, quantize=quantize, secret_env=("HF_TOKEN",))
            candidate = plans.candidate(
                offer=plans.offer(instance_type=host, market=market),
                engine=engine,
                storage=plans.storage(weights_on_nvme=nvme),
            )
            made.append(
                plans.deployable(
                    candidate=candidate, ttl_s=ttl_s, hub_token_parameter="/hub-token", instance_profile="reader"
                )
            )
    return made


def test_sizes_secrets_and_determinism_over_many_candidates():
    for deployable in some(many(), 12):
        user_data = render_artifact("user-data", deployable)
        assert len(user_data.text.encode()) <= MAX_BYTES
        assert yaml.safe_load(user_data.text)
        for kind in RENTED:
            artifact = render_artifact(kind, deployable)
            assert not SECRET_LIKE.search(artifact.text)
            assert artifact.sha256 == hashlib.sha256(artifact.text.encode()).hexdigest()
    assert render_artifact("user-data", deployable) == user_data


def test_secret_pattern_finds_secrets():
    for text in ("hf_abcdefgh1", "AKIAIOSFODNN7", "API_KEY=x", "HF_TOKEN=x"):
        assert SECRET_LIKE.search(text)


def test_secrets_of_the_environment_are_not_rendered(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HF_TOKEN", "open-sesame")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "open-sesame")
    for kind in RENTED:
        assert "open-sesame" not in render_artifact(kind, many()[0]).text


@pytest.mark.parametrize(("kind", "value"), quick(itertools.product(forms(), UNPRINTABLE), 10), ids=ascii)
def test_control_characters_are_rejected_everywhere(kind, value: str):
    for changes in ({"args": ("--x", value)}, {"env": {"V": value}}, {"image": value}):
        deployable = plans.deployable(candidate=plans.candidate(engine=plans.engine(**changes)))
        with pytest.raises(InputError) as caught:
            render_artifact(kind, deployable)
        assert caught.value.code in {"bad_option_value", "bad_env"}
        assert caught.value.message.isprintable()


@pytest.mark.parametrize("value", UNPRINTABLE, ids=ascii)
def test_control_characters_in_a_models_path_are_refused(value: str):
    with pytest.raises(InputError) as caught:
        render_artifact("docker", plans.deployable(model=plans.profile(local_path=f"/m/{value}")))
    assert caught.value.code == "bad_option_value"


@pytest.mark.parametrize("name", ["A=B", "1A", "A B", "", "A-B", "A\n", "é"])
def test_environment_names_follow_their_grammar(name: str):
    for changes in ({"env": {name: "1"}}, {"secret_env": (name,)}):
        with pytest.raises(InputError) as caught:
            render_artifact("docker", plans.deployable(candidate=plans.candidate(engine=plans.engine(**changes))))
        assert caught.value.code == "bad_env"


@pytest.mark.parametrize(
    "name",
    [
        "",
        "a",
        "a-",
        "1abc",
        "-abc",
        "abc-",
        "Abc",
        "a_b",
        "a.b",
        "a b",
        "abc\n",
        "é-abc",
        "../abc",
        "x;rm -rf",
        "a" * 41,
        "a" * 70_000,
    ],
    ids=lambda name: ascii(name[:12]),
)
def test_bad_names(name: str):
    with pytest.raises(InputError) as caught:
        check_name(name)
    assert caught.value.code == "bad_name"
    assert caught.value.hint
    assert len(caught.value.message) < 120


@pytest.mark.parametrize("name", ["q1", "l8", "a" * 40, "chat-2"])
def test_good_names(name: str):
    check_name(name)


@pytest.mark.parametrize("ttl_s", [0, -1])
def test_a_limit_in_the_past_is_rejected(ttl_s: int):
    with pytest.raises(InputError) as caught:
        render_artifact("user-data", plans.deployable(ttl_s=ttl_s))
    assert caught.value.code == "bad_option_value"


def test_user_templates_override_packaged_ones(tmp_path: Path):
    (tmp_path / "docker-run.sh.j2").write_text("echo {{ name | shquote }}\n")
    assert render_artifact("docker", plans.deployable(), templates_dir=tmp_path).text == "echo example\n"
    assert render_artifact("compose", plans.deployable(), templates_dir=tmp_path) == render_artifact(
        "compose", plans.deployable()
    )


def test_a_user_template_can_replace_a_part_of_the_user_data(tmp_path: Path):
    (tmp_path / "user-data").mkdir()
    (tmp_path / "user-data" / "engine.env.j2").write_text("ONLY=1\n")
    document = yaml.safe_load(render_artifact("user-data", plans.deployable(), templates_dir=tmp_path).text)
    assert document["write_files"][0]["content"] == "ONLY=1\n"
    assert len(document["write_files"]) == 7


@pytest.mark.parametrize(
    ("text", "where"),
    [(b"{{ nothing }}", "docker-run.sh.j2"), (b"\n{% if %}", "line 2"), (b"\xff\xfe", "docker-run.sh.j2")],
)
def test_broken_template_is_reported_by_file(tmp_path: Path, text: bytes, where: str):
    (tmp_path / "docker-run.sh.j2").write_bytes(text)
    with pytest.raises(InputError) as caught:
        render_artifact("docker", plans.deployable(), templates_dir=tmp_path)
    assert caught.value.code == "bad_template"
    assert where in caught.value.message
    assert str(tmp_path) in (caught.value.hint or "")


def test_missing_templates_folder_is_reported(tmp_path: Path):
    with pytest.raises(InputError) as caught:
        render_artifact("docker", plans.deployable(), templates_dir=tmp_path / "none")
    assert caught.value.code == "unreadable_path"


def test_jinja2_is_not_imported_before_something_is_rendered():
    program = "import sys, tgi_deploy.wiring as wiring; wiring.targets(); sys.exit('jinja2' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
