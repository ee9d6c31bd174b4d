from __future__ import annotations

import math
from functools import partial

import pytest

from tgi_deploy.sandbox.addresses import AddressPool, can_bind
from tgi_deploy.sandbox.guest.docker import DockerUsageError, parse_run
from tgi_deploy.sandbox.guest.init import BadUnitError, parse_command, parse_span, parse_unit
from tgi_deploy.sandbox.guest.layout import FastClock, Layout, map_paths


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5", 5), ("90s", 90), ("5min 20s", 320), ("2h", 7200), ("1.5 min", 90), ("infinity", math.inf), ("500ms", 0.5)],
)
def test_time_spans(text, seconds):
    assert parse_span(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "5 parsecs", "1h x"])
def test_invalid_time_spans(text):
    with pytest.raises(BadUnitError):
        parse_span(text)


def test_a_unit_file():
    text = "# c\n[Service]\nExecStart=/bin/a b=c\nRestart=no\nRestart=always\n[Install]\nWantedBy=a.target\n"
    unit = parse_unit("a.service", text)
    assert dict(unit["Service"]) == {"ExecStart": "/bin/a b=c", "Restart": "always"}
    assert dict(unit["Timer"]) == {}


@pytest.mark.parametrize("text", ["[Service]\nnonsense\n", "A=1\n"])
def test_a_bad_unit_file(text):
    with pytest.raises(BadUnitError):
        parse_unit("a.service", text)


def test_exec_lines():
    argv = parse_command("-/bin/a 'two words' $A x${B}y $$C z$D", {"A": "1", "B": "2"})
    assert argv == ("/bin/a", "two words", "1", "x2y", "$C", "z")


@pytest.mark.parametrize("text", ["", "-", "/bin/a 'open"])
def test_bad_exec_lines(text):
    with pytest.raises(BadUnitError):
        parse_command(text, {})


def test_docker_run_options(tmp_path):
    env_file = tmp_path / "env"
    env_file.write_text("# comment\nA='as it is'\nPASSED\nABSENT\n")
    words = ["--rm", "--name=tgi", "-p8080:80", "-p", "127.0.0.1:9:90", "-e", "B=2", "--env-file", str(env_file)]
    options = parse_run([*words, "--gpus", '"device=0,1"', "image:1", "--rm", "x"])
    assert options.image == "image:1"
    assert options.arguments == ("--rm", "x")
    assert "--rm" in options.values
    assert options.one("--name") == "tgi"
    assert options.ports == ((8080, 80), (9, 90))
    assert options.environment({"PASSED": "p"}) == {"A": "'as it is'", "PASSED": "p", "B": "2"}
    assert options.gpus(4) == 2


def test_clustered_switches():
    assert set(parse_run(["-dit", "image"]).values) == {"--detach", "--interactive", "--tty"}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--gpuss", "all", "image"], "unknown flag: --gpuss"),
        (["-x", "image"], "unknown shorthand flag: -x"),
        (["--name"], "flag needs an argument: --name"),
        ([], "requires at least 1 argument"),
        (["--rm"], "requires at least 1 argument"),
    ],
)
def test_docker_usage_errors(words, expected):
    with pytest.raises(DockerUsageError) as error:
        parse_run(words)
    assert expected in str(error.value)


@pytest.mark.parametrize(
    ("wanted", "available", "count"), [("all", 4, 4), ("2", 4, 2), ("device=3", 4, 1), ("", 4, 0), ("", 0, 0)]
)
def test_gpus_of_a_container(wanted, available, count):
    assert parse_run(["--gpus", wanted, "i"]).gpus(available) == count


@pytest.mark.parametrize(
    ("wanted", "available", "expected"),
    [
        ("all", 0, "could not select device driver"),
        ("device=4", 4, "4: unknown device"),
        ("5", 4, "unknown device"),
        ("many", 4, "must be an integer"),
    ],
)
def test_missing_gpus_are_an_error(wanted, available, expected):
    with pytest.raises(DockerUsageError) as error:
        parse_run(["--gpus", wanted, "i"]).gpus(available)
    assert expected in str(error.value)


@pytest.mark.parametrize("text", ["80", "a:b", "1:2:3:4"])
def test_bad_published_ports(text):
    with pytest.raises(DockerUsageError):
        _ = parse_run(["-p", text, "i"]).ports


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("cat /opt/tgi-deploy/x", "cat /R/opt/tgi-deploy/x"),
        ("-v /opt/dlami/nvme/tgi:/data", "-v /R/opt/dlami/nvme/tgi:/data"),
        ('DIR="/var/lib/tgi-deploy"', 'DIR="/R/var/lib/tgi-deploy"'),
        ("/usr/bin/docker stop tgi", "/B/docker stop tgi"),
        ("/sbin/shutdown -h now", "/B/shutdown -h now"),
        ("/opt/tgi-deployment/x", "/opt/tgi-deployment/x"),
        ("x/opt/tgi-deploy", "x/opt/tgi-deploy"),
        ("/bin/bash -c /usr/bin/env", "/bin/bash -c /usr/bin/env"),
        ("/made/up/file", "/R/made/up/file"),
    ],
)
def test_guest_paths_are_mapped(before, after):
    assert map_paths(before, root="/R", bin_folder="/B", extra=("/made/up/file",)) == after


def test_guest_paths_stay_below_their_root(tmp_path):
    layout = Layout(folder=tmp_path)
    layout.make()
    assert layout.at("/opt/x") == layout.root.resolve() / "opt/x"
    with pytest.raises(ValueError, match="leaves"):
        layout.at("/../../x")


def test_addresses_are_loopback_and_differ_between_sandboxes():
    first, second = AddressPool(40000), AddressPool(40001)
    addresses = [first.take() for _ in range(200)] + [second.take() for _ in range(200)]
    assert all(one.startswith("127.") and can_bind(one) for one in addresses[:3])
    if can_bind("127.77.1.1"):
        assert len(set(addresses)) == 400


def test_systemd_command_prefixes_are_handled():
    mapper = partial(map_paths, root="/m/tree", bin_folder="/m/bin")
    assert mapper("ExecStop=-/usr/bin/docker stop tgi") == "ExecStop=-/m/bin/docker stop tgi"
    assert mapper("ExecStart=-/opt/tgi-deploy/x") == "ExecStart=-/m/tree/opt/tgi-deploy/x"
    assert mapper("a-/usr/bin/docker") == "a-/usr/bin/docker"


def test_a_fast_clock_starts_at_the_real_time():
    clock = FastClock(epoch=1000.0, speed=60.0)
    assert clock.at(1000.0) == 1000.0
    assert clock.at(1010.0) == 1600.0
