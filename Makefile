# Two commands do all the set-up: `make demo` runs the main job, `make test` the tests. Both need Python 3.11 or newer,
# make and the package registry.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CORES ?= all
export PATH := $(CURDIR)/$(BIN):$(PATH)

.PHONY: demo test test-fast test-slurm lint schema clean doctor help

help:
	@echo "make demo       run the demo: a real small model on the bundled benchmark"
	@echo "make doctor     look over what the demo needs; CONFIG='a.yaml b.yaml' for another run"
	@echo "make test       all tests but those on SLURM; make test-fast leaves out the slow ones"
	@echo "make test-slurm tests on a SLURM of their own (as root, with Debian's slurmctld slurmd slurm-client munge)"
	@echo "make lint       formatter, linter, type checker, workflow lint"
	@echo "make schema     write schemas/config.schema.json anew"

$(VENV)/run.done: requirements.txt constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "longflow needs Python 3.11 or newer, this is " + sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt -c constraints.txt
	touch $@

$(VENV)/dev.done: $(VENV)/run.done requirements-dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt -c constraints.txt
	touch $@

demo: $(VENV)/run.done
	snakemake --cores $(CORES)
	@python -m scripts.preview
	@echo "Tables, leaderboard and plots are in results/."

doctor: $(VENV)/run.done
	@python -m scripts.doctor $(if $(CONFIG),--configfile $(CONFIG))

# Apart from the rest: with the plugin in sight every start of snakemake is slower, and the tests start it often.
$(VENV)/slurm.done: $(VENV)/dev.done requirements-slurm.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target $(VENV)/slurm -r requirements-slurm.txt
	touch $@

test: $(VENV)/dev.done
	python -m pytest -n 2 -m "not slurm"

test-slurm: $(VENV)/slurm.done
	PYTHONPATH=$(CURDIR)/$(VENV)/slurm python -m pytest -m slurm tests/test_slurm.py

test-fast: $(VENV)/dev.done
	python -m pytest -n 2 -m "not slow"

lint: $(VENV)/dev.done
	ruff format --check .
	ruff check .
	mypy
	snakefmt --check Snakefile rules
	snakemake --lint

schema: $(VENV)/run.done
	python -m scripts.schema > schemas/config.schema.json

clean:
	rm -rf $(VENV) .cache .snakemake .mypy_cache .ruff_cache .pytest_cache .hypothesis
