"""What quantization costs in quality: classes of methods, with the published scores that put them there."""

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
    """The class of a method at a number of bits. Inside a class and beyond it, a smaller `order` is the better one."""

    method: str
    bits: int
    grade: QualityClass
    order: int
    deltas: tuple[Delta, ...]


class QualityTable(Value, frozen=True, kw_only=True):
    """Every method that has been judged. No near-lossless one loses more than `near_lossless_points` on average."""

    collected_at: str
    source: str
    near_lossless_points: float
    methods: tuple[MethodQuality, ...]

    def of(self, method: str, lost_bits: float) -> MethodQuality:
        """Return the class of weights that lost so many bits of the checkpoint's own to `method`.

        A method nobody measured counts as the others of its bits do.
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
    """Whether weights of this class are worse than what was asked for. Without a word they are to be near-lossless."""
    if floor == "any":
        return False
    least: QualityClass = "exact" if floor == "exact" else "near-lossless"
    return CLASSES.index(grade) > CLASSES.index(least)
