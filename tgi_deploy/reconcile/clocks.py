"""What the moments that other clocks wrote can prove.

This computer, other computers, machines and clouds disagree by minutes, and a clock may be set between two commands.
A moment in a record, in a tag or in a cloud's reply is a witness: something is old only if every witness, with the
largest disagreement taken off, makes it old. What is not certainly old may have been made a moment ago, and a cloud
that does not show it yet does not prove that it is gone.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from tgi_deploy.reconcile.ends import moment_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from tgi_deploy.values.deployment import ResourceRecord

# A request must reach AWS within 5 minutes of its time stamp (IAM User Guide, "AWS Signature Version 4 for API
# requests"). One computer may be that far ahead, and another, or the same one earlier, that far behind.
CLOCKS_APART: Final = timedelta(minutes=10)
# Notes of a record: when the request that made it was first sent, and when it was last repeated.
INTENDED: Final = "intended"
ASKED: Final = "asked"
# Attributes in which clouds say when something was made.
_MADE: Final = ("launched", "created")


def is_past(moment: datetime, now: datetime, *, by_s: float = 0.0) -> bool:
    """Return whether `moment` is more than `by_s` ago, whichever clocks wrote the two."""
    return now - moment > CLOCKS_APART + timedelta(seconds=by_s)


def may_be_new(record: ResourceRecord, now: datetime, *, within_s: float) -> bool:
    """Return whether it may have been asked for less than `within_s` ago: a cloud may not show it yet."""
    moments = tuple(_witnesses(record))
    return not moments or not all(is_past(moment, now, by_s=within_s) for moment in moments)


def _witnesses(record: ResourceRecord) -> Iterator[datetime]:
    texts = (
        *(record.notes.get(name) for name in (INTENDED, ASKED)),
        *(record.attributes.get(name) for name in _MADE),
    )
    return (moment for moment in map(moment_of, texts) if moment is not None)
