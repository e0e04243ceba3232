"""Makes new instances of models whose values are all known, without a look at each field (sync ORM)."""

from collections.abc import Callable
from functools import cached_property
from typing import Any, Generic, TypeVar

from django.db.models import Model
from django.db.models.base import ModelState
from django.db.models.fields.related_descriptors import ForeignKeyDeferredAttribute
from django.db.models.query_utils import DeferredAttribute

from governance.row_reader import is_listened_to

M = TypeVar("M", bound=Model)
_PLAIN = (DeferredAttribute, ForeignKeyDeferredAttribute)


class NewRow(Generic[M]):
    """Makes instances of a model as its constructor does. Asking every field anew takes it several times as long.

    Values go by the names of columns, such as `turn_id`.
    """

    def __init__(self, model: type[M]) -> None:
        self._model = model

    def __call__(self, **values: Any) -> M:
        model = self._model
        if not self._is_plain or is_listened_to(model):
            return model(**values)
        made = model.__new__(model)
        made._state = ModelState()
        kept = made.__dict__
        kept.update(self._defaults)
        kept.update(values)
        for name, make in self._fresh_defaults.items():
            if name not in values:
                kept[name] = make()
        return made

    @cached_property
    def _fields(self) -> list[Any]:
        return list(self._model._meta.concrete_fields)

    @cached_property
    def _is_plain(self) -> bool:
        """Whether an instance is what Django makes of it: values in its `__dict__`."""
        is_own = self._model.__init__ is Model.__init__
        return is_own and all(field.descriptor_class in _PLAIN for field in self._fields)

    @cached_property
    def _defaults(self) -> dict[str, Any]:
        return {
            field.attname: field.get_default()
            for field in self._fields
            if field.attname not in self._fresh_defaults
        }

    @cached_property
    def _fresh_defaults(self) -> dict[str, Callable[[], Any]]:
        """What makes the default of a field for each instance, such as a list."""
        return {
            field.attname: field.default
            for field in self._fields
            if field.has_default() and callable(field.default)
        }
