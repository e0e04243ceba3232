"""The tools of the shop's agent. Each call runs with the permissions of the person for whom the agent works."""

from typing import Annotated

from django.db import transaction
from pydantic import Field

from governance import ToolContext, ToolFailed, tool
from shop.models import Order, Product

OrderNumber = Annotated[int, Field(ge=1, description="The number of the order.")]


@tool(title="Find products", timeout=10, permission="shop.view_product")
async def find_products(name: str = "") -> list[str]:
    """List the products whose name contains a text, with price and stock."""
    return [str(product) async for product in Product.objects.filter(name__icontains=name)]


@tool(title="Look up my orders", timeout=10, permission="shop.view_order")
async def my_orders(context: ToolContext) -> list[str]:
    """List the orders of the person who asks."""
    orders = Order.objects.filter(customer_id=context.user_id).select_related("product")
    return [str(order) async for order in orders]


@tool(
    title="Refund an order",
    question="Refund this order?",
    timeout=30,
    permission="shop.refund_order",
    approval="always",
    side_effects=True,
)
def refund(context: ToolContext, number: OrderNumber) -> str:
    """Refund an order to its customer."""
    with transaction.atomic():
        order = Order.objects.select_for_update().filter(pk=number).first()
        if order is None:
            raise ToolFailed(f"There is no order {number}.")
        if order.status == Order.Status.REFUNDED:
            raise ToolFailed(f"Order {number} is already refunded.")
        # Checked right before the effect: see docs/howto/own-tools.md.
        if not context.still_mine_blocking():
            raise ToolFailed("Nothing was refunded, because the call has ended.")
        order.status = Order.Status.REFUNDED
        order.save()
    return f"Refunded {order.total_cents / 100:.2f} € for order {number}."
