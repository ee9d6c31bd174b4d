"""Draws cost against throughput for runbooks and slides: as SVG, or as PNG with the extra `plot`."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

from tgi_deploy.errors import InputError
from tgi_deploy.extras import extra_missing
from tgi_deploy.operations.report.scatter import Layout, chart
from tgi_deploy.templating import render_html

if TYPE_CHECKING:
    from tgi_deploy.operations.report.report import Report

_LAYOUT: Final = Layout(name="plot", width=960, plot_height=420, left=64)
_HEAD: Final = 96
_FOOT: Final = 30
_LINE: Final = 115  # characters
_LINE_HEIGHT: Final = 19
_ZOOM: Final = 2.0  # pixels of the PNG for one of the SVG
_FONT: Final = "Lato"


def plot_svg(report: Report) -> str:
    """Return a standalone SVG on white. Raises InputError `bad_option_value` if no configuration has a price."""
    drawing = chart(report.variants, report.rejections, report.budget_usd_per_hour, _LAYOUT)
    if drawing is None:
        raise InputError(
            "bad_option_value",
            f"drawing cost against throughput of {report.title}: no configuration has a price",
            hint="leave --hardware out to plan for rented machines, or write the page: --report FILE.html",
        )
    lines = textwrap.wrap(report.sentence, _LINE)
    head = _HEAD + _LINE_HEIGHT * (len(lines) - 1)
    values = {"report": report, "c": drawing, "lines": lines, "head": head, "height": head + drawing.height + _FOOT}
    return render_html("plot.svg.j2", values)


def plot_png(report: Report) -> bytes:
    """Return the picture as a PNG with a bundled font. Raises InputError `extra_missing` without the extra."""
    svg = plot_svg(report)
    try:
        import font_lato  # noqa: PLC0415 -- an extra
        import resvg_py  # noqa: PLC0415 -- startup time
    except ImportError as error:
        raise extra_missing("plot", f"plotting {report.title} as PNG", error) from error
    fonts = [font_lato.font_files[name] for name in ("Lato", "LatoBold")]
    return resvg_py.svg_to_bytes(
        svg_string=svg, zoom=_ZOOM, skip_system_fonts=True, font_files=fonts, font_family=_FONT,
        sans_serif_family=_FONT,
    )  # fmt: skip
