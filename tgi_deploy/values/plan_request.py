"""Options as keyword arguments, for type checkers and editors: those of a plan, and those of targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Literal, TypedDict

Whole = int | str | None
Number = Decimal | float | str | None
Texts = str | Sequence[str]
Assignments = Texts | Mapping[str, str | float]


class PlanRequest(TypedDict, total=False):
    """Each row of `values/plan_options.py`. Numbers may be strings, as on the command line. None: not given."""

    budget: Number
    max_spend: Number
    ttl: str | None
    idle_timeout: str | None
    lease: str | None
    context: Whole
    input_tokens: Whole
    output_tokens: Whole
    concurrency: Whole
    rps: Number
    traffic: str | None
    ttft_ms: Number
    tpot_ms: Number
    slo: Literal["default", "none"] | None
    confidence: Number
    min_tokens_per_s: Number
    utilization: Number
    prefer: Literal["cost", "quality", "speed", "value"] | None
    quality: Literal["exact", "near-lossless", "any"] | None
    min_bits: Whole
    quantize: str | None
    replicas: Whole
    max_machines: Whole
    num_shard: Whole
    instance: str | None
    disk: Whole
    driver: Literal["grid"] | None
    hardware: str | None
    region: Texts
    market: Literal["on-demand", "spot", "any"] | None
    engine_version: str | None
    set: Assignments
    env: Assignments
    port: Whole
    allow_turing: bool


class TargetOptions(TypedDict, total=False):
    """Every field of the `options` of a target."""

    allow_cidr: Sequence[str]
    expose_to_world: bool
    subnet: str | None
    ami: str | None
    hub_token_parameter: str | None
    hub_token_from_env: bool
    api_key_parameter: str | None
    api_key_from_env: str | None
    tls: bool
    certificate: str | None
    certificate_key_from_env: str | None
    certificate_key_parameter: str | None
    plaintext: bool
    tunnel: bool
    instance_profile: str | None
    external_ttl: bool
    static_ip: bool
    bind: str | None
    front: Literal["proxy"] | None
    prometheus: str | None
    host: str | None
    ingress_class: str | None
    gateway: str | None
    tls_secret: str | None
    cluster_issuer: str | None
    kube_context: str | None
    namespace: str | None
    hub_token_secret: str | None
    api_key_secret: str | None
    weights_claim: str | None
    role: str | None
    create_role: bool
    weights: str | None
