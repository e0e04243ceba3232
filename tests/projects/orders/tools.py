"""A tool that reads the host's rows."""

from governance import tool


@tool(timeout=5)
async def count_orders() -> str:
    """Count the orders."""
    from orders.models import Order

    return f"{await Order.objects.acount()} orders"
