"""A tool is a function: its name, schema and manners come from its definition (G3, A3)."""

from typing import Annotated, Literal

import pytest
from pydantic import Field

from governance.core.exceptions import InvalidToolInput, UnknownTool
from governance.core.policy import Hint, TimeoutSource
from governance.core.registry import ToolRegistry, make_tool, registry, tool
from governance.core.tools import Concurrency, Isolation, ToolContext


async def fetch(url: str, retries: int = 2) -> str:
    """Fetch a page.

    Its text is returned.
    """
    return f"{url} {retries}"


def count(context: ToolContext, upto: Annotated[int, Field(ge=1, description="How far.")]) -> int:
    """Count."""
    return upto


async def command(line: str, timeout_ms: int = 5_000) -> str:
    return f"{line} {timeout_ms}"


class TestDefinition:
    def test_name_and_description_come_from_the_function(self):
        made = make_tool(fetch)

        assert made.name == "fetch"
        assert made.description == "Fetch a page.\n\nIts text is returned."

    def test_a_coroutine_function_runs_on_the_loop_and_a_plain_one_in_a_thread(self):
        assert make_tool(fetch).isolation is Isolation.ASYNC
        assert make_tool(count).isolation is Isolation.THREAD
        assert make_tool(count, isolation="process").isolation is Isolation.PROCESS

    @pytest.mark.parametrize(
        ("function", "isolation"), [(fetch, "thread"), (fetch, "process"), (count, "async")]
    )
    def test_an_isolation_that_does_not_fit_the_function_is_refused(self, function, isolation):
        with pytest.raises(ValueError, match="cannot run as"):
            make_tool(function, isolation=isolation)

    def test_an_unknown_concurrency_is_refused(self):
        with pytest.raises(ValueError, match="sometimes"):
            make_tool(fetch, concurrency="sometimes")

    def test_a_tool_that_could_never_run_is_refused(self):
        with pytest.raises(ValueError, match="could never run"):
            make_tool(count, max_running=0)

    def test_parameters_without_names_are_refused(self):
        def greedy(*everything: int, **more: int) -> None: ...

        with pytest.raises(ValueError, match="without names"):
            make_tool(greedy)

    def test_parameters_without_names_are_fine_with_a_schema_of_its_own(self):
        async def remote(**arguments: object) -> object:
            return arguments

        made = make_tool(remote, raw_schema={"type": "object"})

        assert made.validate({"a": 1}) == {"a": 1}

    def test_the_decorator_returns_the_function_and_registers_its_tool(self):
        tools = ToolRegistry()

        @tool(name="shout", timeout=3, concurrency="exclusive", register=tools)
        async def function(text: str) -> str:
            return text.upper()

        assert tools.get("shout").function is function
        assert tools.get("shout").concurrency is Concurrency.EXCLUSIVE
        assert tools.get("shout").limits.timeout == 3

    def test_the_bare_decorator_uses_the_process_registry(self):
        try:

            @tool
            async def bare_decorated() -> None: ...

            assert "bare_decorated" in registry
        finally:
            registry.unregister("bare_decorated")


class TestSchema:
    def test_comes_from_the_type_hints(self):
        schema = make_tool(fetch).input_schema

        assert schema["properties"]["url"]["type"] == "string"
        assert schema["properties"]["retries"]["default"] == 2
        assert schema["required"] == ["url"]
        assert schema["additionalProperties"] is False

    def test_leaves_the_context_out_wherever_it_stands(self):
        made = make_tool(count)

        assert made.context_parameter == "context"
        assert list(made.input_schema["properties"]) == ["upto"]
        assert made.input_schema["properties"]["upto"]["description"] == "How far."

    @pytest.mark.parametrize("name", ["schema", "json", "copy", "model_config", "_private"])
    def test_takes_names_that_pydantic_uses_itself(self, name):
        namespace = {}
        exec(f"async def odd({name}: str = 'default'): ...", namespace)
        made = make_tool(namespace["odd"])

        assert list(made.input_schema["properties"]) == [name]
        assert made.validate({name: "given"}) == {name: "given"}
        assert made.validate({}) == {name: "default"}
        with pytest.raises(InvalidToolInput, match=name):
            made.validate({name: 3})

    def test_that_cannot_be_made_is_found_when_the_tool_is_built(self):
        async def broken(value: "NoSuchType") -> None: ...  # type: ignore[name-defined]  # noqa: F821

        make_tool(fetch).build()
        with pytest.raises(NameError, match="NoSuchType"):
            make_tool(broken).build()
        with pytest.raises(ValueError, match="has no schema"):
            make_tool(fetch, raw_schema={}).build()

    def test_of_its_own_is_given_out_as_it_is(self):
        made = make_tool(fetch, raw_schema={"type": "object", "title": "theirs"})

        assert made.input_schema == {"type": "object", "title": "theirs"}


