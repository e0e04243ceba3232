#!/usr/bin/env python
"""The shop's command line. `python manage.py demo` prepares everything and starts the server."""

import os
import sys

from django.core.management import execute_from_command_line

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "petals.settings")
    execute_from_command_line(sys.argv)
