"""The real scripts of the user data, with fakes of docker, nvidia-smi, aws and shutdown."""

from __future__ import annotations

import copy
import resource
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from builders import plans
from builders.hostile import HOSTILE
from builders.logs import DATA
from builders.machine import Machine

from tgi_deploy.diagnosis.grammar import grammar_from
from tgi_deploy.wiring import render_artifact

if TYPE_CHECKING:
    from collections.abc import Callable

    from tgi_deploy.targets.protocol import Deployable

pytestmark = pytest.mark.slow  # a dozen processes each

READY = "2025-12-18T00:00:00Z  INFO text_generation_router::server: router/src/server.rs:2402: Connected\n"
PARAMETER = "/team/hub-token"


@pytest.fixture
def boot(tmp_path: Path) -> Callable[..., Machine]:
    def make(deployable: Deployable | None = None, **settings: object) -> Machine:
        text = render_artifact("user-data", deployable or plans.deployable()).text
        return Machine(folder=tmp_path / "machine", user_data=text, **settings)

    return make


def with_engine(**changes: object) -> Deployable:
    return plans.deployable(candidate=plans.candidate(engine=plans.engine(**changes)))


def gated() -> Deployable:
    return plans.deployable(
        model=plans.profile(gated=True), hub_token_parameter=PARAMETER, instance_profile="hub-reader"
    )


def test_phases_are_reported_in_order(boot):
    done = boot(engine_log="hello\n").run("run-engine")
    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        "[tgi-deploy] phase=booting",
        "[tgi-deploy] warning=no instance store is mounted, the weights go to the root volume",
        f"[tgi-deploy] phase=pulling image={plans.IMAGE}",
        "[tgi-deploy] phase=starting-engine",
        "hello",
        "[tgi-deploy] phase=engine-exited code=0",
    ]


def test_the_container_runs_the_planned_command(boot):
    deployable = with_engine(args=HOSTILE, port=9000)
    machine = boot(deployable)
    machine.run("run-engine")
    assert machine.docker("run") == [
        [
            *("docker", "run", "--rm", "--name", "tgi", "--log-driver", "none", "--gpus", "all"),
            *("--stop-timeout", "120", "-p", "9000:80"),
            *("-v", f"{machine.at('/var/lib/tgi-deploy/data')}:/data"),
            *("--env-file", str(machine.at("/opt/tgi-deploy/engine.env")), plans.IMAGE),
            *deployable.candidate.engine.container.args,
        ]
    ]


def test_shards_get_their_devices_and_shared_memory(boot):
    offer = plans.offer(instance_type=plans.instance_type(accelerator_count=4))
    candidate = plans.candidate(offer=offer, engine=plans.engine(num_shard=2))
    machine = boot(plans.deployable(candidate=candidate))
    machine.run("run-engine")
    words = machine.docker("run")[0]
    assert words[words.index("--gpus") + 1] == '"device=0,1"'
    assert words[words.index("--shm-size") + 1] == "1g"


def test_a_leftover_container_is_removed_first(boot):
    machine = boot()
    machine.run("run-engine")
    assert [words[1] for words in machine.calls("docker")] == ["image", "pull", "rm", "run"]
    assert machine.docker("rm") == [["docker", "rm", "-f", "tgi"]]


def weights_folder(machine: Machine) -> str:
    machine.run("run-engine")
    words = machine.docker("run")[0]
    folder = Path(words[words.index("-v") + 1].removesuffix(":/data"))
    assert folder.is_dir()
    return "/" + str(folder.relative_to(machine.folder))


def test_weights_go_to_the_instance_store(boot):
    assert weights_folder(boot(commands={"mountpoint": "exit 0"})) == "/opt/dlami/nvme/tgi"


def test_weights_stay_on_the_root_volume_where_no_store_is_mounted(boot):
    assert weights_folder(boot()) == "/var/lib/tgi-deploy/data"


def test_weights_stay_on_the_root_volume_when_the_plan_says_so(boot):
    candidate = plans.candidate(storage=plans.storage(weights_on_nvme=False))
    machine = boot(plans.deployable(candidate=candidate), commands={"mountpoint": "exit 0"})
    assert weights_folder(machine) == "/var/lib/tgi-deploy/data"
    assert not machine.calls("mountpoint")


@pytest.mark.parametrize("code", [0, 1, 2, 125, 137])
def test_exit_code_is_the_engines(boot, code: int):
    done = boot(engine_code=code).run("run-engine")
    assert done.returncode == code
    assert done.stdout.endswith(f"[tgi-deploy] phase=engine-exited code={code}\n")


