# What a developer types.  Everything here works without a GPU, CUDA, Docker or Kubernetes.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# For those who installed rgpu into an environment of their own and have no .venv.
RUN_PYTHON = $(if $(wildcard $(BIN)/python),$(abspath $(BIN)/python),$(shell command -v $(PYTHON)))
BUILD ?= build/dev
PAGES := $(shell git ls-files '*.md' ':!docs/reference/cuda.md' ':!docs/reference/nvml.md' ':!docs/reference/ptx.md' ':!tests/spec/golden' 2>/dev/null)
CXX_FILES := $(shell git ls-files '*.cc' '*.h' ':!tests/spec/golden' 2>/dev/null)

.PHONY: dev install-fast gen man site page page-check pictures check tidy warnings test bench native sanitize sanitize-build fuzz fuzz-build fuzz-kernels fuzz-quick fuzz-seam fuzz-targets compat soak gpu-check demo-cluster demo-manager containers k8s k8s-node k8s-record format wheel wheel-test clean

# Compiled files stay in build/fast, so that the next installation compiles what has changed.
INSTALL = SKBUILD_BUILD_DIR=build/fast $(BIN)/python -m pip install --no-build-isolation

dev: ## a virtual environment with everything, rgpu installed in it
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install cmake ninja scikit-build-core setuptools-scm
	$(INSTALL) '.[dev]'

install-fast: ## installs again what has changed since `make dev`: Python in seconds
	@test -f build/fast/CMakeCache.txt || { echo "make dev comes first: it compiles all C++" >&2; exit 1; }
	$(INSTALL) --quiet --no-deps .

gen: ## regenerate what is generated and committed (protobuf code, lock, pages)
	$(BIN)/python scripts/gen_protos.py
	$(BIN)/python -m cudaspec --lock
	$(BIN)/python -m cudaspec --docs docs/reference/cuda.md
	$(BIN)/python -m cudaspec --nvml docs/reference/nvml.md
	$(BIN)/python -m cudaspec --wire rgpu_common/wire
	$(BIN)/ruff format -q rgpu_common/wire
	$(BIN)/ruff check -q --fix rgpu_common/wire
	$(BIN)/python -m cudaspec --pages .
	$(BIN)/python -m rgpu_server.config_page docs/reference/server.md
	$(BIN)/python -m rgpu_cluster.manager.page docs/reference/manager.md
	$(BIN)/python -m rgpu_cluster.kubernetes.agent.page docs/reference/agent-node.md
	$(BIN)/python -m rgpu_emu.ptx.page docs/reference/ptx.md
	PYTHONPATH=. $(BIN)/python scripts/gen_json_page.py
	$(BIN)/python scripts/gen_metrics_page.py
	$(BIN)/python scripts/gen_install_words.py
	$(BIN)/python scripts/gen_tests_page.py
	cd scripts && $(abspath $(BIN))/python -m soak --page
	$(MAKE) man

man: ## man pages and the shells' completion, from the parsers of what is installed
	$(BIN)/python scripts/gen_shell_files.py

SITE ?= build/site
site: ## the documentation as a site; a broken link or a name without a text is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict --site-dir $(abspath $(SITE))

page: ## builds the page for browsers from web/, which needs Node 20 or newer
	cd web && npm ci --no-audit --no-fund && npm run check && npm run build

page-check: ## whether the page that is committed is what web/ builds
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT \
	  && cd web && npm ci --no-audit --no-fund --silent && npm run --silent check \
	  && npm run --silent build -- --logLevel error --outDir "$$folder" \
	  && diff -r "$$folder" ../rgpu_server/web/static \
	  || { echo "the page is not what web/ builds: run make page and commit it" >&2; exit 1; }

pictures: ## the pictures of docs/how-to/web-page.md, by the tests of the page
	RGPU_TEST_SCREENSHOTS=$(abspath docs/images) $(BIN)/pytest -n 0 tests/web_page

# Those that take longest come first.
CHECKS := mypy mdformat clang-format proselint codespell ruff ruff-format imports page
CHECK_JOBS ?= $(shell nproc)
check: ## everything that reads the code without running it
	@$(MAKE) --no-print-directory --keep-going --output-sync --jobs=$(CHECK_JOBS) $(CHECKS:%=check-%)

.PHONY: $(CHECKS:%=check-%)
check-mypy:
	$(BIN)/mypy
check-mdformat:
	@echo mdformat; $(BIN)/mdformat --check $(PAGES)
check-clang-format:
	@echo clang-format; $(BIN)/clang-format --dry-run --Werror $(CXX_FILES)
check-proselint:
	@echo proselint; $(BIN)/proselint check --config scripts/proselint.json $(PAGES)
check-codespell:
	$(BIN)/codespell
check-ruff:
	$(BIN)/ruff check .
check-ruff-format:
	$(BIN)/ruff format --check .
check-imports:
	$(BIN)/lint-imports
check-page:
	$(BIN)/python scripts/check_page.py

TIDY_FILES ?= $(filter-out tests/% fuzz/% %.h,$(CXX_FILES))
tidy: ## clang-tidy over the C++ that is installed: takes minutes; TIDY_FILES names fewer files
	cmake -S . -B build/tidy -DCMAKE_CXX_COMPILER=g++ -DPython3_EXECUTABLE=$(abspath $(BIN)/python)
	cmake --build build/tidy --target rgpu_gen_files
	@set -e; for file in $(TIDY_FILES); do grep -qF "/$$file\"" build/tidy/compile_commands.json && echo $$file || true; done \
	  | nice xargs -P2 -n4 $(BIN)/clang-tidy -p build/tidy --quiet

warnings: ## g++ reads the C++ that is installed, with warnings as errors
	PATH=$(abspath $(BIN)):$$PATH $(BIN)/python scripts/gxx_warnings.py

