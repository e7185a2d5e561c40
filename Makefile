# Set-up happens on the first call and again when setup.cfg or pyproject.toml changes; all of it goes into .venv.
#   make pretrain                 the embedded sample, start to end
#   make pretrain ARGS="--resume" more arguments for the command
#   make test                     the tests          make test ARGS="tests/evaluation -q"
#   make lint                     ruff and the law of imports
#   make drill                    power cuts, kills, full disks and damage, on purpose   make drill ARGS=--short
#   PYTHON=python3.12 make ...    another interpreter than python3

PYTHON ?= python3
ARGS ?=
VENV := .venv
RUN := $(VENV)/.installed
DEV := $(VENV)/.installed-dev
PIP := $(VENV)/bin/python -m pip --disable-pip-version-check

# On a CPU a training step allocates and frees hundreds of megabytes; huge pages save most of the time in page faults
# (measured: a masked-LM step of 0.61 s became 0.26 s). It must be set before Python starts.
export GLIBC_TUNABLES ?= glibc.malloc.hugetlb=1

.PHONY: pretrain test lint drill clean

pretrain: $(RUN)
	$(VENV)/bin/realm pretrain sample $(ARGS)

test: $(DEV)
	$(VENV)/bin/python -m pytest $(ARGS)

drill: $(RUN)
	$(VENV)/bin/realm drill $(ARGS)

lint: $(DEV)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/lint-imports

clean:
	rm -rf $(VENV)

# An old Python must be able to read this line and say what it is. A system may have pip without ensurepip (Debian
# without python3-venv): then its pip puts one into the new environment.
$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit("found Python %d.%d as $(PYTHON), wanted 3.11 or newer; type: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11" % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	@echo "Making $(VENV) and installing into it, once; about a minute."
	@$(PYTHON) -m venv $(VENV) \
	  || { $(PYTHON) -m venv --clear --without-pip $(VENV) && $(PYTHON) -m pip --python $(VENV)/bin/python install pip; } \
	  || { rm -rf $(VENV); exit 1; }

$(RUN): setup.cfg pyproject.toml | $(VENV)/bin/python
	$(PIP) install --quiet --editable .
	@touch $@

$(DEV): setup.cfg pyproject.toml | $(VENV)/bin/python
	$(PIP) install --quiet --editable '.[dev]'
	@touch $@ $(RUN)
