"""Count the functions that the value of `--budget` passes through, and the modules that a log line passes through.

It runs one `up` in a private sandbox and traces every call within this program.

From the option to RunInstances: a function is on the way if one of its arguments contains the value, directly or
nested, and it leads to a function that uses the value or to the cloud's API. A function uses the value if its code
names it; all others on the way only pass it on. A lambda or comprehension counts as part of the enclosing function. A
record stores the value for later runs: a `Deployment` argument does not count.

From the cloud's reply to the result of the wait: a module is on the way of the line if one of its functions gets a text
that contains it.
"""

from __future__ import annotations

import argparse
import inspect
import os
import sys
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from botocore.client import BaseClient

import tgi_deploy
from tgi_deploy.cli.main import ROOT
from tgi_deploy.values.deployment import Deployment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType, FrameType

# Digits that are unlikely to occur elsewhere.
VALUE: Final = "5.4321987"
NAMES: Final = frozenset({"budget", "budget_usd_per_hour", "--budget"})
CALL: Final = "RunInstances"
LINE: Final = "check and download process"
# Every call of the cloud's API passes through it.
SENDING: Final = inspect.unwrap(vars(BaseClient)["_make_api_call"]).__code__
PACKAGE: Final = f"{Path(tgi_deploy.__file__).parent}/"
_DEEPEST: Final = 6
_LOOKS: Final = 3
_LARGEST: Final = 60


class Watch:
    """Traces the value through one run. `on_the_way` has each function's code, ordered by its first use."""

    def __init__(self) -> None:
        self.on_the_way: dict[CodeType, None] = {}
        self.arrived = False
        self._looks: dict[CodeType, int] = {}
        self._holding: dict[CodeType, bool] = {}

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        if event != "call" or self.arrived:
            return
        code = frame.f_code
        if code is SENDING:
            if frame.f_locals["operation_name"] == CALL:
                self.arrived = True
                self._note(frame.f_back)
        elif code.co_filename.startswith(PACKAGE) and self._holds(frame) and uses(code):
            self._note(frame)

    def _note(self, frame: FrameType | None) -> None:
        found = []
        while frame is not None:
            if frame.f_code.co_filename.startswith(PACKAGE) and self._holds(frame):
                found.append(frame.f_code)
            frame = frame.f_back
        self.on_the_way.update(dict.fromkeys(reversed(found)))

    def _holds(self, frame: FrameType) -> bool:
        """Whether an argument of the function contains the value; after a few calls the last answer is reused."""
        code = frame.f_code
        if self._looks.get(code, 0) >= _LOOKS or self._holding.get(code):
            return self._holding[code]
        count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
        names = (*code.co_varnames[:count], *code.co_freevars)
        arguments = [frame.f_locals.get(name) for name in names]
        self._looks[code] = self._looks.get(code, 0) + 1
        self._holding[code] = any(holds(item) for item in arguments)
        return self._holding[code]


def uses(code: CodeType) -> bool:
    """Whether the function's own code names the value, as an attribute or as a string."""
    return not NAMES.isdisjoint(code.co_names) or any(item in NAMES for item in code.co_consts if isinstance(item, str))


def holds(item: object, depth: int = 0) -> bool:
    if item == VALUE if isinstance(item, str) else isinstance(item, Decimal) and item == Decimal(VALUE):
        return True
    return depth < _DEEPEST and any(holds(part, depth + 1) for part in parts(item))


def parts(item: Any) -> Iterator[object]:  # noqa: ANN401 -- whatever a function is given
    """Return the contents of a container or of an object of this program, without calling any of its code."""
    kind = type(item)
    if kind is dict:
        yield from list(item.values())[:_LARGEST]
    elif kind in {tuple, list}:
        yield from item[:_LARGEST]
    elif kind.__module__.startswith("tgi_deploy") and kind is not Deployment:
        names = getattr(kind, "__struct_fields__", None) or getattr(kind, "__dataclass_fields__", None)
        yield from [getattr(item, name, None) for name in names] if names else getattr(item, "__dict__", {}).values()


def line_watch(modules: dict[str, None]) -> Callable[[FrameType, str, object], None]:
    """Return a tracer that adds to `modules` each module that gets a text with the line, except the sandbox."""

    def look(frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        place = code.co_filename.removeprefix(PACKAGE)
        if event != "call" or place in modules or place.startswith(("/", "<", "sandbox/")):
            return
        given = (frame.f_locals.get(name) for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
        if any(isinstance(item, str) and LINE in item for item in given):
            modules[place] = None

    return look


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--limit", type=int, help="exit 1 if more functions only pass the value on")
    parser.add_argument("--module-limit", type=int, help="exit 1 if a line of the log goes through more modules")
    given = parser.parse_args()
    watch, modules = watched()
    whole = [code for code in watch.on_the_way if not code.co_name.startswith("<")]
    passing = [code for code in whole if not uses(code)]
    for code in whole:
        place = f"{code.co_filename.removeprefix(PACKAGE)}:{code.co_firstlineno}"
        print(f"{'      ' if code in passing else 'uses  '}{place:<50} {code.co_qualname}")
    print(f"{len(whole)} functions on the way, {len(passing)} of them only pass it on")
    print(f"a line of the log goes through {len(modules)} modules: {', '.join(modules)}")
    if not (watch.arrived and modules):
        raise SystemExit(f"{CALL} was never called, or no log was read")
    if given.limit is not None and len(passing) > given.limit:
        raise SystemExit(f"more than {given.limit} functions")
    if given.module_limit is not None and len(modules) > given.module_limit:
        raise SystemExit(f"more than {given.module_limit} modules")


def watched() -> tuple[Watch, tuple[str, ...]]:
    """Run an `up` until its engine answers, in this process, and trace both ways."""
    watch, modules = Watch(), dict[str, None]()
    look = line_watch(modules)

    def both(frame: FrameType, event: str, argument: object) -> None:
        (look if watch.arrived else watch)(frame, event, argument)

    with tempfile.TemporaryDirectory() as home:
        os.environ |= {"TGI_DEPLOY_HOME": home, "TGI_DEPLOY_SANDBOX_HOME": f"{home}/sandbox"}
        sys.setprofile(both)
        try:
            words = ["up", "qwen2.5-7b", "--budget", VALUE, "--sandbox", "--yes", "--ready", "fast"]
            ROOT.main(words, standalone_mode=False)
        finally:
            sys.setprofile(None)
            ROOT.main(["sandbox", "stop"], standalone_mode=False)
    return watch, tuple(modules)


if __name__ == "__main__":
    main()
