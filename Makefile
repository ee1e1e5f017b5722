# Every target is one plain command that works without make, too. demo and test make an environment
# of their own where none is active; the others are for whoever has one.
.DEFAULT_GOAL := help
.PHONY: help unit compile device test all device-all golden bench lint docs site demo

help:  ## print the targets
	@sed -n 's/^\([a-z-]*\):  ## /\1	/p' $(MAKEFILE_LIST) | expand -t 12

unit:  ## the tier of pure Python: no torch, no compiler, no process (tests/tiers.py)
	python3 -m pytest --tier unit -n 2

compile:  ## the tier that exports, compiles and runs on the CPU, but for the slow tests
	python3 -m pytest --tier compile -n 2 --dist worksteal

device:  ## the tier that needs a GPU, but for the slow tests; more processes only wait for each other
	python3 -m pytest --tier device -n 4

demo:  ## install opweld, and optimise the first example for what this machine has
	@scripts/demo.sh

test:  ## install opweld, and run the quick tests and a share of those that take long
	@scripts/test.sh

all:  ## all tests, those that take long and the slow ones, too; the log is out/all.xml
	python3 -m pytest -n 2 -m "slow or not slow" --junitxml out/all.xml

device-all:  ## the device tier with its slow tests; the log is out/device.xml
	python3 -m pytest --tier device -n 4 -m "slow or not slow" --junitxml out/device.xml

golden:  ## rewrite the golden files
	OPWELD_WRITE_GOLDEN=1 python3 -m pytest tests/golden

bench:  ## measure the CPU suite on this machine
	python3 benchmarks/run.py cpu

lint:  ## the checks of .ci/run
	ruff check . && ruff format --check . && mypy
	clang-format --dry-run -Werror src/opweld/device/*/*.cuh src/opweld/device/*/*.h

docs:  ## rewrite the generated parts of the documentation
	python3 docs/generate.py

site:  ## build the pages as a site, in out/site; needs '.[docs]'
	python3 -m mkdocs build --strict
