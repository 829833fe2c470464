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
# pip-tools writes down what the Python that runs it needs, and nothing that only others do.
cat >> requirements.lock <<'END'
# redis wants it on Python before 3.11.3, Debian 12's own among them; the lock is made on a newer one.
async-timeout==5.0.1 ; python_full_version < "3.11.3" \
    --hash=sha256:39e3809566ff85354557ec2398b55e096c8364bacac9405a7a1fa429e77fe76c \
    --hash=sha256:d9321a7a3d5a6a5e187e824d2fa0793ce379a202935782d555d6e9d2735677d3
END
.venv/bin/python -m scripts.constraints
echo "makegood: requirements.lock is written; make test, then commit it" >&2
