"""Translates the English sentences that rows of turns contain: reasons, notices and acknowledgements."""

from governance.translations import StoredSentences
from turns.agents import lookup, offers
from turns.chat_models import catalog, failures
from turns.core import texts
from turns.events import acknowledgements
from turns.models.labels import turn_statuses
from turns.queueing.queue import REPORT_SOURCE
from turns.running.turn_config import SPAWN

STORED_SENTENCES = StoredSentences(
    (
        *texts.ENDINGS,
        *texts.NOTICES,
        texts.REPORT,
        *failures.STORED,
        *acknowledgements.STORED,
        catalog.UNKNOWN,
        lookup.NO_SUCH_AGENT,
        offers.LEFT_OUT,
        offers.STARTING,
        offers.AND_MORE,
    )
)
_WORK_OF_SUB_AGENT = StoredSentences(texts.WORK_OF_SUB_AGENT)
_ASKING_TOOLS = {lookup.ASK, SPAWN}


def work_of_sub_agent(tool_name: str, text: str) -> str:
    """Return a call's progress message, translated if it describes a sub-agent."""
    return _WORK_OF_SUB_AGENT.translate(text) if tool_name in _ASKING_TOOLS else text


def is_report(source: str) -> bool:
    """Return whether a turn's message delivers sub-agents' reports instead of coming from a person."""
    return source == REPORT_SOURCE


def turn_status(name: str) -> str:
    return str(dict(turn_statuses()).get(name, name))


def sentence(text: str) -> str:
    """Return a stored sentence in the active language; return any other text unchanged."""
    return STORED_SENTENCES.translate(text)
