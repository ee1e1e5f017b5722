# Every target is one plain command that works without make, too.
.DEFAULT_GOAL := help
.PHONY: help test all gpu golden bench lint docs demo

help:  ## print the targets
	@sed -n 's/^\([a-z]*\):  ## /\1	/p' $(MAKEFILE_LIST) | expand -t 10

test:  ## what needs neither a GPU nor much time
	python3 -m pytest -n 2

all:  ## with the tests that take long
	python3 -m pytest -n 2 -m "slow or not slow"

gpu:  ## the tests that need a GPU, but for the slow ones; more processes only wait for each other
	python3 -m pytest -m "gpu and not slow" -n 4

golden:  ## rewrite the golden files
	OPWELD_WRITE_GOLDEN=1 python3 -m pytest tests/golden

bench:  ## measure the CPU suite on this machine
	python3 benchmarks/run.py cpu

lint:  ## the checks of .ci/run
	ruff check . && ruff format --check . && mypy

docs:  ## rewrite the generated parts of the documentation
	python3 docs/generate.py

demo:  ## optimise the first example
	python3 -m opweld optimize examples/gelu.py -o out/gelu_new.py
