"""The real program, run many times from one warm interpreter: each time in a fork, so that imports are paid once.

Reads jobs from stdin, one JSON object per line, and answers each with one line: `{"status": <wait status>, "pid": n}`;
`status` is null if it was killed for taking too long. It is single-threaded, so that forking is safe.
"""

from __future__ import annotations

import functools
import gc
import json
import os
import pkgutil
import signal
import sys
import time
from contextlib import suppress
from importlib import import_module

import boto3
from botocore.config import Config
from botocore.exceptions import EndpointConnectionError
from botocore.httpsession import URLLib3Session
from builders.sdk import share_models
from disruptions.matrix import SHARDS, WRITE, request

from tgi_deploy import wiring
from tgi_deploy.cli import down, frame, main, up  # noqa: F401 -- what commands import, to be there
from tgi_deploy.operations.planning import plan as app_plan
from tgi_deploy.state.local import LocalStore

LAYERS = (
    "tgi_deploy.operations",
    "tgi_deploy.readiness",
    "tgi_deploy.reconcile",
    "tgi_deploy.state",
    "tgi_deploy.targets.aws",
    "tgi_deploy.targets.ec2",
    "tgi_deploy.targets.machine",
    "tgi_deploy.cli.views",
)
NOBODY = "http://127.0.0.1:1"


def warm_up():
    """Read once what never changes: the SDK's service models, the catalog, the plan of each request."""
    wiring.catalog = functools.cache(wiring.catalog)
    make = app_plan.plan
    planned = functools.cache(lambda texts, catalog: make(texts, catalog, {}))
    app_plan.plan = lambda texts, catalog, _environ: planned(texts, catalog)
    for spec in SHARDS:
        frame.run(main.ROOT, ["plan", *request(spec), "--json"])
    share_models()
    for layer in LAYERS:
        for module in pkgutil.walk_packages(import_module(layer).__path__, f"{layer}."):
            import_module(module.name)
    session = boto3.Session(aws_access_key_id="x", aws_secret_access_key="x", region_name="us-east-1")
    for service in ("ec2", "ssm", "sts", "iam", "scheduler", "service-quotas"):
        session.client(service)
    with suppress(EndpointConnectionError):
        session.client("ec2", endpoint_url=NOBODY, config=Config(retries={"mode": "standard"})).describe_vpcs()
    gc.freeze()


def child(job):
    """Become the program. Never returns."""
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(job[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
    os.environ.update(job["env"])
    os.environ["AWS_SDK_UA_APP_ID"] = f"pid-{os.getpid()}"
    sys.argv = ["tgi-deploy", *job["argv"]]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _hurry(job["hurry"])
    if job["trace"]:
        _trace(job["trace"])
    code = 70
    try:
        main.main(job["argv"])
    except SystemExit as end:
        code = int(end.code or 0)
    except KeyboardInterrupt:
        code = 130
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _trace(path):
    """Write a line for each request to the cloud, and for each change of a file of the program, in order."""
    trace = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)

    def announced(owner, name, line):
        real = getattr(owner, name)

        def call(*args, **options):
            os.write(trace, f"{line}\n".encode())
            return real(*args, **options)

        setattr(owner, name, call)

    announced(URLLib3Session, "send", "call")
    for name in ("save", "remove", "append_event", "save_receipt", "remember", "save_artifact"):
        announced(LocalStore, name, WRITE)


def _hurry(factor):
    """Shorten the pauses of the program and of the SDK; change nothing else."""
    if factor > 1:
        sleep = time.sleep
        time.sleep = lambda seconds: sleep(seconds / factor)


def wait(pid, timeout_s):
    """Return the wait status, or None if it took too long and was killed."""
    deadline = time.monotonic() + timeout_s
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return status
        if time.monotonic() > deadline:
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return None
        time.sleep(0.005)


def serve(replies):
    for line in sys.stdin:
        job = json.loads(line)
        pid = os.fork()
        if not pid:
            os.close(replies)
            child(job)
        status = wait(pid, job["timeout_s"])
        os.write(replies, (json.dumps({"status": status, "pid": pid}) + "\n").encode())


if __name__ == "__main__":
    channel = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    warm_up()
    os.write(channel, b"{}\n")
    serve(channel)
