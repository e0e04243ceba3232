"""Which part of the suite a test belongs to: `quick` is `make test`, the others are `make test-all PART=…`.

Of the paths below the longest one that holds a test decides. So each test is in exactly one part, and what is new is
quick unless its folder is not.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

TESTS = Path(__file__).resolve().parent

PARTS: dict[str, tuple[str, ...]] = {
    "quick": (
        "",
        # The tour: what a newcomer does, and what the page promises first.
        "e2e/test_newcomer.py",
        "e2e/test_cancelling.py::test_a_cancelled_turn_is_over_for_good_and_the_next_message_works",
        "e2e/test_connection.py::test_a_crash_of_the_server_interrupts_the_turn_and_the_page_comes_back_by_itself",
        "e2e/test_deciding.py::test_a_reload_and_a_second_tab_show_the_question_and_the_answer",
        "e2e/test_admin.py::test_a_running_call_obeys_the_limit_that_an_admin_sets",
        # One `kill -9`, one restart, one host project.
        "faults/test_kill_embedded.py::test_g03_g04_g07_after_a_kill_at_any_place_the_successor_ends_the_turn",
        "projects/test_fresh_project.py::test_serve_has_every_file_that_a_page_names",
        "setup/test_start.py::test_first_start_shows_a_password_that_works_and_the_second_one_reuses_everything",
        "setup/test_demo_users.py",
        "setup/test_settings.py",
    ),
    "browser": (
        "e2e",
        "projects/test_embedded_chats.py",
        "governance/toolbox/test_browser.py",
        "governance/toolbox/test_browser_processes.py",
        "governance/toolbox/test_browser_proxy.py",
    ),
    "faults": ("faults", "benchmarks", "webchat/test_alert_rules.py"),
    "hosts": ("projects", "setup"),
    # What imports the package of a vendor.
    "sdks": (
        "governance/contrib",
        "governance/mcp",
        "console/test_agents.py::test_a_missing_key_or_package_is_a_warning_not_an_error",
        "turns/attachments/test_call_images.py",
        "turns/chat_models/test_agent_settings.py",
        "turns/chat_models/test_prompts.py",
        "turns/chat_models/test_providers.py",
        "turns/chat_models/test_providers_cancel.py",
        "turns/chat_models/test_providers_doors.py",
        "turns/chat_models/test_providers_endpoints.py",
        "turns/chat_models/test_providers_failures.py",
        "turns/chat_models/test_providers_life.py",
        "turns/chat_models/test_providers_names.py",
        "turns/chat_models/test_providers_thinking.py",
        "turns/chat_models/test_providers_turns.py",
        "turns/chat_models/test_translation.py",
        "turns/chat_models/test_windows.py",
        "turns/test_mcp.py",
        "turns/test_mcp_questions.py",
        "turns/test_traces.py::test_the_server_of_an_mcp_tool_is_told_the_trace",
    ),
    # Processes and servers without number, every page for every role, every plan of the database, long searches.
    "sweeps": (
        "docs/test_declared_once.py",
        "governance/core/invokers/test_process_cancellation.py",
        "governance/core/invokers/test_process_execution.py",
        "governance/core/invokers/test_process_invoker.py",
        "governance/core/invokers/test_worker_processes.py",
        "governance/core/test_tracing.py",
        "console/test_exports.py",
        "console/test_limits_page.py",
        "console/test_permission_matrix.py",
        "console/test_recount.py",
        "console/test_tour.py",
        "governance/test_hidden_characters.py",
        "governance/test_rollups.py",
        "governance/toolbox/test_git.py",
        "governance/toolbox/test_sandbox.py",
        "console/test_filters.py",
        "console/test_links.py",
        "console/test_lookups.py",
        "turns/attachments/test_file_parsing.py",
        "turns/history/test_cache.py::test_whatever_happens_each_process_reads_what_a_full_read_gives",
        "turns/running/test_lost_writes.py",
        "turns/test_plans.py",
        "turns/test_store_machine.py",
        "turns/tools/test_family_machine.py",
        "webchat/test_odd_requests.py",
        "webchat/test_origins.py::test_behind_a_proxy_that_speaks_tls_its_own_pages_open_sockets_and_no_others",
        "webchat/test_project_checks.py::test_djangos_storage_that_follows_imports_finds_no_circle_in_our_scripts",
        "webchat/test_server.py",
        "webchat/test_server_errors.py",
        "webchat/test_slow_requests.py",
    ),
    # SQLite has no locked rows. scripts/test-all names what is run with PostgreSQL a second time.
    "postgres": ("turns/test_locked_rows.py",),
}

_PART_OF = {path: part for part, paths in PARTS.items() for path in paths}


def part_of(nodeid: str) -> str:
    """Return the part of a test, whose id begins at the root of the repository."""
    test, _, _case = nodeid.removeprefix("tests/").partition("[")
    return _PART_OF[next(path for path in _from_long_to_short(test) if path in _PART_OF)]


@cache
def holds(part: str, path: Path) -> bool:
    """Whether a test of this part can be in this file or folder, so that it has to be imported."""
    if path == TESTS or part_of(name := path.relative_to(TESTS).as_posix()) == part:
        return True
    return any(entry.startswith((f"{name}/", f"{name}::")) for entry in PARTS[part])


@cache
def missing() -> list[str]:
    """Return the paths above that lead nowhere, or to no such test."""
    return [path for path in _PART_OF if not _exists(path)]


def _exists(path: str) -> bool:
    file, _, test = path.partition("::")
    if not (TESTS / file).exists():
        return False
    return not test or f"def {test}(" in (TESTS / file).read_text("utf-8")


def _from_long_to_short(test: str) -> Iterator[str]:
    yield test
    name = test.partition("::")[0]
    while name:
        yield name
        name = name.rpartition("/")[0]
    yield ""
