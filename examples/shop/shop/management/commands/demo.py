"""Prepares the shop and starts its server."""

import os
import shlex
import sys
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group, Permission
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandParser

from governance.models import McpServer
from shop.models import Order, Product
from turns.models import Agent

PRODUCTS = (("Tulips", 900, 40), ("Peonies", 1800, 12), ("Sunflowers", 1200, 25))
SAMPLES = [
    'call find_products {"name": "tulips"}',
    "call my_orders {}",
    'call refund {"number": 1}',
]


class Command(BaseCommand):
    """Creates the tables, two users, products, orders and the MCP server if they are missing, then serves."""

    help = "Prepare the example shop, and serve it."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the port, which defaults to the environment as `serve` does."""
        parser.add_argument("--port", type=int, default=os.environ.get("PORT") or "8000")

    def handle(self, *args: Any, port: int, **options: Any) -> None:
        """Prepare, then serve until Ctrl-C."""
        settings.VAR_DIR.mkdir(exist_ok=True)
        call_command("migrate", verbosity=0)
        call_command("create_demo_users", credentials=settings.VAR_DIR / "credentials.txt")
        fill()
        call_command("serve", port=port, skip_checks=False)


def fill() -> None:
    """Add the rows that a first start needs. Existing rows stay as they are."""
    customers, _ = Group.objects.get_or_create(name="Customers")
    customers.permissions.set(
        Permission.objects.filter(
            content_type__app_label="shop", codename__in=["view_product", "view_order"]
        )
    )
    demo = get_user_model().objects.get(username="demo")
    demo.groups.add(customers)
    for name, price_cents, stock in PRODUCTS:
        Product.objects.get_or_create(
            name=name, defaults={"price_cents": price_cents, "stock": stock}
        )
    if not Order.objects.exists():
        for product in Product.objects.order_by("pk")[:2]:
            Order.objects.create(customer=demo, product=product, quantity=2)
    McpServer.objects.get_or_create(
        name="delivery",
        defaults={
            "command": shlex.join([sys.executable, str(settings.BASE_DIR / "delivery_server.py")]),
            "trusts_read_only": True,  # it is our own program, so its read-only tools need no approval
        },
    )
    Agent.objects.filter(is_default=True, samples=[]).update(samples=SAMPLES)
