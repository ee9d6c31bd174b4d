"""A dry run of a change to a running deployment shows the change, and makes no call that changes anything."""

from __future__ import annotations

READ_ONLY = ("Describe", "Get", "List")
UP = ("up", "llama3-13b", "--budget", "5")
UNCHANGED, KEPT = "dry run: nothing was changed", "dry run: nothing was removed"
SHOWN = {
    (*UP, "--num-shard", "2"): ("update    revision 1 -> 2: side by side", "shards    1 -> 2", UNCHANGED),
    (*UP, "--num-shard", "2", "--strategy", "recreate"): ("removed before the new one starts", "downtime", UNCHANGED),
    (*UP, "--ttl", "2h"): ("its machine stays", "--ttl would be applied to the running machine"),
    (*UP, "--allow-cidr", "10.0.0.0/8"): ("+ network 10.0.0.0/8", "- network 127.0.0.1/32", UNCHANGED),
    ("down", "llama3-13b"): ("(will be deleted)", KEPT),
    ("down", "--all"): ("(will be deleted)", KEPT),
}


def state(program):
    """Return the calls so far that change something, and the record. EC2's own dry runs change nothing."""
    calls = program.all_calls()
    changing = [call for call in calls if not call["action"].startswith(READ_ONLY)]
    (found,) = program.here("status", "llama3-13b").json["data"]["deployments"]
    return [call["action"] for call in changing if call["params"].get("DryRun") != "true"], found["recorded"]


def test_a_dry_run_of_a_change_shows_it_and_changes_nothing(program):
    assert program.here(*UP, "--yes", "--ready", "fast").code == 0
    before = state(program)
    assert "RunInstances" in before[0]
    for words, texts in SHOWN.items():
        ran = program.run(*words, "--dry-run", "--sandbox")
        assert ran.code == 0, ran.err
        assert all(text in ran.out + ran.err for text in texts), (words, ran.out + ran.err)
    assert state(program) == before
