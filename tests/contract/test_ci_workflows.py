"""The workflows of docs/ci: what a dead runner leaves is collected by a job that does not run on it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

FOLDER = Path(__file__).parents[2] / "docs" / "ci"


def commands(job):
    """Return the shell lines of a job, of GitHub or GitLab."""
    return [*(step.get("run", "") for step in job.get("steps", ())), *job.get("script", ())]


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.yml")), ids=lambda file: file.stem)
def test_the_last_cleanup_is_a_job_of_its_own(file):
    jobs = yaml.safe_load(file.read_text(encoding="utf-8"))
    jobs = jobs.get("jobs", jobs)
    runs = {
        word: [
            name for name, job in jobs.items() if any(line.startswith(f"tgi-deploy {word}") for line in commands(job))
        ]
        for word in ("smoke", "gc")
    }
    assert runs == {"smoke": ["smoke"], "gc": ["collect"]}


def test_it_runs_after_a_smoke_job_that_failed():
    collect = yaml.safe_load((FOLDER / "github-actions.yml").read_text(encoding="utf-8"))["jobs"]["collect"]
    assert (collect["needs"], collect["if"]) == ("smoke", "always()")
    collect = yaml.safe_load((FOLDER / "gitlab-ci.yml").read_text(encoding="utf-8"))["collect"]
    assert collect["stage"] == ".post"
    assert {"if": "$CI_COMMIT_TAG", "when": "always"} in collect["rules"]
