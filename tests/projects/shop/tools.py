"""Tools of a host project's own app; found because the app is installed."""

import asyncio

from governance import tool


@tool(timeout=30)
async def order_status(order: int) -> str:
    """Say how far an order is."""
    await asyncio.sleep(0)
    return f"Order {order} is on its way."
