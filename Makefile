SHELL := /bin/bash
.DEFAULT_GOAL := help

.PHONY: .venv
.venv: ## make the environment .venv from the lock file (every other target does so by itself)
	@scripts/environment.sh
