"""The site's addresses, and one by which a test fills the threads that views of a host share."""

from django.http import HttpRequest, HttpResponse
from django.urls import path

from config.urls import urlpatterns as _of_site
from tests.faults.tools import fill_host_threads


async def fill(_request: HttpRequest) -> HttpResponse:
    """Hang in the threads of this process until let go."""
    return HttpResponse(await fill_host_threads())


urlpatterns = [path("fill-host-threads/", fill), *_of_site]
