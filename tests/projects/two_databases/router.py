"""Which database holds what."""


class OrdersRouter:
    """Orders are in `default`; everything else is in `people`."""

    def db_for_read(self, model, **hints):
        return "default" if model._meta.app_label == "orders" else "people"

    db_for_write = db_for_read

    def allow_migrate(self, db, app_label, **hints):
        return (db == "default") == (app_label == "orders")
