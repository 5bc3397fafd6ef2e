# make crawl                                        the bundled demo site, on this machine only
# make crawl SEED=https://example.org/ DEPTH=2      a site; quote a SEED that contains & or ;
# make crawl SEED=... ARGS="-a scope=domain -s DOWNLOAD_DELAY=0.5"
# make test                                         style, types, tests
# make clean                                        removes the venv and caches, never crawled pages

PYTHON ?= python3
ARGS ?=

# The seed reaches the shell through the environment and is never expanded by make or parsed by the shell, so that the
# characters & ; $ ( ' of a URL are safe.
ifneq ($(origin SEED),undefined)
export CRAWL_SEED := $(value SEED)
unexport SEED
endif
ifneq ($(origin DEPTH),undefined)
export CRAWL_DEPTH := $(value DEPTH)
unexport DEPTH
endif

.PHONY: crawl test packages clean

crawl: .venv/run.stamp
ifeq ($(origin SEED),undefined)
	.venv/bin/python -m tinycrawl.demo $${CRAWL_DEPTH+-a depth="$$CRAWL_DEPTH"} $(ARGS)
else
	.venv/bin/scrapy crawl site -a seed="$$CRAWL_SEED" -a depth="$${CRAWL_DEPTH-2}" $(ARGS)
endif

test: packages .venv/test.stamp
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy --strict tinycrawl
	.venv/bin/pytest -n 2 --dist loadfile

# What the tests need from the system, nginx for one; nothing happens where it is there.
packages:
	PYTHON="$(PYTHON)" .ci/packages

.venv/run.stamp: requirements.txt
	$(PYTHON) -m venv .venv
	.venv/bin/pip install --quiet --disable-pip-version-check -r requirements.txt
	touch $@

.venv/test.stamp: .venv/run.stamp requirements-dev.txt
	.venv/bin/pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	touch $@

clean:
	rm -rf .venv build *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find tinycrawl tests -name __pycache__ -type d -prune -exec rm -rf {} +
