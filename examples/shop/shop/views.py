"""Pages of the shop."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from shop.models import Product


def home(request: HttpRequest) -> HttpResponse:
    """Show the products, and the way to the assistant."""
    return render(request, "shop/home.html", {"products": Product.objects.order_by("name")})
