"""A hub that lies, never ends or redirects: a named error, in time, and nothing written elsewhere."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace

import pytest
from fakes.hostile_hub import INFO, Reply, running_hostile_hub
from mutations import models

from tgi_deploy.catalog.kept_models import CachedModels
from tgi_deploy.errors import InputError
from tgi_deploy.hub.client import HuggingFaceHub
from tgi_deploy.hub.models import HubModels

DRIPPING_S = 0.25
BASE = models.MODELS["Qwen/Qwen2.5-0.5B-Instruct", None]
FILES = BASE.files()
ANSWER = models.hub_info(FILES, dict(zip(models.SHARDS, BASE.sizes, strict=True)))
OTHER = "f" * 40


@pytest.fixture
def place(tmp_path):
    """A hub that answers correctly for acme/model, unless `replies` are changed."""
    with running_hostile_hub() as hub:
        hub.replies = {name: Reply(body=content) for name, content in FILES.items()}
        place = SimpleNamespace(
            hub=hub, home=tmp_path / "a" / "b" / "c" / "cache", top=tmp_path, now_s=0.0, limit_s=30.0
        )
        place.home.mkdir(parents=True)
        yield place


def answer(**changes):
    return Reply(body=json.dumps(ANSWER | changes).encode())


def resolve(place, model="acme/model", info=None):
    place.hub.replies[INFO] = info or answer()
    kept = CachedModels(place.home, now=lambda: time.time() + place.now_s)
    hub = HubModels(kept, lambda: HuggingFaceHub(place.hub.endpoint, limit_s=place.limit_s))
    return hub.resolve(*model.split("@"))


def refusal(place, *args, **kwargs):
    began = time.monotonic()
    with pytest.raises(InputError) as caught:
        resolve(place, *args, **kwargs)
    assert time.monotonic() - began < 10 + place.limit_s
    assert caught.value.hint
    assert caught.value.message.isprintable()
    assert [path.name for path in place.top.rglob("*") if path.is_file()] == []
    return caught.value


def test_the_baseline_answer_is_valid(place):
    model = resolve(place).model
    assert (model.revision, model.license, model.layers) == (models.COMMIT, "mit", 2)


@pytest.mark.parametrize(
    "sha",
    [
        "../../../../X", "..", "", "main", models.COMMIT[1:], models.COMMIT.upper(), models.COMMIT + "\n",
        5, ["x"], None, "a\0b", "--trust-remote-code", "0" * 41, {},
    ],
)  # fmt: skip
def test_a_commit_is_forty_hexadecimal_digits(sha, place):
    found = refusal(place, info=answer(sha=sha))
    assert found.code == "bad_hub_answer"
    assert "not 40 hexadecimal digits" in found.message


def test_a_different_commit_than_requested_is_rejected(place):
    found = refusal(place, f"acme/model@{OTHER}")
    assert found.code == "bad_hub_answer"
    assert OTHER in found.message


@pytest.mark.parametrize(
    "changes",
    [
        {"siblings": "config.json"},
        {"siblings": [5]},
        {"siblings": [{"rfilename": 5, "size": 1}]},
        {"siblings": [{"rfilename": None}]},
        *(
            {"siblings": [{"rfilename": name}]}
            for name in ("/etc/passwd", "../x", "a/../../x", "a//b", ".", "", "a\0b")
        ),
        *({"siblings": [{"rfilename": "config.json", "size": size}]} for size in ("9", -1, 1.5, 10**40, True, [])),
        {"tags": [5]},
        {"tags": "mit"},
        {"gated": {"a": 1}},
        {"private": 1},
    ],
    ids=str,
)
def test_invalid_contents_are_rejected(changes, place):
    assert refusal(place, info=answer(**changes)).code == "bad_hub_answer"


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"null", b"<html>", b'{"sha": "\\ud800"}', b'{"sha": 1e400}',
        b'{"siblings": [{"size": 1e400}]}', b"[" * 100_000, b"9" * 5000, b" " * (33 * 2**20), b"\xff",
    ],
    ids=lambda body: ascii(body[:20]),
)  # fmt: skip
def test_invalid_answers_are_rejected(body, place):
    assert refusal(place, info=Reply(body=body)).code == "bad_hub_answer"


@pytest.mark.parametrize("name", [INFO, "config.json", models.SHARDS[0]])
@pytest.mark.parametrize(
    ("reply", "codes"),
    [
        (Reply(drips=True), {"hub_unreachable"}),
        (Reply(drips_headers=True), {"hub_unreachable"}),
        (Reply(status=404, drips=True), {"hub_unreachable"}),
        (Reply(status=500, endless=True), {"hub_unreachable"}),
        (Reply(body=b"{}", headers={"Content-Encoding": "gzip"}), {"bad_hub_answer"}),
        (Reply(body=b"{}", promised=10**12), {"hub_unreachable"}),
        (Reply(status=302, headers={"Location": "?again"}, body=b"x"), {"bad_hub_answer"}),
        (Reply(status=302, headers={"Location": "?again"}, endless=True), {"bad_hub_answer"}),
        (Reply(status=302, headers={"Location": "file:///etc/passwd"}), {"bad_hub_answer"}),
        (Reply(status=302, headers={"Location": "http://["}), {"bad_hub_answer"}),
        (Reply(status=302, headers={"Location": "http://127.0.0.1:99999/"}), {"bad_hub_answer"}),
        (Reply(status=302, headers={"Location": f"http://{'a' * 70}/"}), {"hub_unreachable"}),
        (Reply(status=204), {"bad_hub_answer", "bad_model_config", "bad_checkpoint"}),
        (Reply(status=500), {"hub_unreachable"}),
    ],
)
def test_invalid_transfers_are_rejected(name, reply, codes, place):
    if reply.drips or reply.drips_headers:
        place.limit_s = DRIPPING_S
    place.hub.replies[name] = reply
    assert refusal(place, info=reply if name == INFO else None).code in codes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "code"),
    [(INFO, "bad_hub_answer"), ("config.json", "bad_checkpoint"), (models.SHARDS[0], "bad_checkpoint")],
)
def test_an_endless_answer_is_read_up_to_the_limit(name, code, place):
    place.hub.replies[name] = Reply(endless=True)
    assert refusal(place, info=Reply(endless=True) if name == INFO else None).code == code


def test_an_endless_mirror_without_ranges_is_read_as_far_as_needed(place):
    for shard in models.SHARDS:
        place.hub.replies[shard] = Reply(body=FILES[shard], knows_ranges=False, endless=True)
    assert resolve(place).model.layers == 2


def test_a_redirect_is_followed_and_the_token_stays_with_the_hub(place, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_made_up_for_tests")
    with running_hostile_hub() as store:
        store.replies = {"config.json": Reply(body=FILES["config.json"])}
        elsewhere = f"{store.endpoint}/acme/model/resolve/{models.COMMIT}/config.json"
        place.hub.replies["config.json"] = Reply(status=302, headers={"Location": elsewhere})
        assert resolve(place).model.layers == 2
        assert [token for _, token in store.requests] == [None]
    assert {token for _, token in place.hub.requests} == {"Bearer hf_made_up_for_tests"}


def test_a_redirect_within_the_hub_keeps_the_token(place, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_made_up_for_tests")
    place.hub.replies["config.json"] = Reply(status=307, headers={"Location": "other.json"})
    place.hub.replies["other.json"] = Reply(body=FILES["config.json"])
    assert resolve(place).model.layers == 2
    assert {token for _, token in place.hub.requests} == {"Bearer hf_made_up_for_tests"}


def test_the_cache_is_used_if_the_answer_is_invalid(place):
    good = resolve(place)
    place.now_s = 2 * 24 * 3600
    kept = resolve(place, info=Reply(body=b"<html>please log in</html>"))
    assert kept.model == good.model
    assert "answer can't be used" in kept.notice


def test_the_largest_header_is_read_in_ranges(place):
    table = json.loads(FILES[models.SHARDS[0]][8:])
    long = models.head({**table, "__metadata__": {"note": "x" * 300_000}})
    place.hub.replies[models.SHARDS[0]] = Reply(body=long)
    sizes = dict(zip(models.SHARDS, (BASE.sizes[0] + 300_100, BASE.sizes[1]), strict=True))
    assert resolve(place, info=Reply(body=json.dumps(models.hub_info(FILES, sizes)).encode())).model.layers == 2
