"""Renders artifacts and pages. The only user of jinja2, which is imported on first use."""

from __future__ import annotations

import json
import shlex
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy import data_files, text
from tgi_deploy.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from jinja2 import Environment

_PAGES: Final = "report"


def render_text(template: str, values: Mapping[str, Any], *, templates_dir: Path | None) -> str:
    """Render a template: the user's own if `templates_dir` has it, else the packaged one.

    Raises InputError `bad_template` for an invalid template or one that uses an unknown value.
    """
    import jinja2  # noqa: PLC0415 -- see above

    try:
        return environment(templates_dir).get_template(template).render(values)
    except jinja2.TemplateSyntaxError as error:
        where, what = f"{error.name}, line {error.lineno}", error.message
    except (jinja2.TemplateError, UnicodeDecodeError, OSError) as error:
        where, what = template, str(error)
    raise InputError("bad_template", f"the template {where} can't be rendered: {what}", hint=_hint(templates_dir))


def _hint(templates_dir: Path | None) -> str:
    if templates_dir is None:
        return "the installation is damaged: reinstall tgi-deploy"
    return f"fix it in {templates_dir}, or omit --templates-dir"


@lru_cache(maxsize=4)
def environment(templates_dir: Path | None) -> Environment:
    import jinja2  # noqa: PLC0415 -- see above

    if templates_dir is not None and not templates_dir.is_dir():
        raise InputError(
            "unreadable_path", f"--templates-dir {templates_dir} is not a folder", hint="name an existing folder"
        )
    folders = [folder for folder in (templates_dir, data_files.templates_dir()) if folder is not None]
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folders),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # noqa: S701 -- shell and YAML, not HTML: every value passes a quoting filter
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters.update(shquote=shlex.quote, tojson=to_json, compose=_compose, hcl=_hcl)
    return made


def to_json(value: object, indent: int | None = None) -> str:
    """Format as JSON, which is also valid YAML (jinja2's own filter escapes for HTML)."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _compose(value: str) -> str:
    """Quote a string for a Compose file, where a dollar sign would begin a variable."""
    return to_json(value.replace("$", "$$"))


def _hcl(value: str) -> str:
    """Quote a printable string for Terraform, where `${` and `%{` would begin a template."""
    return to_json(value.replace("${", "$${").replace("%{", "%%{"))


def render_html(template: str, values: Mapping[str, Any]) -> str:
    """Render a page for browsers, with every value escaped."""
    return _html_environment().get_template(template).render(values)


@lru_cache(maxsize=1)
def _html_environment() -> Environment:
    import jinja2  # noqa: PLC0415 -- see above

    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(data_files.templates_dir() / _PAGES),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        usd=text.usd, usd_exact=text.usd_exact, cents=text.cents, count=text.count, gib=text.gib,
        duration=text.duration, tick=text.tick, plural=text.plural,
    )  # fmt: skip
    return made
