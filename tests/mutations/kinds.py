"""The kinds of hostile input: how to generate one, and the command that reads it."""

from __future__ import annotations

import json
from contextlib import contextmanager, suppress
from functools import partial

from fakes.hostile_hub import INFO, Reply, running_hostile_hub
from mutations import models, texts
from mutations.trial import trials

from tgi_deploy.errors import DeployError, InputError
from tgi_deploy.operations.planning.lock import open_lock
from tgi_deploy.operations.planning.locked import plan_to_deploy
from tgi_deploy.state.local import LocalStore
from tgi_deploy.wiring import open_catalog

FOLDERS = ("config", "header", "index", "tokenizer", "special")
# How many of a hundred are of each kind.
SHARES = {
    "config": 24, "header": 20, "index": 10, "tokenizer": 4, "special": 3, "hub": 23, "kept": 3, "lock": 4, "diff": 2,
    "profile": 3, "record": 3, "log": 1,
}  # fmt: skip
HUB_ID = "acme/model"


class Inputs:
    """Every kind by its name: a strategy, and what tries one of its inputs."""

    def __init__(self, trial, hub):
        self.trial, self._hub = trial, hub
        self._plan_file = trial.home / "file.json"

    def of(self, kind):
        if kind in FOLDERS:
            return models.changed_folder(what=kind), self._try_folder
        strategy, attempt = {
            "hub": (models.changed_hub, self._try_hub),
            "kept": (partial(texts.changed_json, self._kept_document()), self._try_kept),
            "lock": (partial(texts.changed_json, self._lock_document()), self._try_lock),
            "diff": (partial(texts.changed_json, self._lock_document()), self._try_diff),
            "profile": (texts.changed_profile, self._try_profile),
            "record": (texts.changed_record, self._try_record),
            "log": (texts.changed_log, self._try_log),
        }[kind]
        return strategy(), attempt

    def _try_folder(self, files):
        self.trial.forget()
        self._run("plan", str(self.trial.folder(files)), "--hardware", "1xL4")

    def _try_hub(self, replies):
        self.trial.forget()
        self._hub.replies = replies
        self._run("plan", HUB_ID)

    def _try_kept(self, content):
        self._kept_file().write_bytes(content)
        self._run("plan", HUB_ID, "--offline")

    def _try_lock(self, content):
        self._plan_file.write_bytes(content)
        self._run("plan", "--locked", str(self._plan_file))
        with suppress(DeployError):
            plan_to_deploy(open_lock(self._plan_file), open_catalog(), force=True)

    def _try_diff(self, content):
        self._plan_file.write_bytes(content)
        self._run("diff", str(self._plan_file), str(self._plan_file))

    def _try_profile(self, content):
        path = self.trial.home / "file.toml"
        path.write_bytes(content)
        self._run("profile", "validate", str(path))

    def _try_record(self, content):
        folder = self.trial.home / "state" / "deployments" / "demo"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "deployment.json").write_bytes(content)
        (folder / "events.jsonl").write_bytes(content)
        store = LocalStore(self.trial.home / "state")
        store.events("demo")
        with suppress(InputError):
            store.save(loaded := store.load("demo"), expected_serial=loaded.serial)

    def _try_log(self, content):
        path = self.trial.home / "file.log"
        path.write_bytes(content)
        self._run("diagnose", str(path))

    def _run(self, *argv):
        self.trial.run(*argv)
        assert not self.trial.strangers()

    def _lock_document(self):
        words = ("plan", "llama3-8b", "--instance", "g6.xlarge", "--lock", str(self._plan_file))
        assert self.trial.run(*words) == (0, "ok")
        return json.loads(self._plan_file.read_bytes())

    def _kept_file(self):
        return self.trial.home / "state" / "cache" / "models" / HUB_ID.replace("/", "--") / f"{models.COMMIT}.json"

    def _kept_document(self):
        """What is kept of a model that was read without a fault."""
        base = models.MODELS["Qwen/Qwen2.5-0.5B-Instruct", None]
        files, sizes = base.files(), dict(zip(models.SHARDS, base.sizes, strict=True))
        files[INFO] = models.dump(models.hub_info(files, sizes))
        self._hub.replies = {name: Reply(body=content) for name, content in files.items()}
        self.trial.forget()
        assert self.trial.run("plan", HUB_ID)[1] == "ok"
        return json.loads(self._kept_file().read_bytes())


@contextmanager
def inputs(home):
    with running_hostile_hub() as hub, trials(home, HF_ENDPOINT=hub.endpoint) as trial:
        yield Inputs(trial, hub)
