"""Fetches through npm what the console's pages use and is not ours: versions and hashes are in vendor.toml.

A file whose hash differs is not written; ``--accept`` writes it, and its hash into vendor.toml.
"""

import hashlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "src/makegood/console/static/vendor"


def main() -> int:
    """Fetch every package of vendor.toml."""
    npm = shutil.which("npm") or sys.exit("makegood: npm is not installed")
    about = FOLDER / "vendor.toml"
    text = about.read_text(encoding="utf-8")
    for name, entry in tomllib.loads(text).items():
        with tempfile.TemporaryDirectory() as folder:
            package = f"{entry['package']}@{entry['version']}"
            subprocess.run(
                [npm, "pack", "--silent", package], cwd=folder, check=True, stdout=subprocess.DEVNULL
            )
            (archive,) = Path(folder).glob("*.tgz")
            with tarfile.open(archive) as bundle:
                data = _file(bundle, f"package/{entry['from']}")
                licence = _file(bundle, "package/LICENSE")
        sha256 = hashlib.sha256(data).hexdigest()
        if sha256 != entry["sha256"]:
            if "--accept" not in sys.argv:
                print(
                    f"{name}: {package} has sha256 {sha256}, and vendor.toml says {entry['sha256']}",
                    file=sys.stderr,
                )
                return 1
            text = re.sub(entry["sha256"], sha256, text)
            about.write_text(text, encoding="utf-8")
        (FOLDER / entry["file"]).write_bytes(data)
        (FOLDER / entry["licence_file"]).write_bytes(licence)
        print(f"{name} {entry['version']}: {len(data):,} bytes")
    return 0


def _file(archive: tarfile.TarFile, name: str) -> bytes:
    member = archive.extractfile(name)
    if member is None:
        raise FileNotFoundError(name)
    return member.read()


if __name__ == "__main__":
    sys.exit(main())
