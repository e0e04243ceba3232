"""Prepared statements: querysets whose SQL is built once for a database, and bound often (sync ORM).

Building the SQL of a queryset takes Django many times as long as the database takes to answer it. The queryset stays the
source, and the slow path: `queryset()` returns it for values, and it has the same rows. All go to the default database.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from operator import attrgetter
from typing import Any, Generic, TypeAlias, TypeVar

from django.db.models import AutoField, Expression, Field, Model, QuerySet
from django.db.models.sql import InsertQuery, UpdateQuery

from governance.binding import RowBinder, binder_of, is_stored_as_it_is
from governance.drivers import Sql, thread_driver
from governance.row_reader import RowReader

M = TypeVar("M", bound=Model)
R = TypeVar("R")
Changes = tuple["QuerySet[Any, Any]", dict[str, Any]]


class Parameter(Expression):
    """The place of a value in a statement, which is prepared as a value of `output_field` each time."""

    for_save = False

    def __init__(self, name: str, output_field: "Field[Any, Any]") -> None:
        super().__init__(output_field=output_field)
        self.name = name

    def resolve_expression(
        self,
        query: Any = None,
        allow_joins: bool = True,  # noqa: FBT001, FBT002 - Django calls it like this
        reuse: Any = None,
        summarize: bool = False,  # noqa: FBT001, FBT002
        for_save: bool = False,  # noqa: FBT001, FBT002
    ) -> "Parameter":
        """Django calls this where it puts an expression into a query."""
        resolved = super().resolve_expression(query, allow_joins, reuse, summarize, for_save)
        resolved.for_save = for_save
        return resolved

    def as_sql(self, compiler: Any, connection: Any) -> Any:
        """Leave the place open."""
        return "%s", [self]


def fields_of(model: type[Model], *names: str) -> dict[str, "Field[Any, Any]"]:
    """Return fields of a model as the types of values, by these names."""
    meta: Any = model._meta
    return {name: meta.pk if name == "pk" else meta.get_field(name) for name in names}


class Several:
    """The place of a list of values, as `pk__in` takes it. With an empty list there are no rows."""

    def __init__(self, field: "Field[Any, Any]") -> None:
        self.field = field

    @staticmethod
    def name(of: str, number: int) -> str:
        """Return how one of the values is called."""
        return f"{of} {number}"


Place: TypeAlias = "Field[Any, Any] | Several"


class _Compiled:
    """SQL with its parameters: open places, and values that are the same each time."""

    def __init__(self, sql: str, parameters: Sequence[Any], *, database: Any) -> None:
        self.sql = Sql(sql, places=len(parameters), vendor=database.vendor)
        unopened = database.copy()
        self._names: list[Any] = [
            each.name if isinstance(each, Parameter) else place
            for place, each in enumerate(parameters)
        ]
        self._fixed: dict[Any, Any] = {
            place: each for place, each in enumerate(parameters) if not isinstance(each, Parameter)
        }
        self._bind = RowBinder(
            binder_of(each.output_field, for_save=each.for_save, database=unopened)
            if isinstance(each, Parameter)
            else None
            for each in parameters
        )

    def bind(self, values: dict[str, Any]) -> list[Any]:
        return self._bind(map((self._fixed | values).__getitem__, self._names))


class _Statement:
    """One statement with open places: the names and the types of its values."""

    def __init__(self, places: Mapping[str, Place]) -> None:
        self.places = places
        self._compiled: dict[tuple[str, int], _Compiled] = {}

    def _open(self, size: int = 0) -> dict[str, Any]:
        """Return the parameters; lists have so many each."""
        return {
            name: [Parameter(place.name(name, each), place.field) for each in range(size)]
            if isinstance(place, Several)
            else Parameter(name, place)
            for name, place in self.places.items()
        }

    def _for(self, database: Any, size: int = 0) -> _Compiled:
        compiled = self._compiled.get((database.vendor, size))
        if compiled is None:
            compiled = self._compile(database, size)
            self._compiled[database.vendor, size] = compiled
        return compiled

    def _compile(self, database: Any, size: int) -> _Compiled:
        raise NotImplementedError


class Select(_Statement, Generic[R]):
    """A queryset of instances or of tuples; `build` makes it from values, whose types are `places`.

    Instances come with what `select_related` and `annotate` add to them. Its SQL is built once for each length of lists
    that is a power of two. Shorter lists repeat their last value.
    """

    def __init__(self, build: Callable[..., "QuerySet[Any, R]"], **places: Place) -> None:
        super().__init__(places)
        self._build = build
        self._readers: dict[str, RowReader] = {}
        self._lists = [name for name, place in places.items() if isinstance(place, Several)]

    def all(self, **values: Any) -> list[R]:
        return self._rows(values)

    def first_behind(self, lock: "Select[Any]", **values: Any) -> R | None:
        """Return the first row once a lock is passed, whose places have the same names. It takes one way to the database."""
        rows = self._rows(values, lock=lock)
        return rows[0] if rows else None

    def _rows(self, values: dict[str, Any], *, lock: "Select[Any] | None" = None) -> list[R]:
        driver = thread_driver()
        database = driver.database
        size = 0
        if self._lists:
            if not all(values[name] for name in self._lists):
                return []
            size = self._spread(values)
        compiled = self._for(database, size)
        behind = None
        if lock is not None:
            locking = lock._for(database)
            behind = locking.sql, locking.bind(values)
        rows = driver.fetch(compiled.sql, compiled.bind(values), behind=behind)
        read = self._readers[database.vendor]
        return [read(row, database) for row in rows]

    def first(self, **values: Any) -> R | None:
        rows = self._rows(values)
        return rows[0] if rows else None

    def _spread(self, values: dict[str, Any]) -> int:
        """Give each value of the lists a name. Return how long all of them are now."""
        longest = max(len(values[name]) for name in self._lists)
        size = 1 << (longest - 1).bit_length()
        for name in self._lists:
            given = list(values[name])
            for number, value in enumerate(given + given[-1:] * (size - len(given))):
                values[Several.name(name, number)] = value
        return size

    def _compile(self, database: Any, size: int) -> _Compiled:
        queryset = self._build(**self._open(size))
        compiler = queryset.query.get_compiler(connection=database)
        sql, parameters = compiler.as_sql()
        self._readers[database.vendor] = RowReader(
            compiler,
            is_model=queryset._fields is None,  # type: ignore[attr-defined]
            fetch_mode=getattr(queryset, "_fetch_mode", None),
        )
        return _Compiled(sql, parameters, database=database)


class Update(_Statement):
    """An update: `build` makes of values, whose types are `places`, what is selected and the new values of its fields."""

    def __init__(self, build: Callable[..., Changes], **places: "Field[Any, Any]") -> None:
        super().__init__(places)
        self._build = build

    def run(self, **values: Any) -> int:
        """Return how many rows were changed."""
        driver = thread_driver()
        compiled = self._for(driver.database)
        return driver.execute(compiled.sql, compiled.bind(values))

    def run_each(self, many: Iterable[dict[str, Any]]) -> int:
        """Update once for each of these values, in one crossing; return how many rows were changed in all."""
        driver = thread_driver()
        compiled = self._for(driver.database)
        bound = [compiled.bind(values) for values in many]
        if not bound:
            return 0
        if len(bound) == 1:
            return driver.execute(compiled.sql, bound[0])
        return driver.execute_many(compiled.sql, bound)

    def _compile(self, database: Any, _size: int) -> _Compiled:
        queryset, changes = self._build(**self._open())
        query: Any = queryset.query.chain(UpdateQuery)
        query.add_update_values(changes)
        return _Compiled(*query.get_compiler(connection=database).as_sql(), database=database)


class Insert(_Statement, Generic[M]):
    """An insert of instances of a model, all of whose values are known."""

    def __init__(self, model: type[M]) -> None:
        self._model: Any = model
        self._returning: dict[str, _Compiled] = {}
        self._binders: dict[str, RowBinder] = {}
        super().__init__({})

    def one(self, row: M) -> M:
        """Insert one row; where the database makes its key, it has that now."""
        driver = thread_driver()
        database = driver.database
        compiled = self._returning.get(database.vendor) or self._compile_returning(database)
        values = self._values(row, database)
        if self._makes_key:
            ((row.pk,),) = driver.fetch(compiled.sql, values)
        else:
            driver.execute(compiled.sql, values)
        row._state.adding = False
        row._state.db = database.alias
        return row

    def many(self, rows: Sequence[object]) -> None:
        """Insert rows in one crossing; they do not get to know keys that the database makes.

        A row is an instance, or whatever has the values of all fields.
        """
        if not rows:
            return
        driver = thread_driver()
        compiled = self._for(driver.database)
        driver.insert_many(compiled.sql, [self._values(row, driver.database) for row in rows])

    @cached_property
    def _makes_key(self) -> bool:
        return isinstance(self._model._meta.pk, AutoField)

    @cached_property
    def _fields(self) -> list[Any]:
        fields = self._model._meta.concrete_fields
        return [field for field in fields if not isinstance(field, AutoField)]

    @cached_property
    def _read(self) -> Callable[[Any], tuple[Any, ...]]:
        """Reads the values of a row, in the order of the fields."""
        own = {
            place: field.pre_save
            for place, field in enumerate(self._fields)
            if not is_stored_as_it_is(field)
        }
        read = attrgetter(*(field.attname for field in self._fields))
        if not own:
            return read

        def read_and_prepare(row: Any) -> tuple[Any, ...]:
            values = list(read(row))
            for place, pre_save in own.items():
                values[place] = pre_save(row, add=True)
            return tuple(values)

        return read_and_prepare

    def _values(self, row: object, database: Any) -> list[Any]:
        bind = self._binders.get(database.vendor)
        if bind is None:
            unopened = database.copy()
            bind = self._binders[database.vendor] = RowBinder(
                binder_of(field, for_save=True, database=unopened) for field in self._fields
            )
        return bind(self._read(row))

    def _compile(self, database: Any, _size: int) -> _Compiled:
        return self._compile_insert(database, returning=())

    def _compile_returning(self, database: Any) -> _Compiled:
        returning = [self._model._meta.pk] if self._makes_key else []
        compiled = self._compile_insert(database, returning=returning)
        self._returning[database.vendor] = compiled
        return compiled

    def _compile_insert(self, database: Any, *, returning: Sequence[Any]) -> _Compiled:
        open_row = self._model()
        for field in self._fields:
            setattr(open_row, field.attname, Parameter(field.attname, field))
        query = InsertQuery(self._model)
        query.insert_values(self._fields, [open_row], raw=True)
        compiler = query.get_compiler(connection=database)
        compiler.returning_fields = list(returning)
        ((sql, parameters),) = compiler.as_sql()
        return _Compiled(sql, parameters, database=database)
