"""The README that a package index shows: the text of README.md, its links led into the repository."""

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REPOSITORY = PROJECT["urls"]["Source"]


def test_a_built_package_has_no_relative_link(tmp_path: Path) -> None:
    """Links and images become absolute, their targets are files of this repository, and code stays as it is."""
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path / name)
    build = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(tmp_path / "dist")]
    run = subprocess.run(build, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    (archive,) = (tmp_path / "dist").glob("*.tar.gz")
    with tarfile.open(archive) as bundle:
        (name,) = (name for name in bundle.getnames() if name.endswith("/PKG-INFO"))
        member = bundle.extractfile(name)
        assert member
        page = member.read().decode()
    links = re.findall(r"(!?)\[[^\]]*\]\(([^)\s]+)\)", page)
    assert len(links) > 20
    for image, target in links:
        assert target.startswith(("https://", "http://", "#")), target
        if target.startswith(REPOSITORY):
            kind, _, path = target.removeprefix(REPOSITORY + "/").partition("/HEAD/")
            assert kind == ("raw" if image else "blob"), target
            assert (ROOT / path.partition("#")[0]).exists(), target
    assert "make good" in page
    assert page.count("```") == (ROOT / "README.md").read_text().count("```")
