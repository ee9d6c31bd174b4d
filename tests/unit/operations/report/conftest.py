"""Pages of real plans, rendered once, and a browser to check them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from builders.browser import Browser, program

from tgi_deploy.operations.planning.option_texts import OptionTexts
from tgi_deploy.operations.planning.plan import plan
from tgi_deploy.operations.planning.report import report
from tgi_deploy.operations.report.report import report_html
from tgi_deploy.wiring import open_catalog, targets

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tgi_deploy.operations.report.report import Report

REQUESTS = {
    "plan": OptionTexts(model="llama3-13b", budget="5"),
    "everywhere": OptionTexts(model="llama3-70b", budget="12", market="any", regions=("all",)),
    "no-plan": OptionTexts(model="llama3-70b", budget="1"),
    "owned": OptionTexts(model="llama3-70b", hardware="4xA100-80GB"),
}


class Reports(dict[str, "Report"]):
    """The reports by name, each made when a test first asks for it."""

    def __missing__(self, name: str) -> Report:
        texts, catalog = REQUESTS[name], open_catalog()
        self[name] = report(plan(texts, catalog, {}), texts, catalog, {}, targets=targets())
        return self[name]


@pytest.fixture(scope="session")
def reports() -> Reports:
    return Reports()


@pytest.fixture(scope="session")
def pages(reports: Reports, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    written = {name: folder / f"{name}.html" for name in REQUESTS}
    for name, path in written.items():
        path.write_text(report_html(reports[name]), encoding="utf-8")
    return written


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    executable = program() or pytest.skip("no Chromium is installed")
    started = Browser(executable, tmp_path_factory.mktemp("chromium"))
    yield started
    started.close()
