"""Where limits are in force: apps above tell with which version of the limits each process runs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from django.utils.translation import gettext as _

SILENT = 6.0  # seconds without a word, after which a process is named as silent


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyReport:
    """What one process has reported, and for how many seconds it has been silent since; `is_here` = this process."""

    name: str
    version: int
    silence: float
    is_here: bool = False

    @property
    def is_silent(self) -> bool:
        """Whether nothing is known of it now."""
        return self.silence > SILENT and not self.is_here


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    read: Callable[[], Sequence[PolicyReport]]
    model: str


_sources: list[_Source] = []


def register(read: Callable[[], Sequence[PolicyReport]], *, model: str) -> None:
    """Let `read` tell of processes; `model` ("app_model") is the one whose list shows them. The same one counts once."""
    source = _Source(read=read, model=model)
    if source not in _sources:
        _sources.append(source)


def read() -> list[PolicyReport]:
    """Return what every process has reported last."""
    return [report for source in _sources for report in source.read()]


def models() -> list[str]:
    """Return the models ("app_model") whose lists show the processes."""
    return [source.model for source in _sources]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """In how many processes a version of the limits is in force, in words; empty words if nobody tells."""

    words: str
    is_known: bool  # nothing more is to come: it is in force in every process that is there


def reach(version: int, *, is_settled: bool = False) -> Reach:
    """Return in how many processes a version of the limits is in force.

    It will be so here when the edit is committed; where that `is_settled`, this process too says what it has.
    """
    reports = read()
    if not reports:
        return Reach(words="", is_known=True)
    obeying = [
        report
        for report in reports
        if report.version >= version or (report.is_here and not is_settled)
    ]
    told = _("In force in %(count)d of %(total)d processes") % {
        "count": len(obeying),
        "total": len(reports),
    }
    silent = [
        _("%(name)s has been silent for %(seconds)d s")
        % {"name": report.name, "seconds": report.silence}
        for report in reports
        if report not in obeying and report.is_silent
    ]
    if len(obeying) + len(silent) < len(reports):
        silent.append(_("the others report within seconds"))
    words = f"{'; '.join([told, *silent])}."
    return Reach(words=words, is_known=len(obeying) == len(reports))


def reach_text(version: int) -> str:
    """Return the same in words alone, where the edit is not committed yet."""
    return reach(version).words
