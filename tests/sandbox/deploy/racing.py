"""Run the real program N times at once: `python racing.py FOLDER URL KEY HOMES WORD…`.

Each runs in a separate process with its own state folder (HOMES "own") or a shared one ("shared"). They are forked from
a process that has already loaded the program, and start at the same moment. Each writes its envelope to
FOLDER/NUMBER.json.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import boto3  # noqa: F401 -- loaded before the start

from tgi_deploy import wiring
from tgi_deploy.cli import frame
from tgi_deploy.cli.main import ROOT
from tgi_deploy.cli.views import deployment  # noqa: F401 -- as above
from tgi_deploy.operations.deploying import up  # noqa: F401 -- as above
from tgi_deploy.operations.removing import down  # noqa: F401 -- as above
from tgi_deploy.targets.aws import session  # noqa: F401 -- as above
from tgi_deploy.targets.ec2 import cloud  # noqa: F401 -- as above

RUNNERS = 8
PACE = wiring._pace


def run(folder: Path, number: int, *, shared: bool, ready: int, start: int) -> None:
    home = folder / ("home" if shared else f"home{number}")
    os.environ["TGI_DEPLOY_HOME"] = str(home)
    if not shared:
        os.environ["TGI_DEPLOY_OWNER"] = f"runner{number}@computer{number}"
    for stream, ending in ((1, "json"), (2, "err")):
        os.dup2(os.open(folder / f"{number}.{ending}", os.O_WRONLY | os.O_CREAT, 0o600), stream)
    os.write(ready, b".")
    os.read(start, 1)  # ends when the starter closes its end
    sys.argv = ["tgi-deploy", *sys.argv[5:]]  # what a lock says about its holder
    code = frame.run(ROOT, sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)


def main() -> None:
    wiring._pace = lambda *, sandbox: PACE(sandbox=True)
    folder = Path(sys.argv[1])
    os.environ.update(AWS_ENDPOINT_URL=sys.argv[2], AWS_ACCESS_KEY_ID=sys.argv[3], AWS_SECRET_ACCESS_KEY="x")
    ready, start = os.pipe(), os.pipe()
    children = []
    for number in range(RUNNERS):
        child = os.fork()
        if not child:
            os.close(start[1])
            run(folder, number, shared=sys.argv[4] == "shared", ready=ready[1], start=start[0])
        children.append(child)
    for _ in range(RUNNERS):
        os.read(ready[0], 1)
    os.close(start[1])
    for child in children:
        os.waitpid(child, 0)


main()
