#!/usr/bin/env bash
# Writes requirements.lock: every package of the environment, pinned, with the hashes of its files.
# pip-tools is installed into a folder of its own, so that it is no part of what it writes down.
# Without isolation: in there, what stands in that folder would count as installed and yet not be found.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

.venv/bin/python -m pip install -qq --upgrade --target .bootstrap/pip-tools pip-tools
PYTHONPATH=.bootstrap/pip-tools .venv/bin/python -m piptools compile --quiet --upgrade --no-build-isolation --generate-hashes \
    --allow-unsafe --all-build-deps --extra test --strip-extras \
    --no-header --no-emit-index-url --no-emit-find-links --no-emit-trusted-host \
    --output-file requirements.lock pyproject.toml
.venv/bin/python -m scripts.constraints
echo "makegood: requirements.lock is written; make test, then commit it" >&2
