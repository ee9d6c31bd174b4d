"""Formats output for CI systems: JUnit XML and GitHub's workflow commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree as ET

from tgi_deploy.values.base import Frozen

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

_UNCARRIED: Final = (*range(32), *range(0xD800, 0xE000), 0xFFFE, 0xFFFF)
_FORBIDDEN: Final = {code: None for code in _UNCARRIED if chr(code) not in "\t\n\r"}
_ESCAPES: Final = (("%", "%25"), ("\r", "%0D"), ("\n", "%0A"))
_PROPERTY_ESCAPES: Final = (*_ESCAPES, (":", "%3A"), (",", "%2C"))


class TestCase(Frozen, frozen=True, kw_only=True):
    """A test case. `code` is the failure type, empty if it passed; `text` has details below the message."""

    name: str
    code: str = ""
    message: str = ""
    text: str = ""
    skipped: bool = False
    took_s: float | None = None


def suite(
    name: str,
    classname: str,
    cases: Sequence[TestCase],
    *,
    took_s: float | None = None,
    began: datetime | None = None,
    properties: Mapping[str, str] = {},
) -> ET.Element:
    """Return a JUnit test suite that `began` at a moment in UTC."""
    stamp = began.strftime("%Y-%m-%dT%H:%M:%S") if began else ""
    element = _element("testsuite", name=name, timestamp=stamp, time=_seconds(took_s))
    counts = {
        "tests": len(cases),
        "failures": sum(bool(case.code) for case in cases),
        "skipped": sum(case.skipped for case in cases),
        "errors": 0,
    }
    for key, count in counts.items():
        element.set(key, str(count))
    if properties:
        ET.SubElement(element, "properties").extend(
            _element("property", name=key, value=value) for key, value in properties.items() if value
        )
    element.extend(_case(classname, case) for case in cases)
    return element


def suites(name: str, every: Sequence[ET.Element], *, took_s: float) -> ET.Element:
    element = _element("testsuites", name=name, time=_seconds(took_s))
    element.extend(every)
    return element


def junit(root: ET.Element) -> str:
    """Return the JUnit file."""
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def annotation(level: str, text: str, **properties: str) -> str:
    """Return an annotation for a workflow's log, at the file that `properties` name, if any."""
    where = ",".join(f"{name}={_escaped(value, _PROPERTY_ESCAPES)}" for name, value in properties.items())
    return f"::{level} {where}::{_escaped(text, _ESCAPES)}\n"


def printable(text: str) -> str:
    """Return the text without control characters that XML does not allow."""
    return text.translate(_FORBIDDEN)


def _case(classname: str, case: TestCase) -> ET.Element:
    element = _element("testcase", classname=classname, name=case.name, time=_seconds(case.took_s))
    if case.code:
        failure = _element("failure", type=case.code, message=case.message)
        failure.text = printable(case.text) or None
        element.append(failure)
    elif case.skipped:
        element.append(_element("skipped"))
    return element


def _element(tag: str, **attributes: str) -> ET.Element:
    return ET.Element(tag, {name: printable(value) for name, value in attributes.items() if value})


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _escaped(text: str, escapes: Sequence[tuple[str, str]]) -> str:
    for character, escape in escapes:
        text = text.replace(character, escape)
    return text
