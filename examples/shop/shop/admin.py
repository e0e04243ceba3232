"""The shop's rows in the admin, beside those of Turnkeeper."""

from django.contrib import admin

from shop.models import Order, Product

admin.site.register([Order, Product])
