"""Locks: printed unchanged, deployed exactly, and rejected once the catalog has changed."""

from __future__ import annotations

import json

import pytest

from tgi_deploy.errors import ConflictError
from tgi_deploy.operations.planning.lock import read_lock
from tgi_deploy.operations.planning.locked import changes, current, plan_to_deploy


def lock_of(path):
    return read_lock(path.read_text(), path.name)


def choice_of(printed):
    """Return what is printed about the choice: without the alternatives, which a lock omits."""
    before, _, rest = printed.partition("\nAlternatives")
    notes = rest.partition("\n\n")[2]
    return f"{before}\n{notes}" if notes else before


def test_a_locked_plan_prints_its_choice_unchanged(tool, locked):
    path, printed = locked
    assert "\nAlternatives" in printed
    assert tool("plan", "--locked", path.name)[:2] == (0, choice_of(printed))


def test_the_json_plan_is_the_same_without_what_was_not_chosen(tool, locked):
    first = json.loads(tool("plan", "llama3-13b", "--budget", "5", "--json")[1])["data"]["plan"]
    again = json.loads(tool("plan", "--locked", locked[0].name, "--json")[1])["data"]["plan"]
    for key in ("rejections", "fallbacks", "alternatives", "frontier", "breakeven"):
        assert first.pop(key)
        assert again.pop(key) == []
    assert first == again


def test_a_locked_plan_needs_no_network(tool, locked, monkeypatch):
    from tgi_deploy import wiring  # noqa: PLC0415 -- replaced where it stands

    def refuse():
        raise AssertionError("the hub was asked")

    monkeypatch.setattr(wiring, "_hub", refuse)
    assert tool("plan", "--locked", locked[0].name)[0] == 0


def test_an_unchanged_catalog_gives_no_warning(tool, locked):
    document = json.loads(tool("plan", "--locked", locked[0].name, "--json")[1])
    assert [item["code"] for item in document["warnings"]] == ["notice"]
    assert document["data"]["lock"].keys() == {"model", "engine", "catalog"}


@pytest.mark.parametrize(
    ("tables", "says"),
    [
        ({"chosen": {"instance_type": "g5.48xlarge"}}, "chosen.instance_type was g5.48xlarge, is g5.xlarge"),
        ({"engine": {"image": "ghcr.io/x/y:1"}}, "engine.image was ghcr.io/x/y:1"),
        ({"engine": {"args": ["--model-id", "old"]}}, "---model-id old"),
        ({"engine": {"env": {"HF_HOME": "/data", "OLD": "1"}}}, "-OLD=1"),
        ({"cost": {"usd_per_hour": 1.0}}, "cost.usd_per_hour was 1.0, is 1.0218"),
    ],
)  # fmt: skip
def test_a_changed_catalog_is_a_warning_and_the_lock_is_printed_anyway(tool, locked, edited, tables, says):
    path = edited("stale.lock", **tables)
    exit_code, out, err = tool("plan", "--locked", path.name)
    assert exit_code == 0
    assert out.startswith("llama3-13b on ")
    assert "warning[stale_plan]" in err
    assert says in err


def test_a_locked_request_that_cannot_be_planned_is_a_warning(tool, locked):
    path, printed = locked
    path.write_text(
        path.read_text().replace('"model": "llama3-13b",\n    "budget"', '"model": "llama9",\n    "budget"')
    )
    exit_code, out, err = tool("plan", "--locked", path.name)
    assert (exit_code, out) == (0, choice_of(printed))
    assert "can't be planned again" in err


def test_a_lower_price_is_accepted(edited, catalog):
    lock = lock_of(edited("dear.lock", cost={"usd_per_hour": 99.0}))
    assert plan_to_deploy(lock, catalog, force=False).chosen.offer.instance_type.name == "g5.xlarge"


def test_only_the_locked_choice_is_deployed(locked, catalog):
    lock = lock_of(locked[0])
    made = plan_to_deploy(lock, catalog, force=False)
    assert made.chosen.engine.container.args == lock.plan.engine.args
    assert made.fallbacks == ()


@pytest.mark.parametrize(
    ("tables", "field"),
    [
        ({"chosen": {"instance_type": "g6.12xlarge"}}, "instance_type"),
        ({"engine": {"args": ["--model-id", "old"]}}, "args"),
        ({"engine": {"image": "ghcr.io/x/y:1"}}, "image"),
        ({"cost": {"usd_per_hour": 1.0}}, "usd_per_hour"),
    ],
)
def test_a_stale_lock_is_not_deployed(edited, catalog, tables, field):
    lock = lock_of(edited("stale.lock", **tables))
    with pytest.raises(ConflictError) as raised:
        plan_to_deploy(lock, catalog, force=False)
    assert raised.value.code == "stale_plan"
    assert raised.value.exit_code == 4
    assert field in raised.value.message
    assert "--force" in raised.value.hint


def test_force_deploys_exactly_the_locked_plan(edited, catalog):
    args = ["--model-id", "elinas/Llama-3-13B-Instruct", "--num-shard", "4", "--dtype", "bfloat16", "--quantize", "awq"]
    changed = {"args": args, "image": "ghcr.io/x/y:1", "version": "3.3.5", "max_total_tokens": 4096, "env": {"A": "b"}}
    lock = lock_of(edited("old.lock", chosen={"instance_type": "g5.12xlarge", "num_shard": 4}, engine=changed))
    chosen = plan_to_deploy(lock, catalog, force=True).chosen
    assert (chosen.offer.instance_type.name, chosen.num_shard) == ("g5.12xlarge", 4)
    container = chosen.engine.container
    assert (list(container.args), container.image.reference) == (args, "ghcr.io/x/y:1")
    assert (chosen.engine.version, dict(container.env)) == ("3.3.5", {"A": "b"})
    assert chosen.engine.settings.max_total_tokens == 4096


def test_force_cannot_deploy_a_choice_that_no_longer_exists(edited, catalog):
    lock = lock_of(edited("gone.lock", chosen={"instance_type": "g4dn.xlarge"}))
    with pytest.raises(ConflictError) as raised:
        plan_to_deploy(lock, catalog, force=True)
    assert raised.value.code == "locked_choice_unavailable"


def test_a_lock_whose_request_has_no_plan_is_stale(locked, catalog):
    path, _ = locked
    path.write_text(path.read_text().replace('"budget": "5"', '"budget": "0.1"'))
    lock = lock_of(path)
    assert [change.new for change in changes(lock, current(lock, catalog))] == ["nothing"]
    with pytest.raises(ConflictError, match="nothing"):
        plan_to_deploy(lock, catalog, force=False)


def test_up_rejects_a_stale_lock_before_any_call(tool, edited):
    path = edited("stale.lock", engine={"image": "ghcr.io/x/y:1"})
    exit_code, out, err = tool("up", "--lock", path.name, "--yes")
    assert (exit_code, out) == (4, "")
    assert err.startswith("error[stale_plan]")


def test_a_plan_for_owned_hardware_can_be_locked(tool):
    printed = tool("plan", "llama3-8b", "--hardware", "1xRTX-4090", "--lock", "own.lock")[1].partition("\nMore with")[0]
    exit_code, out, err = tool("plan", "--locked", "own.lock")
    assert (exit_code, out) == (0, choice_of(printed))
    assert "stale_plan" not in err


def test_no_lock_is_written_without_a_plan(tool, tmp_path):
    assert tool("plan", "llama3-13b", "--budget", "0.1", "--lock", "plan.lock")[0] == 3
    assert not (tmp_path / "plan.lock").exists()
