"""The system checks that are derived from an app's declared settings, and those that several apps share."""

from difflib import get_close_matches

from django.apps import apps
from django.conf import settings as project
from django.core import checks
from django.utils.module_loading import import_string

from governance.app_settings import AppSettings


def check_values(settings: AppSettings) -> list[checks.CheckMessage]:
    """Return an error for every setting that breaks its rule."""
    return [
        checks.Error(
            f"{setting.full_name} is {getattr(settings, name)!r}.",
            hint=setting.hint,
            id=setting.rule.check,
        )
        for name, setting in settings.DECLARED.items()
        if not setting.is_valid(getattr(settings, name))
    ]


def check_names(settings: AppSettings, *, check_id: str) -> list[checks.CheckMessage]:
    """Return a warning for every unknown name, because Django would ignore it silently."""
    prefix = settings.PREFIX
    declared_names = sorted(settings.DECLARED)
    problems: list[checks.CheckMessage] = []
    for full_name in dir(project):
        name = full_name.removeprefix(prefix)
        if name in (full_name, *declared_names):
            continue
        names = ", ".join(
            prefix + near for near in get_close_matches(name, declared_names) or declared_names
        )
        problems.append(
            checks.Warning(
                f"There is no setting {full_name}.",
                hint=f"Remove it, or correct its name: {names}.",
                id=check_id,
            )
        )
    return problems


def check_apps(app: str, *needed: str, check_id: str) -> list[checks.CheckMessage]:
    """Return an error for every app that `app` needs but that is not installed."""
    return [
        checks.Error(
            f"{app!r} needs the app {name!r}, which is not installed.",
            hint=f"Add {name!r} to INSTALLED_APPS.",
            id=check_id,
        )
        for name in needed
        if not apps.is_installed(name)
    ]


def check_path(path: str, *, what: str, otherwise: str, check_id: str) -> list[checks.CheckMessage]:
    """Return an error that names the cause if a dotted path cannot be imported or is not callable.

    `what` is the beginning of the error's sentence. `otherwise` is the hint if the error itself does not explain more.
    """
    dotted = path.replace(":", ".", 1)
    hint = otherwise
    try:
        if callable(import_string(dotted)):
            return []
        reason = "it is not callable"
    except ValueError:
        reason = "a name is missing"
    except ImportError as error:
        reason = str(error)
        if error.name and not dotted.startswith(f"{error.name}."):
            hint = f"It exists, but imports a missing module: install {error.name!r}, or correct the import."
    except Exception as error:  # noqa: BLE001 - importing the project's code may raise any exception
        reason = f"{type(error).__name__}: {error}"
        hint = "It exists, but importing it raises this exception: correct the cause."
    return [checks.Error(f"{what} {path!r}: {reason}.", hint=hint, id=check_id)]
