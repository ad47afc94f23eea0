# Everything that a contributor or a CI machine runs. One .venv serves all; it is made again when dependencies change.

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.made
PIP := -m pip --disable-pip-version-check --no-input -qq
WORKERS ?= logical --maxprocesses=8
# Where the slow tests are; CI names folders.
SLOW ?= tests

# 5 is pytest's status for "nothing collected", which looks too much like a pass.
found_none = || { status=$$?; [ $$status != 5 ] || echo "No test was found: that is a failure." >&2; exit $$status; }

.PHONY: demo test test-slow test-lowest check format bench constraints clean

demo: $(STAMP)
	@$(BIN)/onward demo

test: $(STAMP)
	@$(BIN)/pytest -n $(WORKERS) -m "not slow" $(found_none)

# ONWARD_SWEEP_SAMPLE=N keeps N cases of each slow test, chosen by ONWARD_SWEEP_SEED.
test-slow: $(STAMP)
	@$(BIN)/pytest -n $(WORKERS) -m slow $(SLOW) $(found_none)

check: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy daemon/onward tests $(wildcard bench/*.py)
	@$(BIN)/pytest tests/test_rings.py

format: $(STAMP)
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(STAMP)
	@$(BIN)/python -m bench

# Each candidate is run, not only found: a pyenv shim is on PATH for versions that are not chosen, and then fails.
find_python = \
	for python in $(PYTHON) $(if $(PYTHON),,python3.13 python3.12 python3.11 python3 python); do \
	  if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then break; fi; \
	  python=; \
	done; \
	if [ -z "$$python" ]; then \
	  echo "No Python 3.11 or newer that runs$(if $(PYTHON), as $(PYTHON)). Install one (Debian, Ubuntu: apt install python3 python3-venv)," >&2; \
	  echo "or name it: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 1; \
	fi; \
	if ! "$$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then \
	  echo "$$python cannot make virtual environments. Debian, Ubuntu: apt install python3-venv" >&2; exit 1; \
	fi

define make_venv
	rm -rf $(1); "$$python" -m venv $(1) || { echo "$$python could not make $(1)" >&2; exit 1; }
endef

$(STAMP): pyproject.toml constraints.txt
	@$(find_python); \
	echo "Making $(VENV) with $$python; this takes a minute" >&2; \
	$(call make_venv,$(VENV)); \
	if ! $(BIN)/python $(PIP) install -c constraints.txt -e '.[dev]'; then \
	  echo "The dependencies could not be installed: pip says why above. Is the package index reachable?" >&2; exit 1; \
	fi; \
	touch $@

# With the oldest versions that pyproject.toml allows, of each the newest patch: what it says of them is true.
test-lowest:
	@$(find_python); dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; \
	$(call make_venv,"$$dir/venv"); \
	sed -n 's/^ *"\([a-z0-9-]*\)>=\([0-9.]*\).*/\1==\2.*/p' pyproject.toml > "$$dir/lowest"; \
	"$$dir/venv/bin/python" $(PIP) install -c "$$dir/lowest" -e '.[dev]' && \
	"$$dir/venv/bin/pytest" -n $(WORKERS) -m "not slow" $(found_none)

# Versions for the oldest Python that is supported: what works there works on newer ones.
constraints:
	@$(find_python); dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; \
	$(call make_venv,"$$dir/venv"); \
	"$$dir/venv/bin/python" $(PIP) install -e '.[dev]'; \
	{ echo '# The versions that tests and CI install. Refresh with: make constraints PYTHON=python3.11'; \
	  "$$dir/venv/bin/python" $(PIP) freeze --exclude-editable; } > "$$dir/new"; \
	cp "$$dir/new" constraints.txt; wc -l constraints.txt

clean:
	rm -rf $(VENV) dist .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
