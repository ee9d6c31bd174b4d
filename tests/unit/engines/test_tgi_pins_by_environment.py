"""A pinned value that the image's entry point would split is passed as a variable."""

from __future__ import annotations

from tgi_deploy.operations.planning.option_texts import OptionTexts
from tgi_deploy.operations.planning.plan import plan
from tgi_deploy.values.base import UNSET
from tgi_deploy.values.plan import Plan
from tgi_deploy.wiring import open_catalog


def _container(*flags: str):
    made = plan(OptionTexts(model="llama3-8b", set=flags), open_catalog(), {})
    assert isinstance(made, Plan)
    return made.chosen.engine.container


def _command(*flags: str):
    container = _container(*flags)
    return container.args, dict(container.env)


def test_a_value_with_spaces_is_passed_as_a_variable():
    args, env = _command("otlp-service-name=my service")
    assert env["OTLP_SERVICE_NAME"] == "my service"
    assert "--otlp-service-name" not in args


def test_a_value_with_a_glob_is_passed_as_a_variable():
    args, env = _command("cors-allow-origin=*")
    assert env["CORS_ALLOW_ORIGIN"] == "*"
    assert "*" not in args


def test_a_plain_value_stays_an_argument():
    args, env = _command("max-best-of=4")
    assert args[args.index("--max-best-of") + 1] == "4"
    assert "MAX_BEST_OF" not in env


def test_a_target_may_set_how_long_it_drains_unless_the_user_has():
    assert _container().stop.drain_variable == "GRACEFUL_TERMINATION_TIMEOUT"
    pinned = _container("graceful-termination-timeout=300").stop
    assert (pinned.drain_variable, pinned.drain_s) == (UNSET, 300)
