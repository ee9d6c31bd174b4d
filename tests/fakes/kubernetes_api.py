"""An API server in memory: the requests that the adapter makes, answered as kube-apiserver answers them.

A test sees every request before and after it is carried out, and can kill the caller there.
"""

from __future__ import annotations

import json
import re
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tgi_deploy.targets.kubernetes.transport import Answer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Object = dict[str, Any]
_GROUP = re.compile(r"/apis/[a-z.0-9]+(/v[0-9a-z]+)?")


def failure(status: int, message: str, **details: Any) -> Answer:
    body = {"kind": "Status", "status": "Failure", "message": message, "code": status, "details": details}
    return Answer(status=status, body=json.dumps(body).encode())


def node(name: str = "node-1", *, gpus: int = 1, requested: int = 0, **changes: Any) -> Object:
    """Return a node with L40S; `changes`: `labels`, `taints`, `unschedulable`, `ready`."""
    labels = {"nvidia.com/gpu.product": "NVIDIA-L40S", **changes.get("labels", {})}
    status = "True" if changes.get("ready", True) else "False"
    return {
        "metadata": {"name": name, "labels": {key: value for key, value in labels.items() if value}},
        "spec": {"taints": changes.get("taints", []), "unschedulable": changes.get("unschedulable", False)},
        "status": {
            "allocatable": {"cpu": "8", **({"nvidia.com/gpu": str(gpus)} if gpus else {})},
            "conditions": [{"type": "Ready", "status": status}],
        },
        "requested": requested,
    }


