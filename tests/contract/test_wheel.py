"""The installed package: an sdist, a wheel built from it, and an environment without this repository."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("wheel")]


def run(*words, **settings):
    finished = subprocess.run(words, capture_output=True, text=True, check=False, **settings)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    """The source distribution, built from a copy: building writes nothing into the repository."""
    source = tmp_path_factory.mktemp("source") / "tgi-deploy"
    ignored = shutil.ignore_patterns(".git", ".venv*", "dist", "__pycache__", ".*_cache", "tests")
    shutil.copytree(REPOSITORY, source, ignore=ignored)
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", cwd=source)
    (built,) = (source / "dist").glob("*.tar.gz")
    return built


@pytest.fixture(scope="module")
def wheel(sdist, tmp_path_factory):
    unpacked = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        # `extractall(filter=…)` came with Python 3.11.4; before it, this attribute is without effect.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(unpacked)  # noqa: S202 -- an archive that this test has built
    (source,) = unpacked.iterdir()
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", cwd=source)
    (built,) = (source / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The console script in a fresh environment; dependencies are those of the running one, not downloaded again."""
    home = tmp_path_factory.mktemp("installed")
    venv.create(home, with_pip=False, symlinks=True)
    python = home / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", str(wheel))
    site = run(str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    (Path(site) / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return home / "bin" / "tgi-deploy"


def clean_environment():
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def test_the_wheel_contains_only_code_and_data(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert any(name.startswith("tgi_deploy/_data/profiles/models/") for name in names)
    assert any(name.startswith("tgi_deploy/_data/templates/") for name in names)
    assert "tgi_deploy/py.typed" in names
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"tgi_deploy"}


def test_the_wheel_contains_the_license(wheel, sdist):
    assert any(name.endswith("licenses/LICENSE") for name in zipfile.ZipFile(wheel).namelist())
    with tarfile.open(sdist) as archive:
        assert any(name.endswith("/LICENSE") for name in archive.getnames())


def test_the_installed_wheel_runs(installed, tmp_path):
    where = run(
        str(installed.parent / "python"), "-c", "import tgi_deploy; print(tgi_deploy.__file__)",
        cwd=tmp_path, env=clean_environment(),
    )  # fmt: skip
    assert Path(where.strip()).is_relative_to(installed.parents[1])


def test_the_installed_wheel_plans(installed, tmp_path):
    out = run(str(installed), "plan", "llama3-13b", "--budget", "5", "--json", cwd=tmp_path, env=clean_environment())
    chosen = json.loads(out)["data"]["plan"]["chosen"]
    assert chosen["instance_type"] == "g5.xlarge"
    assert list(tmp_path.iterdir()) == []


def test_templates_are_found(installed, tmp_path):
    command = ("render", "llama3-13b", "--budget", "5", "--as", "user-data")
    out = run(str(installed), *command, cwd=tmp_path, env=clean_environment())
    assert out.startswith("#cloud-config\n")
