"""Routes that don't generate: health, information, metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.sandbox.engine.replies import ApiError

if TYPE_CHECKING:
    from tgi_deploy.sandbox.engine.exchange import Exchange
    from tgi_deploy.sandbox.engine.service import Service

DESCRIPTION: Final = "/api-doc/openapi.json"


def health(service: Service, exchange: Exchange) -> None:
    """Answer the health check: healthy while all shards run; after one died, the router answers until it is stopped."""
    if service.inference.dead.is_set():
        service.inference.complain_of_shard()
        raise ApiError("healthcheck", "unhealthy")
    exchange.send(200)


def metrics(service: Service, exchange: Exchange) -> None:
    exchange.send_text(200, service.inference.metrics.render(), kind="text/plain; charset=utf-8")


def docs(_service: Service, exchange: Exchange) -> None:
    exchange.send(303, headers={"location": "/docs/"})


def docs_page(service: Service, exchange: Exchange) -> None:
    """Answer with a link to the API description in place of the engine's Swagger UI."""
    title = f"<title>Text Generation Inference {service.version}</title>"
    page = f"<!-- HTML for static distribution bundle build -->\n<!DOCTYPE html>{title}<a href={DESCRIPTION}>API</a>"
    exchange.send_text(200, page, kind="text/html")


def info(service: Service, exchange: Exchange) -> None:
    exchange.send_json(200, _info(service))


def _info(service: Service) -> dict[str, Any]:
    inference = service.inference
    arguments, limits, checkpoint = inference.situation.arguments, inference.limits, inference.situation.checkpoint
    # The limit was renamed in the release that added LoRA adapters.
    input_name = "max_input_tokens" if service.has("lora-adapters") else "max_input_length"
    return {
        "model_id": service.model_id,
        "model_sha": None if checkpoint.is_local else checkpoint.commit,
        **_older_fields(service),
        "model_pipeline_tag": None if checkpoint.is_local else "text-generation",
        "max_concurrent_requests": arguments.number("max-concurrent-requests"),
        "max_best_of": inference.bounds.max_best_of,
        "max_stop_sequences": inference.bounds.max_stop_sequences,
        input_name: limits.max_input_tokens,
        "max_total_tokens": limits.max_total_tokens,
        "validation_workers": arguments.number("validation-workers"),
        "max_client_batch_size": arguments.number("max-client-batch-size"),
        "router": "text-generation-router",
        "version": service.version,
        "sha": service.commit,
        "docker_label": service.docker_label,
    }


def _older_fields(service: Service) -> dict[str, Any]:
    """Fields of older releases: the release that added `--api-key` moved the backend out of the router."""
    if service.has("api-key"):
        return {}
    situation = service.inference.situation
    dtype = situation.arguments.text("dtype")
    default = situation.model_class.default_dtype
    return {
        "model_dtype": f"torch.{'float32' if situation.host.on_cpu else dtype or default}",
        "model_device_type": "cpu" if situation.host.on_cpu else "cuda",
        "waiting_served_ratio": situation.arguments.fraction("waiting-served-ratio", 0.3),
        "max_batch_total_tokens": service.inference.limits.max_batch_total_tokens,
        "max_waiting_tokens": situation.arguments.number("max-waiting-tokens"),
    }
