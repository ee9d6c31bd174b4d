"""Quality loss of quantization: classes of methods with the published scores behind them."""

from __future__ import annotations

from typing import Final, Literal, get_args

from tgi_deploy.values.base import Value

QualityClass = Literal["exact", "near-lossless", "4-bit"]
QualityFloor = Literal["auto", "exact", "near-lossless", "any"]

CLASSES: Final[tuple[QualityClass, ...]] = get_args(QualityClass)
_WHOLE_BITS: Final = 16
_NEAR_LOSSLESS_BITS: Final = 8


class Delta(Value, frozen=True, kw_only=True):
    """A score of one checkpoint before and after quantization."""

    model: str
    metric: str
    before: float
    after: float
    source: str
    date: str

    @property
    def points(self) -> float:
        return self.after - self.before


class MethodQuality(Value, frozen=True, kw_only=True):
    """The class of a method at a number of bits. A smaller `order` is better."""

    method: str
    bits: int
    grade: QualityClass
    order: int
    deltas: tuple[Delta, ...]


class QualityTable(Value, frozen=True, kw_only=True):
    """All rated methods. Near-lossless ones lose at most `near_lossless_points` on average."""

    collected_at: str
    source: str
    near_lossless_points: float
    methods: tuple[MethodQuality, ...]

    def of(self, method: str, lost_bits: float) -> MethodQuality:
        """Return the class of weights after `method` removed this many bits.

        An unmeasured method counts like others with the same bits.
        """
        bits = int(_WHOLE_BITS - lost_bits)
        if not lost_bits:
            return MethodQuality(method=method, bits=bits, grade="exact", order=0, deltas=())
        known = next((item for item in self.methods if (item.method, item.bits) == (method, bits)), None)
        if known is not None:
            return known
        if bits >= _NEAR_LOSSLESS_BITS:
            return MethodQuality(method=method, bits=bits, grade="near-lossless", order=1, deltas=())
        return MethodQuality(method=method, bits=bits, grade="4-bit", order=2, deltas=())


def is_below(grade: QualityClass, floor: QualityFloor) -> bool:
    """Return whether this class is below the requested one (default: near-lossless)."""
    if floor == "any":
        return False
    least: QualityClass = "exact" if floor == "exact" else "near-lossless"
    return CLASSES.index(grade) > CLASSES.index(least)
