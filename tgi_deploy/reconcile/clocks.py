"""Compares timestamps from different clocks.

The clocks of this computer, other computers, instances and clouds can differ by minutes, and can be reset between two
commands. A resource counts as old only if all its timestamps (record, tags, the cloud's reply) are old even after
subtracting the largest possible skew. Any other may be new: that a cloud does not list it does not prove that it is
gone.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from tgi_deploy.reconcile.ends import moment_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from tgi_deploy.values.deployment import ResourceRecord

# A request must reach AWS within 5 minutes of its timestamp (IAM User Guide, "AWS Signature Version 4 for API
# requests"). One computer may be that far ahead and another that far behind.
CLOCKS_APART: Final = timedelta(minutes=10)
# Record notes: when the creating request was first sent, and when it was last repeated.
INTENDED: Final = "intended"
ASKED: Final = "asked"
# Attributes that hold the creation time.
_MADE: Final = ("launched", "created")


def is_past(moment: datetime, now: datetime, *, by_s: float = 0.0) -> bool:
    """Return whether `moment` is more than `by_s` ago, allowing for clock skew."""
    return now - moment > CLOCKS_APART + timedelta(seconds=by_s)


def may_be_new(record: ResourceRecord, now: datetime, *, within_s: float) -> bool:
    """Return whether it may have been requested less than `within_s` ago, so that a cloud may not list it yet."""
    moments = tuple(_witnesses(record))
    return not moments or not all(is_past(moment, now, by_s=within_s) for moment in moments)


def _witnesses(record: ResourceRecord) -> Iterator[datetime]:
    texts = (
        *(record.notes.get(name) for name in (INTENDED, ASKED)),
        *(record.attributes.get(name) for name in _MADE),
    )
    return (moment for moment in map(moment_of, texts) if moment is not None)
