"""`python -m tgi_deploy.sandbox.kubernetes start|stop|status FOLDER`: prints KUBECONFIG=… of the running cluster."""

from __future__ import annotations

import sys
from pathlib import Path

from tgi_deploy.errors import DeployError
from tgi_deploy.sandbox.kubernetes import KUBECONFIG, plane


def main(argv: list[str]) -> int:
    action, home = argv[0], Path(argv[1]).absolute()
    if action == "stop":
        plane.stop(home)
        return 0
    try:
        if action == "start":
            plane.start(home)
    except DeployError as error:
        sys.stderr.write(f"error: {error.message}\n{error.hint}\n")
        return 1
    if not plane.is_running(home):
        return 1
    sys.stdout.write(f"KUBECONFIG={home / KUBECONFIG}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
