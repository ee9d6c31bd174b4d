"""Writes a plan's files: its lock, and its report (an HTML page, or only the chart of cost against throughput)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from tgi_deploy.errors import InputError
from tgi_deploy.files import write_file
from tgi_deploy.text import quoted
from tgi_deploy.values.base import Frozen, plain
from tgi_deploy.values.plan_document import FilesData

if TYPE_CHECKING:
    from pathlib import Path

    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.operations.planning.option_texts import OptionTexts
    from tgi_deploy.operations.report.report import Report
    from tgi_deploy.targets.protocol import Target
    from tgi_deploy.values.plan import NoFeasiblePlan, Plan
    from tgi_deploy.values.plan_document import PlanDocument

_PAGES: Final = ("", ".html", ".htm")
_ENDINGS: Final = (*_PAGES, ".svg", ".png")


class PlanFiles(Frozen, frozen=True, kw_only=True):
    """The files to write, None if not requested. `targets` render the artifacts that a report shows."""

    lock: Path | None
    report: Path | None
    targets: tuple[Target, ...]

    def check(self) -> None:
        """Check the file names before planning. Raises InputError `bad_option_value`."""
        if self.report is not None and self.report.suffix.lower() not in _ENDINGS:
            raise InputError(
                "bad_option_value",
                f"--report {quoted(str(self.report))}: unknown file extension",
                hint="name a file .html for the page, or .svg or .png for its chart",
            )

    def lock_plan(self, plan: Plan, texts: OptionTexts, printed: PlanDocument, catalog: Catalog) -> None:
        """Write the lock of a plan, with its printed form. Raises InputError `unwritable_file`."""
        if self.lock is None:
            return
        from tgi_deploy.operations.planning.lock import lock_document, lock_text  # noqa: PLC0415 -- a report needs no lock

        release = catalog.release(plan.request.engine_version)
        document = lock_document(plan, texts, os.environ, release, printed=plain(printed))
        write_file(self.lock, lock_text(document), what="the lock", option="--lock")

    def draw(
        self, made: Plan | NoFeasiblePlan, texts: OptionTexts, catalog: Catalog, commands: tuple[str, ...] = ()
    ) -> FilesData | None:
        """Write the requested report, and return its file. `commands` are those of the near misses."""
        if self.report is None:
            return None
        from tgi_deploy.operations.planning.report import report  # noqa: PLC0415 -- a lock needs no report

        page = report(made, texts, catalog, os.environ, targets=self.targets, commands=commands)
        write_file(self.report, _drawn(page, self.report.suffix.lower()), what="the report", option="--report")
        return FilesData(report=str(self.report))


def _drawn(page: Report, ending: str) -> str | bytes:
    if ending in _PAGES:
        from tgi_deploy.operations.report.report import report_html  # noqa: PLC0415 -- only pages need templates

        return report_html(page)
    from tgi_deploy.operations.report.plot import plot_png, plot_svg  # noqa: PLC0415 -- only charts need fonts

    return (plot_png if ending == ".png" else plot_svg)(page)
