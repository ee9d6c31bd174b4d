"""Engine-specific words stay in `engines/` and `sandbox/`: name, flags, variables, routes, metrics, log texts. They are
collected from the releases' data and the engines' answers, so a new release or engine adds its own.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import click
import pytest
from builders import engines

import tgi_deploy
from tgi_deploy.cli.main import ROOT

PACKAGE = Path(tgi_deploy.__file__).parent
REPOSITORY = PACKAGE.parent
SHARED = [REPOSITORY / f"profiles/diagnosis/{name}.json" for name in ("engine", "hub", "gpu", "docker", "host", "ec2")]
OURS = re.compile(r"(?i)tgi[-_]deploy")
# Variables of the hub are not an engine's: every client of the hub reads them.
OF_THE_HUB = ("HF_", "HUGGING")
# Starting with a capital, and more than one word: shorter texts are not engine-specific.
TELLING = re.compile(r"[A-Z].* .*")

# Words allowed elsewhere for a reason: file → the words, and why.
ALLOWED = {
    "tgi_deploy/wiring.py": ({"Tgi", "tgi"}, "names the engines, for all others"),
    "tgi_deploy/cli/plan.py": ({"max-batch-prefill-tokens"}, "a user pins a flag of the engine: help shows one"),
    "tgi_deploy/cli/predict.py": ({"tgi", "vllm"}, "a user chooses whose speed is predicted"),
    "tgi_deploy/targets/sagemaker/endpoints.py": ({"/invocations"}, "the path of SageMaker's own InvokeEndpoint"),
}


def options_of(command):
    """Return every option of the program: an engine may have one of the same name."""
    for param in command.params:
        yield from (*param.opts, *param.secondary_opts)
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            yield from options_of(command.get_command(click.Context(command), name))


def names():
    for engine in engines.EVERY:
        yield from (engine.name, engine.title)
        yield engines.releases(engine)[-1].image.partition(":")[0].rpartition("/")[2]


def flags():
    theirs = {flag for _, release in engines.every_release() for flag in release.flags}
    for flag in theirs - set(options_of(ROOT)):
        yield flag
        if flag.count("-") > 3:  # as `--set` takes it
            yield flag.removeprefix("--")


def variables():
    for engine, release in engines.every_release():
        found = {flag.env for flag in release.flags.values()} | {engine.access(release).key_variable}
        names = filter(None, found | release.reserved_env)
        yield from (name for name in names if "_" in name and not name.startswith(OF_THE_HUB))


def routes():
    for engine, release in engines.every_release():
        yield from (probe.path for probe in engine.probes(engines.PROMISE))
        yield from (path for path, _ in engine.pages)
        access = engine.access(release)
        yield from (*access.guarded_routes, *access.open_inference_routes)


def metrics():
    for engine, release in engines.every_release():
        found = engine.metrics(release)
        yield from filter(None, (found.path, found.queued, found.running, found.kv_used, *found.request_counters))


def literals(pattern):
    """Every run of literal characters in a regular expression."""
    run = ""
    for kind, value in pattern:
        if str(kind) == "LITERAL":
            run += chr(value)
            continue
        yield run
        run = ""
        parts = value if isinstance(value, tuple | list) else ()
        for part in parts:
            for below in part if isinstance(part, list) else [part]:
                if type(below).__name__ == "SubPattern":
                    yield from literals(below)
    yield run


def log_texts():
    for engine in engines.EVERY:
        table = engines.documents(engine)["phases.json"]
        found = [*table["failures"], *table["consequences"], *table["stops"]]
        for item in [*table["phases"], *table["progress"], *table["redactions"], *table["error_lines"]]:
            found += [*item.get("begins", ()), *item.get("restarts", ()), *filter(None, [item.get("match")])]
        for pattern in found:
            texts = (text.strip() for text in literals(re._parser.parse(pattern)))
            yield from filter(TELLING.fullmatch, texts)


@cache
def words():
    return {
        kind: frozenset(found())
        for kind, found in {
            "name": names, "flag": flags, "variable": variables, "route": routes, "metric": metrics, "log": log_texts
        }.items()
    }  # fmt: skip


@cache
def patterns():
    """The names as one pattern, then each of the other words with its own: few texts have any."""
    names = "|".join(re.escape(word) for word in sorted(words()["name"], key=len, reverse=True))
    others = {word for kind, found in words().items() if kind != "name" for word in found}
    name = re.compile(rf"(?i)(?<![A-Za-z0-9])(?:{names})(?-i:(?![a-z0-9]))")
    return name, {word: re.compile(rf"(?<![\w-]){re.escape(word)}(?![\w-])") for word in others}


def found_in(text: str) -> set[str]:
    name, others = patterns()
    text = OURS.sub("", text)
    whole = {word for word, alone in others.items() if word in text and alone.search(text)}
    return whole | {match[0] for match in name.finditer(text)}


def places():
    code = (path for path in PACKAGE.rglob("*.py") if path.relative_to(PACKAGE).parts[0] not in ("engines", "sandbox"))
    templates = (path for path in (REPOSITORY / "templates").rglob("*") if path.is_file())
    return sorted((*code, *templates))


def test_engine_words_appear_only_in_engine_code():
    found = {path.relative_to(REPOSITORY).as_posix(): found_in(path.read_text(encoding="utf-8")) for path in places()}
    assert {where: words for where, words in found.items() if words} == {
        where: words for where, (words, _why) in ALLOWED.items()
    }


def texts_in(page):
    """Return the texts of a page of the shared tables; its checks name the container that they inspect."""
    return [page["title"], page["cause"], page["remedy"], page["prevent"], *page["commands"]]


def test_shared_pages_name_no_engine():
    pages = [page for path in SHARED for page in json.loads(path.read_text(encoding="utf-8"))["codes"]]
    words = {word for page in pages for text in texts_in(page) for word in found_in(text)}
    assert words == {"trust-remote-code"}  # every engine has it


@pytest.mark.parametrize("kind", ["name", "flag", "variable", "route", "metric", "log"])
def test_each_kind_of_word_is_collected(kind):
    assert len(words()[kind]) > 5


@pytest.mark.parametrize(
    "line",
    [
        'client.post("/generate", {})',
        'f"{url}/v1/models"',
        '{"model": "tgi"}',
        "# vLLM does this otherwise",
        '"--max-batch-prefill-tokens"',
        "tgi-deploy plan x --set max-num-batched-tokens=512",
        "case $line in *'Args {'*) ;; esac",
        'env["VLLM_API_KEY"]',
        "tgi_queue_size > 3",
        "docker run --name tgi",
        "def is_tgi(engine):",
    ],
)
def test_an_engine_word_is_detected(line):
    assert found_in(line)


@pytest.mark.parametrize(
    "line",
    ["tgi-deploy up x --quantize awq", "TGI_DEPLOY_HOME", "from tgi_deploy import x", "--context 8k", "HF_TOKEN"],
)
def test_words_of_the_program_are_not_engine_words(line):
    assert not found_in(line)
