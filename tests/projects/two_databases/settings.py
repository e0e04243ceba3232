"""The settings of `everything`, with two databases: `default` has the orders, `people` has users and the chat."""

from everything.settings import *  # noqa: F403
from everything.settings import DATABASES, INSTALLED_APPS

INSTALLED_APPS.append("orders")
DATABASES["people"] = DATABASES["default"] | {"NAME": DATABASES["default"]["NAME"] + ".people"}
DATABASE_ROUTERS = ["two_databases.router.OrdersRouter"]
