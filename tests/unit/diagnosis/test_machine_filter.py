from __future__ import annotations

import copy

import pytest
from builders.logs import DATA

from tgi_deploy.diagnosis.grammar import grammar_from
from tgi_deploy.diagnosis.machine_filter import extended
from tgi_deploy.errors import InputError


def with_final(pattern):
    """Return the table with one more final text."""
    data = copy.deepcopy(dict(DATA))
    data["codes"][0]["signatures"].append({"match": [pattern], "source": "x", "final": True})
    return data


@pytest.mark.parametrize(
    ("pattern", "posix"),
    [
        ("Each process is one gpu", "Each process is one gpu"),
        (r"No \.?bin weights", r"No \.?bin weights"),
        (r"(?:GPU|card)s? (?P<count>\d+)", "(GPU|card)s? ([0-9]+)"),
        (r"\bArgumentValidation\(", r"\bArgumentValidation\("),
        ("[^'`]{0,80}x", "[^'`]{0,80}x"),
        (r"it's \"y\" \$1", 'it\'s "y" \\$1'),
        (r"(?:^|: )Connected$", '((^|")|: )Connected("|$)'),
        ("[]x-z]+", "[]x-z]+"),
    ],
)
def test_a_pattern_matches_the_same_in_bash(pattern, posix):
    assert extended(pattern) == posix


@pytest.mark.parametrize(
    "pattern", ["a(?!b)", "(?<=x)y", r"\D+", r"[\w]", "x*?", "x+?", "x{1,2}?", "x++", r"\x41", r"\Z"]
)
def test_a_pattern_that_bash_cannot_read_is_rejected(pattern):
    with pytest.raises(InputError, match="is final, but bash") as caught:
        grammar_from(with_final(pattern))
    assert caught.value.code == "bad_profile"


def test_a_pattern_that_is_not_final_stays_with_the_reader():
    assert "posix_fallocate" not in grammar_from(DATA).log_filter.refused


def test_a_changed_table_changes_the_filter():
    before, after = grammar_from(DATA).log_filter, grammar_from(with_final("the moon is full")).log_filter
    assert "the moon is full" not in before.refused
    assert set(after.refused.split("|")) - set(before.refused.split("|")) == {"the moon is full"}
