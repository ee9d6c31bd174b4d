"""Formatting: money, tables, cells."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from datetime import date
from decimal import Decimal
from types import SimpleNamespace

import click
import pytest
from builders.plans import candidate
from fakes.computer import FakeComputer, plan, request

from tgi_deploy.cli import frame
from tgi_deploy.cli import up as cli_up
from tgi_deploy.cli.main import ROOT
from tgi_deploy.cli.options import sandbox_option
from tgi_deploy.cli.progress import Progress
from tgi_deploy.cli.views.catalog import item_text, list_text
from tgi_deploy.cli.views.costs import costs_text
from tgi_deploy.cli.views.deployment import proposal_text, up_text
from tgi_deploy.cli.views.status import rows_text, status_text
from tgi_deploy.cli.views.text import accelerated, folded, table, wrapped
from tgi_deploy.errors import InputError
from tgi_deploy.operations.deploying.scaling import Resizing
from tgi_deploy.operations.deploying.up import up
from tgi_deploy.operations.watching.costs import costs
from tgi_deploy.operations.watching.listing import list_deployments
from tgi_deploy.operations.watching.status import status
from tgi_deploy.text import gib, plural, usd
from tgi_deploy.values.base import replaced
from tgi_deploy.values.plan import Cost
from tgi_deploy.values.request import Replicas
from tgi_deploy.values.resource import ChangeSet
from tgi_deploy.values.supply import CostLine, Credits, Headroom, Interruptions


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (Decimal("1.861"), "$1.861"),
        (Decimal(5), "$5.00"),
        (Decimal("0.8206"), "$0.8206"),
        (Decimal("1.87684931"), "$1.8768"),
        (Decimal("98.32"), "$98.32"),
        (Decimal("1234.5678"), "$1,234.57"),
        (None, "-"),
    ],
)
def test_usd(amount, text):
    assert usd(amount) == text


def test_a_monthly_price_has_cents(tmp_path):
    cost = Cost(lines=(CostLine(item="instance", usd_per_hour=Decimal("0.8206")),))
    outcome = up(FakeComputer(home=tmp_path).context(), request(plan(chosen=candidate(cost=cost)), dry_run=True))
    assert "$0.8206 an hour for everything; about $599.04 a month" in proposal_text(outcome.proposal)


def test_the_prompt_shows_interruptions_and_credits(tmp_path):
    """Users should not have to scroll back to the plan for facts that affect the bill."""
    cost = Cost(lines=(CostLine(item="instance", usd_per_hour=Decimal("0.8206")),))
    chosen = candidate(cost=cost)
    offer = replaced(
        chosen.offer,
        market="spot",
        credits=Credits(usd=Decimal(100), until=date(2027, 3, 31), source="prices.toml"),
        interruptions=Interruptions(
            band="5-10%", low_per_month=Decimal(1), per_month=Decimal(2), high_per_month=Decimal(4), source="", date=""
        ),
    )
    outcome = up(
        FakeComputer(home=tmp_path).context(), request(plan(chosen=replaced(chosen, offer=offer)), dry_run=True)
    )
    asked = proposal_text(outcome.proposal)
    assert "covered by credits for 121 hours" in asked
    assert "With interruptions, estimated: $0.82" in asked


@pytest.mark.parametrize("market", ["spot", "on-demand"])
def test_estimated_prices_are_labeled_everywhere(tmp_path, market):
    chosen = candidate()
    chosen = replaced(chosen, offer=replaced(chosen.offer, market=market, estimated=True))
    around = FakeComputer(home=tmp_path)
    outcome = up(around.context(), request(plan(chosen=chosen)))
    price = usd(chosen.cost.usd_per_hour)
    around.clock.sleep(60)
    spent, _ = costs(around.context())
    for text in (
        proposal_text(outcome.proposal),
        up_text(outcome),
        status_text(status(around.context(), "demo")),
        rows_text(list_deployments(around.context()).rows),
        costs_text(spent),
    ):
        assert text.count(f"about {price}") == text.count(price) > 0
        assert text.count("about $") == text.count("$") - text.count("$/")


def test_the_prompt_labels_a_spot_price_as_an_estimate(tmp_path, monkeypatch):
    chosen = candidate()
    chosen = replaced(chosen, offer=replaced(chosen.offer, market="spot", estimated=True))
    outcome = up(FakeComputer(home=tmp_path).context(), request(plan(chosen=chosen), dry_run=True))
    questions = []
    monkeypatch.setattr(cli_up, "confirm", lambda question, **_how: questions.append(question) or True)
    asks = cli_up.Asking(None, Progress(), ask=True, yes=False, sandbox=False)
    asks.confirm(outcome.proposal)
    assert questions == [f"Make these changes and pay about {usd(chosen.cost.usd_per_hour)}/h?"]


def test_more_replicas_are_asked_about_with_what_their_machines_cost(tmp_path, monkeypatch, capsys):
    proposal = up(FakeComputer(home=tmp_path).context(), request(dry_run=True)).proposal
    added = Headroom(added_usd_per_hour=Decimal("3.722"), price_date="2026-07-20")
    resizing = Resizing(before=Replicas(least=1, most=1), after=Replicas(least=1, most=3), headroom=added)
    more = replace(proposal, resizing=resizing, changes=ChangeSet(steps=()))
    free = replace(more, resizing=replace(resizing, headroom=Headroom()))
    assert (more.asks, free.asks) == (True, False)
    questions = []
    monkeypatch.setattr("click.confirm", lambda question, **_how: questions.append(question) or True)
    with pytest.raises(InputError, match="adding replicas that cost money needs a confirmation") as caught:
        cli_up.Asking(None, Progress(), ask=True, yes=False, sandbox=False).confirm(more)
    assert (caught.value.code, questions) == ("confirmation_needed", [])
    assert "replicas  1 -> 1..3\n  up to $3.722 an hour more (listed 2026-07-20)\n" in capsys.readouterr().err
    monkeypatch.setattr("tgi_deploy.cli.progress.can_ask", lambda: True)
    assert cli_up.Asking(None, Progress(), ask=True, yes=False, sandbox=False).confirm(more)
    assert questions == ["Make these changes and pay up to $3.722/h more?"]
    assert cli_up.Asking(None, Progress(), ask=True, yes=True, sandbox=False).confirm(more)
    assert len(questions) == 1


def test_every_warning_is_shown_before_the_question(tmp_path, monkeypatch, capsys):
    made = replaced(plan(), notices=("It is a community merge.",))
    outcome = up(FakeComputer(home=tmp_path).context(), request(made, dry_run=True))
    shown = []
    monkeypatch.setattr(cli_up, "confirm", lambda *_question, **_how: shown.append(capsys.readouterr().err) or True)
    asks = cli_up.Asking(None, Progress(), ask=False, yes=False, sandbox=False)
    asks.on_plan(made)
    asks.confirm(outcome.proposal)
    for line in (
        "warning[notice]: It is a community merge.",
        "warning[no_limit]: nothing ends this machine automatically",
    ):
        assert line in shown[0]


def test_every_hourly_price_has_its_date(tmp_path):
    chosen = candidate()
    chosen = replaced(chosen, offer=replaced(chosen.offer, price_date="2026-07-20"))
    around = FakeComputer(home=tmp_path)
    outcome = up(around.context(), request(plan(chosen=chosen)))
    assert "an hour for everything (listed 2026-07-20); " in proposal_text(outcome.proposal)
    assert " an hour (listed 2026-07-20) until 'tgi-deploy down demo'" in up_text(outcome)
    assert " an hour (listed 2026-07-20)" in status_text(status(around.context(), "demo"))
    assert rows_text(list_deployments(around.context()).rows).endswith("prices listed 2026-07-20\n")
    assert costs_text(costs(around.context())[0]).endswith("prices listed 2026-07-20\n")


def test_spending_is_formatted_the_same_everywhere(tmp_path):
    """Rounded up to a cent: a running machine never reads as free."""
    around = FakeComputer(home=tmp_path)
    up(around.context(), request())
    around.clock.sleep(5)
    assert "$0.01 so far" in status_text(status(around.context(), "demo"))
    spent, _ = costs(around.context())
    assert [line.split()[-3] for line in costs_text(spent).splitlines()[1:]] == ["$0.01", "$0.01"]


@pytest.mark.parametrize(
    ("speed", "words"),
    [
        (60.0, "nothing is billed; its clock runs 60 times as fast, and so do the times and speeds below"),
        (600.0, "nothing is billed; its clock runs 600 times as fast, and so do the times and speeds below"),
        (1.0, "nothing is billed"),
    ],
)
def test_the_sandbox_notice_shows_its_clock_speed(speed, words, tmp_path, monkeypatch, capsys):
    outcome = up(FakeComputer(home=tmp_path).context(), request(dry_run=True))
    running = SimpleNamespace(speed=speed)
    client = SimpleNamespace(sandbox_status=lambda: SimpleNamespace(outcome=running))
    monkeypatch.setattr(cli_up, "confirm", lambda *_question, **_how: True)
    cli_up.Asking(client, Progress(), ask=True, yes=True, sandbox=True).confirm(outcome.proposal)
    assert f"  sandbox: {words}\n" in capsys.readouterr().err


@pytest.mark.parametrize("where", [("--market", "spot"), ("--target", "sagemaker", "--region", "eu-west-1")])
@pytest.mark.parametrize(
    "more", [(), ("--budget", "2"), ("--sweep", "context=2048"), ("--why-not", "A10G"), ("--explain",)]
)
def test_a_plan_labels_its_prices_as_estimates(where, more, capsys):
    """Each amount or its paragraph is labeled, except budgets and prices of other clouds."""
    assert frame.run(ROOT, ["plan", "llama3-8b", *where, *more]) == 0
    shown = click.unstyle(capsys.readouterr().out)
    assert "about $" in shown
    paragraphs = re.split(r"\n\s*\n", re.sub(r"budget of \$[\d.]+", "", shown))
    for text in (text for text in paragraphs if "for comparison only" not in text):
        assert "estimated" in text or not re.search(r"(?<!about )\$\d", text), text


DATED = r"(listed|estimated)\s+\d{4}-\d\d-\d\d"


@pytest.mark.parametrize(
    ("words", "title"),
    [
        (("--explain",), "Frontier"),
        (("--budget", "0.3"), "Nearest misses"),
        (("--sweep", "context=2048,4096"), "CONTEXT"),
        (("--why-not", "A10G"), "g5.xlarge"),
    ],
)
def test_prices_have_their_date(words, title, capsys):
    frame.run(ROOT, ["plan", "llama3-13b", *words])
    shown = click.unstyle(capsys.readouterr().out)
    part = shown[shown.index(title) :]
    assert "$" in part
    assert re.search(DATED, part.partition("\n\n")[0] if title != "g5.xlarge" else part)


@pytest.mark.parametrize(("options", "label"), [(["--sandbox"], " (accelerated by the sandbox)"), ([], "")])
def test_sandbox_measurements_are_labeled(options, label):
    labels = []

    @frame.command("measure", examples=())
    @sandbox_option
    def measure(**_options):
        labels.append(accelerated())

    measure.main(options, standalone_mode=False, obj=frame.Invocation(as_json=False))
    assert labels == [label]


def test_gib():
    assert gib(48 * 1024**3) == "48.00 GiB"


@pytest.mark.parametrize(("number", "text"), [(0, "0 entries"), (1, "1 entry"), (1200, "1,200 entries")])
def test_plural(number, text):
    assert plural(number, "entry", "entries") == text


def test_table_aligns_columns_and_leaves_no_space_at_the_end():
    text = click.unstyle(table(("name", "COUNT"), [("a", "1"), ("longer", "100")], right=frozenset({1})))
    assert text == "NAME    COUNT\na           1\nlonger    100\n"


def test_an_empty_list_prints_its_header():
    assert click.unstyle(list_text("regions", [])) == "NAME\n"


def test_cells():
    item = {"memory_bytes": 1024**3, "ok": True, "no": False, "none": None, "many": ["a", "b"], "card": {"name": "L4"}}
    lines = dict(line.split(maxsplit=1) for line in item_text({**item, "table": {"x": {}}}).splitlines())
    assert lines == {
        "memory_bytes": "1.00 GiB", "ok": "yes", "no": "no", "none": "-", "many": "a, b", "card": "L4",
        "table": "1 entry",
    }  # fmt: skip


def test_a_nested_table_is_printed_row_by_row():
    text = item_text({"name": "m", "model": {"layers": 40, "quantization": {"bits": 4, "by": "awq"}}, "defaults": {}})
    assert text == ("name      m\nmodel\n  layers        40\n  quantization\n    bits  4\n    by    awq\ndefaults  -\n")


def test_a_cell_is_one_line():
    assert item_text({"note": "two\nlines\x1b[31m"}) == "note  two lines\\x1b[31m\n"


def test_the_prompt_shows_model_precision_context_speed_and_time(tmp_path):
    made = plan()
    outcome = up(FakeComputer(home=tmp_path).context(), request(made, dry_run=True))
    shown = proposal_text(outcome.proposal, made.request)
    for word in (made.request.model.model.hub_id, made.chosen.dtype, "tokens of context", "tokens/s", "ready in about"):
        assert word in shown


ROWS = [("one", "ready", "Llama-3-13B-Instruct", "$1.8768"), ("another", "booting", "phi", "$0.80")]


@pytest.mark.parametrize("columns", ["40", "80", "140", "200"])
def test_tables_fit_the_terminal_without_losing_cells(columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    shown = click.unstyle(table(("name", "now", "model", "$/h"), ROWS, right=frozenset({3})))
    assert max(map(len, shown.splitlines())) <= int(columns)
    assert shown.split() == [cell for row in (("NAME", "NOW", "MODEL", "$/H"), *ROWS) for cell in row]


def test_output_to_a_pipe_is_not_wrapped(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    long = "word " * 200
    assert "\n" not in wrapped(long)


@pytest.mark.parametrize("label", ["do this   ", "            ", "nearest: fits: "])
def test_a_command_to_paste_stays_on_one_line(label, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    command = "tgi-deploy up phi3-mini --budget 3 --context 4096 --name bad1 --quantize fp8"
    shown = folded(f"  {label}{command}", io.StringIO())
    assert command in shown.splitlines()[-1]
    sentence = f"{'word ' * 9}'tgi-deploy down bad1' removes it"
    assert "'tgi-deploy down bad1'" in wrapped(sentence)
