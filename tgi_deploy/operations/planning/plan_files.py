"""Files of a plan: its lock, an HTML report, and a plot of cost against throughput."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from tgi_deploy.errors import InputError
from tgi_deploy.files import write_file
from tgi_deploy.values.base import Frozen, plain
from tgi_deploy.values.plan_document import FilesData

if TYPE_CHECKING:
    from pathlib import Path

    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.operations.planning.option_texts import OptionTexts
    from tgi_deploy.targets.protocol import Target
    from tgi_deploy.values.plan import NoFeasiblePlan, Plan
    from tgi_deploy.values.plan_document import PlanDocument

_PLOT_ENDINGS: Final = (".png", ".svg")


class PlanFiles(Frozen, frozen=True, kw_only=True):
    """Files to write; None: not requested. `targets` write the artifacts that a report shows."""

    lock: Path | None
    report: Path | None
    plot: Path | None
    targets: tuple[Target, ...]

    def check(self) -> None:
        """Check the file names before planning. Raises InputError `bad_option_value`."""
        if self.plot is not None and self.plot.suffix.lower() not in _PLOT_ENDINGS:
            raise InputError(
                "bad_option_value",
                f"plotting to {str(self.plot)!r}: unknown file extension",
                hint=f"give --plot a file name ending in {' or '.join(_PLOT_ENDINGS)}",
            )

    def lock_plan(self, plan: Plan, texts: OptionTexts, printed: PlanDocument, catalog: Catalog) -> None:
        """Write the lock of a plan, with its printed form. Raises InputError `unwritable_file`."""
        if self.lock is None:
            return
        from tgi_deploy.operations.planning.lock import lock_document, lock_text  # noqa: PLC0415 -- pictures need no lock

        release = catalog.release(plan.request.engine_version)
        document = lock_document(plan, texts, os.environ, release, printed=plain(printed))
        write_file(self.lock, lock_text(document), what="the lock", option="--lock")

    def draw(
        self, made: Plan | NoFeasiblePlan, texts: OptionTexts, catalog: Catalog, commands: tuple[str, ...] = ()
    ) -> FilesData | None:
        """Write the requested pictures, and return their files. `commands` are those of the near misses."""
        if self.report is None and self.plot is None:
            return None
        from tgi_deploy.operations.planning.report import report  # noqa: PLC0415 -- a lock needs no pictures

        page = report(made, texts, catalog, os.environ, targets=self.targets, commands=commands)
        if self.report is not None:
            from tgi_deploy.operations.report.report import report_html  # noqa: PLC0415 -- only reports need templates

            write_file(self.report, report_html(page), what="the report", option="--report")
        if self.plot is not None:
            from tgi_deploy.operations.report.plot import plot_png, plot_svg  # noqa: PLC0415 -- only plots need fonts

            draw = plot_png if self.plot.suffix.lower() == ".png" else plot_svg
            write_file(self.plot, draw(page), what="the plot", option="--plot")
        drawn = {"report": self.report, "plot": self.plot}
        return FilesData(**{kind: str(path) for kind, path in drawn.items() if path is not None})
