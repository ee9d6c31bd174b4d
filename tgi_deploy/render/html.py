"""The jinja2 of what browsers read: every value is escaped. Imported when something is rendered, not before."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy import resources
from tgi_deploy.render import words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jinja2 import Environment

FOLDER: Final = "report"


def render_html(template: str, values: Mapping[str, Any]) -> str:
    return environment().get_template(template).render(values)


@lru_cache(maxsize=1)
def environment() -> Environment:
    import jinja2  # noqa: PLC0415 -- planning does without

    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(resources.templates_dir() / FOLDER),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        usd=words.usd, usd_exact=words.usd_exact, cents=words.cents, count=words.count, gib=words.gib, span=words.span,
        tick=words.tick, plural=words.plural,
    )  # fmt: skip
    return made
