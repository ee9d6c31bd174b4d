"""What a machine's tags say about its service, and how changed tags are read."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from fakes.computer import plan

from tgi_deploy.operations.planning.documents import plan_to_record
from tgi_deploy.reconcile.tagged import is_plaintext, notes_of, service_of, serving_tags
from tgi_deploy.values.base import replaced
from tgi_deploy.values.deployment import Deployment, Pool, Revision

NOW = datetime(2026, 1, 9, tzinfo=UTC)
TAGS = {
    "tgi-deploy:engine": "tgi",
    "tgi-deploy:release": "3.3.7",
    "tgi-deploy:model": "example-org/example-13b",
    "tgi-deploy:port": "8080",
    "tgi-deploy:promise": "1024/256/8",
    "tgi-deploy:max-tokens": "8191/8192",
}


def deployment(**model):
    planned = plan_to_record(plan(), plan().chosen)
    planned = replaced(planned, model=replaced(planned.model, **model))
    revision = Revision(
        number=1, origin="up", state="pending", created_at=NOW, pools=(Pool(place="us-east-1"),), plan=planned
    )
    return Deployment(
        name="demo", id="id1", target="ec2", status="creating", created_at=NOW, updated_at=NOW, revisions=(revision,)
    )


def tags_of(made):
    return serving_tags(made.service, {}, plaintext=False)


def test_machine_tags_describe_what_it_serves():
    assert tags_of(deployment()) == TAGS


def test_tags_read_back_the_same():
    made = deployment()
    assert service_of(tags_of(made)) == made.service


def test_secret_names_and_address_are_tagged_and_read_as_notes():
    notes = {"api_key_variable": "KEY", "api_key_parameter": "/team/key", "bind": "10.0.0.7"}
    tags = serving_tags(deployment().service, {**notes, "pool": "us-east-1/a"}, plaintext=False)
    assert tags.keys() - TAGS.keys() == {
        "tgi-deploy:api-key-variable", "tgi-deploy:api-key-parameter", "tgi-deploy:bind",
    }  # fmt: skip
    assert notes_of(tags) == notes


def test_plaintext_consent_has_its_own_tag():
    assert is_plaintext(serving_tags(deployment().service, {}, plaintext=True))
    assert not is_plaintext(tags_of(deployment()))


def test_tag_values_fit_the_aws_limit():
    assert "tgi-deploy:model" in tags_of(deployment(served_id="/" + 255 * "m"))
    tags = tags_of(deployment(served_id="/" + 256 * "m"))
    assert "tgi-deploy:model" not in tags
    assert all(len(value) <= 256 for value in tags.values())


@pytest.mark.parametrize("tag", ["engine", "release", "model", "port"])
def test_without_a_required_tag_the_service_is_unknown(tag):
    left = {name: value for name, value in TAGS.items() if name != f"tgi-deploy:{tag}"}
    assert service_of(left) is None


@pytest.mark.parametrize("tag", ["promise", "max-tokens"])
def test_without_promises_it_is_still_reachable(tag):
    left = {name: value for name, value in TAGS.items() if name != f"tgi-deploy:{tag}"}
    assert service_of(left).promise is None


@pytest.mark.parametrize(
    ("tag", "value"),
    [
        ("engine", "../../etc"),
        ("engine", "tgi\n"),
        ("release", "$(id)"),
        ("model", "a`id`"),
        ("model", "x;rm -rf /"),
        ("model", "\x1b[2J"),
        ("model", "m" * 257),
        ("port", "0"),
        ("port", "65536"),
        ("port", "٨٠"),
        ("port", "80@evil.example"),
    ],
)
def test_a_malformed_tag_counts_as_absent(tag, value):
    assert service_of({**TAGS, f"tgi-deploy:{tag}": value}) is None


@pytest.mark.parametrize("value", ["", "1/2", "1/2/3/4", "-1/2/3", "9999999999/1/1", "1/2/x", "0/0/0"])
def test_an_invalid_promise_is_ignored(value):
    assert service_of({**TAGS, "tgi-deploy:promise": value}).promise is None


@pytest.mark.parametrize(
    ("promise", "most"),
    [
        ("1024/256/999999999", "8191/8192"),
        ("1/1/1", "999999998/999999999"),
        ("9000/256/8", "8191/8192"),
        ("8000/256/8", "8191/8192"),
        ("1024/256/8", "8193/8192"),
    ],
)
def test_an_impossible_promise_is_ignored(promise, most):
    assert service_of({**TAGS, "tgi-deploy:promise": promise, "tgi-deploy:max-tokens": most}).promise is None


@pytest.mark.parametrize(
    ("tag", "value"),
    [("api-key-variable", "KEY=1"), ("api-key-variable", "$(id)"), ("api-key-parameter", "a b"), ("bind", "a;b")],
)
def test_an_invalid_secret_name_is_ignored(tag, value):
    assert notes_of({f"tgi-deploy:{tag}": value}) == {}
