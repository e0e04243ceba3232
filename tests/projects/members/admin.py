"""Members are in the admin, and can be searched there, where the test says so."""

import os

from django.contrib import admin
from members.models import Member

SEARCH = os.environ.get("MEMBERS_SEARCH")
if SEARCH is not None:
    admin.site.register(Member, search_fields=SEARCH.split())
