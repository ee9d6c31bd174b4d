"""Handwritten candidates, as in a plan, without a catalog."""

from __future__ import annotations

from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any

from builders.logs import GRAMMAR

from tgi_deploy.engines.tgi import Tgi
from tgi_deploy.engines.tgi.container import REDACTIONS
from tgi_deploy.planner.time_to_ready import rates
from tgi_deploy.targets.protocol import Deployable
from tgi_deploy.values.base import replaced
from tgi_deploy.values.container import Container, Health, Image, Mount, Restart, SecretRef, Stop
from tgi_deploy.values.engine import EngineSettings, MemoryBudget
from tgi_deploy.values.hardware import Accelerator, InstanceType
from tgi_deploy.values.model import ModelSpec, Profile
from tgi_deploy.values.plan import Candidate, Cost, EngineRun, Performance, Storage
from tgi_deploy.values.serving import Access, Metrics
from tgi_deploy.values.supply import CostLine, Offer

if TYPE_CHECKING:
    from collections.abc import Callable

    from tgi_deploy.diagnosis.machine_filter import LogFilter

GIB = 1024**3
VERSION = "3.3.7"
IMAGE = f"ghcr.io/huggingface/text-generation-inference:{VERSION}"
HUB_ID = "example-org/example-13b"


def accelerator(**changes: Any) -> Accelerator:
    values: dict[str, Any] = {
        "name": "L40S",
        "vendor": "nvidia",
        "architecture": "Ada Lovelace",
        "compute_capability": (8, 9),
        "memory_bytes": 46068 * 1024**2,
        "bandwidth_gb_s": 864.0,
        "fp16_tflops": 362.0,
        "fp8_tflops": 733.0,
        "int8_tops": 733.0,
        "bf16": True,
        "interconnect": "pcie",
    }
    return Accelerator(**(values | changes))


def instance_type(**changes: Any) -> InstanceType:
    chip = changes.pop("accelerator", accelerator())
    values: dict[str, Any] = {
        "name": "g6e.xlarge",
        "status": "offered",
        "accelerator": chip,
        "accelerator_count": 1,
        "memory_bytes_per_accelerator": chip.memory_bytes,
        "vcpus": 4,
        "ram_bytes": 32 * GIB,
        "cpu_arch": "x86_64",
        "interconnect": "none",
        "nvme_bytes": 250_000_000_000,
    }
    return InstanceType(**(values | changes))


def offer(**changes: Any) -> Offer:
    values: dict[str, Any] = {
        "instance_type": instance_type(),
        "region": "us-east-1",
        "market": "on-demand",
        "usd_per_hour": Decimal("1.861"),
    }
    return Offer(**(values | changes))


def model(**changes: Any) -> ModelSpec:
    values: dict[str, Any] = {
        "hub_id": HUB_ID,
        "architecture": "LlamaForCausalLM",
        "model_type": "llama",
        "parameters": 13_000_000_000,
        "layers": 40,
        "hidden_size": 5120,
        "intermediate_size": 13824,
        "attention_heads": 40,
        "kv_heads": 8,
        "head_dim": 128,
        "vocab_size": 128256,
        "tied_embeddings": False,
        "max_position_embeddings": 8192,
        "torch_dtype": "bfloat16",
    }
    return ModelSpec(**(values | changes))


def profile(**changes: Any) -> Profile:
    """Return a profile; changes to other fields apply to its model."""
    own = {key: changes.pop(key) for key in ("name", "summary", "notice", "chat", "quantized") if key in changes}
    return Profile(**({"name": "example-13b", "summary": "An example.", "model": model(**changes)} | own))


def engine(**changes: Any) -> EngineRun:
    """Return an engine.

    `num_shard`, `quantize` and `args` (extra ones) become its arguments; see `altered` for the others.
    """
    shaping = ("model_id", "revision", "num_shard", "quantize", "dtype")
    chosen = settings(**{name: changes.pop(name) for name in shaping if name in changes})
    usual = EngineRun(
        name="tgi",
        version=VERSION,
        settings=chosen,
        container=container(num_shard=chosen.num_shard),
        startup=(),
        metrics=Metrics(path="/metrics", request_counters=("tgi_request_count", "tgi_batch_inference_count")),
        access=Access(key_variable="API_KEY"),
        port=8080,
    )
    return altered(usual, args=(*_arguments(chosen), *changes.pop("args", ())), **changes)


def settings(**changes: Any) -> EngineSettings:
    values: dict[str, Any] = {
        "model_id": HUB_ID,
        "revision": None,
        "num_shard": 1,
        "quantize": None,
        "dtype": None,
        "max_input_tokens": 8191,
        "max_total_tokens": 8192,
        "max_batch_prefill_tokens": 4096,
        "max_batch_total_tokens": 16384,
        "max_concurrent_requests": 128,
        "cuda_graphs": (1, 2, 4, 8, 16, 32),
    }
    return EngineSettings(**(values | changes))


