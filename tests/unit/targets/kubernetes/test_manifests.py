"""What a pod is asked for, and that YAML and Kubernetes change no value on the way to the engine."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from builders import plans
from builders.hostile import HOSTILE

from tgi_deploy.data_files import profiles_dir
from tgi_deploy.errors import InputError
from tgi_deploy.targets.kubernetes.artifacts import render_artifact
from tgi_deploy.targets.kubernetes.manifests import manifests, workload
from tgi_deploy.targets.kubernetes.node_labels import NodeLabels
from tgi_deploy.values.base import replaced
from tgi_deploy.wiring import open_catalog

if TYPE_CHECKING:
    from tgi_deploy.targets.protocol import Deployable

NODES = NodeLabels.packaged().selector("L40S")


def with_engine(*, replicas: int = 1, **changes: Any) -> Deployable:
    candidate = plans.candidate(engine=plans.engine(**changes))
    return plans.deployable(candidate=replaced(candidate, replicas=replicas), ready_deadline_s=3601)


def documents(deployable: Deployable) -> dict[str, Any]:
    found = yaml.safe_load_all(render_artifact("kubernetes", deployable).text)
    return {item["kind"]: item for item in found}


def pod(deployable: Deployable) -> dict[str, Any]:
    spec: dict[str, Any] = documents(deployable)["Deployment"]["spec"]["template"]["spec"]
    return spec


def container(deployable: Deployable) -> dict[str, Any]:
    (found,) = pod(deployable)["containers"]
    return dict(found)


def expanded(text: str) -> str:
    """What Kubernetes makes of a value: `$$` is a dollar sign, and a lone one could be a variable."""
    assert not re.search(r"(?<!\$)(?:\$\$)*\$(?!\$)", text), text
    return text.replace("$$", "$")


def test_hostile_values_survive():
    env = {f"V{number}": value for number, value in enumerate(HOSTILE)}
    found = container(with_engine(args=HOSTILE, env=env))
    assert tuple(map(expanded, found["args"][-len(HOSTILE) :])) == HOSTILE
    given = {item["name"]: expanded(item["value"]) for item in found["env"]}
    assert {name: given[name] for name in env} == env


@pytest.mark.parametrize("value", ["yes", "NO", "1e3", "0o17", "0x1F", "012", "1_000", ".5", "~", "=", "2026-01-09"])
def test_a_text_that_yaml_could_read_as_another_type_is_quoted(value: str):
    """Go's parsers follow YAML 1.2 where PyYAML follows 1.1: `1e3` is a number for them alone."""
    text = render_artifact("kubernetes", with_engine(env={"V": value})).text
    assert f'value: "{value}"\n' in text


def test_a_pod_gets_as_many_gpus_as_the_plan_has_shards():
    found = container(with_engine(num_shard=2, shm_bytes=2**30))
    assert found["resources"]["limits"] == {"nvidia.com/gpu": "2"}
    assert found["resources"]["requests"]["nvidia.com/gpu"] == "2"
    assert {"name": "shm", "mountPath": "/dev/shm"} in found["volumeMounts"]  # noqa: S108 -- the container's


def test_shared_memory_has_the_size_that_the_engine_asks_for():
    (volume,) = (item for item in pod(with_engine(num_shard=2, shm_bytes=2**30))["volumes"] if item["name"] == "shm")
    assert volume["emptyDir"] == {"medium": "Memory", "sizeLimit": str(2**30)}
    assert "shm" not in {item["name"] for item in pod(with_engine())["volumes"]}


