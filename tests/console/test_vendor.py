"""What is not ours among the console's files: named, licensed, and the very bytes that were examined."""

import hashlib
import tomllib
from pathlib import Path

VENDOR = Path(__file__).resolve().parents[2] / "src/makegood/console/static/vendor"


def test_every_vendored_file_is_the_one_that_its_list_names() -> None:
    """And no other file is there."""
    entries = tomllib.loads((VENDOR / "vendor.toml").read_text(encoding="utf-8"))
    there = {path.name for path in VENDOR.iterdir()} - {"vendor.toml"}
    assert there == {entry[name] for entry in entries.values() for name in ("file", "licence_file")}
    for name, entry in entries.items():
        assert hashlib.sha256((VENDOR / entry["file"]).read_bytes()).hexdigest() == entry["sha256"], name
        assert (VENDOR / entry["licence_file"]).stat().st_size > 100
        assert {"package", "version", "licence", "source"} <= set(entry)
