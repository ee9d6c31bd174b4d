"""Regenerate the screenshots docs/report-light.png and docs/report-phone-dark.png from today's plan.

Run it as `python scripts/update_screenshots.py`; it needs Chromium. Pixels depend on a machine's fonts, so no test
compares them.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tgi_deploy.operations.planning.option_texts import OptionTexts
from tgi_deploy.operations.planning.plan import plan
from tgi_deploy.operations.planning.report import report
from tgi_deploy.operations.report.report import report_html
from tgi_deploy.wiring import open_catalog, targets

if TYPE_CHECKING:
    from builders.browser import Browser

REPOSITORY: Final = Path(__file__).resolve().parent.parent
_CHOSEN: Final = "document.querySelector('.chart.{name} .p.chosen').focus({{preventScroll: true}})"
_TO_MEMORY: Final = "document.querySelector('.bar').closest('section').scrollIntoView()"


def main() -> int:
    sys.path.insert(0, str(REPOSITORY / "tests"))
    from builders.browser import Browser, program  # noqa: PLC0415 -- the browser of the tests

    executable = program()
    if executable is None:
        sys.stderr.write("no Chromium is installed\n")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        browser = Browser(executable, Path(folder) / "browser")
        try:
            _look(browser, Path(folder) / "report.html")
        finally:
            browser.close()
    return 0


def _look(browser: Browser, page: Path) -> None:
    texts, catalog = OptionTexts(model="llama3-13b", budget="5"), open_catalog()
    page.write_text(
        report_html(report(plan(texts, catalog, {}), texts, catalog, {}, targets=targets())), encoding="utf-8"
    )
    browser.open(page, width=1120, height=1520)
    browser.evaluate(_CHOSEN.format(name="wide"))
    _write("report-light.png", browser.screenshot())
    browser.open(page, width=375, height=1140, scheme="dark")
    browser.evaluate(_TO_MEMORY)
    browser.evaluate(_CHOSEN.format(name="narrow"))
    _write("report-phone-dark.png", browser.screenshot())


def _write(name: str, picture: bytes) -> None:
    (REPOSITORY / "docs" / name).write_bytes(picture)
    print(f"docs/{name}: {len(picture):,} bytes")


if __name__ == "__main__":
    sys.exit(main())
