# What a developer types.  Everything here works without a GPU, CUDA, Docker or Kubernetes.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
BUILD ?= build/dev
CXX_FILES := $(shell git ls-files '*.cc' '*.h' ':!tests/spec/golden' 2>/dev/null)

.PHONY: dev gen check test bench native sanitize fuzz compat gpu-check format clean

dev: ## a virtual environment with everything, rgpu installed in it
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install '.[dev]'

gen: ## regenerate what is generated and committed (protobuf code, opcode lock, coverage page)
	$(BIN)/python scripts/gen_protos.py
	$(BIN)/python -m cudaspec --lock
	$(BIN)/python -m cudaspec --docs docs/reference/cuda.md

check: ## everything that reads the code without running it
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@echo clang-format; $(BIN)/clang-format --dry-run --Werror $(CXX_FILES)

format:
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CXX_FILES)

test: ## the tests, against what is installed
	$(BIN)/python -m pip install '.[test]'
	$(BIN)/pytest

native: ## C++ alone, with its tests
	cmake -S . -B $(BUILD) -DRGPU_TESTS=ON -DRGPU_WERROR=ON -DPython3_EXECUTABLE=$(abspath $(BIN)/python)
	cmake --build $(BUILD) -j2
	ctest --test-dir $(BUILD) --output-on-failure

sanitize: ## C++ tests under ASan and UBSan
	cmake -S . -B build/asan -DRGPU_TESTS=ON -DRGPU_WERROR=ON -DRGPU_SANITIZE=address,undefined -DPython3_EXECUTABLE=$(abspath $(BIN)/python)
	cmake --build build/asan -j2
	ctest --test-dir build/asan --output-on-failure

bench: ## the figures of docs/benchmarks.md
	$(BIN)/python -m benchmarks.calls --json build/calls.json

fuzz: ## a minute of libFuzzer on everything that reads bytes from the wire (needs clang)
	$(BIN)/python fuzz/seeds.py build/seeds
	cmake -S . -B build/fuzz -DRGPU_FUZZ=ON -DRGPU_SANITIZE=address,undefined -DCMAKE_CXX_COMPILER=clang++ -DPython3_EXECUTABLE=$(abspath $(BIN)/python)
	cmake --build build/fuzz -j2 --target fuzz_frame_reader fuzz_handshake fuzz_commands
	build/fuzz/fuzz/fuzz_frame_reader -max_total_time=20 build/seeds/frame_reader
	build/fuzz/fuzz/fuzz_handshake -max_total_time=20 build/seeds/handshake
	build/fuzz/fuzz/fuzz_commands -max_total_time=20 build/seeds/commands

compat: ## programs too heavy for every run
	$(BIN)/python -m pip install '.[compat]'
	$(BIN)/pytest tests/compat --run-compat

gpu-check: ## the same programs in process and over the wire on NVIDIA's driver
	$(PYTHON) tests/gpu/check.py

clean:
	rm -rf build dist
