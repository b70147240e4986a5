# Developers' commands. A machine needs a Rust toolchain, Python 3.10 or later and make; everything else is set up here,
# inside this folder: uv in .uv (if there is none), torch and the tools in .venv and .venv-oldest.
#
#   make demo    train on 4 ranks in one process, then as one rank of 512
#   make test    every test: Rust, documentation, Python on the newest torch, a smaller set on the oldest
#   make lint    formatters, linters, type checks, stub check, licences of dependencies
#   make fmt     format and fix
#   make mutants make operations wrong on purpose: do the tests notice?
#   make soak    random programs on both sides: make soak N=2000 SEED=1
#   make bench   benchmarks; needs an otherwise idle machine
#   make clean   remove what was built; .venv and .venv-oldest stay

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := demo
.DELETE_ON_ERROR:

PYTHON ?= python3
# Python tests that run at a time; most of them wait for a process of their own.
JOBS ?= 2
VENV := .venv
OLDEST := .venv-oldest
UV := $(or $(shell command -v uv 2>/dev/null),.uv/bin/uv)
BIN := $(VENV)/bin
# Compiled at once: importing torch takes seconds more without, in every process of the tests.
PIP := $(UV) pip install --quiet --compile-bytecode --python

# What the extension module is made of. The Python files are used in place.
RUST := Cargo.toml Cargo.lock pyproject.toml $(shell find crates -name '*.rs' -o -name Cargo.toml)

# Stamps: what is newer than its stamp is done again, everything else is not.
VENV_MADE := $(VENV)/.made
VENV_RUN := $(VENV)/.run
VENV_DEV := $(VENV)/.dev
BUILT := $(VENV)/.built
OLDEST_DEV := $(OLDEST)/.dev
OLDEST_BUILT := $(OLDEST)/.built
WHEEL := target/wheels/.built

N ?= 2000
SEED ?= 1

.PHONY: demo soak test test-rust test-doc test-python test-oldest mutants lint lint-rust lint-python deny fmt bench build clean

build: $(BUILT)

demo: $(BUILT)
	@printf '\n== 4 ranks in one process: real data, right numbers\n'
	$(BIN)/allranks run -n 4 examples/fsdp_tp.py
	@printf '\n== rank 17 of 512: no communication, and a model that only 512 ranks would share\n'
	$(BIN)/allranks run -n 512 --rank 17 examples/fsdp_tp.py --speaker 17 --width 1024 --layers 4

# -- tests

test: test-rust test-doc test-python test-oldest

test-rust:
	@if cargo nextest --version >/dev/null 2>&1; then \
		set -x; cargo nextest run --workspace; \
	else \
		set -x; cargo test --workspace --lib --bins --tests --examples; \
	fi

test-doc:
	cargo test --workspace --doc --quiet

test-python: $(BUILT) $(VENV_DEV)
	$(BIN)/pytest -n $(JOBS) $(PYTEST_ARGS)

test-oldest: $(OLDEST_BUILT)
	$(OLDEST)/bin/pytest -n $(JOBS) -m oldest $(PYTEST_ARGS)

# Takes a while, and is no part of `test`. MUTANTS="first:send all_gather" selects some.
mutants: $(VENV_DEV)
	$(BIN)/python scripts/mutants.py --jobs $(JOBS) $(MUTANTS)

# Compares N random programs, from SEED on, with real gloo; shrinks those that differ.
soak: $(BUILT) $(VENV_DEV)
	cargo run --quiet --package allranks-soak -- run --count $(N) --seed $(SEED) --python $(BIN)/python $(SOAK_ARGS)

# -- linters

# Tests do to torch what its own annotations do not foresee.
LOOSE := --explicit-package-bases $(addprefix --disable-error-code=,arg-type attr-defined assignment call-overload \
	comparison-overlap index misc operator union-attr)

lint: lint-rust lint-python deny

lint-rust:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --quiet -- -D warnings
	cargo clippy --package allranks-py --package allranks-engine --all-targets --features mutants --quiet -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --quiet

lint-python: $(BUILT) $(VENV_DEV)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/mypy $(LOOSE) tests/python/*.py tests/soak examples scripts
	test -f python/allranks/_allranks.pyi # without a stub stubtest is content with anything
	cd $(VENV) && MYPYPATH=../python bin/stubtest --concise allranks._allranks

# Licences and sources of dependencies. cargo-deny takes minutes to build, so a missing one is skipped, except in CI.
deny:
	@scripts/cargo-deny check --hide-inclusion-graph bans licenses sources

fmt: $(VENV_DEV)
	cargo fmt --all
	$(BIN)/ruff check --fix --quiet
	$(BIN)/ruff format --quiet

bench: $(BUILT) $(VENV_DEV)
	cargo bench --workspace --benches
	$(BIN)/python scripts/bench.py

clean:
	rm -rf target build $(BUILT) $(OLDEST_BUILT)
	find python -name '__pycache__' -prune -exec rm -rf {} +
	rm -f python/allranks/_allranks.*.so python/allranks/_allranks.pyd

# -- setting up

.uv/bin/uv:
	scripts/get-uv $(PYTHON) .uv

$(VENV_MADE): | $(UV)
	@scripts/check-tools $(PYTHON)
	$(UV) venv --quiet --allow-existing --python "$$(command -v $(PYTHON))" $(VENV)
	@touch $@

$(VENV_RUN): pyproject.toml $(VENV_MADE)
	$(PIP) $(BIN)/python --group build --group torch-newest
	@touch $@

$(VENV_DEV): pyproject.toml $(VENV_RUN)
	$(PIP) $(BIN)/python --group dev
	@touch $@

$(BUILT): $(RUST) $(VENV_RUN)
	PATH="$(abspath $(dir $(UV))):$$PATH" VIRTUAL_ENV="$(abspath $(VENV))" \
		$(BIN)/maturin develop --release --quiet --uv --group build
	@touch $@

$(WHEEL): $(RUST) $(VENV_RUN) $(shell find python -name '*.py' -o -name '*.pyi' -o -name py.typed)
	rm -f target/wheels/allranks-*.whl
	$(BIN)/maturin build --release --quiet --interpreter $(BIN)/python --out target/wheels
	@touch $@

# The oldest torch gets the package as users get it: from a wheel.
$(OLDEST_DEV): pyproject.toml $(VENV_MADE)
	$(UV) venv --quiet --allow-existing --python "$$(command -v $(PYTHON))" $(OLDEST)
	$(PIP) $(OLDEST)/bin/python --group test --group torch-oldest
	@touch $@

$(OLDEST_BUILT): $(WHEEL) $(OLDEST_DEV)
	$(PIP) $(OLDEST)/bin/python --no-deps --reinstall target/wheels/allranks-*.whl
	@touch $@
