"""``python -m scripts.site``: build the documentation site into build/site. Warnings are errors."""

import argparse
import os
import shutil
import sys
from importlib.metadata import version
from pathlib import Path

from sphinx.cmd.build import main as sphinx

from scripts.site import api, pages

HERE = Path(__file__).parent


def build(target: Path) -> int:
    """Build the site; return Sphinx's exit code. Each version has a folder, and the root leads to it."""
    source, number = target.parent / "site-source", ".".join(version("makegood").split(".")[:2])
    pages.write(source, api.pages())
    for name in ("conf.py", "_static", "_templates"):
        path = HERE / name
        (shutil.copytree if path.is_dir() else shutil.copy)(path, source / name)
    shutil.rmtree(target, ignore_errors=True)
    code: int = sphinx(
        ["-W", "--keep-going", "-q", "-j", "auto", "-b", "html", str(source), str(target / number)]
    )
    (target / "index.html").write_text(
        f'<!doctype html><meta http-equiv="refresh" content="0; url={number}/"><a href="{number}/">makegood {number}</a>\n',
        encoding="utf-8",
    )
    return code


def main() -> int:
    """Build, and print where the site is."""
    parser = argparse.ArgumentParser(prog="python -m scripts.site", description=__doc__)
    parser.add_argument("--out", type=Path, default=pages.ROOT / "build/site", help="the folder to write")
    options = parser.parse_args()
    os.environ["PYTHONPATH"] = str(pages.ROOT)
    code = build(options.out)
    if code == 0:
        sys.stdout.write(f"the site is {options.out}/index.html\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