def test_it_lands_only_on_nodes_of_its_gpu():
    found = pod(with_engine())
    assert found["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-L40S"}
    assert found["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]


def test_startup_may_take_as_long_as_the_plan_allows_and_a_drain_as_long_as_the_engine_needs():
    found = container(with_engine(stop_timeout_s=120))
    startup = found["startupProbe"]
    assert startup["httpGet"] == {"path": "/health", "port": "http"}
    assert startup["periodSeconds"] * startup["failureThreshold"] == 3610
    assert (found["livenessProbe"]["periodSeconds"], found["livenessProbe"]["failureThreshold"]) == (20, 5)
    assert found["lifecycle"]["preStop"]["exec"]["command"] == ["sleep", "10"]
    assert pod(with_engine(stop_timeout_s=120))["terminationGracePeriodSeconds"] == 145


def test_open_requests_may_take_as_long_as_the_longest_answer_is_predicted_to_take():
    made = with_engine(drain_variable="DRAIN_S")
    longest_s = 263  # 120 ms, and 8,192 tokens of 32 ms
    assert {"name": "DRAIN_S", "value": str(longest_s)} in container(made)["env"]
    assert pod(made)["terminationGracePeriodSeconds"] == 10 + longest_s + 15
    slow = replaced(made.candidate.performance, tpot_ms=500.0)
    made = replaced(made, candidate=replaced(made.candidate, performance=slow))
    assert pod(made)["terminationGracePeriodSeconds"] == 10 + 600 + 15


@pytest.mark.parametrize(("drain_s", "grace_s"), [(30, 145), (900, 925)])
def test_open_requests_may_take_as_long_as_the_user_has_set(drain_s: int, grace_s: int):
    assert pod(with_engine(drain_s=drain_s))["terminationGracePeriodSeconds"] == grace_s


def test_evictions_take_one_pod_at_a_time_and_zones_and_nodes_are_spread_over_if_possible():
    several = documents(with_engine(replicas=3))
    assert several["Deployment"]["spec"]["replicas"] == 3
    assert several["PodDisruptionBudget"]["spec"]["maxUnavailable"] == 1
    spread = pod(with_engine(replicas=3))["topologySpreadConstraints"]
    keys = {"topology.kubernetes.io/zone", "kubernetes.io/hostname"}
    assert {(item["topologyKey"], item["whenUnsatisfiable"]) for item in spread} == {
        (key, "ScheduleAnyway") for key in keys
    }


def test_nothing_but_their_number_depends_on_the_number_of_replicas():
    one, three = documents(with_engine()), documents(with_engine(replicas=3))
    one["Deployment"]["spec"]["replicas"] = 3
    assert one == three


def test_an_update_needs_no_spare_gpu():
    """By default, Kubernetes starts a second pod first, and waits silently for ever where no GPU is free."""
    strategy = documents(with_engine())["Deployment"]["spec"]["strategy"]
    assert strategy["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}


def test_the_service_reaches_the_pods_and_no_others():
    found = documents(with_engine())
    labels = found["Deployment"]["spec"]["template"]["metadata"]["labels"]
    selector = found["Service"]["spec"]["selector"]
    assert selector.items() <= labels.items()
    assert found["Deployment"]["spec"]["selector"]["matchLabels"] == selector
    assert found["Service"]["spec"]["type"] == "ClusterIP"
    assert found["Service"]["spec"]["ports"] == [
        {"name": "http", "port": 8080, "targetPort": "http", "protocol": "TCP"}
    ]


def test_secrets_are_references():
    (token,) = (item for item in container(with_engine(secret_env=("HF_TOKEN",)))["env"] if item["name"] == "HF_TOKEN")
    assert token == {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf-token", "key": "HF_TOKEN"}}}


def test_an_api_key_is_a_reference():
    wanted = workload(with_engine(), NODES, api_key=("ENGINE_KEY", "team-key"))
    (found,) = manifests(wanted)[0]["spec"]["template"]["spec"]["containers"]
    assert found["env"][-1] == {
        "name": "ENGINE_KEY",
        "valueFrom": {"secretKeyRef": {"name": "team-key", "key": "api-key"}},
    }


def test_it_runs_under_the_restricted_pod_security_standard():
    """https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted, point by point."""
    spec, found = pod(with_engine()), container(with_engine())
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] != 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["securityContext"]["sysctls"] == [{"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}]
    assert found["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
    assert {next(iter(item.keys() - {"name"})) for item in spec["volumes"]} <= {"emptyDir", "persistentVolumeClaim"}


def test_an_image_that_only_root_can_start_runs_as_root_without_capabilities():
    """That is the standard `baseline`, the next best: since 3.1.1, TGI's Python lies in a folder of root alone."""
    made = with_engine()
    engine = made.candidate.engine
    image = replaced(engine.container.image, needs_root=True)
    engine = replaced(engine, container=replaced(engine.container, image=image))
    made = replaced(made, candidate=replaced(made.candidate, engine=engine))
    spec, found = pod(made), container(made)
    assert (spec["securityContext"]["runAsUser"], spec["securityContext"]["runAsGroup"]) == (0, 0)
    assert "runAsNonRoot" not in spec["securityContext"]
    assert spec["securityContext"]["fsGroup"] == 1000
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert found["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def test_weights_lie_on_a_claim_if_one_is_named():
    wanted = workload(with_engine(), NODES, weights_claim="models")
    spec = manifests(wanted)[0]["spec"]["template"]["spec"]
    assert {"name": "weights", "persistentVolumeClaim": {"claimName": "models"}} in spec["volumes"]
    assert "ephemeral-storage" not in spec["containers"][0]["resources"]["requests"]


@pytest.mark.parametrize(
    ("deployable", "code"),
    [
        (plans.deployable(model=plans.profile(local_path="/models/13b")), "local_model"),
        (
            plans.deployable(
                candidate=plans.candidate(
                    offer=plans.offer(
                        instance_type=plans.instance_type(accelerator=plans.accelerator(name="Gaudi2", vendor="intel"))
                    )
                )
            ),
            "accelerator_not_in_cluster",
        ),
    ],
)
def test_what_a_cluster_cannot_run_is_refused(deployable: Deployable, code: str):
    with pytest.raises(InputError) as caught:
        render_artifact("kubernetes", deployable)
    assert caught.value.code == code


def test_every_card_of_the_labels_is_in_the_catalog():
    document = json.loads(Path(profiles_dir(), "kubernetes/nodes.json").read_text(encoding="utf-8"))
    assert set(open_catalog().accelerators()) >= {
        name for row in document["labels"] for name in row["accelerators"].values()
    }
