# make demo   the main job: a real model on sentences of every length, eager and compiled
# make test   all tests
# make lint   ruff everywhere, mypy up to the interpreter
# make bench  the benchmark programs, every system, each in a fresh process
# make validate  every answer of the symbolic engine over whole programs, asked of z3 (needs the extra: z3-solver)
# make runtime  the runtime without Python: build/runtime/libpliant.so, libpliant.a, and the example that serves a model
# make wheel  a wheel for this Python, in dist/
# Everything runs in .venv, made here on first use and remade when a pin changes. Needs Python 3.11, make and gcc; with
# PYTHON=python3.12 or python3.13 everything runs there, in a .venv-3.12 or .venv-3.13 of its own (there torch brings its CUDA packages).

SHELL := /bin/bash
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VERSION := $(shell "$(PYTHON)" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
VENV := .venv$(if $(filter-out 3.11,$(VERSION)),-$(VERSION))
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check --no-input -qq
NATIVE := $(wildcard pliant/native/*.c pliant/native/*.cpp pliant/native/*.h pliant/runtime/*.cpp pliant/runtime/*.h)

export HF_HUB_OFFLINE := 1
export TOKENIZERS_PARALLELISM := false

.PHONY: demo test lint bench validate wheel runtime setup clean

setup: $(VENV)/.built

demo: setup
	$(PY) -m pliant demo $(ARGS)

# A process a core, each with one thread: two cores are easily oversubscribed. The tests of a file stay together. A process that dies is
# not replaced: pytest-xdist 3.8 would wait for its file for ever.
test: setup
	OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} $(PY) -m pytest -n logical --maxprocesses 4 --dist loadfile --max-worker-restart 0 $(ARGS)

lint: setup
	$(PY) -m ruff check .
	$(PY) -m mypy

bench: setup
	$(PY) -m benchmarks.run $(ARGS)

# The compiled core comes from the files here; nothing is fetched.
wheel: setup
	$(PIP) wheel --no-build-isolation --no-deps -w dist .

validate: setup
	OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} $(PY) -m benchmarks.validate $(ARGS)

# No Python here: the library routines of pliant/native that know none, and the interpreter of plans.
CXX ?= g++
RUNTIME_FLAGS := -O2 -std=c++20 -fno-rtti -fPIC -fvisibility=hidden -Wall -Wextra -Wno-missing-field-initializers
ROUTINES := arena attention conv depthwise gemm halves int8 int8_bf16 int8_dots int8_linear int8_tiles int8_weights matmul pairs512 plain wide256 wide512
RUNTIME := $(ROUTINES:%=pliant/native/%.cpp) $(wildcard pliant/runtime/*.cpp)
RUNTIME_OBJECTS := $(patsubst pliant/%.cpp,build/runtime/%.o,$(RUNTIME))

runtime: build/runtime/libpliant.so build/runtime/libpliant.a build/runtime/serve

build/runtime/%.o: pliant/%.cpp $(wildcard pliant/native/*.h pliant/runtime/*.h)
	@mkdir -p $(@D)
	$(CXX) $(RUNTIME_FLAGS) -c $< -o $@

build/runtime/libpliant.so: $(RUNTIME_OBJECTS)
	$(CXX) -shared -Wl,-soname,libpliant.so -Wl,--exclude-libs,ALL -static-libstdc++ -static-libgcc $^ -o $@ -ldl -lpthread

build/runtime/libpliant.a: $(RUNTIME_OBJECTS)
	rm -f $@
	$(AR) rcs $@ $^

build/runtime/serve: examples/cpp/serve.cpp pliant/runtime/pliant.h build/runtime/libpliant.a
	$(CXX) -O2 -std=c++20 -Wall -Wextra -Ipliant/runtime $< build/runtime/libpliant.a -o $@ -static-libstdc++ -static-libgcc -ldl -lpthread

$(VENV)/.made:
	@"$(PYTHON)" -c 'import sys; sys.exit(0 if (3, 11) <= sys.version_info[:2] <= (3, 13) else "pliant needs Python 3.11, 3.12 or 3.13; this is " + sys.version.split()[0] + ". Try: make PYTHON=/path/to/python3.11")'
	"$(PYTHON)" -m venv --clear $(VENV)
	@touch $@

# torch alone first: asked for by another package's range, pip might resolve a newer build with gigabytes of GPU libraries.
$(VENV)/.installed: requirements.lock $(VENV)/.made
	@echo "installing the pinned packages into $(VENV), once: a minute or two"
	$(PIP) install -c requirements.lock torch==2.13.0
	$(PIP) install --no-deps -r requirements.lock
	@touch $@

# No build isolation: the extension needs Python's headers and a C++ compiler, nothing that an isolated environment would fetch.
$(VENV)/.built: setup.py pyproject.toml $(NATIVE) $(VENV)/.installed
	$(PIP) install --no-build-isolation --no-deps -e .
	@touch $@

clean:
	rm -rf .venv .venv-3.* build dist pliant.egg-info pliant/native/*.so
