"""Public addresses use TLS; otherwise unencrypted traffic is reported, and an API key needs consent."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders.certificates import issued
from fakes.cloud import KINDS, FakeWorld
from fakes.computer import FakeComputer, request

from tgi_deploy.catalog.alerts import read_alerts
from tgi_deploy.cli.views.status import access_text, status_text
from tgi_deploy.engines.tgi import Tgi
from tgi_deploy.errors import InputError, NotHealthyError
from tgi_deploy.operations.deploying.service import prove_known
from tgi_deploy.operations.deploying.up import up
from tgi_deploy.operations.launching.traffic import is_encrypted, unencrypted
from tgi_deploy.operations.removing.down import down
from tgi_deploy.operations.results.watching import status_data
from tgi_deploy.operations.watching.access import access, reached
from tgi_deploy.operations.watching.runbook import known_subject, runbook
from tgi_deploy.operations.watching.status import status
from tgi_deploy.reconcile.tagged import notes_of
from tgi_deploy.targets.certificate import read_certificate
from tgi_deploy.values.base import replaced
from tgi_deploy.values.resource import MachineState
from tgi_deploy.values.serving import UNREAD, Address, Traffic, reach_of

PUBLIC = "8.8.4.4"
SIDE = ("parameter", "role", "instance-profile", "schedule")
KEYED = {"api_key_from_env": "KEY"}
SHA256, PUBLIC_KEY = "5a" * 32, "A" * 43 + "="
REPORTED = f"[tgi-deploy] certificate sha256={SHA256} public-key={PUBLIC_KEY}\n"
STORED = {"api_key_parameter": "/tgi-deploy/team/key", "instance_profile": "reader"}


@pytest.mark.parametrize(
    ("host", "reach"),
    [
        ("127.0.0.1", "loopback"),
        ("127.77.218.170", "loopback"),
        ("::1", "loopback"),
        ("::ffff:127.0.0.1", "loopback"),
        ("localhost", "loopback"),
        ("10.1.2.3", "private"),
        ("172.16.0.9", "private"),
        ("192.168.1.7", "private"),
        ("100.100.1.1", "private"),
        ("169.254.1.1", "private"),
        ("fd00::1", "private"),
        ("fe80::1", "private"),
        (PUBLIC, "public"),
        ("54.200.1.2", "public"),
        ("2600:1f18::1", "public"),
        ("::ffff:8.8.4.4", "public"),
        ("0.0.0.0", "public"),  # noqa: S104 -- every interface: the public ones among them
        ("::", "public"),
        ("gpu-box.example.com", "public"),
        ("", "public"),
    ],
)
def test_traffic_is_classified_by_destination(host, reach):
    assert reach_of(host) == reach


@pytest.mark.parametrize(
    ("reach", "api_key", "words"),
    [
        ("public", True, "the API key, prompts and answers travel unencrypted to a public address"),
        ("public", False, "prompts and answers travel unencrypted to a public address"),
        ("private", True, "the API key, prompts and answers travel unencrypted inside the private network"),
    ],
)
def test_unencrypted_traffic_is_described(reach, api_key, words):
    assert Traffic(reach=reach, api_key=api_key).unencrypted.startswith(words)


def test_loopback_traffic_is_not_reported():
    assert Traffic(reach="loopback", api_key=True).unencrypted is None


def test_a_key_may_be_sent_within_a_private_network():
    Traffic(reach="private", api_key=True).check(plaintext=False)
    with pytest.raises(InputError, match="public address"):
        Traffic(reach="public", api_key=True).check(plaintext=False)


@pytest.fixture
def around(tmp_path):
    return FakeComputer(home=tmp_path / "state", world=FakeWorld(kinds=(*SIDE, *KINDS)))


class Cloud:
    """A region whose machines have a public address."""

    def __init__(self, cloud):
        self.cloud = cloud

    def __getattr__(self, name):
        return getattr(self.cloud, name)

    def machine(self, machine_id):
        state = self.cloud.machine(machine_id)
        return replaced(state, address=PUBLIC) if isinstance(state, MachineState) and state.address else state


def public(around, **changes):
    def cloud(place):
        return Cloud(around.world.cloud(place))

    return around.context(loopback=False, cloud=cloud, targets=around.targets(region=cloud), **changes)


def bring_up(around, secrets=None, *, plaintext=False, **changes):
    settings = {**(secrets or {}), "plaintext": plaintext}
    return up(public(around), request(settings=settings, environ={"KEY": "sekret-key-1"}, **changes))


@pytest.mark.parametrize("secrets", [KEYED, {}])
def test_a_public_address_is_reached_over_tls_with_the_certificate_that_the_console_reports(around, secrets):
    around.world.reported = REPORTED
    asked = []
    client = lambda address, *_name: asked.append(address) or around.engine  # noqa: E731 -- one line of a fake
    context = public(around, engine_client=client, keyed_engine_client=client)
    outcome = up(context, request(settings=secrets, environ={"KEY": "sekret-key-1"}, wait=True))
    recorded = around.store.load("demo")
    assert (recorded.endpoint, unencrypted(recorded), outcome.proposal.findings) == (f"https://{PUBLIC}:8080", None, ())
    assert asked == [Address(url=recorded.endpoint, certificate=SHA256)]
    assert (recorded.machine.notes["certificate"], recorded.machine.notes["public_key"]) == (SHA256, PUBLIC_KEY)
    (machine,) = around.world.running()
    assert notes_of(machine.tags).items() >= {"certificate": SHA256, "public_key": PUBLIC_KEY}.items()
    found = access(context, "demo")
    assert f"--pinnedpubkey sha256//{PUBLIC_KEY} https://" in found.curl
    assert SHA256 in found.python
    assert not bring_up(around, secrets).changed


@pytest.mark.parametrize("option", ["tls", "tunnel"])
def test_a_running_machine_is_replaced_by_one_with_the_requested_protection(around, option):
    """A machine keeps the protocol that it was created with."""
    around.world.reported = REPORTED
    bring_up(around, plaintext=True, wait=True)
    (plain,) = around.world.running()
    assert not is_encrypted(around.store.load("demo").machine)
    assert bring_up(around, {option: True}, wait=True).changed
    (machine,) = around.world.running()
    assert machine.id != plain.id
    assert notes_of(machine.tags).get("certificate" if option == "tls" else "tunnel")
    assert any(f"has different settings: {option} is on now" in line.lower() for line in around.recorder.lines)
    assert not bring_up(around, {option: True}, wait=True).changed


def test_a_machine_with_tls_is_kept_when_tls_is_requested_by_name(around):
    around.world.reported = REPORTED
    bring_up(around, wait=True)
    assert not bring_up(around, {"tls": True}, wait=True).changed


def own_certificate(tmp_path):
    """The options of a new certificate, always in the same file."""
    path = tmp_path / "fullchain.pem"
    path.write_text(issued().chain)
    return {"certificate": str(path), "certificate_key_parameter": "/tgi-deploy/key", "instance_profile": "reader"}


def test_the_users_certificate_is_pinned_from_the_start_and_a_renewed_one_is_an_update(around, tmp_path):
    options = own_certificate(tmp_path)
    bring_up(around, options, wait=True)
    notes = around.store.load("demo").machine.notes
    shown = read_certificate(Path(options["certificate"]), around.clock.now(), key_option="").shown
    assert notes.items() >= shown.notes.items()
    (machine,) = around.world.running()
    assert notes_of(machine.tags).items() >= shown.notes.items()
    assert not bring_up(around, options, wait=True).changed
    own_certificate(tmp_path)
    assert bring_up(around, options, wait=True).changed
    (other,) = around.world.running()
    assert other.id != machine.id
    assert around.store.load("demo").machine.notes["certificate"] != shown.sha256


def test_status_explains_that_the_url_of_a_tunnel_needs_one(around):
    bring_up(around, {"tunnel": True}, wait=True)
    text = status_text(status(public(around), "demo"))
    assert "the URL needs one: 'tgi-deploy open demo' prints how to connect" in text


def test_nothing_is_sent_before_the_certificate_is_known(around):
    context = public(around, probe=lambda address: pytest.fail(f"asked {address}"))
    with pytest.raises(NotHealthyError, match="not ready"):
        up(context, request(wait=True, on_failure=lambda _error: "keep"))
    machine = around.store.load("demo").machine
    assert machine.notes["certificate"] == UNREAD
    assert context.with_certificate(machine) == machine
    around.world.reported = REPORTED
    address, _machine = reached(context, around.store.load("demo"))
    assert address.certificate == SHA256


def test_consent_is_recorded_and_shown_before_the_question(around):
    recorder = []

    def confirm(proposal):
        recorder.extend(around.recorder.lines)
        assert [item.code for item in proposal.findings] == ["unencrypted"]
        return True

    assert bring_up(around, KEYED, plaintext=True, confirm=confirm).changed
    assert any(line.startswith("unencrypted the API key, prompts and answers travel") for line in recorder)
    assert around.store.load("demo").plaintext


def test_consent_is_not_needed_again_for_the_same_up(around):
    bring_up(around, KEYED, plaintext=True)
    outcome = bring_up(around, KEYED)
    assert (outcome.changed, outcome.deployment.plaintext) == (False, True)
    assert unencrypted(outcome.deployment).startswith("the API key, prompts and answers")


def test_consent_is_not_needed_again_for_a_new_machine(around):
    bring_up(around, KEYED, plaintext=True)
    (machine,) = around.world.running()
    around.world.things[machine.id] = replaced(machine, state="terminated", alive=False)
    assert bring_up(around, KEYED).changed


def test_consent_ends_when_the_deployment_is_removed(around):
    bring_up(around, KEYED, plaintext=True)
    down(public(around), ["demo"], lambda _removals: True)
    around.world.reported = REPORTED
    bring_up(around, KEYED)
    recorded = around.store.load("demo")
    assert (recorded.plaintext, recorded.endpoint) == (False, f"https://{PUBLIC}:8080")


def without_agreement(around):
    """Return the record as an earlier release wrote it."""
    bring_up(around, KEYED, plaintext=True)
    record = around.store.load("demo")
    around.store.save(replaced(record, plaintext=False), expected_serial=record.serial)


def test_up_with_plaintext_adds_consent_to_an_old_record(around):
    without_agreement(around)
    assert not bring_up(around, KEYED).changed
    assert not around.store.load("demo").plaintext
    assert not bring_up(around, KEYED, plaintext=True, dry_run=True).changed
    assert not around.store.load("demo").plaintext
    assert not bring_up(around, KEYED, plaintext=True).changed
    assert around.store.load("demo").plaintext


def test_smoke_sends_no_key_without_consent(around):
    without_agreement(around)
    sent = []
    keyed = public(around, keyed_engine_client=lambda url, _name: sent.append(url) or around.engine)
    with pytest.raises(InputError) as caught:
        prove_known(keyed, around.store.load("demo"), "fast")
    assert (caught.value.code, sent) == ("plaintext_key", [])


def test_without_a_key_unencrypted_prompts_are_only_a_warning(around):
    outcome = bring_up(around, plaintext=True)
    assert outcome.changed
    assert [item.code for item in outcome.proposal.findings] == ["unencrypted"]
    assert any(line.startswith("unencrypted prompts and answers travel") for line in around.recorder.lines)


def test_local_traffic_needs_no_consent(around):
    outcome = up(around.context(), request(settings=KEYED, environ={"KEY": "sekret-key-1"}))
    assert (outcome.changed, outcome.proposal.findings) == (True, ())
    assert unencrypted(outcome.deployment) is None


def test_open_and_runbook_report_unencrypted_traffic(around):
    bring_up(around, KEYED, plaintext=True)
    found = access(public(around), "demo")
    assert found.unencrypted.startswith("the API key, prompts and answers travel unencrypted")
    assert found.tunnel == ""
    page = runbook(known_subject(public(around), around.store.load("demo")), read_alerts("tgi"), Tgi())
    assert found.unencrypted in page
    assert "--api-key-from-env KEY --plaintext" in page
    assert "start-session" not in page


@pytest.mark.parametrize(
    ("endpoint", "notes", "expected"),
    [
        ("http://10.0.0.5:8080", {}, "inside the private network"),
        ("http://[2600:1f18::1]:8080", {}, "to a public address"),
        ("http://[::1", {}, "to a public address"),
        ("http://127.0.0.1:8080", {"bind": "0.0.0.0"}, "to a public address"),  # noqa: S104 -- every interface
        ("http://127.0.0.1:8080", {"bind": "127.0.0.1"}, None),
        (None, {}, None),
    ],
)
def test_unencrypted_traffic_is_derived_from_endpoint_or_address(around, endpoint, notes, expected):
    bring_up(around, plaintext=True)
    recorded = around.store.load("demo")
    machine = replaced(recorded.machine, notes=notes)
    found = unencrypted(replaced(recorded.with_record(machine), endpoint=endpoint))
    assert (found is None) if expected is None else (expected in found)


def test_status_and_open_wrap_the_traffic_warning(around):
    bring_up(around, KEYED, plaintext=True)
    found = status(public(around), "demo")
    assert status_data(found).unencrypted == unencrypted(found.recorded)
    lines = status_text(found).splitlines()
    assert any(line.startswith("  traffic   the API key, prompts and answers") for line in lines)
    shown = [line for line in access_text(access(public(around), "demo")).splitlines() if "unencrypted" in line]
    assert len(shown) == 1
    assert max(map(len, (*lines, *shown))) <= 100


def test_the_runbook_repeats_the_options_of_a_stored_key(around):
    bring_up(around, STORED, plaintext=True)
    page = runbook(known_subject(public(around), around.store.load("demo")), read_alerts("tgi"), Tgi())
    assert "--api-key-parameter /tgi-deploy/team/key --plaintext" in page
