"""`ask`: the answer to a prompt streams, its speed is measured, and failures are explained."""

from __future__ import annotations

import io
import json

import pytest
from fakes.computer import FakeComputer, request

from tgi_deploy.cli import frame
from tgi_deploy.cli.main import ROOT
from tgi_deploy.errors import DeployError, InputError, NotHealthyError
from tgi_deploy.operations.deploying.up import up
from tgi_deploy.operations.watching.asking import Prompt, ask
from tgi_deploy.values.base import replaced
from tgi_deploy.values.probing import HttpReply

TEMPLATE = {"error": "Template error: template not found", "error_type": "template_error"}


def token(text, whole=None, *, special=False):
    return json.dumps({"token": {"text": text, "special": special}, "generated_text": whole})


def delta(text, end=None):
    return json.dumps({"choices": [{"delta": {"content": text}, "finish_reason": end}]})


CHAT = (delta(""), delta("It "), delta("is"), delta(" so."), delta("", end="stop"))
PLAIN = (token("It "), token("is"), token(" so."), token("</s>", whole="It is so.", special=True))


class Engine:
    """Answers by path: events of a stream, or a status with a body. An event that is an exception is raised."""

    def __init__(self, **by_kind):
        self.by_kind = {"chat": CHAT, "plain": PLAIN, **by_kind}
        self.asked = []

    def ask(self, probe, on_event=lambda _event: None):
        self.asked.append(probe)
        answer = self.by_kind["chat" if probe.step == "chat" else "plain"]
        if isinstance(answer, HttpReply):
            return answer
        reported = []
        for event in answer:
            if isinstance(event, BaseException):
                raise event
            reported.append(event)
            on_event(event)
        arrivals = tuple(100.0 + 50.0 * place for place in range(len(reported)))
        return HttpReply(status=200, events=tuple(reported), arrivals_ms=arrivals)


def refused(status, **body):
    return HttpReply(status=status, body=body, text=json.dumps(body))


@pytest.fixture
def around(tmp_path):
    made = FakeComputer(home=tmp_path)
    up(made.context(), request())
    made.engine = Engine()
    return made


def pieces_of(around, **prompt):
    pieces = []
    answer = ask(around.context(), "demo", Prompt(text="Why?", **prompt), pieces.append)
    return answer, pieces


def test_the_answer_streams_piece_by_piece_and_is_measured(around):
    answer, pieces = pieces_of(around)
    assert [piece for piece in pieces if piece] == ["It ", "is", " so."]
    assert (answer.text, answer.chat, answer.tokens) == ("It is so.", True, 3)
    assert answer.first_token_ms == 150.0
    assert answer.tokens_per_s == 20.0


def test_the_default_answer_limit_is_the_promised_length(around):
    pieces_of(around)
    pieces_of(around, max_tokens=7)
    assert [asked.body["max_tokens"] for asked in around.engine.asked] == [256, 7]


def test_a_model_without_a_template_gets_the_bare_prompt(around):
    around.engine = Engine(chat=refused(422, **TEMPLATE))
    answer, _ = pieces_of(around)
    assert (answer.text, answer.chat, answer.tokens) == ("It is so.", False, 4)


def test_a_chat_without_a_template_is_an_error(around):
    around.engine = Engine(chat=refused(422, **TEMPLATE))
    with pytest.raises(InputError) as caught:
        pieces_of(around, chat=True)
    assert caught.value.code == "no_chat_template"
    assert len(around.engine.asked) == 1


def test_the_bare_prompt_is_one_request(around):
    answer, _ = pieces_of(around, chat=False)
    assert not answer.chat
    assert [asked.step for asked in around.engine.asked] == ["stream"]