@dataclass
class FakeCluster:
    """`objects`: (plural, name) → object. `refusals`: "METHOD plural" → the answer to such requests.

    `groups`: the documents of API groups and their versions, by path.

    `denied` are the permissions that access reviews deny: "verb resource", or "verb resource/subresource". Pods of a
    Deployment run at once, unless `pod_status` is set. `log` is every pod's, `previous` that of the run before.
    `on_request` and `on_reply` get each request as "METHOD plural", before
    and after it is carried out.
    """

    objects: dict[tuple[str, str], Object] = field(default_factory=dict)
    groups: dict[str, Object] = field(default_factory=dict)
    nodes: list[Object] = field(default_factory=lambda: [node()])
    events: list[Object] = field(default_factory=list)
    refusals: dict[str, Answer] = field(default_factory=dict)
    denied: frozenset[str] = frozenset()
    pod_status: Object | None = None
    log: str = ""
    previous: str = ""
    calls: list[str] = field(default_factory=list)
    queries: list[Mapping[str, str]] = field(default_factory=list)
    after_call: Any = None
    on_request: Callable[[str], None] = lambda _request: None
    on_reply: Callable[[str], None] = lambda _request: None
    made: int = 0

    def send(
        self,
        method: str,
        path: str,
        *,
        doing: str,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
    ) -> Answer:
        assert doing
        plural, name, rest = _parts(path)
        asked = f"{method} {plural}"
        self.calls.append(asked)
        self.queries.append(dict(query or {}))
        self.on_request(asked)
        refused = self._group(path) if _GROUP.fullmatch(path) else self.refusals.get(asked)
        sent = dict(query or {}), dict(body or {}), content_type
        answer = refused or self._answer(method, (plural, name, rest), *sent)
        self.on_reply(asked)
        return answer

    def _answer(
        self, method: str, path: tuple[str, str, str], query: Mapping[str, str], body: Object, content_type: str
    ) -> Answer:
        plural, name, rest = path
        if method in {"PATCH", "POST"}:
            assert method == "POST" or query["fieldManager"] == "tgi-deploy"
            dry = "dryRun" in query
            return (
                self._post(plural, body) if method == "POST" else self._patch(plural, name, body, content_type, dry=dry)
            )
        if method == "DELETE":
            return self._delete(plural, name, body)
        if plural == "apis":
            listed = dict.fromkeys(of.split("/")[2] for of in self.groups)
            return _ok({"kind": "APIGroupList", "groups": [{"name": group} for group in listed]})
        if rest == "log":
            return Answer(status=200, body=(self.previous if "previous" in query else self.log).encode())
        if name:
            found = self._every(plural).get(name)
            return _ok(found) if found else failure(404, f'{plural} "{name}" not found')
        chosen = [item for item in self._every(plural).values() if _fits(item, query)]
        return _ok({"kind": "List", "items": chosen, "metadata": {}})

    def _group(self, path: str) -> Answer:
        found = self.groups.get(path)
        return Answer(status=404, body=b"404 page not found\n") if found is None else _ok(found)

    def _post(self, plural: str, body: Object) -> Answer:
        if plural == "selfsubjectaccessreviews":
            return self._review(body)
        name = body["metadata"]["name"]
        taken = (plural, name) in self.objects
        return (
            failure(409, f'{plural} "{name}" already exists') if taken else self._apply(plural, name, body, dry=False)
        )

    def _review(self, body: Object) -> Answer:
        asked = body["spec"]["resourceAttributes"]
        words = f"{asked['verb']} {asked['resource']}{'/' if asked['subresource'] else ''}{asked['subresource']}"
        return _ok({**body, "status": {"allowed": words not in self.denied}})

    def _every(self, plural: str) -> dict[str, Object]:
        if plural == "nodes":
            return {item["metadata"]["name"]: item for item in self.nodes}
        if plural == "events":
            return {str(number): item for number, item in enumerate(self.events)}
        found = {name: item for (kind, name), item in self.objects.items() if kind == plural}
        if plural == "pods":
            found |= {item["metadata"]["name"]: item for item in self._strangers()}
        return found

    def _strangers(self) -> list[Object]:
        """Return the pods of other applications that request GPUs."""
        limits = [(item["metadata"]["name"], str(item["requested"])) for item in self.nodes if item["requested"]]
        return [
            {
                "metadata": {"name": f"other-{name}"},
                "spec": {"nodeName": name, "containers": [{"resources": {"limits": {"nvidia.com/gpu": number}}}]},
            }
            for name, number in limits
        ]

    def _patch(self, plural: str, name: str, body: Object, content_type: str, *, dry: bool) -> Answer:
        if content_type == "application/merge-patch+json":
            return self._resize(name, body) if "spec" in body else self._annotate(plural, name, body)
        assert content_type == "application/apply-patch+yaml"
        return self._apply(plural, name, body, dry=dry)

    def _apply(self, plural: str, name: str, wanted: Object, *, dry: bool) -> Answer:
        assert wanted["metadata"]["name"] == name
        known = self.objects.get((plural, name))
        if known is not None and plural == "deployments" and known["spec"]["selector"] != wanted["spec"]["selector"]:
            return failure(
                422, f'Deployment.apps "{name}" is invalid: spec.selector: Invalid value: field is immutable'
            )
        if dry:
            return _ok(wanted)
        self.made += 1
        own = known["metadata"] if known else {}
        stamps = {"uid": f"uid-{self.made}", "creationTimestamp": "2026-01-09T00:00:00Z"}
        wanted = deepcopy(wanted)
        wanted["metadata"] |= {key: own.get(key, value) for key, value in stamps.items()}
        if plural == "services":
            wanted["spec"]["clusterIP"] = "10.96.0.7"
        self.objects[plural, name] = wanted
        if plural == "deployments":
            wanted["spec"].setdefault("replicas", known["spec"]["replicas"] if known else 1)
        if plural == "deployments" and known is None:
            self._start_pod(name, wanted)
        if self.after_call is not None:
            self.after_call(f"{'change' if known else 'create'} {plural}")
        return _ok(wanted)

    def _annotate(self, plural: str, name: str, changes: Object) -> Answer:
        found = self.objects[plural, name]
        found["metadata"].setdefault("annotations", {}).update(changes["metadata"]["annotations"])
        return _ok(found)

    def _resize(self, name: str, changes: Object) -> Answer:
        found = self.objects["deployments", name]
        found["spec"] |= changes["spec"]
        pods = [key for key, item in self.objects.items() if item.get("owner") == name]
        for key in pods[found["spec"]["replicas"] :]:
            del self.objects[key]
        for _ in range(found["spec"]["replicas"] - len(pods)):
            self.made += 1
            self._start_pod(name, found)
        if self.after_call is not None:
            self.after_call("scale deployments")
        return _ok(found)

    def _start_pod(self, name: str, deployment: Object) -> None:
        template, pod = deployment["spec"]["template"], f"{name}-5d9c-{self.made}"
        status = self.pod_status or {
            "phase": "Running",
            "conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}],
            "containerStatuses": [{"name": "engine", "restartCount": 0, "state": {"running": {}}}],
        }
        metadata = {"name": pod, "labels": template["metadata"]["labels"], "creationTimestamp": "2026-01-09T00:00:01Z"}
        spec = {**template["spec"], "nodeName": self.nodes[0]["metadata"]["name"]} if self.nodes else template["spec"]
        self.objects["pods", pod] = {"metadata": metadata, "spec": spec, "status": status, "owner": name}

    def _delete(self, plural: str, name: str, options: Object) -> Answer:
        found = self.objects.get((plural, name))
        if found is None:
            return failure(404, f'{plural} "{name}" not found')
        assert options["propagationPolicy"] == "Foreground"
        if options.get("preconditions", {}).get("uid", found["metadata"]["uid"]) != found["metadata"]["uid"]:
            return failure(409, "the UID in the precondition does not match the UID in record")
        del self.objects[plural, name]
        owned = [key for key, item in self.objects.items() if item.get("owner") == name and plural == "deployments"]
        uid = found["metadata"]["uid"]
        owners = {key: item["metadata"].get("ownerReferences", ()) for key, item in self.objects.items()}
        owned += [key for key, items in owners.items() if uid in {item["uid"] for item in items}]
        for key in owned:
            del self.objects[key]
        return _ok({"kind": "Status", "status": "Success"})


def _parts(path: str) -> tuple[str, str, str]:
    words = path.removeprefix("/apis/").removeprefix("/api/").split("/")
    after = words[words.index("namespaces") + 2 :] if "namespaces" in words else words[-1:]
    after = after or words[words.index("namespaces") :]
    plural, name, rest = (*after, "", "")[:3]
    return plural, name, rest


def _fits(item: Object, query: Mapping[str, str]) -> bool:
    labels = item["metadata"].get("labels", {}) if "metadata" in item else {}
    for term in filter(None, query.get("labelSelector", "").split(",")):
        name, equals, value = term.partition("=")
        if name not in labels or (equals and labels[name] != value):
            return False
    wanted = query.get("fieldSelector", "").partition("involvedObject.name=")[2]
    return not wanted or item["involvedObject"]["name"] == wanted


def _ok(body: Object) -> Answer:
    return Answer(status=200, body=json.dumps(body).encode())
