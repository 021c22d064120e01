# make run [ARGS="masking=all_mask nsp=true"]   set up .venv with the pinned packages, run one arm
# make test [PYTEST="-k masking"]               the same set-up, then the test suite
PY ?= python3
BIN := .venv/bin
ARGS ?=
PYTEST ?=
SPREAD := -n auto --maxprocesses 4 --dist loadfile
export WANDB_ERROR_REPORTING ?= false

.venv/.stamp: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PY) -m venv .venv
	$(BIN)/python -m pip install -q --no-compile -c constraints.txt -e '.[test]'
	touch $@

run: .venv/.stamp ## one arm on the built-in data
	$(BIN)/python -m ablate $(ARGS)

test: .venv/.stamp ## the test suite, on up to four processes
	env -u WANDB_API_KEY $(BIN)/python -m pytest -q $(SPREAD) $(PYTEST)

check: .venv/.stamp ## what CI asks of a change: lint, format, types, tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	env -u WANDB_API_KEY $(BIN)/python -m pytest -q $(SPREAD) $(PYTEST)

study: .venv/.stamp ## planted answers: four arms must lose, one must win, the null must not be called
	$(BIN)/python -m ablate study=planted compute=joblib compute.jobs=2 tracking=none $(ARGS)

help: ## this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/  /'

.PHONY: run test check study help
