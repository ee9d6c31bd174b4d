"""Untrusted JSON: limits on content, depth, numbers and memory."""

from __future__ import annotations

import math

import pytest

from tgi_deploy import bounded_json


@pytest.mark.parametrize(
    ("content", "value"),
    [
        (b'{"a": [1, 2.5, null, true, "x"]}', {"a": [1, 2.5, None, True, "x"]}),
        ('"text"', "text"),
        (b'"\\ud83d\\ude00 \\\\ud800"', "\U0001f600 \\ud800"),
        (b'{"a": 1, "a": 2}', {"a": 2}),
        (b"1000000000000000019884624838656", 10**30 + 19884624838656),
        (b"[" * 64 + b"]" * 64, None),
        (b"-0.0", 0.0),
    ],
)
def test_valid_documents_are_parsed(content, value):
    found = bounded_json.parse(content)
    assert value is None or found == value


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff\xfe", "not UTF-8"),
        (b"\xef\xbb\xbf{}", "not JSON"),
        ("{}".encode("utf-16"), "not UTF-8"),
        (b"[" * 65 + b"]" * 65, "nested more than 64 deep"),
        (b'{"a":' * 500 + b"0" + b"}" * 500, "nested more than 64 deep"),
        (b"[" * 100_000, "nested more than 64 deep"),
        (b"9" * 41, "a number of 41 digits"),
        (b"9" * 10_000, "a number of 10,000 digits"),
        (b"[NaN]", "NaN"),
        (b"[-Infinity]", "-Infinity"),
        (b"1e400", "out of range"),
        (b'{"a": "\\ud800"}', "half of a surrogate pair"),
        (b'{"\\uDc00\\uD800": 1}', "half of a surrogate pair"),
        (b" " * (32 * 2**20 + 1), "larger than 32 MiB"),
        (b"[" + b"[]," * 500_000 + b"[]]", "larger than its memory limit"),
        (b"[" + b"0," * 2_000_000 + b"0]", "larger than its memory limit"),
        (b'"' + b"x" * 12_000_000 + "é".encode() + b'"', "larger than its memory limit"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_invalid_documents_are_rejected(content, why):
    with pytest.raises(ValueError, match=why) as caught:
        bounded_json.parse(content)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 200


def test_infinity_where_it_is_expected():
    low, high, none = bounded_json.parse(b"[-Infinity, 1e400, NaN]", infinite=True)
    assert (low, high, math.isnan(none)) == (-math.inf, math.inf, True)


def test_only_json_objects_are_accepted():
    assert bounded_json.parse_object('{"a": 1}') == {"a": 1}
    with pytest.raises(ValueError, match="not a JSON object"):
        bounded_json.parse_object("[1]")
