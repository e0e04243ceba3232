# `make run` starts the site, `make test` runs the tests that take minutes. Nothing has to be installed before.
.DEFAULT_GOAL := help
DIST = dist
.PHONY: help run example run-scaled test test-all test-matrix check docs bench faults soak coverage screenshot messages format requirements package clean base dev

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1|/p' $(MAKEFILE_LIST) | while IFS='|' read -r name text; do printf '%-14s%s\n' "$$name" "$$text"; done

run: base ## Start the site on http://127.0.0.1:8000 (HOST, PORT and more: .env.example; EXTRAS=openai and others)
	@exec .venv/bin/python -m scripts.start

example: ## Start the example shop on http://127.0.0.1:8000 (examples/shop/README.md)
	@EXTRAS="mcp $(EXTRAS)" scripts/environment test
	@.venv/bin/python -m hatchling build -t wheel -d examples/shop/var/wheel >/dev/null
	@.venv/bin/python -m pip --quiet --disable-pip-version-check install --no-index --no-deps --upgrade --target examples/shop/var/package examples/shop/var/wheel/*.whl
	@PYTHONPATH=examples/shop/var/package exec .venv/bin/python examples/shop/manage.py demo

run-scaled: ## Start several processes to try out: PostgreSQL, Redis, two web processes, two runners
	@EXTRAS="scaled $(EXTRAS)" scripts/environment base && exec .venv/bin/python -m scripts.scaled

test: ## Run what is cheap of the tests, in about five minutes (only these, of all: make test ARGS=tests/turns/test_order.py)
	@scripts/test $(ARGS)

test-all: ## Run the other tests, in about 25 minutes (PART names some: browser faults hosts sdks sweeps postgres matrix)
	@scripts/test-all $(PART)

test-matrix: dev ## Run the Python tests on the newest Django (ARGS as in make test)
	@scripts/matrix $(ARGS)

check: dev ## Judge the code without running the tests: lint, types, imports, migrations, deployment
	@scripts/check

docs: dev ## Build the site of the documentation in dist/docs
	@.venv/bin/sphinx-build --quiet --fail-on-warning --keep-going docs dist/docs
	@echo "The first page is dist/docs/index.html."

bench: dev ## Measure the speed that users notice, in about five minutes (docs/benchmarks.md)
	@.venv/bin/python -m benchmarks

faults: dev ## Run every test with faults in real processes, those too that take long
	@FAULTS_LONG=1 .venv/bin/python -m pytest tests/faults $(ARGS)

soak: dev ## Kill, stop and end processes under load at random, then check (SOAK_SEED and more: docs/reliability.md)
	@DJANGO_SETTINGS_MODULE=tests.settings $(foreach name,$(filter SOAK_%,$(.VARIABLES)),$(name)='$($(name))') .venv/bin/python -m tests.faults.soak

coverage: dev ## Run the Python tests and show the lines that none of them reaches
	@.venv/bin/python -m pytest --cov --cov-report=term $(ARGS)

screenshot: dev ## Take the pictures in the docs anew
	@SCREENSHOTS=docs/images .venv/bin/python -m pytest tests/e2e/test_screenshot.py
	@SCREENSHOTS=docs/images .venv/bin/python -m pytest --part hosts tests/projects/test_example_shop.py

messages: dev ## Bring the translations up to date with the sources (docs/howto/translate.md)
	@.venv/bin/python -m scripts.messages

format: dev ## Put Python, templates, JavaScript and CSS into shape
	@.venv/bin/ruff check --fix --quiet . && .venv/bin/ruff format --quiet .
	@find templates -name '*.html' -exec .venv/bin/djade --target-version 5.2 {} +
	@if [ -x node_modules/.bin/biome ]; then node_modules/.bin/biome check --write .; fi

requirements: dev ## Pin the newest versions that requirements/*.in allow
	@compile=".venv/bin/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-strip-extras" \
		&& $$compile --python-version 3.11 --upgrade requirements/dev.in -o requirements/dev.txt \
		&& $$compile --python-version 3.12 --upgrade requirements/newest.in -o requirements/newest.txt \
		&& for file in requirements/*.in; do case $$file in */dev.in|*/newest.in) ;; \
			*) $$compile --python-version 3.11 --constraints requirements/dev.txt $$file -o $${file%.in}.txt || exit 1 ;; esac; done

package: dev ## Build and check the wheel and the source archive (PROJECT_URL=https://… is where their links lead)
	@.venv/bin/python -m hatchling build -d $(DIST)
	@.venv/bin/twine check --strict $(DIST)/*.whl $(DIST)/*.tar.gz

clean: ## Remove what was installed and made, but not var/
	@rm -rf .venv .venv-newest node_modules dist .coverage .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

base:
	@scripts/environment base

dev:
	@scripts/environment dev
