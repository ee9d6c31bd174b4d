"""Traffic files: public formats unchanged, the resulting load, and invalid files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tgi_deploy.errors import InputError
from tgi_deploy.operations.planning.option_texts import OptionTexts, resolve
from tgi_deploy.operations.planning.traffic import read_traffic
from tgi_deploy.wiring import open_catalog

if TYPE_CHECKING:
    from pathlib import Path

OWN = "second,input_tokens,output_tokens\n0,100,10\n30,300,30\n60,200,20\n"
AZURE_2023 = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,100,10\n"
    "2023-11-16 18:17:33.9799600,300,30\n2023-11-16 18:18:03.9799600,200,20\n"
)
AZURE_2024 = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,100,10\n"
    "2024-05-10 00:00:30.009930+00:00,300,30\n2024-05-10 00:01:00.009930+00:00,200,20\n"
)
BURSTGPT = (
    "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,100,10,110,Conversation log\n"
    "35,GPT-4,300,30,330,API log\n65,ChatGPT,200,20,220,API log\n"
)
BURSTGPT_3 = (
    "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5.0,1,2.5,ChatGPT,100,10,110,API log\n35.0,1,2.5,GPT-4,300,30,330,API log\n65.0,2,1,ChatGPT,200,20,220,API log\n"
)


def written(folder: Path, text: str) -> Path:
    path = folder / "load.csv"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("text", [OWN, AZURE_2023, AZURE_2024, BURSTGPT, BURSTGPT_3, "\ufeff" + OWN])
def test_public_traces_load_unchanged(tmp_path: Path, text: str) -> None:
    found = read_traffic(written(tmp_path, text))
    assert (found.requests, found.skipped, found.seconds) == (3, 0, pytest.approx(60))
    assert (found.input_tokens.mean, found.input_tokens.p95, found.input_tokens.most) == (200, 300, 300)
    assert (found.output_tokens.mean, found.output_tokens.most) == (20, 30)
    assert found.arrivals_per_s == pytest.approx(3 / 60)


def test_the_rate_is_that_of_a_busy_minute(tmp_path: Path) -> None:
    rows = [f"{minute * 60},100,10\n" for minute in range(100)]
    rows += [f"{minute * 60 + second},100,10\n" for minute in range(10, 20) for second in range(1, 31)]
    found = read_traffic(written(tmp_path, "second,input_tokens,output_tokens\n" + "".join(rows)))
    assert found.arrivals_per_s == pytest.approx(31 / 60)


def test_failed_requests_are_skipped_and_counted(tmp_path: Path) -> None:
    found = read_traffic(written(tmp_path, OWN + "61,500,0\n"))
    assert (found.requests, found.skipped, found.input_tokens.most) == (3, 1, 300)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no column second"),
        ("second,input_tokens\n1,2\n", "no column output_tokens"),
        ("second,input_tokens,output_tokens\n", "no request"),
        (OWN + "nan,1,1\n", "line 5"),
        (OWN + "1,-1,1\n", "line 5"),
        (OWN + "1,1e400,1\n", "line 5"),
        (OWN + "1\n", "line 5"),
        (OWN + "yesterday,1,1\n", "line 5"),
        (OWN + "9" * 20_000 + "\n", "line 5"),
    ],
)
def test_an_invalid_line_is_named_by_number(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(InputError) as error:
        read_traffic(written(tmp_path, text))
    assert error.value.code == "bad_traffic"
    assert says in error.value.message


def test_a_folder_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        read_traffic(tmp_path)
    assert error.value.code == "bad_traffic"


def test_a_request_takes_lengths_and_arrivals_from_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, OWN)
    request = resolve(OptionTexts(model="llama3.1-8b", traffic=str(path)), {}, open_catalog())
    assert (request.input_tokens, request.input_p95, request.output_tokens) == (200, 300, 20)
    assert request.arrivals_per_s == pytest.approx(0.05)


def test_options_override_the_traffic_file(tmp_path: Path) -> None:
    path = written(tmp_path, OWN)
    request = resolve(
        OptionTexts(model="llama3.1-8b", traffic=str(path), rps="9", input_tokens="64"), {}, open_catalog()
    )
    assert (request.arrivals_per_s, request.input_tokens, request.output_tokens) == (9.0, 64, 20)


def test_arrivals_and_requests_in_flight_exclude_each_other() -> None:
    with pytest.raises(InputError) as error:
        resolve(OptionTexts(model="llama3.1-8b", rps="9", concurrency="4"), {}, open_catalog())
    assert error.value.code == "conflicting_options"
