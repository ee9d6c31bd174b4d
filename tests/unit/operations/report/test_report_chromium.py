"""The page in a real browser: no errors, no requests, readable on a phone, usable without a mouse."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tgi_deploy.operations.report.report import report_html

pytestmark = [pytest.mark.chromium, pytest.mark.xdist_group("chromium")]

NAMES = ["plan", "everywhere", "no-plan", "owned"]
PHONE, DESK = 375, 1120
FOCUSED = "document.activeElement"


@pytest.fixture
def opened(browser, pages):
    def opened(name: str, *, width: int = DESK, scheme: str = "light"):
        browser.open(pages[name], width=width, scheme=scheme)
        return browser

    return opened


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, DESK])
@pytest.mark.parametrize("name", NAMES)
def test_the_page_logs_nothing_and_loads_nothing_else(name, width, scheme, opened, pages):
    page = opened(name, width=width, scheme=scheme)
    page.evaluate("for (const item of document.querySelectorAll('details')) item.open = true")
    assert page.complaints == []
    assert page.requests == [pages[name].as_uri()]


@pytest.mark.parametrize("width", [320, PHONE, 600, 641, 800])
@pytest.mark.parametrize("name", NAMES)
def test_the_page_never_scrolls_sideways(name, width, opened):
    page = opened(name, width=width)
    page.evaluate("for (const item of document.querySelectorAll('details')) item.open = true")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("document.body.getBoundingClientRect().width") <= width


def test_a_page_that_is_too_wide_or_loads_more_is_detected(browser, reports, tmp_path):
    path = tmp_path / "broken.html"
    broken = report_html(reports["owned"]).replace(
        "</main>", '<p style="width:900px">x</p><img src="https://example.invalid/x.png"></main>'
    )
    path.write_text(broken, encoding="utf-8")
    browser.open(path, width=PHONE)
    assert browser.evaluate("document.documentElement.scrollWidth") > PHONE
    assert any("Content Security Policy" in complaint for complaint in browser.complaints)


def test_light_and_dark_modes_are_both_readable(opened):
    colours = "['color', 'backgroundColor'].map((name) => getComputedStyle(document.body)[name])"
    light, dark = (opened("plan", scheme=scheme).evaluate(colours) for scheme in ("light", "dark"))
    assert _contrast(*light) > 7
    assert _contrast(*dark) > 7
    assert _luminance(light[1]) > 0.8
    assert _luminance(dark[1]) < 0.1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_muted_text_and_marks_have_enough_contrast(scheme, opened):
    page = opened("plan", scheme=scheme)
    surface = page.evaluate("getComputedStyle(document.querySelector('section:not(.notices)')).backgroundColor")
    quiet = page.evaluate("getComputedStyle(document.querySelector('section .quiet')).color")
    assert _contrast(quiet, surface) >= 4.5
    for kind in ("works", "over", "fallback", "refused"):
        colour = page.evaluate(f"getComputedStyle(document.querySelector('.chart .p.{kind}')).stroke")
        assert _contrast(colour, surface) >= 3, kind


@pytest.mark.parametrize(("width", "shown", "hidden"), [(DESK, "wide", "narrow"), (PHONE, "narrow", "wide")])
def test_the_chart_for_the_screen_width_is_shown(width, shown, hidden, opened):
    page = opened("plan", width=width)
    displays = "(name) => getComputedStyle(document.querySelector(`.chart.${name}`)).display"
    assert page.evaluate(f"({displays})('{shown}')") == "block"
    assert page.evaluate(f"({displays})('{hidden}')") == "none"


def test_tab_visits_everything_in_order(opened):
    page = opened("plan")
    visited = []
    for _ in range(40):
        page.press("Tab")
        name = page.evaluate(f"{FOCUSED}.dataset.row || {FOCUSED}.id || {FOCUSED}.className || {FOCUSED}.tagName")
        if name == "BODY":
            break
        visited.append(name)
    assert visited[0] == "skip"
    assert visited[1] == "w0"  # the chosen mark: the chart is one stop
    assert visited[2] == "filter"
    assert visited.count("SUMMARY") == len(
        page.evaluate("[...document.querySelectorAll('summary')].map((item) => item.textContent)")
    )
    assert visited[-1] == "SUMMARY"
    assert {"copy", "command-1"} <= set(visited)


def test_arrow_keys_move_between_labeled_marks(opened):
    page = opened("plan")
    page.press("Tab")
    page.press("Tab")
    label = f"{FOCUSED}.getAttribute('aria-label')"
    tip = "document.querySelector('.tip').innerText"
    assert "chosen" in page.evaluate(label)
    assert "g5.xlarge" in page.evaluate(tip)
    page.press("Home")
    first = page.evaluate(label)
    assert "memory_weights" in first
    assert "do not fit" in page.evaluate(tip)
    page.press("ArrowRight")
    assert page.evaluate(label) != first
    page.press("ArrowLeft")
    assert page.evaluate(label) == first
    assert page.evaluate("document.querySelectorAll('.chart.wide [tabindex=\"0\"]').length") == 1
    page.press("Escape")
    assert page.evaluate("document.querySelector('.tip').hidden")


def test_a_focused_mark_is_visible(opened):
    page = opened("plan")
    page.press("Tab")
    page.press("Tab")
    width = page.evaluate(f"parseFloat(getComputedStyle({FOCUSED}).strokeWidth)")
    others = page.evaluate("parseFloat(getComputedStyle(document.querySelector('.chart.wide .works')).strokeWidth)")
    assert width >= 2 * others


def test_every_mark_shows_its_code_and_sentence_on_hover(opened):
    page = opened("plan")
    reported = page.evaluate(
        """(() => {
          const chart = document.querySelector('.chart.wide'), tip = document.querySelector('.tip');
          chart.scrollIntoView();
          return [...chart.querySelectorAll('[data-row]')].map((mark) => {
            const box = mark.getBoundingClientRect();
            const [clientX, clientY] = [box.x + box.width / 2, box.y + box.height / 2];
            chart.dispatchEvent(new PointerEvent('pointermove', {clientX, clientY, bubbles: true}));
            return [mark.dataset.row[0], tip.hidden ? '' : tip.innerText, mark.getAttribute('aria-label')];
          });
        })()"""
    )
    assert len(reported) > 300
    for kind, shown, label in reported:
        code, *rest = shown.splitlines()[1:]
        assert rest, label
        assert code.isidentifier(), shown
        assert len(label) > (40 if kind == "r" else 20)


def test_the_tooltip_stays_on_a_phone_screen(opened):
    page = opened("plan", width=PHONE)
    edges = page.evaluate(
        """(() => {
          const tip = document.querySelector('.tip');
          return [...document.querySelectorAll('.chart.narrow [data-row]')].map((mark) => {
            mark.focus();
            const box = tip.getBoundingClientRect();
            return [box.left, box.right];
          });
        })()"""
    )
    assert min(left for left, _ in edges) >= 0
    assert max(right for _, right in edges) <= PHONE


def test_the_filter_shows_only_matching_rows(opened):
    page = opened("plan")
    shown = """(() => {
      const input = document.getElementById('filter');
      input.value = %r; input.dispatchEvent(new Event('input'));
      return [...document.querySelectorAll('.tables tbody tr')].filter((row) => row.checkVisibility())
        .map((row) => row.textContent);
    })()"""
    rows = page.evaluate(shown % "g4dn flash")
    assert rows
    assert all("g4dn" in row for row in rows)
    assert page.evaluate(shown % "no such machine") == []
    assert page.evaluate("document.querySelector('.filter output').value") == "0 rows"


def test_copying_confirms(opened):
    page = opened("plan")
    page.evaluate("document.querySelector('.commands .copy').click()")
    result = page.evaluate(
        """new Promise((done) => setTimeout(() => done(document.querySelector('.commands .copy').textContent), 100))"""
    )
    assert result in {"Copied", "Selected"}
    assert page.complaints == []


def test_printing_expands_the_commands(opened):
    page = opened("plan")
    assert page.call("Page.printToPDF")["data"]
    assert page.evaluate("[...document.querySelectorAll('.commands details')].every((item) => item.open)")


def test_a_name_that_is_a_script_does_not_run(browser, reports, tmp_path):
    path = tmp_path / "hostile.html"
    hostile = "</script><img src=x onerror=\"document.title='run'\"><script>document.title='run'</script>"
    page = replace(
        reports["plan"],
        sentence=hostile,
        notices=(hostile,),
        rejections=tuple(replace(item, message=hostile) for item in reports["plan"].rejections),
    )
    path.write_text(report_html(page), encoding="utf-8")
    browser.open(path, width=DESK)
    browser.evaluate("document.querySelector('.chart.wide .refused').focus()")
    assert "onerror" in browser.evaluate("document.querySelector('.tip').innerText")
    assert browser.evaluate("document.title") == "llama3-13b"
    assert browser.complaints == []


def _channels(colour: str) -> list[float]:
    return [float(part) / 255 for part in colour.removeprefix("rgb(").removesuffix(")").split(",")]


def _luminance(colour: str) -> float:
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in _channels(colour)]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def _contrast(one: str, other: str) -> float:
    """As WCAG 2 has it: 1 to 21."""
    darker, lighter = sorted((_luminance(one), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)