@pytest.mark.parametrize(
    "line",
    [
        'Error: ArgumentValidation("`max_input_tokens` must be < `max_total_tokens`")',
        "huggingface_hub.errors.GatedRepoError: 401 Client Error. (Request ID: x)",
        "requests.exceptions.HTTPError: 403 Client Error: Forbidden",
        "huggingface_hub.errors.RepositoryNotFoundError: 404",
        "huggingface_hub.errors.RevisionNotFoundError: 404",
        "EntryNotFoundError: No .bin weights found for model x and revision None.",
        "FileNotFoundError: No local weights found in /data/x with extension .pt",
        "RuntimeError: FlashAttention only supports Ampere GPUs or newer.",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "OSError: [Errno 28] No space left on device",
        'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].',
    ],
)
def test_a_rejected_configuration_is_not_restarted(boot, line: str):
    done = boot(engine_log=f"starting\n{line}\nError: ShardCannotStart\n", engine_code=1).run("run-engine")
    assert done.returncode == 64
    assert line in done.stdout
    assert done.stdout.endswith("phase=engine-exited code=1\n[tgi-deploy] verdict=configuration exit=64\n")


def with_table(*more: dict[str, Any]) -> Deployable:
    """A deployable of a table with these texts besides."""
    data = copy.deepcopy(dict(DATA))
    data["codes"][0]["signatures"] += [{"source": "x"} | text for text in more]
    return plans.deployable(log_filter=grammar_from(data).log_filter)


@pytest.mark.parametrize(("text", "code"), [({"final": True}, 64), ({}, 1)], ids=["final", "passing"])
def test_the_table_decides_what_is_not_restarted(boot, text: dict[str, Any], code: int):
    """Quotes and dollars of a pattern stay what they are."""
    deployable = with_table({"match": [r"it's \$HOME (?:moon )?[0-9]+ `x` \"y\""]} | text)
    done = boot(deployable, engine_log='said: IT\'S $HOME 42 `x` "y"\nError: X\n', engine_code=1).run("run-engine")
    assert done.returncode == code


def test_a_long_line_is_processed_quickly(boot):
    """A failed start writes lines of tens of kilobytes, with colors and without."""
    line = "\x1b[2mweight\x1b[0m model.layers.0 " * 2000
    began_s = processor_s()
    assert boot(engine_log=f"{line}\n" * 3 + "CUDA out of memory\n", engine_code=1).run("run-engine").returncode == 64
    assert processor_s() - began_s < 20


