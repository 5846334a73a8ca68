# Everything a newcomer types: `make demo` and `make test`. Both set up what they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PROJECT ?= demo

.PHONY: demo app test test-fast check bench chaos chaos-study fuzz attack prove mutants audit setup system frontend clean

demo: $(STAMP)
	$(BIN)/gemslide demo --project $(PROJECT)

app: $(STAMP)
	$(BIN)/gemslide app --project $(PROJECT)

test: $(STAMP) system
	.ci/test $(BIN)

test-fast: $(STAMP)
	$(BIN)/pytest -n 2 --dist loadgroup -m "not prove and not slow and not browser and not display"

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# kill -9 at a hundred random moments of an ingest, of an inference and of an embedding, at fifty of a training; and damaged slide files, as many as you like (SEED=2 CASES=5000).
SEED ?= 0
CASES ?= 2000
chaos: $(STAMP)
	$(BIN)/python -m tests.pipeline.ingest.chaos --times 100 --seed $(SEED)
	$(BIN)/python -m tests.pipeline.inference.chaos --times 100 --seed $(SEED)
	$(BIN)/python -m tests.pipeline.embedding.chaos --times 100 --seed $(SEED)
	$(BIN)/python -m tests.distributed.chaos --times 50 --seed $(SEED)

# A study of 1,000 slides under killed workers, a database that goes away, a full disk and a clock that steps; half an hour.
STUDY_SLIDES ?= 1000
chaos-study: $(STAMP) system
	$(BIN)/python -m tests.pipeline.study.chaos --slides $(STUDY_SLIDES) --workers 8 --seed $(SEED)

fuzz: $(STAMP)
	$(BIN)/python -m tests.pipeline.slides.fuzz --seed $(SEED) --cases $(CASES)

# Every attack at its whole length (`make test` runs them shortened), about forty minutes.
attack: $(STAMP) system
	$(BIN)/python -m tests.attacks --seed $(SEED)

# Everything that `make test` shortens, and its result in docs/reference/proof.md; about an hour on two cores. `.ci/prove.py --only WORD`: a part.
prove: $(STAMP)
	.ci/system-packages --for-proof
	$(BIN)/python .ci/prove.py --seed $(SEED) --cases $(CASES)

# Plants the faults of tests/training/engine/mutants.toml one by one: do the tests notice? ONLY=transport: those of one file.
ONLY ?=
mutants: $(STAMP)
	$(BIN)/python .ci/mutants.py --only "$(ONLY)"

# The licence of every locked package; fails on one that may not be shipped in an Apache-2.0 product.
audit: $(STAMP)
	$(BIN)/python .ci/licences.py

setup: $(STAMP)

# By uv, which .ci/install.py gets at its locked version; by pip where there is none.
$(STAMP): requirements.lock requirements-torch.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed, $(PYTHON) is older: make PYTHON=/path/to/python3.11 ..."; exit 1; }
	@echo "installing into $(VENV): about 3 GB, a minute or a few, once"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python .ci/install.py
	$(BIN)/python -m pip check
	touch $@

system:
	.ci/system-packages

# Only for people who change the viewer's TypeScript: the built bundle is committed.
frontend:
	cd pathology_app/viewer/frontend && npm ci && npm run check && npm test && npm run build

clean:
	rm -rf $(VENV) demo test-artifacts
