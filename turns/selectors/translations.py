"""The sentences that rows of turns keep in English: how turns ended, notices, acknowledgements."""

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
        offers.AND_MORE,
    )
)
_WORK_OF_SUB_AGENT = StoredSentences(texts.WORK_OF_SUB_AGENT)
_ASKING_TOOLS = {lookup.ASK, SPAWN}


def work_of_sub_agent(tool_name: str, stored: str) -> str:
    """Return what a call says of its progress, translated if it tells what a sub-agent does."""
    return _WORK_OF_SUB_AGENT.translate(stored) if tool_name in _ASKING_TOOLS else stored


def is_report(source: str) -> bool:
    """Return whether a turn's message is no person's: it says whose reports the turn passes on."""
    return source == REPORT_SOURCE


def turn_status(name: str) -> str:
    return str(dict(turn_statuses()).get(name, name))


def sentence(stored: str) -> str:
    """Return a stored sentence in the active language; a text that is none of these stays as it is."""
    return STORED_SENTENCES.translate(stored)
