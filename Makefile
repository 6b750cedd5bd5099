# Every target sets up .venv by itself. PYTHON chooses the interpreter (3.11 or later).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: install demo test lint clean

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "omrl needs Python 3.11 or later: make PYTHON=/path/to/python3.11" >&2; exit 2; }
	@echo "installing into $(VENV): about 900 MB, one to three minutes"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(STAMP)
	$(BIN)/omrl demo

test: lint
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder

lint: $(STAMP)
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/pyright --pythonpath $(BIN)/python

clean:
	rm -rf $(VENV) .jax_cache .pytest_cache .ruff_cache build dist
