"""A pinned value that the image's entry point would split travels as a variable."""

from __future__ import annotations

from tgi_deploy.app.planning.plan import plan
from tgi_deploy.app.planning.wish import Wish
from tgi_deploy.catalog.catalog import Catalog
from tgi_deploy.planner.types import Plan


def _command(*flags: str):
    made = plan(Wish(model="llama3-8b", set=flags), Catalog.open(), {})
    assert isinstance(made, Plan)
    return made.chosen.engine


def test_a_value_with_blanks_goes_by_variable():
    engine = _command("otlp-service-name=my service")
    assert engine.env["OTLP_SERVICE_NAME"] == "my service"
    assert "--otlp-service-name" not in engine.args


def test_a_value_with_a_glob_goes_by_variable():
    engine = _command("cors-allow-origin=*")
    assert engine.env["CORS_ALLOW_ORIGIN"] == "*"
    assert "*" not in engine.args


def test_a_plain_value_stays_an_argument():
    engine = _command("max-best-of=4")
    assert engine.args[engine.args.index("--max-best-of") + 1] == "4"
    assert "MAX_BEST_OF" not in engine.env
