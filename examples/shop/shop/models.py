"""Products, and the orders of customers."""

from django.conf import settings
from django.db import models


class Product(models.Model):
    """A bunch of flowers."""

    name = models.CharField(max_length=100)
    price_cents = models.PositiveIntegerField()
    stock = models.PositiveIntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.name}, {self.price_cents / 100:.2f} €, {self.stock} in stock"


class Order(models.Model):
    """A customer's order of one product."""

    class Status(models.TextChoices):
        """The progress of an order."""

        PAID = "paid"
        SHIPPED = "shipped"
        REFUNDED = "refunded"

    customer = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    product = models.ForeignKey(Product, on_delete=models.PROTECT)
    quantity = models.PositiveIntegerField(default=1)
    status = models.CharField(max_length=20, choices=Status.choices, default=Status.PAID)

    class Meta:
        permissions = [("refund_order", "Can refund an order")]

    def __str__(self) -> str:
        return f"Order {self.pk}: {self.quantity} × {self.product.name}, {self.status}"

    @property
    def total_cents(self) -> int:
        """The price of the whole order."""
        return self.quantity * self.product.price_cents