def processor_s():
    """Return the processor time of the programs that have been run: other programs may be busy."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.parametrize("form", ["text", "json"])
def test_readiness_is_detected_in_json_logs(boot, form: str):
    ready = READY if form == "text" else '{"level":"INFO","message":"Connected","target":"text_generation_router"}\n'
    assert boot(engine_log=f"{ready}CUDA out of memory\n", engine_code=1).run("run-engine").returncode == 1


def test_a_crash_is_restarted(boot):
    done = boot(engine_log="Shard 0 crashed\nError: ShardFailed\n", engine_code=1).run("run-engine")
    assert done.returncode == 1
    assert "verdict" not in done.stdout


def test_log_texts_after_ready_do_not_prevent_a_restart(boot):
    log = f"{READY}prompt: why do I get 401 Client Error?\nCUDA out of memory\n"
    assert boot(engine_log=log, engine_code=1).run("run-engine").returncode == 1


def test_readiness_is_detected_in_colored_logs(boot):
    log = "\x1b[32m INFO\x1b[0m router\x1b[2m:\x1b[0m Connected\nCUDA out of memory\n"
    assert boot(engine_log=log, engine_code=1).run("run-engine").returncode == 1


def test_a_verdict_applies_only_to_its_run(boot):
    machine = boot(engine_log="CUDA out of memory\n", engine_code=1)
    assert machine.run("run-engine").returncode == 64
    machine.engine_log = "Shard 0 crashed\n"
    assert machine.run("run-engine").returncode == 1


def test_a_clean_exit_needs_no_verdict(boot):
    assert boot(engine_log="CUDA out of memory\n").run("run-engine").returncode == 0


ARGUMENTS = """before
2025-12-18T00:00:00Z  INFO text_generation_launcher: Args {
    model_id: "x",
    cuda_graphs: Some(
        [
            1,
        ],
    ),
    api_key: Some(
        "sesame-open",
    ),
}
after
"""


@pytest.mark.parametrize(
    "log",
    [
        ARGUMENTS,
        'before\nINFO launcher: Args { model_id: "x", api_key: Some("sesame-open") }\nafter\n',
        'before\n{"fields":{"message":"Args {\\n api_key: Some(\\"sesame-open\\")\\n}"}}\nafter\n',
        "before\nStarting webserver with --api-key sesame-open\nafter\n",
        "before\nAPI_KEY=sesame-open\nafter\n",
        "before\nngrok_authtoken: sesame-open\nafter\n",
        "before\nArgs {\n    api_key: sesame-open\nafter\n",
        "before\nArgs {\nafter",
    ],
)
def test_the_logged_launcher_arguments_are_hidden(boot, log: str):
    done = boot(engine_log=log).run("run-engine")
    assert "sesame" not in done.stdout + done.stderr
    lines = done.stdout.splitlines()
    start = lines.index("[tgi-deploy] phase=starting-engine")
    assert lines[start + 1 : -1] == ["before", "after"]


def test_log_lines_are_unchanged(boot):
    log = "  indented\n\ttab\n\\n stays\n%s %d\n$HOME `id`\n\nlast without end"
    done = boot(engine_log=log).run("run-engine")
    assert log in done.stdout


def test_environment_file_holds_values_as_docker_reads_them(boot):
    env = {f"V{number:02}": value for number, value in enumerate(HOSTILE)}
    machine = boot(with_engine(env=env))
    lines = machine.at("/opt/tgi-deploy/engine.env").read_text(encoding="utf-8").splitlines()
    assert dict(line.split("=", 1) for line in lines) == env


def test_token_is_read_on_the_machine_and_never_shown(boot):
    machine = boot(gated(), commands={"aws": "echo hf_secret"})
    done = machine.run("run-engine")
    assert machine.token_seen == "hf_secret"
    assert machine.calls("aws") == [
        [
            *("aws", "ssm", "get-parameter", "--region", "us-east-1", "--name", PARAMETER),
            *("--with-decryption", "--query", "Parameter.Value", "--output", "text"),
        ]
    ]
    assert "hf_secret" not in done.stdout + done.stderr
    assert all("hf_secret" not in word for words in machine.calls() for word in words)
    words = machine.docker("run")[0]
    assert words[words.index("-e") + 1] == "HF_TOKEN"


def test_without_a_parameter_no_token_is_read(boot):
    machine = boot()
    machine.run("run-engine")
    assert machine.calls("aws") == []
    assert "-e" not in machine.docker("run")[0]


def test_an_unreadable_token_is_final(boot):
    machine = boot(gated(), commands={"aws": "echo AccessDenied >&2; exit 254"})
    done = machine.run("run-engine")
    assert done.returncode == 64
    assert len(machine.calls("aws")) == 6
    assert f"error=the hub token could not be read from the parameter {PARAMETER}\n" in done.stdout
    assert not machine.docker("run")


def test_a_pull_is_retried_a_limited_number_of_times(boot):
    machine = boot(environment={"PULL_CODE": "1"})
    done = machine.run("run-engine")
    assert done.returncode == 1
    assert len(machine.docker("pull")) == 5
    assert done.stdout.endswith(f"[tgi-deploy] error=the image {plans.IMAGE} could not be pulled\n")


def test_an_existing_image_is_not_pulled(boot):
    machine = boot(environment={"IMAGE_CODE": "0", "PULL_CODE": "1"})
    assert machine.run("run-engine").returncode == 0
    assert machine.docker("image") == [["docker", "image", "inspect", plans.IMAGE]]
    assert not machine.docker("pull")


def test_a_late_driver_is_awaited(boot):
    machine = boot(commands={"nvidia-smi": '[[ $(cat "$RECORD") == *sleep*sleep* ]]'})
    assert machine.run("run-engine").returncode == 0
    assert len(machine.calls("nvidia-smi")) == 3


def test_a_missing_driver_is_reported(boot):
    machine = boot(commands={"nvidia-smi": "exit 9"})
    done = machine.run("run-engine")
    assert done.returncode == 1
    assert done.stdout.endswith("[tgi-deploy] error=the NVIDIA driver does not answer\n")
    assert len(machine.calls("nvidia-smi")) == 60
    assert not machine.calls("docker")


@pytest.mark.parametrize(("tunneled", "published"), [(True, "127.0.0.1:8080:80"), (False, "8080:80")])
def test_with_a_tunnel_only_programs_of_the_machine_reach_the_engine(tunneled, published):
    text = render_artifact("user-data", plans.deployable(tunneled=tunneled)).text
    assert f"-p {published} " in text
