"""The runtime of a process: what its start does once."""

import gc

import django.db.models
import pytest

from tests.turns.support import ChatDriver
from turns.testing import text

pytestmark = pytest.mark.django_db(transaction=True)


async def test_the_garbage_collector_leaves_alone_what_was_imported(chat: ChatDriver):
    chat.use_script([text("Done.")])
    await chat.ended(await chat.say())
    module = vars(django.db.models)
    assert not any(followed is module for followed in gc.get_objects())
