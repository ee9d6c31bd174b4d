"""`--report` and `--plot`: a plan as HTML or as a chart."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from tgi_deploy.cli.frame import SectionOption, wrap_command
from tgi_deploy.errors import InputError
from tgi_deploy.files import write_file
from tgi_deploy.text import one_line
from tgi_deploy.values.base import plain, replaced

if TYPE_CHECKING:
    from collections.abc import Callable

    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.cli.output import Result
    from tgi_deploy.operations.planning.option_texts import OptionTexts
    from tgi_deploy.operations.report.report import Report
    from tgi_deploy.values.plan import NoFeasiblePlan, Plan

_PLOT_ENDINGS: Final = (".png", ".svg")


class Pictures(NamedTuple):
    """Files to write; None: not requested."""

    report: Path | None
    plot: Path | None

    def check(self) -> None:
        """Check the file names before planning. Raises InputError `bad_plot_file`."""
        if self.plot is not None and self.plot.suffix.lower() not in _PLOT_ENDINGS:
            raise InputError(
                "bad_plot_file",
                f"plotting to {str(self.plot)!r}: unknown file extension",
                hint=f"give --plot a file name ending in {' or '.join(_PLOT_ENDINGS)}",
            )

    @property
    def options(self) -> tuple[str, ...]:
        """The options that were given."""
        return tuple(f"--{kind}" for kind, path in zip(self._fields, self, strict=True) if path is not None)

    def added_to(self, result: Result, made: Plan | NoFeasiblePlan, texts: OptionTexts, catalog: Catalog) -> Result:
        """Write the requested files, and return the result with their names added."""
        if not self.options:
            return result
        from tgi_deploy import wiring  # noqa: PLC0415 -- only pictures need it
        from tgi_deploy.operations.planning.report import report  # noqa: PLC0415 -- startup time

        page = report(made, texts, catalog, os.environ, targets=wiring.targets(), commands=_commands(made, texts))
        files = self._write(page)
        lines = "".join(f"{kind} written to {one_line(str(path))}\n" for kind, path in files.items())
        return replaced(result, data={**plain(result.data), "files": files}, text=f"{result.text}\n{lines}")

    def _write(self, page: Report) -> dict[str, Path]:
        if self.report is not None:
            from tgi_deploy.operations.report.report import report_html  # noqa: PLC0415 -- startup time

            write_file(self.report, report_html(page), what="the report", option="--report")
        if self.plot is not None:
            write_file(self.plot, _plot(page, self.plot), what="the plot", option="--plot")
        return {kind: path for kind, path in zip(self._fields, self, strict=True) if path is not None}


def picture_options(function: Callable[..., Result]) -> Callable[..., Result]:
    """Add --report and --plot; the function gets them as one argument, `pictures`."""

    def with_pictures(*, report: Path | None, plot: Path | None, **given: Any) -> Result:  # noqa: ANN401 -- the command's own parameters
        return function(pictures=Pictures(report=report, plot=plot), **given)

    report = click.option(
        "--report", cls=SectionOption, section="Output", metavar="FILE", type=click.Path(path_type=Path),
        help="Also write an HTML report, one self-contained file.",
    )  # fmt: skip
    plot = click.option(
        "--plot", cls=SectionOption, section="Output", metavar="FILE", type=click.Path(path_type=Path),
        help="Also plot cost against throughput, as .svg or .png.",
    )  # fmt: skip
    return report(plot(wrap_command(with_pictures, function)))


def _commands(made: Plan | NoFeasiblePlan, texts: OptionTexts) -> list[str]:
    """Return the near misses as command lines to paste."""
    from tgi_deploy.operations.planning.no_plan import without_plan  # noqa: PLC0415 -- only pictures need it
    from tgi_deploy.values.plan import Plan  # noqa: PLC0415 -- startup time

    return [] if isinstance(made, Plan) else [*without_plan("plan", texts, made).commands]


def _plot(page: Report, path: Path) -> str | bytes:
    from tgi_deploy.operations.report.plot import plot_png, plot_svg  # noqa: PLC0415 -- only pictures need it

    return plot_png(page) if path.suffix.lower() == ".png" else plot_svg(page)
