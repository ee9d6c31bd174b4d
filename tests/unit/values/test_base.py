"""Conversion of parsed data into values."""

from __future__ import annotations

import subprocess
import sys

# Eight threads convert to a new type with nested types at the same moment, a hundred times.
_FIRST_CONVERSIONS = """
import sys, threading
from decimal import Decimal
import msgspec
from tgi_deploy.values.base import as_value

sys.setswitchinterval(1e-6)
for _ in range(100):
    fields = [(f"field_{n}", msgspec.defstruct("Price", [("usd", Decimal)])) for n in range(30)]
    kind = msgspec.defstruct("Prices", fields)
    document = {name: {"usd": "1.50"} for name, _ in fields}
    start, made = threading.Barrier(8), []

    def convert():
        start.wait()
        made.append(as_value(document, kind))

    threads = [threading.Thread(target=convert) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [value.field_29.usd for value in made] == [Decimal("1.50")] * 8
"""


def test_threads_convert_to_a_type_for_the_first_time_together():
    done = subprocess.run([sys.executable, "-c", _FIRST_CONVERSIONS], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
