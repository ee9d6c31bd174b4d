"""A deployment on a Docker host that answers over TLS: the proxy's certificate, and what is pinned."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders.certificates import issued
from fakes.cloud import KilledError
from fakes.proxied_host import Host

from tgi_deploy.errors import InputError
from tgi_deploy.operations.removing.down import down
from tgi_deploy.operations.watching.access import access
from tgi_deploy.targets.certificate import check_key, new_pair, read_certificate
from tgi_deploy.targets.docker.options import DockerOptions
from tgi_deploy.values.serving import reported_certificate

BIND = {"bind": "192.0.2.7"}
VARIABLE = "TLS_KEY"


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path / "state")


@pytest.fixture
def own(tmp_path):
    """Return the options and variables of a certificate, in a file that each call overwrites."""

    def renewed():
        made, path = issued(), tmp_path / "fullchain.pem"
        path.write_text(made.chain)
        return {"certificate": str(path), "certificate_key_from_env": VARIABLE}, {VARIABLE: made.key}

    return renewed


def test_a_new_certificate_is_created_in_the_proxy_and_pinned(host):
    outcome = host.up(front=None, options={"tls": True, **BIND})
    shown = reported_certificate(host.file("front.certificate"))
    assert outcome.deployment.endpoint == "https://192.0.2.7:8080"
    assert outcome.deployment.machine.notes.items() >= shown.notes.items()
    assert host.certificates == {shown.sha256}
    assert "BEGIN PRIVATE KEY" in host.file("front.pem.key")
    proxy = host.container("tgi-deploy-demo")["request"]
    assert proxy["environment"] == {"ENGINE_PORT": "80", "FRONT_TLS": "yes"}
    assert f"sha256//{shown.public_key}" in access(host.context(), "demo").curl


def test_a_key_may_travel_to_a_public_address_over_tls(host):
    host.environ["LLM_KEY"] = "k-1"
    options = {"tls": True, "bind": "8.8.8.8", "api_key_from_env": "LLM_KEY"}
    assert host.up(front=None, options=options, environ={"LLM_KEY": "k-1"}, wait=False).changed


def test_an_update_keeps_the_certificate(host):
    before = host.up(front=None, options={"tls": True, **BIND}).deployment.machine.notes["certificate"]
    after = host.up("awq", front=None, options={"tls": True, **BIND})
    assert after.deployment.machine.notes["certificate"] == before
    assert host.asked[-1].update.strategy == "rolling"
    assert not host.up("awq", front=None, options={"tls": True, **BIND}).changed


@pytest.mark.parametrize(("before", "after"), [({}, {"tls": True}), ({"tls": True}, {})])
def test_tls_is_added_and_removed_by_an_update(host, before, after):
    host.up(options={**before, **BIND})
    outcome = host.up(options={**after, **BIND})
    assert outcome.deployment.endpoint.startswith("https" if after else "http:")
    assert (host.asked[-1].update.strategy, len(host.names)) == ("recreate", 2)


def test_the_users_certificate_is_pinned_and_a_renewed_one_is_an_update(host, own):
    options, variables = own()
    host.environ.update(variables)
    notes = host.up(front=None, options={**options, **BIND}, environ=variables).deployment.machine.notes
    shown = read_certificate(Path(options["certificate"]), host.around.clock.now(), key_option="").shown
    assert notes.items() >= shown.notes.items()
    assert (host.file("front.pem"), host.file("front.pem.key")) == (
        Path(options["certificate"]).read_text(),
        variables[VARIABLE],
    )
    assert not host.up(front=None, options={**options, **BIND}, environ=variables).changed
    options, variables = own()
    host.environ.update(variables)
    other = host.up(front=None, options={**options, **BIND}, environ=variables)
    assert (other.changed, other.deployment.machine.notes["certificate"] != shown.sha256) == (True, True)


def test_the_private_key_is_in_no_record_label_or_variable(host, own):
    options, variables = own()
    host.environ.update(variables)
    host.up(front=None, options=options, environ=variables)
    line = variables[VARIABLE].splitlines()[1]
    written = [path.read_text() for path in host.around.home.rglob("*") if path.is_file()]
    assert written
    assert not any(line in text for text in (*written, str(host.docker.containers_by_id)))


def test_another_computer_reads_the_certificate_from_the_proxy(host):
    host.up(front=None, options={"tls": True, **BIND})
    machine = host.container("tgi-deploy-demo.1")["Id"]
    host.docker.log = (
        b"2026-01-09T00:00:01.000000000Z [tgi-deploy] certificate sha256=" + b"5a" * 32 + b" public-key=x\n"
    )
    console = host.context().cloud("docker").console(machine)
    assert reported_certificate(console) == reported_certificate(host.file("front.certificate"))


@pytest.mark.parametrize("call", ["create_container", "put_archive", "start"])
def test_after_a_kill_up_serves_with_one_certificate_and_down_leaves_nothing(host, call):
    def die(name):
        if name == call:
            host.docker.after_call = None
            raise KilledError

    host.docker.after_call = die
    with pytest.raises(KilledError):
        host.up(front=None, options={"tls": True, **BIND})
    outcome = host.up(front=None, options={"tls": True, **BIND})
    shown = reported_certificate(host.file("front.certificate"))
    assert outcome.deployment.machine.notes["certificate"] == shown.sha256
    assert host.names == ["tgi-deploy-demo", "tgi-deploy-demo.1"]
    down(host.context(), ("demo",), lambda _removals: True)
    assert (host.names, host.docker.networks_by_id) == ([], {})


OPTIONS = {
    "no key": ({"certificate": "a.pem"}, "missing_argument"),
    "no certificate": ({"certificate_key_from_env": VARIABLE}, "missing_argument"),
    "plain text": ({"tls": True, "plaintext": True}, "conflicting_options"),
}


@pytest.mark.parametrize(("options", "code"), OPTIONS.values(), ids=OPTIONS)
def test_incomplete_options_are_refused(options, code):
    with pytest.raises(InputError) as raised:
        DockerOptions(**options)
    assert raised.value.code == code


KEYS = {
    "of another certificate": lambda: issued().key,
    "with a passphrase": lambda: issued(passphrase=b"x").key,
    "empty": lambda: "",
    "a certificate": lambda: issued().chain,
}


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_an_unusable_key_is_refused_before_anything_is_created(host, own, key):
    options, _variables = own()
    with pytest.raises(InputError) as raised:
        host.up(front=None, options=options, environ={VARIABLE: key()})
    assert raised.value.code == "bad_certificate"
    assert (VARIABLE in str(raised.value), host.names) == (True, [])


def test_a_new_pair_belongs_together(host):
    made = new_pair("demo", host.around.clock.now())
    check_key(made.certificate, made.key, VARIABLE)
