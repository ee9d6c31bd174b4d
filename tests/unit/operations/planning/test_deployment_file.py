"""Deployment files: parsed with the options' names, written from options, and described by a schema."""

from __future__ import annotations

import json
import re
import tomllib
from decimal import Decimal
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from tgi_deploy import wiring
from tgi_deploy.cli.up import up_command
from tgi_deploy.cli.up_file import OF_A_RUN
from tgi_deploy.operations.planning.deployment_file import deployment_keys, deployment_text, read_deployments
from tgi_deploy.operations.planning.option_texts import OptionTexts
from tgi_deploy.operations.planning.plan import plan
from tgi_deploy.values.plan import Plan

REPOSITORY = Path(__file__).parents[4]
CASES = sorted((REPOSITORY / "tests/cases/bad_input").glob("deployment-file-*.toml"))
SEVERAL = """
owner = "search-team"
budget = 5
region = ["us-east-1", "eu-west-1"]
allow_turing = true

[deployments.chat]
model = "llama3-13b"
budget = 2.50
env = "A=b"

[deployments.code]
model = "qwen2.5-coder-7b"
target = "docker"
bind = "127.0.0.1"
strategy = "recreate"
set = ["max-batch-prefill-tokens=2048"]
"""


@pytest.fixture(scope="module")
def options():
    return wiring.target_options("up")


@pytest.fixture(scope="module")
def schema():
    return Draft202012Validator(json.loads((REPOSITORY / "docs/deployment.schema.json").read_text()))


def test_top_level_keys_apply_to_every_deployment(options):
    found = read_deployments(SEVERAL, "d.toml", options)
    chat, code = found.deployments
    regions = ("us-east-1", "eu-west-1")
    assert (found.owner, chat.name, code.name) == ("search-team", "chat", "code")
    assert chat.texts == OptionTexts(
        model="llama3-13b", budget="2.50", regions=regions, allow_turing=True, env=("A=b",)
    )
    assert code.texts == OptionTexts(
        model="qwen2.5-coder-7b", budget="5", regions=regions, allow_turing=True,
        set=("max-batch-prefill-tokens=2048",),
    )  # fmt: skip
    assert (chat.target, chat.strategy, dict(chat.own)) == (None, None, {})
    assert (code.target, code.strategy, dict(code.own)) == ("docker", "recreate", {"bind": "127.0.0.1"})


def test_one_deployment_needs_no_table_and_no_name(options):
    [named] = read_deployments('model = "llama3-13b"\nname = "chat"', "d.toml", options).deployments
    [unnamed] = read_deployments('model = "org/Some.Model"', "d.toml", options).deployments
    assert (named.name, unnamed.name) == ("chat", "some-model")


def test_a_written_file_reads_back_the_same(options):
    texts = OptionTexts(
        model="./my model", budget="2.50", ttl="8h", concurrency="16", replicas="1..4", regions=("us-east-1",),
        env=('A="b"', "C=\\d\n\u2028"), allow_turing=True,
    )  # fmt: skip
    own = {"allow_cidr": ("10.0.0.0/8",), "external_ttl": True, "subnet": None}
    text = deployment_text("my-model", texts, "ec2", own)
    [found] = read_deployments(text, "d.toml", options).deployments
    assert (found.name, found.target, found.texts) == ("my-model", "ec2", texts)
    assert found.own == {"allow_cidr": ("10.0.0.0/8",), "external_ttl": True}
    assert "budget = 2.50\n" in text
    assert tomllib.loads(text)["concurrency"] == 16


def test_a_file_that_matches_the_schema_is_accepted(schema, options):
    described = {**tomllib.loads(SEVERAL, parse_float=lambda text: float(Decimal(text)))}
    schema.validate(described)
    schema.validate(tomllib.loads(deployment_text("chat", OptionTexts(model="llama3-13b", budget="5"), None, {})))
    assert {key.name for key in deployment_keys(options)} | {"owner", "name", "deployments"} == set(
        schema.schema["properties"]
    )


@pytest.mark.parametrize("word", ["unknown-key", "dashes", "unknown-key-of-one", "switch", "wrong-type", "strategy"])
def test_a_rejected_file_does_not_match_the_schema(schema, word):
    case = tomllib.loads((REPOSITORY / f"tests/cases/bad_input/deployment-file-{word}.toml").read_text())
    assert not schema.is_valid(tomllib.loads(case["files"]["d.toml"]))


def test_every_option_of_a_deployment_is_a_key(options):
    """Each option of `up` is a key of the file, or controls a single run."""
    words = {max(param.opts, key=len).removeprefix("--").replace("-", "_") for param in up_command.params}
    apart = {"model", "name", "lock", "force", "json", "verbose"} | OF_A_RUN
    assert words - apart == {key.name for key in deployment_keys(options)} - {"model"}


def test_the_documented_file_can_be_planned(options, catalog):
    page = (REPOSITORY / "docs/deployment-file.md").read_text()
    (text,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    deployments = read_deployments(text, "deployment.toml", options).deployments
    assert len(deployments) == 2
    for deployment in deployments:
        assert isinstance(plan(deployment.texts, catalog, {}), Plan), deployment.name