format:
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CXX_FILES)
	$(BIN)/mdformat $(PAGES)

test: ## the tests, against what is installed
	$(BIN)/python -m pip install '.[test]'
	$(BIN)/pytest

native: ## C++ alone, with its tests
	cmake -S . -B $(BUILD) -DRGPU_TESTS=ON -DRGPU_WERROR=ON -DRGPU_PRECOMPILE=OFF -DPython3_EXECUTABLE=$(abspath $(BIN)/python)
	cmake --build $(BUILD) -j2
	ctest --test-dir $(BUILD) --output-on-failure

sanitize: ## worker, emulated device and shim under ASan and UBSan (the C++ tests always are)
	$(BIN)/python tests/sanitize/run.py

sanitize-build: ## only compiles them, and the targets of `make fuzz`
	$(BIN)/python tests/sanitize/run.py --build

bench: ## the figures of docs/reference/benchmarks.md
	$(BIN)/python -m benchmarks.calls --json build/calls.json

FUZZ_TARGETS := frame_reader graph_definition handshake channels commands chunks http2 image probe ring zip
FUZZ_SECONDS ?= 20
fuzz: fuzz-targets fuzz-kernels ## random input for everything that reads bytes of a peer, and random PTX

fuzz-targets: fuzz-build ## libFuzzer on everything that reads bytes of a peer (needs clang)
	$(BIN)/python fuzz/seeds.py build/seeds
	set -e; for target in $(FUZZ_TARGETS); do \
	  mkdir -p build/corpus/$$target; \
	  build/sanitized/fuzz/fuzz_$$target -max_total_time=$(FUZZ_SECONDS) -timeout=10 -verbosity=0 -print_final_stats=1 \
	    -artifact_prefix=build/ build/corpus/$$target build/seeds/$$target; \
	done

fuzz-kernels: ## random PTX against an interpreter, on a server of its own (needs no clang)
	$(BIN)/python fuzz/kernels --seconds $(FUZZ_SECONDS) --keep build

fuzz-seam: ## random operations and damaged messages of arrays, on a server of its own
	$(BIN)/python fuzz/seam --seconds $(FUZZ_SECONDS) --keep build

fuzz-build: ## only compiles the targets
	$(BIN)/python tests/sanitize/run.py --build-fuzz

fuzz-quick: ## the same for five seconds each, as in CI
	$(MAKE) fuzz FUZZ_SECONDS=5

PROGRAMS ?=
compat: ## other programs' own test suites over the wire: hours; PROGRAMS="numba-cuda drjit" are some
	$(BIN)/python -m pip install '.[test]'
	$(BIN)/pytest tests/compat/test_nvjitlink.py --run-compat
	cd tests && $(abspath $(BIN))/python -m compat.runner $(PROGRAMS)

PARTS ?=
soak: ## long counts, more than a day; PARTS="cluster-kills fuzz-ring" are some, PARTS=--list shows them
	$(if $(filter --list,$(PARTS)),,$(BIN)/python -m pip install '.[test]')
	cd scripts && $(abspath $(BIN))/python -m soak $(PARTS)

gpu-check: ## the same programs in process and over the wire on NVIDIA's driver
	$(PYTHON) tests/gpu/check.py

ARCH ?= $(shell uname -m)
wheel: ## dist/: the sdist, and a manylinux_2_28 wheel for ARCH (x86_64 or aarch64); no compiler is needed
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -r scripts/wheel.txt
	$(BIN)/python scripts/wheel.py --sdist
	$(BIN)/python scripts/wheel.py --arch $(ARCH)

wheel-test: wheel ## installs that wheel, and tests it
	wheel=$$(echo dist/rgpu_cuda-*manylinux*_$(ARCH).whl) && $(BIN)/python -m pip install "$$wheel[test]" \
	  && RGPU_WHEEL=$$wheel $(BIN)/pytest -n 0 tests/packaging

demo-cluster: ## two nodes, three clients on three networks, a Prometheus, in namespaces (needs root)
	$(RUN_PYTHON) examples/cluster

demo-manager: ## a manager that places four programs on three nodes, a drain and a death (needs root)
	$(RUN_PYTHON) examples/cluster docker-compose.manager.yml

containers: ## the images, and docker-compose.yml under podman (Debian 12, needs root)
	$(BIN)/python -m pip install '.[containers]'
	$(BIN)/pytest tests/containers --run-containers --numprocesses=0 -o faulthandler_timeout=0

k8s: ## a Kubernetes control plane, helm and kustomize, built by Go into the user's cache, and the tests against them
	$(BIN)/python -m pip install '.[test]'
	cd tests && $(abspath $(BIN))/python -m helpers.controlplane
	cd tests && $(abspath $(BIN))/python -m helpers.helm
	cd tests && $(abspath $(BIN))/python -m helpers.kustomize
	cd tests && $(abspath $(BIN))/python -m helpers.certmanager
	$(BIN)/pytest --all tests/kubernetes

k8s-node: ## containerd, built by Go into the user's cache, and the test of a node with it (root, runc)
	$(BIN)/python -m pip install '.[test]'
	cd tests && $(abspath $(BIN))/python -m helpers.controlplane
	cd tests && $(abspath $(BIN))/python -m helpers.helm
	cd tests && $(abspath $(BIN))/python -m helpers.containerd
	RGPU_TEST_SOAK=1 $(BIN)/pytest --all -n 0 tests/kubernetes/test_containerd.py

k8s-record: ## what that API server says, for the tests of machines without it (tests/transcripts)
	$(BIN)/python -m pip install '.[test]'
	cd tests && $(abspath $(BIN))/python -m transcripts.record

clean:
	rm -rf build dist
