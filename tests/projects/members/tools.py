"""Tools that say for whom they work."""

from governance import ToolContext, tool


def _describe(context, member):
    return f"{type(context.user_id).__name__} {context.user_id} {member.email}"


@tool(timeout=30)
async def whose(context: ToolContext) -> str:
    """Say for whom the call works."""
    return _describe(context, await context.user())


@tool(timeout=30)
def whose_in_thread(context: ToolContext) -> str:
    """Say for whom the call works."""
    return _describe(context, context.user_blocking())


@tool(timeout=30, isolation="process")
def whose_in_process(context: ToolContext) -> str:
    """Say for whom the call works."""
    return _describe(context, context.user_blocking())


@tool(timeout=30, permission="members.view_member")
async def for_clerks() -> str:
    """Do what needs a permission."""
    return "done"
