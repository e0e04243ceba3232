"""The host's own rows."""

from django.db import models


class Order(models.Model):
    """One order."""

    number = models.IntegerField()

    def __str__(self):
        return f"Order {self.number}"
