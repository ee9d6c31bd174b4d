"""The report matches the plan."""

from __future__ import annotations

from decimal import Decimal
from itertools import pairwise

import pytest

from tgi_deploy.operations.planning.option_texts import OptionTexts
from tgi_deploy.operations.planning.plan import plan
from tgi_deploy.operations.planning.report import report
from tgi_deploy.planner.time_to_ready import estimate
from tgi_deploy.values.base import replaced
from tgi_deploy.wiring import targets


@pytest.fixture(scope="module")
def thirteen(catalog):
    texts = OptionTexts(model="llama3-13b", budget="5")
    return plan(texts, catalog, {}), texts


def test_the_reports_choice_is_the_plans(reports, thirteen):
    made, _ = thirteen
    page = reports["plan"]
    assert page.feasible
    assert made.chosen.offer.instance_type.name in page.sentence
    assert "20% of the budget" in page.sentence
    (chosen,) = [variant for variant in page.variants if variant.state == "chosen"]
    assert chosen.usd_per_hour == float(made.chosen.cost.usd_per_hour)
    assert chosen.tokens_per_s == made.chosen.performance.output_tokens_per_s


def test_predictions_come_with_their_intervals(reports, thirteen):
    made, _ = thirteen
    figures = {figure.label: figure for figure in reports["plan"].figures}
    speed = made.chosen.performance
    assert figures["first token"].note == f"{speed.ttft_ms_span.low:,.0f} to {speed.ttft_ms_span.high:,.0f}"
    slowest, fastest = (float(part) for part in figures["per user"].note.split(" to "))
    assert slowest <= float(figures["per user"].value) <= fastest


def test_a_prediction_without_an_interval_is_labeled(catalog, thirteen):
    made, texts = thirteen
    bare = replaced(made.chosen.performance, ttft_ms_span=None, tpot_ms_span=None, output_tokens_per_s_span=None)
    page = report(replaced(made, chosen=replaced(made.chosen, performance=bare)), texts, catalog, {}, targets=targets())
    notes = {figure.label: figure.note for figure in page.figures}
    assert {notes[label] for label in ("first token", "per user", "total output")} == {"predicted"}


def test_every_fallback_is_marked(reports, thirteen):
    made, _ = thirteen
    marked = {variant.instance_type for variant in reports["plan"].variants if variant.state == "fallback"}
    assert marked == {item.offer.instance_type.name for item in made.fallbacks}
    assert len(reports["plan"].fallbacks) == len(made.fallbacks)


def test_cost_rows_add_up(reports, thirteen):
    made, _ = thirteen
    assert reports["plan"].total_usd_per_hour == pytest.approx(float(made.chosen.cost.usd_per_hour))


@pytest.mark.parametrize("name", ["plan", "everywhere", "owned"])
def test_memory_parts_add_up_to_the_card(name, reports):
    memory = reports[name].memory
    assert sum(part.size_bytes for part in memory.parts) == pytest.approx(
        memory.total_bytes, abs=memory.total_bytes / 1e3
    )
    assert sum(memory.share(part) for part in memory.parts) == pytest.approx(100, abs=1)


def test_unexplained_memory_is_shown(catalog, thirteen):
    made, texts = thirteen
    memory = replaced(made.chosen.memory, overhead_bytes=made.chosen.memory.overhead_bytes - 10**9)
    page = report(replaced(made, chosen=replaced(made.chosen, memory=memory)), texts, catalog, {}, targets=targets())
    (other,) = [part for part in page.memory.parts if part.kind == "other"]
    assert other.size_bytes >= 10**9 * 0.99


def test_phases_follow_one_another(reports, thirteen):
    made, _ = thirteen
    phases = reports["plan"].phases
    assert [phase.expected_s for phase in phases] == [phase.expected_s for phase in estimate(made.chosen)]
    for before, after in pairwise(phases):
        assert after.start_s == pytest.approx(before.start_s + before.expected_s)


def test_configurations_over_the_budget_are_shown_and_labeled(reports):
    page = reports["plan"]
    assert {variant.state for variant in page.variants} == {"chosen", "fallback", "works", "over"}
    for variant in page.variants:
        assert (variant.usd_per_hour > 5) == (variant.state == "over")


def test_each_configuration_appears_once_at_its_cheapest(reports):
    keys = [
        (variant.instance_type, variant.accelerators, variant.weights, variant.where.split()[0])
        for variant in reports["everywhere"].variants
    ]
    assert len(keys) == len(set(keys))


def test_every_considered_configuration_is_shown(reports, thirteen):
    """In one region and market each configuration is either a candidate or a rejection."""
    made, _ = thirteen
    page = reports["plan"]
    assert len(page.variants) + sum(item.number for item in page.rejections) == made.considered


def test_rejections_keep_every_code_and_sentence(reports, thirteen):
    made, _ = thirteen
    reported = {(item.code, item.instance_type, item.message) for item in reports["plan"].rejections}
    assert {item.code for item in made.rejections} > {"over_budget"}
    for item in made.rejections:
        assert item.code == "over_budget" or (item.code, item.instance_type, item.message) in reported


def test_commands_match_the_output_of_render(reports):
    assert [command.file_name for command in reports["plan"].commands] == [
        "", "user-data.yaml", "launch-template.json", "cloudformation.yaml", "terraform.tf", "docker-run.sh",
        "compose.yaml",
    ]  # fmt: skip
    assert "--model-id" in reports["plan"].commands[1].text


def test_the_first_command_deploys_the_plan_with_its_options(reports):
    """The page also has the monthly cost and the date of the price."""
    first, figures = reports["plan"].commands[0], {figure.label: figure for figure in reports["plan"].figures}
    assert first.text == "tgi-deploy up llama3-13b --budget 5\n"
    assert figures["a month"].value == "$745.91"
    assert "listed 20" in figures["an hour"].note
    assert "tgi-deploy up" not in {command.title for command in reports["owned"].commands}


def test_an_artifact_that_cannot_be_written_has_the_reason(reports):
    """A gated model's machine reads its token from a parameter, which a plan does not have."""
    commands = {command.title: command for command in reports["everywhere"].commands}
    assert commands["docker run"].text
    for title in ("EC2 user data", "EC2 launch template"):
        assert not commands[title].text
        assert "token" in commands[title].problem


def test_an_owned_machine_has_no_launch_or_boot_phase(reports):
    assert [phase.title for phase in reports["plan"].phases][:2] == ["launch", "boot"]
    assert reports["owned"].phases[0].title == "pull the image"
    assert reports["owned"].phases[0].start_s == 0


def test_an_owned_machine_has_no_price_and_no_ec2_artifacts(reports):
    page = reports["owned"]
    assert {command.file_name for command in page.commands} == {"docker-run.sh", "compose.yaml", "kubernetes.yaml"}
    assert page.cost_rows == ()
    assert {variant.usd_per_hour for variant in page.variants} == {None}
    assert "$" not in page.sentence


def test_without_a_plan_near_misses_are_shown_as_given(catalog):
    texts = OptionTexts(model="llama3-70b", budget="1")
    made = plan(texts, catalog, {})
    lines = [f"command {number}" for number in range(len(made.near_misses))]
    page = report(made, texts, catalog, {}, targets=targets(), commands=lines)
    assert not page.feasible
    assert page.near_misses
    assert [item.option for item in page.near_misses] == lines
    assert {variant.state for variant in page.variants} == {"over"}
    assert page.budget_usd_per_hour == float(Decimal(1))
