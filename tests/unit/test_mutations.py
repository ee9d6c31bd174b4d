"""A fixed sample of what scripts/fuzz.py tries by the thousand."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from mutations.kinds import SHARES, inputs

pytestmark = pytest.mark.slow
SAMPLE = 60


@pytest.mark.parametrize("kind", SHARES)
def test_every_mutation_ends_in_a_result_or_a_named_error(kind, tmp_path):
    share = max(2, SAMPLE * SHARES[kind] // 100)
    with inputs(tmp_path) as known:
        strategy, attempt = known.of(kind)

        @settings(
            max_examples=share, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck)
        )
        @given(strategy)
        def each(item):
            attempt(item)

        each()
        assert sum(known.trial.codes.values()) >= share or kind == "record"


def test_an_unexpected_error_is_detected(tmp_path, monkeypatch):
    monkeypatch.setattr("tgi_deploy.catalog.checkpoint._sizes", lambda *_: {}["missing"])
    with inputs(tmp_path) as known, pytest.raises(AssertionError, match="KeyError"):
        known.of("kept")
