"""Each folder of tests/cases/render has the expected artifacts, byte for byte; real tools validate the same text."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import hcl2
import pytest
import yaml
from builders import case_render

if TYPE_CHECKING:
    from collections.abc import Iterable

CASES = Path(__file__).parents[2] / "cases" / "render"
FOLDERS = sorted(path.parent for path in CASES.rglob("case.toml"))


def expected(folder: Path) -> dict[str, str]:
    files = (path for path in folder.iterdir() if path.name != "case.toml")
    return {path.name: path.read_bytes().decode() for path in files}


def having(name: str) -> list[Path]:
    return [folder for folder in FOLDERS if (folder / name).exists()]


def each(folders: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("folder", folders, ids=lambda folder: folder.name)


@each(FOLDERS)
def test_case(folder: Path):
    assert case_render.outputs(folder) == expected(folder)


def test_cases_cover_every_outcome():
    files = ("docker-run.sh", "compose.yaml", "kubernetes.yaml", "user-data.yaml", "errors.txt",
             "launch-template.json", "cloudformation.yaml", "terraform.tf", "sagemaker.yaml")  # fmt: skip
    for name in files:
        assert having(name), name


def passes(shellcheck: str, dialect: str, scripts: Iterable[Path]):
    # SC2016: a dollar sign between single quotes is on purpose. SC1112: so is a typographic quote.
    command = [shellcheck, f"--shell={dialect}", "--exclude=SC2016,SC1112", *map(str, scripts)]
    subprocess.run(command, check=True)


def test_docker_commands_pass_shellcheck(shellcheck: str):
    passes(shellcheck, "sh", (folder / "docker-run.sh" for folder in having("docker-run.sh")))


@pytest.mark.slow
def test_scripts_of_user_data_pass_shellcheck(shellcheck: str, tmp_path: Path):
    """Each text once: most cases have most scripts in common."""
    scripts = {script for folder in having("user-data.yaml") for script in scripts_of(folder)}
    for number, script in enumerate(sorted(scripts)):
        (tmp_path / f"{number}.sh").write_text(script, encoding="utf-8")
    passes(shellcheck, "bash", tmp_path.iterdir())


def scripts_of(folder: Path) -> list[str]:
    document = yaml.safe_load((folder / "user-data.yaml").read_text(encoding="utf-8"))
    found = [file["content"] for file in document["write_files"] if file["content"].startswith("#!/bin/bash\n")]
    assert found
    return found


@pytest.mark.slow
def test_stacks_pass_cfn_lint(tmp_path: Path):
    """cfn-lint checks user data's encoding as well."""
    templates = []
    for folder in having("cloudformation.yaml"):
        text = (folder / "cloudformation.yaml").read_text(encoding="utf-8")
        templates.append(tmp_path / f"{folder.name}.yaml")
        templates[-1].write_text(text.replace("BASE64(user-data.yaml)", "I2Nsb3VkLWNvbmZpZwo="), encoding="utf-8")
    templates.extend(folder / "sagemaker.yaml" for folder in having("sagemaker.yaml"))
    command = [Path(sys.executable).with_name("cfn-lint"), "--regions", "us-east-1", "--", *templates]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@each(having("terraform.tf"))
def test_terraform_describes_the_machine_of_the_launch_template(folder: Path):
    with (folder / "terraform.tf").open(encoding="utf-8") as file:
        document = hcl2.load(file, serialization_options=hcl2.SerializationOptions(strip_string_quotes=True))
    launch = json.loads((folder / "launch-template.json").read_text(encoding="utf-8"))
    (machine,) = (block["aws_instance"]["machine"] for block in document["resource"] if "aws_instance" in block)
    assert machine["instance_type"] == launch["InstanceType"]
    assert machine["user_data_base64"] == launch["UserData"]
    assert machine["root_block_device"][0]["volume_size"] == launch["BlockDeviceMappings"][0]["Ebs"]["VolumeSize"]
    assert ("instance_market_options" in machine) == ("InstanceMarketOptions" in launch)
    assert machine["metadata_options"][0]["http_tokens"] == "required"
    assert "ingress" in str(document)


@pytest.mark.cloud_init
@each(having("user-data.yaml"))
def test_user_data_passes_the_schema_check_of_cloud_init(folder: Path, cloud_init: str):
    command = [cloud_init, "schema", "--config-file", str(folder / "user-data.yaml")]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.compose
@each(having("compose.yaml"))
def test_compose_file_passes_docker_compose_config(folder: Path, docker_compose: tuple[str, ...]):
    command = [*docker_compose, "--file", str(folder / "compose.yaml"), "config", "--quiet"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
