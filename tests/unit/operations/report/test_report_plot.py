from __future__ import annotations

import json
import struct
import subprocess
import sys
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest
from builders.hostile import HOSTILE
from builders.samples import quick

from tgi_deploy.cli.main import main
from tgi_deploy.errors import InputError
from tgi_deploy.operations.report.plot import plot_png, plot_svg

SVG = "{http://www.w3.org/2000/svg}"


def run(*args: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(list(args))
    return end.value.code


@pytest.mark.parametrize("name", ["plan", "everywhere", "no-plan"])
def test_the_svg_is_well_formed_and_complete(name, reports):
    page = reports[name]
    root = ET.fromstring(plot_svg(page))  # noqa: S314 -- our own text
    texts = " ".join(part.strip() for part in root.itertext())
    assert page.title in texts
    assert {item.code for item in page.rejections if item.usd_per_hour} <= set(texts.split())
    marks = [item for item in root.iter() if " p " in f" {item.get('class', '')} "]
    assert len(marks) >= len(page.variants)
    height = float(root.get("height"))
    assert all(float(item.get("y")) <= height for item in root.iter(f"{SVG}text"))


def test_the_svg_loads_nothing(reports):
    svg = plot_svg(reports["plan"])
    assert "href" not in svg
    assert "url(" not in svg
    assert "<script" not in svg


@pytest.mark.parametrize("hostile", [*quick(HOSTILE, 8), "</title><script>x</script>"])
def test_the_svg_escapes_names(hostile, reports):
    base = reports["plan"]
    page = replace(base, title=hostile, sentence=hostile, variants=base.variants[:3], rejections=base.rejections[:3])
    root = ET.fromstring(plot_svg(page))  # noqa: S314 -- our own text
    assert root.find(f"{SVG}script") is None
    assert hostile.split() == [
        word for item in root.iter(f"{SVG}text") if item.get("class") == "head" for word in (item.text or "").split()
    ]


def test_the_png_is_twice_the_size_and_not_empty(reports):
    png = plot_png(reports["plan"])
    root = ET.fromstring(plot_svg(reports["plan"]))  # noqa: S314 -- our own text
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", png[16:24])
    assert (width, height) == (2 * float(root.get("width")), 2 * float(root.get("height")))
    assert len(png) > 50_000


def test_text_is_really_drawn(reports):
    """A renderer without a font silently omits text."""
    page = replace(reports["plan"], variants=reports["plan"].variants[:1], rejections=())
    silent = replace(page, title="", sentence="", version="", catalog_date="")
    assert len(plot_png(page)) > len(plot_png(silent)) + 2000


def test_without_the_extra_the_install_command_is_printed(reports, monkeypatch):
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(InputError) as caught:
        plot_png(reports["plan"])
    assert caught.value.code == "extra_missing"
    assert "resvg-py" in caught.value.hint


def test_plotting_needs_a_price(reports):
    with pytest.raises(InputError) as caught:
        plot_svg(reports["owned"])
    assert caught.value.code == "bad_option_value"


@pytest.mark.parametrize(("name", "start"), [("plan.html", "<!doctype html>"), ("plan.SVG", "<svg ")])
def test_the_extension_chooses_the_page_or_its_chart(name, start, tmp_path, capsys):
    file = tmp_path / name
    assert run("plan", "llama3-8b", "--budget", "3", "--report", str(file), "--json") == 0
    data = json.loads(capsys.readouterr().out)["data"]
    assert data["files"] == {"report": str(file)}
    assert data["plan"]["chosen"]
    assert file.read_text().startswith(start)


def test_the_report_is_written_without_a_plan(tmp_path, capsys):
    page = tmp_path / "plan.html"
    assert run("plan", "llama3-70b", "--budget", "1", "--report", str(page)) == 3
    assert f"report written to {page}" in capsys.readouterr().out
    assert "tgi-deploy plan llama3-70b --budget" in page.read_text()


@pytest.mark.parametrize("name", ["plan.pdf", "plan.svg.gz"])
def test_an_unknown_file_extension_is_rejected_before_planning(name, tmp_path, capsys):
    assert run("plan", "no-such-model", "--report", str(tmp_path / name)) == 2
    assert "error[bad_option_value]" in capsys.readouterr().err


def test_an_unwritable_file_error_names_the_option(tmp_path, capsys):
    assert run("plan", "llama3-8b", "--budget", "3", "--report", str(tmp_path / "no" / "plan.html")) == 2
    reported = capsys.readouterr().err
    assert "error[unwritable_file]" in reported
    assert "--report" in reported


def test_plotting_modules_load_only_when_needed():
    probe = (
        "import sys; from tgi_deploy.cli.main import main\n"
        "try: main(['plan', 'llama3-8b', '--budget', '3'])\n"
        "except SystemExit: pass\n"
        "print([name for name in sys.modules if name in {'jinja2', 'resvg_py',"
        " 'tgi_deploy.operations.planning.report'}],"
        " file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "[]"
