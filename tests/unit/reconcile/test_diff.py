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


def test_missing_resources_are_created_in_dependency_order():
    changes = diff((MACHINE, GROUP), (), ())
    assert shape(changes) == [("create", "group"), ("create", "machine")]
    assert [step.resource for step in changes.steps] == [GROUP, MACHINE]


def test_recorded_existing_resources_are_kept():
    changes = diff(WANTED, [record(item) for item in WANTED], [found(item) for item in WANTED])
    assert shape(changes) == [("keep", "group-1"), ("keep", "machine-1")]
    assert changes.changes == ()


def test_unrecorded_existing_resources_are_adopted():
    changes = diff(WANTED, (), [found(item) for item in WANTED])
    assert [step.action for step in changes.steps] == ["adopt", "adopt"]


def test_a_completed_intent_is_adopted():
    changes = diff(WANTED, [record(GROUP), record(MACHINE, state="intent")], [found(item) for item in WANTED])
    assert [step.action for step in changes.steps] == ["keep", "adopt"]


def test_a_missing_recorded_resource_is_recreated():
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


def test_mutable_properties_do_not_cause_a_replacement():
    narrow, wide = (resource("group", port=1, cidrs=cidrs, mutable=("cidrs",)) for cidrs in (["a"], ["a", "b"]))
    assert shape(diff((wide,), [record(narrow)], [found(narrow)])) == [("keep", "group-1")]


def test_unwanted_resources_are_deleted_newest_first():
    changes = diff((), [record(item) for item in WANTED], [found(item) for item in WANTED])
    assert shape(changes) == [("delete", "machine-1"), ("delete", "group-1")]


def test_an_empty_desired_state_works_without_a_record():
    assert shape(diff((), (), [found(GROUP), found(MACHINE)])) == [("delete", "machine-1"), ("delete", "group-1")]


def test_of_two_equal_resources_the_recorded_one_stays():
    changes = diff((GROUP,), [record(GROUP)], [found(GROUP), found(GROUP, number=2)])
    assert shape(changes) == [("delete", "group-2"), ("keep", "group-1")]


def test_a_resource_being_deleted_is_awaited_and_recreated():
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


def test_circular_references_are_a_defect():
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
