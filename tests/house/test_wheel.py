"""What a plain install brings: the package, its types, its migrations and the example; nothing else."""

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_wheel_carries_package_example_and_types(tmp_path: Path) -> None:
    """The wheel holds every source file, every migration, ``py.typed`` and the order example; no tests, no proofs."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    run = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    files = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src/makegood").rglob("*")
        if path.is_file() and path.suffix in {".py", ".sql", ".typed", ".html", ".css", ".js"}
    }
    files |= {f"makegood/examples/orders/{path.name}" for path in (ROOT / "examples/orders").glob("*.py")}
    files |= {
        f"makegood/examples/orders/page/{path.name}" for path in (ROOT / "examples/orders/page").iterdir()
    }
    assert "makegood/py.typed" in files
    assert files <= names, sorted(files - names)
    left_out = ("tests/", "src/", "docs/", "proofs/", "benchmarks/", "makegood/proofs/")
    assert not [name for name in names if name.startswith(left_out)]
