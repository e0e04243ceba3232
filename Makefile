# `make run` starts the site, and `make test` runs the quick tests. Both install what they need.
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

run-scaled: ## Start a local cluster: PostgreSQL, Redis, two web processes and two runners
	@EXTRAS="scaled $(EXTRAS)" scripts/environment base && exec .venv/bin/python -m scripts.scaled

test: ## Run the quick tests, in about five minutes (or any tests: make test ARGS=tests/turns/test_order.py)
	@scripts/test $(ARGS)

test-all: ## Run all other tests, in 30 to 60 minutes (PART selects some: browser faults hosts sdks sweeps postgres matrix)
	@scripts/test-all $(PART)

test-matrix: dev ## Run the Python tests on the newest Django (ARGS as in make test)
	@scripts/matrix $(ARGS)

check: dev ## Check the code without running tests: lint, types, imports, migrations, deployment
	@scripts/check

docs: dev ## Build the documentation in dist/docs
	@.venv/bin/sphinx-build --quiet --fail-on-warning --keep-going docs dist/docs
	@echo "The first page is dist/docs/index.html."

bench: dev ## Measure the speeds that users notice, in about five minutes (docs/benchmarks.md)
	@.venv/bin/python -m benchmarks

faults: dev ## Run all fault tests with real processes, including the long ones
	@FAULTS_LONG=1 .venv/bin/python -m pytest tests/faults $(ARGS)

soak: dev ## Kill, freeze and stop processes at random under load, then check every promise (options: docs/reliability.md)
	@DJANGO_SETTINGS_MODULE=tests.settings $(foreach name,$(filter SOAK_%,$(.VARIABLES)),$(name)='$($(name))') .venv/bin/python -m tests.faults.soak

coverage: dev ## Run the Python tests and show the lines that no test covers
	@.venv/bin/python -m pytest --cov --cov-report=term $(ARGS)

screenshot: dev ## Retake the screenshots in the docs
	@SCREENSHOTS=docs/images .venv/bin/python -m pytest tests/e2e/test_screenshot.py
	@SCREENSHOTS=docs/images .venv/bin/python -m pytest --part hosts tests/projects/test_example_shop.py

messages: dev ## Update the translations from the sources (docs/howto/translate.md)
	@.venv/bin/python -m scripts.messages

format: dev ## Format Python, templates, JavaScript and CSS
	@.venv/bin/ruff check --fix --quiet . && .venv/bin/ruff format --quiet .
	@find templates -name '*.html' -exec .venv/bin/djade --target-version 5.2 {} +
	@if [ -x node_modules/.bin/biome ]; then node_modules/.bin/biome check --write .; fi

requirements: dev ## Pin the newest versions allowed by requirements/*.in
	@compile=".venv/bin/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-strip-extras" \
		&& $$compile --python-version 3.11 --upgrade requirements/dev.in -o requirements/dev.txt \
		&& $$compile --python-version 3.12 --upgrade requirements/newest.in -o requirements/newest.txt \
		&& for file in requirements/*.in; do case $$file in */dev.in|*/newest.in) ;; \
			*) $$compile --python-version 3.11 --constraints requirements/dev.txt $$file -o $${file%.in}.txt || exit 1 ;; esac; done

package: dev ## Build and check the wheel and the source archive (PROJECT_URL=https://… sets the base of their links)
	@.venv/bin/python -m hatchling build -d $(DIST)
	@.venv/bin/twine check --strict $(DIST)/*.whl $(DIST)/*.tar.gz

clean: ## Remove everything that was installed or built, except var/
	@rm -rf .venv .venv-newest node_modules dist .coverage .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

base:
	@scripts/environment base

dev:
	@scripts/environment dev
