# `make serve` and `make test` do all the set-up; nothing else is needed by hand.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INFINITY := .venv-infinity
PEERS := .venv-peers
AUDIT := .venv-audit
TOOLS := build/tools
STORE := $(or $(STORE),$(LATTEMIX_STORE),model_store/artifacts)
MODELS := default fast
ARTIFACTS := $(MODELS:%=$(STORE)/%/int8/manifest.json)
COMMA := ,
SERVED := $(or $(subst $(COMMA), ,$(LATTEMIX_MODELS)),$(LATTEMIX_MODEL),default)
# Models without a precision are assembled in int8; those of other names are not ours to assemble.
SERVED_ARTIFACTS := $(filter $(MODELS:%=$(STORE)/%/%),$(foreach model,$(SERVED),\
  $(STORE)/$(subst :,/,$(model))$(if $(findstring :,$(model)),,/int8)/manifest.json))
BUILD_SOURCES := $(wildcard model_store/*.py lattemix/build/*.py lattemix/build/*.txt lattemix/build/backbones/*.py)

export LATTEMIX_STORE := $(abspath $(STORE))
export PATH := $(abspath $(TOOLS)/bin):$(PATH)

.PHONY: help serve test test-browser deploy-tools lint format alerts lock lock-check release-check bench soak sbom audit clean
.DELETE_ON_ERROR:

help:
	@echo "make serve   assemble the default model and serve it (LATTEMIX_MODELS=default,fast, HOST=, PORT=, STORE=)"
	@echo "make test    run every test that needs no browser"
	@echo "make test-browser   install Chromium if there is none, and run the playground's tests in it"
	@echo "make lint    check style, types and links; make format fixes style"
	@echo "make docs    build the documentation site into build/site"
	@echo "make deploy-tools   unpack promtool, nginx, kustomize and docker-compose (Debian), for lint and test to use"
	@echo "make alerts   write Kubernetes' PrometheusRule from deploy/monitoring/alerts.yml"
	@echo "make lock    regenerate requirements/*.txt from pyproject.toml and constraints.txt; make lock-check fails if they are out of date"
	@echo "make release-check   build wheel and sdist, and try them on every supported Python at hand (CHECK=--all: fail if one is missing)"
	@echo "make bench   measure speed and memory beside other libraries (BENCH='latency --quick')"
	@echo "make soak MINUTES=30   mixed traffic, then an overload; fails if memory, files or threads grow"
	@echo "make sbom    write CycloneDX SBOMs of the images to build/; make audit checks the locked packages for known vulnerabilities"
	@echo "make clean   remove the virtual environment, the models and the caches"

serve: $(VENV)/.serve $(SERVED_ARTIFACTS)
	@exec $(BIN)/lattemix serve $(if $(HOST),--host "$(HOST)") $(if $(PORT),--port "$(PORT)")

test: $(VENV)/.dev $(ARTIFACTS)
	$(BIN)/pytest -n 2 --dist worksteal -m "not browser" --cov

# Debian's Chromium where that can be installed, and playwright's own elsewhere.
test-browser: $(VENV)/.browser $(ARTIFACTS)
	@for name in chromium chromium-browser google-chrome; do command -v $$name >/dev/null && exit 0; done; \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -qq && \
	    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core; \
	  else $(BIN)/playwright install chromium; fi
	BROWSER_REQUIRED=1 $(BIN)/pytest tests/browser

# Without these tools, lint and test skip their checks and say so.
deploy-tools: $(TOOLS)/.unpacked

$(TOOLS)/.unpacked: deploy/tools.sh
	@bash deploy/tools.sh $(TOOLS)
	@touch $@

lint: $(VENV)/.dev docs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/hadolint Dockerfile
	$(BIN)/python deploy/check.py

# Fails on broken links and anchors. The variable hides a notice of the theme.
.PHONY: docs
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

ALERTS := deploy/monitoring/alerts.yml
RULE := deploy/kubernetes/components/prometheusrule/prometheusrule.yaml
define RULE_HEADER
# For the Prometheus operator. `make alerts` writes this file from $(ALERTS).
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: lattemix
  labels:
    app.kubernetes.io/name: lattemix
spec:
endef
export RULE_HEADER

alerts:
	@{ echo "$$RULE_HEADER"; sed 's/^./  &/' $(ALERTS); } > $(RULE)

# uv, since it resolves for x86_64 and aarch64 at once.
# Versions not in constraints.txt stay as locked; delete a lock file to upgrade them.
COMPILE := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes -c constraints.txt \
  --annotation-style line --custom-compile-command "make lock"
BACKEND := import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")

lock: $(BIN)/pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==0.13.7
	$(BIN)/$(COMPILE) pyproject.toml --extra cpu --extra otel --excludes requirements/omitted.txt -o requirements/cpu.txt
	$(BIN)/$(COMPILE) pyproject.toml --extra gpu --extra otel --excludes requirements/omitted.txt -o requirements/gpu.txt
	$(BIN)/python -c '$(BACKEND)' | $(BIN)/$(COMPILE) pyproject.toml - --extra cpu --extra export -o requirements/build.txt

# `make lock` restores a missing package and drops a superfluous one; then the committed lock differs.
lock-check: lock
	@git --no-pager diff --exit-code requirements || { \
	  echo "make: requirements/ differs from what make lock writes: commit the lines above" >&2; exit 1; }

# Writes dist/, which the release workflow publishes.
release-check: $(BIN)/pip
	@rm -rf dist
	@$(BIN)/python -c '$(BACKEND)' | xargs $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
	@$(BIN)/python -m hatchling build -d dist
	$(BIN)/python deploy/release_check.py dist $(CHECK)

bench: $(VENV)/.bench $(ARTIFACTS) $(STORE)/default/fp32/manifest.json $(INFINITY)/.installed $(PEERS)/.installed
	$(BIN)/python -m benchmarks $(BENCH)

soak: $(VENV)/.bench $(ARTIFACTS)
	$(BIN)/python -m benchmarks.soak --minutes $(or $(MINUTES),30)

# CycloneDX SBOM of each image, from its lock file.
sbom: $(AUDIT)/.installed
	@mkdir -p build
	for device in cpu gpu; do \
	  $(AUDIT)/bin/cyclonedx-py requirements requirements/$$device.txt --of JSON -o build/sbom-$$device.json || exit 1; done

# Check locked packages against the package index's advisories. Also fails if the index is unreachable.
audit: $(AUDIT)/.installed
	$(AUDIT)/bin/pip-audit --strict --disable-pip --require-hashes -r requirements/cpu.txt -r requirements/gpu.txt

clean:
	rm -rf $(VENV) $(INFINITY) $(PEERS) $(AUDIT) benchmarks/results model_store/artifacts build dist .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Order-only: installing packages does not rebuild the models.
HEAD := $(addprefix model_store/heads/%/,head.json head.safetensors latents.json calibration.json)
define BUILD
$(STORE)/%/$(1)/manifest.json: $(HEAD) $(BUILD_SOURCES) | $(VENV)/.serve
	@$(BIN)/lattemix build --head model_store/heads/$$* --precision $(1)
endef
$(foreach precision,int8 fp16 fp32,$(eval $(call BUILD,$(precision))))

$(VENV)/.serve: EXTRAS := cpu,export
$(VENV)/.serve: | $(BIN)/pip
$(VENV)/.dev: EXTRAS := dev
$(VENV)/.dev: | $(VENV)/.serve
$(VENV)/.docs: EXTRAS := docs
$(VENV)/.docs: | $(BIN)/pip
$(VENV)/.browser: EXTRAS := browser
$(VENV)/.browser: | $(VENV)/.dev
$(VENV)/.bench: EXTRAS := bench
$(VENV)/.bench: | $(VENV)/.dev

$(VENV)/.serve $(VENV)/.dev $(VENV)/.docs $(VENV)/.browser $(VENV)/.bench: pyproject.toml constraints.txt
	@echo "Installing lattemix[$(EXTRAS)] into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[$(EXTRAS)]" || { \
	  echo "make: pip could not install lattemix[$(EXTRAS)]; its lines above say why. Is a package index reachable?" >&2; exit 1; }
	@touch $@

$(AUDIT)/.installed: | $(BIN)/pip
	@$(BIN)/python -m venv --clear $(AUDIT)
	@$(AUDIT)/bin/python -m pip install --quiet --disable-pip-version-check cyclonedx-bom==7.5.0 pip-audit==2.10.1
	@touch $@

# infinity and the peers need other versions of our dependencies, hence their own environments.
# Benchmarks run without them, too. OpenVINO and NNCF report their use through openvino-telemetry,
# and do without it if it is not there.
$(INFINITY)/.installed $(PEERS)/.installed: .venv-%/.installed: benchmarks/%.txt | $(BIN)/pip
	@echo "Installing $* into $(@D)"
	@$(BIN)/python -m venv --clear $(@D)
	@$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -r $< && \
	  $(@D)/bin/python -m pip uninstall --quiet --yes openvino-telemetry && touch $@ || \
	  { rm -rf $(@D); echo "make: pip could not install $*; see above. It is left out." >&2; }

$(BIN)/pip:
	@command -v $(PYTHON) >/dev/null || { \
	  echo "make: there is no $(PYTHON); Latte-Mix needs Python 3.11 or newer: make $(MAKECMDGOALS) PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "make: Latte-Mix needs Python 3.11 or newer, and $(PYTHON) is $$($(PYTHON) --version 2>&1): make $(MAKECMDGOALS) PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "make: $(PYTHON) cannot make a virtual environment: install its venv module (Debian: python3-venv)." >&2; exit 1; }
