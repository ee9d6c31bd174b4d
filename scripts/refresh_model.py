"""Add or update a model in `profiles/models/shapes.json` from its config.json.

    python scripts/refresh_model.py org/name [--config config.json] [--parameters N] [--license L] [--gated] [--write]

Without `--config` the file is fetched from the hub (a gated model needs HF_TOKEN). Without `--parameters` their number
is computed from the dimensions.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from refresh_common import layout, load, report, today

from tgi_deploy.catalog.config import model_spec
from tgi_deploy.catalog.shapes import shape_table
from tgi_deploy.data_files import profiles_dir

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE: Final = "models/shapes.json"


def shape_of(config: Mapping[str, Any], hub_id: str, **known: object) -> dict[str, Any]:
    """Return the entry of a model from its config and the options."""
    return shape_table(model_spec(config, hub_id, **{key: value for key, value in known.items() if value is not None}))


def _config(hub_id: str, path: Path | None) -> tuple[dict[str, Any], str]:
    if path is None:
        from huggingface_hub import hf_hub_download  # noqa: PLC0415 -- not needed for a saved config

        return load(Path(hf_hub_download(hub_id, "config.json"))), f"config.json on the hub, {today()}"
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content, f"a saved config.json, {today()}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("hub_id")
    parser.add_argument("--config", type=Path)
    parser.add_argument("--parameters", type=int)
    parser.add_argument("--license")
    parser.add_argument("--gated", action="store_true")
    parser.add_argument("--write", action="store_true", help="write the file instead of only printing the changes")
    options = parser.parse_args()
    config, source = _config(options.hub_id, options.config)
    known = {"parameters": options.parameters, "license": options.license, "gated": options.gated or None}
    path = profiles_dir() / FILE
    content = load(path)
    shapes = content["shapes"] | {options.hub_id: shape_of(config, options.hub_id, source=source, **known)}
    ordered = dict(sorted(shapes.items(), key=lambda item: item[0].lower()))
    fresh = content | {"collected_at": today(), "shapes": ordered}
    report(path, path.read_text(encoding="utf-8"), layout(fresh, by_entry=("shapes",)), write=options.write)


if __name__ == "__main__":
    main()
