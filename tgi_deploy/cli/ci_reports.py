"""Writes smoke results for CI: JUnit XML, annotations on stderr, the step summary."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from tgi_deploy.cli.output import write_stderr
from tgi_deploy.errors import InputError, Problem
from tgi_deploy.files import check_writable, write_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tgi_deploy.api import Smoked

SUMMARY: Final = "GITHUB_STEP_SUMMARY"
_JUNIT: Final = {"what": "the JUnit report", "option": "--junit"}
_SUMMARY: Final = {"what": "the step's summary", "option": SUMMARY}


@dataclass(frozen=True, kw_only=True, slots=True)
class Reports:
    """`junit` and `summary` are files, or None; `annotations` go to stderr."""

    junit: Path | None = None
    summary: Path | None = None
    annotations: bool = False

    @classmethod
    def of(cls, *, junit: Path | None, github: bool, environ: Mapping[str, str] = os.environ) -> Self:
        """Return the reports that `--junit` and `--github` select."""
        summary = environ.get(SUMMARY) if github else None
        return cls(junit=junit, summary=Path(summary) if summary else None, annotations=github)

    def check(self) -> None:
        """Check the files before anything is brought up. Raises InputError `unwritable_file`."""
        if self.junit is not None:
            check_writable(self.junit, **_JUNIT)
        if self.summary is not None:
            check_writable(self.summary, **_SUMMARY)

    @contextmanager
    def grouped(self, title: str) -> Iterator[None]:
        """Collapse the output of the block in a workflow's log."""
        if self.annotations:
            write_stderr(f"::group::{title}\n")
        try:
            yield
        finally:
            if self.annotations:
                write_stderr("::endgroup::\n")

    def write(self, results: Sequence[Smoked]) -> tuple[Problem, ...]:
        """Write the reports; a failed write does not lose the results."""
        return tuple(self._written(results))

    def _written(self, results: Sequence[Smoked]) -> Iterator[Problem]:
        from tgi_deploy.cli.views import smoke_reports  # noqa: PLC0415 -- not needed for --help

        if self.annotations:
            write_stderr(smoke_reports.github_annotations(results))
        if self.junit is not None:
            yield from _complaint(self.junit, smoke_reports.junit(results), _JUNIT)
        if self.summary is not None:
            yield from _complaint(self.summary, smoke_reports.github_summary(results), _SUMMARY, append=True)


def _complaint(path: Path, text: str, words: Mapping[str, str], *, append: bool = False) -> Iterator[Problem]:
    try:
        write_file(path, text, append=append, **words)
    except InputError as error:
        yield error.problem
