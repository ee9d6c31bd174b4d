from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import pytest
from fakes.computer import FakeComputer, request

from tgi_deploy.errors import InputError
from tgi_deploy.operations.deploying.up import up
from tgi_deploy.operations.watching.logs import follow, logs
from tgi_deploy.values.resource import MachineState

BOOT = "[    1.5] run-engine[812]: \x1b[2m[tgi-deploy] phase=booting\x1b[0m\n"
JSON = '{"timestamp":"2026-01-09T10:00:00Z","level":"INFO","fields":{"message":"Starting shard"},"target":"t"}\n'


@dataclass
class Talking:
    """A cloud whose machine logs a little more at every poll, and terminates after the last."""

    inner: Any
    texts: list[str]
    looks: int = field(default=0)

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def console(self, _instance_id):
        return self.texts[min(self.looks, len(self.texts)) - 1]

    def machine(self, _instance_id):
        self.looks += 1
        return MachineState(state="running" if self.looks < len(self.texts) else "terminated")


@pytest.fixture
def around(tmp_path):
    made = FakeComputer(home=tmp_path)
    up(made.context(), request())
    return made


def following(around, texts, **settings):
    cloud = Talking(around.world.cloud("us-east-1"), texts)
    return follow(around.context(cloud=lambda _region: cloud), "demo", **settings)


class TalkingReplicas(Talking):
    """A machine of two replicas, of which the second starts later."""

    def consoles(self, instance_id):
        text = self.console(instance_id)
        return {"a": text} | ({"b": BOOT} if self.looks > 1 else {})


def test_each_line_of_several_replicas_has_the_replicas_name(around):
    cloud = TalkingReplicas(around.world.cloud("us-east-1"), [BOOT, BOOT + JSON, BOOT + JSON])
    lines = list(follow(around.context(cloud=lambda _region: cloud), "demo"))
    assert lines == ["[tgi-deploy] phase=booting", "[a] Starting shard", "[b] [tgi-deploy] phase=booting"]


def test_the_tail_of_several_replicas_counts_for_each(around):
    cloud = TalkingReplicas(around.world.cloud("us-east-1"), [BOOT + JSON], looks=2)
    text = logs(around.context(cloud=lambda _region: cloud), "demo", tail=1)
    assert text.splitlines() == ["[a] Starting shard", "[b] [tgi-deploy] phase=booting"]


def test_each_line_is_printed_once_until_the_machine_terminates(around):
    lines = list(following(around, [BOOT, BOOT + JSON, BOOT + JSON + "the last words"]))
    assert lines == ["[tgi-deploy] phase=booting", "Starting shard", "the last words"]


def test_raw_lines_are_unchanged_except_secrets(around):
    lines = list(following(around, [BOOT + JSON + "API_KEY=planted\n"], raw=True))
    assert lines == [BOOT.rstrip("\n"), JSON.rstrip("\n"), "API_KEY=***"]


@pytest.mark.parametrize("raw", [True, False])
def test_a_key_on_a_line_of_its_own_is_hidden(around, raw):
    """As the launcher writes its arguments."""
    written = 'Args {\n    api_key: Some(\n        "sk-planted",\n    ),\n}\n'
    assert "planted" not in "".join(following(around, [written], raw=raw))
    cloud = Talking(around.world.cloud("us-east-1"), [written])
    shown = logs(around.context(cloud=lambda _region: cloud), "demo", raw=raw)
    assert "planted" not in shown
    assert "***" in shown


def test_tail_limits_existing_lines_only(around):
    old = "".join(f"old {number}\n" for number in range(5))
    assert list(following(around, [old, old + "new 1\nnew 2\nnew 3\n"], tail=1)) == ["old 4", "new 1", "new 2", "new 3"]


def test_following_polls_with_a_pause(around):
    started = around.clock.seconds
    assert len(list(islice(following(around, [BOOT, BOOT, BOOT + JSON]), 2))) == 2
    assert around.clock.seconds - started == 10


def test_raw_logs(around):
    cloud = Talking(around.world.cloud("us-east-1"), [BOOT])
    assert logs(around.context(cloud=lambda _region: cloud), "demo", raw=True) == BOOT.rstrip("\n")


def test_an_unknown_name(around):
    with pytest.raises(InputError, match="no deployment 'other'"):
        next(follow(around.context(), "other"))
