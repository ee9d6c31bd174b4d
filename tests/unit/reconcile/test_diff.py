from __future__ import annotations

from decimal import Decimal

import pytest

from tgi_deploy.reconcile.diff import diff, in_order
from tgi_deploy.values.deployment import ResourceRecord
from tgi_deploy.values.resource import TAG_SPEC, Found, Ref, Resource, digest


def resource(key, *needs, place="here", mutable=(), **properties):
    references = {f"of_{need}": Ref(key=need, attribute="id") for need in needs}
    return Resource(key=key, kind=key, place=place, properties={**properties, **references}, mutable=mutable)


def found(item, *, number=1, alive=True, spec=None, **changes):
    values = {
        "key": item.key,
        "kind": item.kind,
        "place": item.place,
        "attributes": {"id": f"{item.key}-{number}"},
        "tags": {TAG_SPEC: spec or item.spec},
        "state": "running" if alive else "ending",
        "alive": alive,
    }
    return Found(**(values | changes))


def record(item, *, number=1, state="created", spec=None):
    attributes = {} if state == "intent" else {"id": f"{item.key}-{number}"}
    return ResourceRecord(
        key=item.key,
        kind=item.kind,
        place=item.place,
        state=state,
        spec=spec or item.spec,
        request_number=1,
        attributes=attributes,
    )


GROUP = resource("group", port=8080)
MACHINE = resource("machine", "group", size="big")
WANTED = (GROUP, MACHINE)


def shape(changes):
    return [(step.action, step.attributes.get("id") or step.key) for step in changes.steps]


def test_nothing_there_is_created_in_order_of_need():
    changes = diff((MACHINE, GROUP), (), ())
    assert shape(changes) == [("create", "group"), ("create", "machine")]
    assert [step.resource for step in changes.steps] == [GROUP, MACHINE]


def test_what_is_recorded_and_there_is_kept():
    changes = diff(WANTED, [record(item) for item in WANTED], [found(item) for item in WANTED])
    assert shape(changes) == [("keep", "group-1"), ("keep", "machine-1")]
    assert changes.changes == ()


def test_what_is_there_and_not_recorded_is_adopted():
    changes = diff(WANTED, (), [found(item) for item in WANTED])
    assert [step.action for step in changes.steps] == ["adopt", "adopt"]


def test_an_intent_that_has_come_true_is_adopted():
    changes = diff(WANTED, [record(GROUP), record(MACHINE, state="intent")], [found(item) for item in WANTED])
    assert [step.action for step in changes.steps] == ["keep", "adopt"]


def test_what_was_there_and_is_gone_is_created_again():
    changes = diff(WANTED, [record(item) for item in WANTED], [found(GROUP)])
    assert shape(changes) == [("keep", "group-1"), ("create", "machine")]
    assert changes.steps[1].reason == "no longer exists"


def test_another_spec_is_a_replacement_dependents_first():
    wider = resource("group", port=9090)
    changes = diff((wider, MACHINE), [record(item) for item in WANTED], [found(item) for item in WANTED])
    assert shape(changes) == [
        ("delete", "machine-1"),
        ("delete", "group-1"),
        ("create", "group"),
        ("create", "machine"),
    ]


def test_another_place_is_a_replacement():
    there = resource("group", port=8080, place="there")
    changes = diff((there,), [record(GROUP)], [found(GROUP)])
    assert shape(changes) == [("delete", "group-1"), ("create", "group")]


def test_loose_properties_replace_nothing():
    narrow, wide = (resource("group", port=1, cidrs=cidrs, mutable=("cidrs",)) for cidrs in (["a"], ["a", "b"]))
    assert shape(diff((wide,), [record(narrow)], [found(narrow)])) == [("keep", "group-1")]


def test_what_is_not_wanted_goes_last_made_first():
    changes = diff((), [record(item) for item in WANTED], [found(item) for item in WANTED])
    assert shape(changes) == [("delete", "machine-1"), ("delete", "group-1")]


def test_nothing_wanted_works_without_a_record():
    assert shape(diff((), (), [found(GROUP), found(MACHINE)])) == [("delete", "machine-1"), ("delete", "group-1")]


def test_of_two_alike_the_recorded_one_may_stay_and_one_goes():
    changes = diff((GROUP,), [record(GROUP)], [found(GROUP), found(GROUP, number=2)])
    assert shape(changes) == [("delete", "group-2"), ("keep", "group-1")]


def test_one_on_its_way_out_is_waited_for_and_made_again():
    changes = diff((GROUP,), [record(GROUP)], [found(GROUP, alive=False)])
    assert shape(changes) == [("delete", "group-1"), ("create", "group")]
    assert changes.steps[0].reason == "is ending"


def test_attached_resources_have_no_step():
    volume = found(resource("volume"), attached=True)
    assert diff((), (), [volume]).steps == ()


def test_without_a_spec_tag_the_record_decides():
    untagged = found(GROUP, tags={})
    assert shape(diff((GROUP,), [record(GROUP)], [untagged])) == [("keep", "group-1")]
    assert [step.action for step in diff((GROUP,), (), [untagged]).steps] == ["delete", "create"]


def test_a_circle_of_needs_is_a_defect():
    with pytest.raises(ValueError, match="circular resource dependencies"):
        in_order([resource("a", "b"), resource("b", "a")])


def test_references_are_found_at_any_depth():
    deep = Resource(
        key="x",
        kind="x",
        place="",
        properties={"a": [{"b": (Ref(key="y", attribute="id"),)}, Ref(key="z", attribute="id")]},
    )
    assert deep.needs == ("y", "z")


def test_digests_do_not_depend_on_order_or_trailing_zeros():
    assert digest({"a": 1, "b": Decimal("5.0")}) == digest({"b": Decimal(5), "a": 1})
    assert digest({"a": Ref(key="x", attribute="id")}) != digest({"a": Ref(key="x", attribute="arn")})