@pytest.mark.parametrize(
    ("answer", "code", "exit_code"),
    [
        (refused(401, error="Unauthorized"), "unauthorized", 5),
        (refused(429, error="Model is overloaded", error_type="overloaded"), "overloaded", 1),
        (refused(422, error="Input validation error: too long", error_type="validation"), "prompt_rejected", 2),
        (refused(500, error="Request failed during generation"), "ask_failed", 5),
        ((delta("It "), '{"error":"Request failed during generation"}'), "ask_failed", 5),
        ((delta("It "),), "ask_failed", 5),
        ((delta("It "), NotHealthyError("engine_unreachable", "reset")), "engine_unreachable", 5),
    ],
)
def test_every_failure_has_a_code_and_a_hint(around, answer, code, exit_code):
    around.engine = Engine(chat=answer)
    with pytest.raises(DeployError) as caught:
        pieces_of(around)
    assert (caught.value.code, caught.value.exit_code) == (code, exit_code)


def test_the_key_comes_from_the_variable_of_up_or_a_named_one(around):
    (machine,) = around.world.running()
    record = around.store.load("demo")
    machines = [replaced(item, notes={"api_key_variable": "KEY"}) for item in record.machines]
    others = [item for item in record.resources if not item.is_machine]
    around.store.save(replaced(record, resources=(*others, *machines)), expected_serial=record.serial)
    named = []

    def client(_url, variable):
        named.append(variable)
        return around.engine

    context = around.context(keyed_engine_client=client)
    for variable in (None, "MINE"):
        ask(context, "demo", Prompt(text="Why?", key_variable=variable), lambda _piece: None)
    assert named == ["KEY", "MINE"]
    assert machine.id


def test_ask_needs_no_record(around, tmp_path):
    second = FakeComputer(home=tmp_path / "second", world=around.world, clock=around.clock, engine=Engine())
    assert pieces_of(second)[0].text == "It is so."


@pytest.fixture
def program(around, monkeypatch, capsys):
    """Run the command line in this context; return exit code, stdout and stderr."""
    monkeypatch.setattr("tgi_deploy.wiring.context", lambda _setup: around.context())

    def call(*words, stdin=""):
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        code = frame.run(ROOT, ["ask", "demo", *words])
        return code, *capsys.readouterr()

    return call


def test_the_answer_goes_to_stdout_and_its_speed_to_stderr(program):
    code, out, err = program("Why?")
    assert (code, out) == (0, "It is so.\n")
    assert err == "TTFT 150 ms, 3 tokens, 20.0 tokens/s\n"


def test_json_is_one_object_at_the_end(program):
    code, out, _ = program("Why?", "--json")
    assert code == 0
    assert json.loads(out)["data"] == {
        "name": "demo", "answer": "It is so.", "chat": True, "tokens": 3, "first_token_ms": 150.0, "tokens_per_s": 20.0,
    }  # fmt: skip


def test_a_dash_reads_the_prompt_from_standard_input(program, around):
    assert program("-", stdin="Why\nso?\n")[0] == 0
    assert around.engine.asked[0].body["messages"][0]["content"] == "Why\nso?\n"
    code, _, err = program("-", stdin=" \n")
    assert code == 2
    assert "error[no_input]" in err


def test_an_interrupted_answer_keeps_what_was_received(program, around):
    around.engine = Engine(chat=(delta("It "), delta("is"), KeyboardInterrupt()))
    code, out, err = program("Why?")
    assert (code, out) == (130, "It is\n")
    assert "error[interrupted]" in err
    code, out, _ = program("Why?", "--json")
    assert (code, json.loads(out)["data"]["answer"]) == (130, "It is")


def test_a_cut_answer_keeps_what_was_received(program, around):
    """The commands of the hint have the deployment's name, so that they can be pasted."""
    hint = "'tgi-deploy status NAME' shows whether it still runs, 'tgi-deploy logs NAME' its log"
    around.engine = Engine(chat=(delta("It "), NotHealthyError("engine_unreachable", "reset", hint=hint)))
    code, out, err = program("Why?")
    assert (code, out) == (5, "It \n")
    assert "error[engine_unreachable]" in err
    assert "'tgi-deploy status demo' shows whether it still runs, 'tgi-deploy logs demo' its log" in err


def test_an_answer_cannot_control_the_terminal(program, around):
    around.engine = Engine(chat=(delta("a\x1b[2Jb\x07\r\n\tc\u202ed\u200dé"), delta("", end="stop")))
    assert program("Why?")[1] == "a[2Jb\n\tcd\u200dé\n"