def container(*, num_shard: int = 1) -> Container:
    return Container(
        image=Image(reference=IMAGE, bytes=15 * 10**9),
        args=(),
        env=(("HF_HOME", "/data"),),
        secrets=(),
        port=80,
        accelerators=num_shard,
        shm_bytes=GIB if num_shard > 1 else 0,
        mounts=(Mount(path="/data", purpose="weights", layout="HF_HOME"),),
        health=Health(path="/health", every_s=20, failures=5, refuses_while_starting=True),
        restart=Restart(policy="on-failure", never_after=(2,), most=3),
        stop=Stop(signal="SIGTERM", grace_s=120, accepts_while_draining=False),
        redactions=REDACTIONS,
    )


def altered(run: EngineRun, **changes: Any) -> EngineRun:
    """Return the engine with changed fields, including its container's: `args`, `env` (a table), `image` and others."""
    into: dict[str, Callable[[Any], dict[str, Any]]] = {
        "args": lambda args: {"args": tuple(args)},
        "env": lambda env: {"env": tuple(sorted(env.items()))},
        "gpus": lambda gpus: {"accelerators": gpus},
        "host": lambda access: {"host": access},
        "image": lambda image: {"image": replaced(run.container.image, reference=image)},
        "secret_env": lambda names: {"secrets": tuple(SecretRef(variable=name) for name in names)},
        "redactions": lambda hidden: {"redactions": hidden},
        "shm_bytes": lambda size: {"shm_bytes": size},
        "stop_timeout_s": lambda seconds: {"stop": replaced(run.container.stop, grace_s=seconds)},
        "drain_variable": lambda name: {"stop": replaced(run.container.stop, drain_variable=name)},
        "drain_s": lambda seconds: {"stop": replaced(run.container.stop, drain_s=seconds)},
    }
    inside: dict[str, Any] = {}
    for name in into.keys() & changes.keys():
        inside.update(into[name](changes[name]))
    page = {"metrics_path": "path", "request_counters": "request_counters"}
    metrics = {page[name]: value for name, value in changes.items() if name in page}
    return replaced(
        run,
        container=replaced(run.container, **inside),
        metrics=replaced(run.metrics, **metrics),
        **{name: value for name, value in changes.items() if name not in {*into, *page}},
    )


def _arguments(chosen: EngineSettings) -> tuple[str, ...]:
    pairs = (
        ("--model-id", chosen.model_id),
        ("--revision", chosen.revision),
        ("--num-shard", chosen.num_shard),
        ("--quantize", chosen.quantize),
        ("--dtype", chosen.dtype),
        ("--max-input-tokens", chosen.max_input_tokens),
        ("--max-total-tokens", chosen.max_total_tokens),
        ("--max-batch-prefill-tokens", chosen.max_batch_prefill_tokens),
        ("--max-batch-total-tokens", chosen.max_batch_total_tokens),
        ("--max-concurrent-requests", chosen.max_concurrent_requests),
        ("--cuda-graphs", ",".join(map(str, chosen.cuda_graphs))),
        ("--usage-stats", "off"),
    )
    return tuple(str(word) for name, value in pairs if value is not None for word in (name, value))


def candidate(**changes: Any) -> Candidate:
    """Return a candidate with the shard count of its `engine`."""
    command: EngineRun = changes.pop("engine", engine())
    values: dict[str, Any] = {
        "offer": offer(),
        "num_shard": command.settings.num_shard,
        "quantize": command.settings.quantize or "none",
        "dtype": command.settings.dtype or "bfloat16",
        "lost_bits": 0.0,
        "cost": Cost(lines=(CostLine(item="instance", usd_per_hour=Decimal("1.861")),)),
        "memory": memory_budget(),
        "performance": Performance(ttft_ms=120.0, tpot_ms=32.0, output_tokens_per_s=240.0),
        "engine": command,
        "storage": storage(),
        "quality": "exact",
    }
    made = Candidate(**(values | changes))
    started = Tgi().startup(made.engine.settings, rates(made.offer.instance_type, made.storage))
    return replaced(made, engine=replaced(made.engine, startup=started))


def memory_budget() -> MemoryBudget:
    return MemoryBudget(
        total_bytes=46068 * 1024**2,
        reserved_bytes=2 * GIB,
        weights_bytes=26 * 10**9,
        activation_bytes=GIB,
        overhead_bytes=GIB,
        kv_cache_bytes=12 * GIB,
        kv_bytes_per_token=163840,
        kv_capacity_tokens=78643,
        required_kv_tokens=10240,
    )


def storage(**changes: Any) -> Storage:
    values: dict[str, Any] = {
        "root_volume_gib": 95,
        "weights_on_nvme": True,
        "weights_bytes": 26 * 10**9,
        "image_bytes": 15 * 10**9,
    }
    return Storage(**(values | changes))


@cache
def log_filter() -> LogFilter:
    """What machines get: that of the packaged tables."""
    return GRAMMAR.log_filter


def deployable(**changes: Any) -> Deployable:
    values: dict[str, Any] = {
        "name": "example",
        "candidate": candidate(),
        "model": profile(),
        "log_filter": log_filter(),
    }
    return Deployable(**(values | changes))


def on_hardware(count: int, card: str) -> Offer:
    """Return the offer for an owned machine."""
    owned = instance_type(name=f"{count}x{card}", status="owned", accelerator_count=count, nvme_bytes=0)
    return replaced(offer(), instance_type=owned, region="local", market="owned", usd_per_hour=None)
