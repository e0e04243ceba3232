"""The console: the pages for staff in Django's admin. It may import all other apps."""
