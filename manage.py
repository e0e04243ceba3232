#!/usr/bin/env python
"""The site's command line."""

import gc
import os
import sys

from django.core.management import execute_from_command_line


def main() -> None:
    """Run one management command."""
    gc.set_threshold(
        50_000, 20, 100
    )  # with the defaults, the collector would traverse all imported objects many times
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
