"""A user's own tables: errors name file and key, and never crash."""

from __future__ import annotations

import json

import pytest

from tgi_deploy.catalog.alerts import read_alerts
from tgi_deploy.catalog.phases import read_edits
from tgi_deploy.catalog.quotas import read_quotas
from tgi_deploy.engines.tgi import Tgi
from tgi_deploy.errors import InputError
from tgi_deploy.operations.deploying.heal import Healer

ALERT = {
    "name": "Slow", "expression": "rate(x[5m]) > 1", "for": "5m", "severity": "page", "means": "it is slow",
    "commands": ["tgi-deploy status {name}"],
}  # fmt: skip
QUOTA = {"name": "Running On-Demand G instances", "market": "on-demand", "types": ["g*"]}


@pytest.fixture
def mine(tmp_path):
    def written(file, document):
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document), encoding="utf-8")
        return tmp_path

    return written


def test_a_users_alerts_replace_ours(mine):
    (alert,) = read_alerts("tgi", user_dir=mine("engines/tgi/alerts.json", {"alerts": [ALERT]}))
    assert (alert.name, alert.lasting, alert.commands) == ("Slow", "5m", ("tgi-deploy status {name}",))


@pytest.mark.parametrize(
    ("document", "place"),
    [
        ({}, "alerts: should be a list"),
        ({"alerts": {"Slow": ALERT}}, "alerts: should be a list"),
        ({"alerts": ["Slow"]}, "alerts/0: should be a table"),
        ({"alerts": [{"name": "Slow"}]}, "alerts/0/expression: is missing"),
        ({"alerts": [ALERT, {**ALERT, "commands": "tgi-deploy status"}]}, "alerts/1/commands: should be a list"),
        ({"alerts": [{**ALERT, "runbook": "x"}]}, "alerts/0/runbook: is not a known key"),
    ],
)
def test_broken_alerts(mine, document, place):
    with pytest.raises(InputError) as caught:
        read_alerts("tgi", user_dir=mine("engines/tgi/alerts.json", document))
    assert (caught.value.code, caught.value.message) == ("bad_profile", f"engines/tgi/alerts.json: {place}")


@pytest.mark.parametrize(
    ("document", "place"),
    [
        ({"quotas": []}, "quotas: should be a table"),
        ({"quotas": {"L-1": {"name": "x", "market": "spot"}}}, "quotas/L-1/types: is missing"),
        ({"quotas": {"L-1": {**QUOTA, "market": "auction"}}}, "quotas/L-1/market: should be one of on-demand, spot"),
        ({"quotas": {"L-1": {**QUOTA, "types": "g*"}}}, "quotas/L-1/types: should be a list"),
    ],
)
def test_broken_quotas(mine, document, place):
    with pytest.raises(InputError) as caught:
        read_quotas(mine("aws/quotas.json", document))
    assert (caught.value.code, caught.value.message) == ("bad_profile", f"aws/quotas.json: {place}")


@pytest.mark.parametrize(
    "edits", [None, ["again"], {"oom_load": "more_shards"}, {"oom_load": [1]}], ids=["none", "list", "text", "number"]
)
def test_broken_cures(mine, edits):
    with pytest.raises(InputError, match=r"heal\.json: 'edits' is not a table of lists of names") as caught:
        read_edits(user_dir=mine("diagnosis/heal.json", {"edits": edits}))
    assert caught.value.code == "bad_profile"


def test_an_unknown_edit_is_rejected_before_anything_is_created(mine):
    fixes = read_edits(user_dir=mine("diagnosis/heal.json", {"edits": {"oom_load": ["pray"]}}))
    with pytest.raises(InputError, match="unknown change 'pray'") as caught:
        Healer(engine=Tgi(), edits=fixes, plan_again=lambda texts: texts)
    assert caught.value.code == "bad_profile"
    assert "more_shards" in caught.value.hint
