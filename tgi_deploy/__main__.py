"""`python -m tgi_deploy` is the console script."""

from __future__ import annotations

from tgi_deploy.cli.main import main

if __name__ == "__main__":
    main()