class TestValidation:
    def test_returns_the_arguments_as_the_function_takes_them(self):
        assert make_tool(fetch).validate({"url": "x"}) == {"url": "x", "retries": 2}
        assert make_tool(fetch).validate({"url": "x", "retries": "3"})["retries"] == 3

    def test_names_every_field_at_fault(self):
        with pytest.raises(InvalidToolInput) as raised:
            make_tool(fetch).validate({"retries": "many", "colour": "red"})

        assert all(field in raised.value.problems for field in ("url", "retries", "colour"))
        assert raised.value.problems.endswith("; it takes url, retries")
        assert raised.value.tool_name == "fetch"

    def test_does_not_repeat_the_input(self):
        with pytest.raises(InvalidToolInput) as raised:
            make_tool(fetch).validate({"url": ["s3cret"], "retries": "s3cret", "extra": "s3cret"})

        assert "s3cret" not in str(raised.value)

    def test_accepts_closed_sets(self):
        async def paint(colour: Literal["red", "green"]) -> None: ...

        with pytest.raises(InvalidToolInput, match="colour"):
            make_tool(paint).validate({"colour": "blue"})


class TestHint:
    @pytest.mark.parametrize(("milliseconds", "timeout"), [(1500, 1.5), (0, 0.0)])
    def test_is_milliseconds_in_meta(self, milliseconds, timeout):
        asked = {"_meta": {"timeout_ms": milliseconds}}
        assert make_tool(fetch).hint(asked) == Hint(timeout=timeout)

    def test_is_the_tools_own_argument_where_it_names_one(self):
        made = make_tool(command, timeout_argument="timeout_ms")

        hint = made.hint({"line": "x", "timeout_ms": 2000})

        assert hint == Hint(timeout=2.0, source=TimeoutSource.ARGUMENT)

    def test_in_meta_wins_over_the_tools_own_argument(self):
        made = make_tool(command, timeout_argument="timeout_ms")

        hint = made.hint({"timeout_ms": 2000, "_meta": {"timeout_ms": 1000}})

        assert hint == Hint(timeout=1.0)

    @pytest.mark.parametrize("call_input", [{}, {"_meta": None}, {"_meta": {}}, {"_meta": "x"}])
    def test_is_nothing_where_nothing_is_asked(self, call_input):
        assert make_tool(fetch).hint(call_input) is None

    @pytest.mark.parametrize("value", [-1, "10", True, [], float("nan"), float("inf"), 1e12])
    def test_that_is_not_milliseconds_is_invalid_input(self, value):
        with pytest.raises(InvalidToolInput, match=r"_meta\.timeout_ms must be a number"):
            make_tool(fetch).hint({"_meta": {"timeout_ms": value}})

    @pytest.mark.parametrize("meta", [{"timeout": 300_000}, {"timeout": 5, "timeout_ms": 5_000}])
    def test_without_a_unit_is_refused_aloud(self, meta):
        with pytest.raises(InvalidToolInput, match=r"_meta\.timeout has no unit; write _meta\.tim"):
            make_tool(fetch).hint({"_meta": meta})


class TestDeclaredLimits:
    def test_say_nothing_by_default(self):
        limits = make_tool(fetch).limits

        assert (limits.timeout, limits.idle_timeout, limits.max_running) == (None, None, None)

    def test_of_a_tool_that_governs_itself_are_its_own_arguments_default(self):
        made = make_tool(command, timeout=0, timeout_argument="timeout_ms")

        assert made.limits.timeout == 5.0

    def test_zero_is_said_aloud(self):
        assert make_tool(fetch, timeout=0).limits.timeout == 0


class TestRegistry:
    def test_refuses_a_name_taken_by_another_function(self):
        tools = ToolRegistry()
        tools.register(make_tool(fetch))

        tools.register(make_tool(fetch, timeout=3))
        with pytest.raises(ValueError, match="Two tools are named 'fetch'"):
            tools.register(make_tool(command, name="fetch"))

        assert tools.get("fetch").timeout == 3

    def test_knows_what_it_does_not_have(self):
        with pytest.raises(UnknownTool, match="'nothing'"):
            ToolRegistry().get("nothing")

    def test_lists_its_tools_by_name(self):
        tools = ToolRegistry()
        for function in (fetch, count, command):
            tools.register(make_tool(function))

        assert [made.name for made in tools] == ["command", "count", "fetch"]
        assert len(tools) == 3

    def test_forgets_what_is_unregistered(self):
        tools = ToolRegistry({"fetch": make_tool(fetch)})

        tools.unregister("fetch")
        tools.unregister("fetch")

        assert "fetch" not in tools
