"""How far a phase is, in words: megabytes, files, shards, and what is left. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tgi_deploy.reconcile.phases import PhaseView

_MINUTE_S: Final = 60
_HOUR_S: Final = 3600


def detail_of(view: PhaseView, *, amount_mb: float = 0.0, quiet_s: float = 0.0, left_s: float = 0.0) -> str:
    """What the log shows of its phase.

    `amount_mb` is about what comes in all, `quiet_s` how old the log's last word is, `left_s` what the plan leaves
    for the phase; 0 where it is not known.
    """
    if view.phase == "pulling":
        return _pulled(view, amount_mb)
    if view.phase == "downloading":
        return _downloaded(view, quiet_s, left_s)
    return view.detail


def _pulled(view: PhaseView, amount_mb: float) -> str:
    if not view.received_mb:
        return view.detail
    if not amount_mb:
        return f"{view.received_mb:,} MB"
    return f"{view.received_mb:,} of about {amount_mb:,.0f} MB"


def _downloaded(view: PhaseView, quiet_s: float, left_s: float) -> str:
    """The engine's own estimate is as old as its last line."""
    if view.progress == 1:
        return view.detail
    left = left_s if view.eta_s is None else view.eta_s - quiet_s
    return ", ".join(filter(None, (view.detail, f"about {duration(left)} left" if left > 0 else "")))


def duration(seconds: float) -> str:
    """`42 s`, `3 min 5 s`, `1 h 2 min`."""
    whole = round(seconds)
    if whole < _MINUTE_S:
        return f"{whole} s"
    if whole < _HOUR_S:
        return f"{whole // _MINUTE_S} min {whole % _MINUTE_S} s"
    return f"{whole // _HOUR_S} h {whole % _HOUR_S // _MINUTE_S} min"
