# make crawl                                        the bundled demo site, on this machine only
# make crawl SEED=https://example.org/ DEPTH=2      a site; quote a SEED that contains & or ;
# make crawl SEED=... ARGS="-a scope=domain -s DOWNLOAD_DELAY=0.5"
# make scrapyd                                      the service that runs crawls as jobs, on this machine only
# make deploy TARGET=local                          hands it this code
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

ifneq ($(origin TARGET),undefined)
export DEPLOY_TARGET := $(value TARGET)
unexport TARGET
endif

.PHONY: crawl scrapyd deploy test packages clean bench bench-quick bench-scale bench-packages

crawl: .venv/run.stamp
ifeq ($(origin SEED),undefined)
	.venv/bin/python -m tinycrawl.demo $${CRAWL_DEPTH+-a depth="$$CRAWL_DEPTH"} $(ARGS)
else
	.venv/bin/scrapy crawl site -a seed="$$CRAWL_SEED" -a depth="$${CRAWL_DEPTH-2}" $(ARGS)
endif

scrapyd: .venv/scrapyd.stamp
	.venv/bin/python service.py start

deploy: .venv/scrapyd.stamp
	.venv/bin/python service.py deploy "$${DEPLOY_TARGET-local}"

test: packages .venv/test.stamp
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy --strict tinycrawl
	.venv/bin/pytest -n 2 --dist loadfile

# What the tests need from the system, nginx for one; nothing happens where it is there.
packages:
	PYTHON="$(PYTHON)" .ci/packages

# tinycrawl measured against other crawlers, on this machine only: about twenty minutes, on two cores that do nothing
# else. What cannot be installed is left out of the tables.
bench: bench-packages .venv/run.stamp .venv-bench/stamp
	.venv/bin/python bench/compare.py
	.venv/bin/python bench/delay.py

# The same in less than two minutes.
bench-quick: bench-packages .venv/run.stamp
	.venv/bin/python bench/compare.py --pages 500 --rounds 3 --bodies plain --tools tinycrawl CrawlSpider wget HTTrack
	.venv/bin/python bench/delay.py --pages 60 --tools tinycrawl

# Large sites, and many at a time. A site of 200,000 pages too: .venv/bin/python bench/scale.py sites --pages 200000
bench-scale: .venv/run.stamp
	.venv/bin/python bench/scale.py sites
	.venv/bin/python bench/scale.py polite

bench-packages:
	-bench/packages

# Without its stamp it counts as not installed. It is not for git, ruff or anybody else to look into.
.venv-bench/stamp: bench/requirements.txt
	$(PYTHON) -m venv .venv-bench
	echo '*' >.venv-bench/.gitignore
	-.venv-bench/bin/pip install --quiet --disable-pip-version-check -r bench/requirements.txt && touch $@

.venv/run.stamp: requirements.txt
	$(PYTHON) -m venv .venv
	.venv/bin/pip install --quiet --disable-pip-version-check -r requirements.txt
	touch $@

.venv/scrapyd.stamp: .venv/run.stamp requirements-scrapyd.txt
	.venv/bin/pip install --quiet --disable-pip-version-check -r requirements-scrapyd.txt
	touch $@

.venv/test.stamp: .venv/scrapyd.stamp requirements-dev.txt
	.venv/bin/pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	touch $@

clean:
	rm -rf .venv .venv-bench build setup.py *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find tinycrawl tests -name __pycache__ -type d -prune -exec rm -rf {} +
