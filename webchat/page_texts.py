"""What the chat page's scripts say: every sentence of theirs, so that it can be translated with the rest.

A name in braces is filled in by the script. `_one` and `_other` are chosen by the number, as the language does it.
"""

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from webchat.tool_texts import TOOL_TEXTS

CHAT_TEXTS: dict[str, Promise] = {
    **TOOL_TEXTS,
    # The microphone
    "voice_off": _("Speak your messages"),
    "voice_listening": _("Listening. Press to stop listening."),
    "voice_hearing": _("Hearing you. Press to stop listening."),
    "voice_heard": _("Heard: {text}"),
    "voice_privacy": _(
        "What you say is sent as soon as you pause. Your browser's vendor may process your speech."
    ),
    "voice_paused": _("The microphone ended several times. Press its button to go on."),
    "voice_no_speech": _("Your browser cannot speak answers. They are shown instead."),
    "voice_error_not-allowed": _(
        "The microphone is blocked. Allow it in your browser's settings for this site."
    ),
    "voice_error_service-not-allowed": _(
        "Your browser does not allow speech recognition here. Type your message instead."
    ),
    "voice_error_audio-capture": _("No microphone was found. Connect one and try again."),
    "voice_error_network": _("Speech recognition cannot reach its service. It tries again."),
    "voice_error_no-speech": _("Nothing was heard. Check your microphone if you spoke."),
    "voice_error_language-not-supported": _(
        "Speech recognition does not know your browser's language. Type your message instead."
    ),
    "voice_error_phrases-not-supported": _("Speech recognition goes on without hints."),
    "voice_error_unknown": _("Speech recognition has failed. It tries again."),
    # Numbers
    "seconds": _("{n} s"),
    "minutes": _("{n} min"),
    "under_tenth": _("< 0.1 s"),
    "clock_of_limit": _("{elapsed} / {limit}"),
    # The title of the tab, and notifications
    "title_asked": _("({n}) Waits for you · {title}"),
    "title_ended": _("✓ {title}"),
    "notification_answered": _("The answer is there."),
    # The end of a turn
    "turn_cancelled": _("Turn cancelled"),
    "turn_not_sent": _("Not sent to the agent"),
    "turn_interrupted": _("Turn interrupted"),
    "turn_failed": _("Turn failed"),
    "turn_failed_detail": _("Something went wrong on the server. You can send your message again."),
    "turn_failed_step_limit": _("The agent took more steps than this site allows for one turn."),
    "try_again": _("Try again"),
    "continue_turn": _("Continue"),
    "history_repaired_one": _("One call had no recorded result; the history was put in order."),
    "history_repaired_other": _("{n} calls had no recorded result; the history was put in order."),
    # Messages
    "author_you": _("You"),
    "author_you_lower": _("you"),
    "author_agent": _("Agent"),
    "author_parent": _("from the agent that this one works for"),
    "copy_code": _("Copy this code"),
    "copy_message": _("Copy your message"),
    "copy_answer": _("Copy the answer"),
    "edit": _("Edit"),
    "edit_message": _("Edit and send again"),
    "edit_label": _("Your message, in its new form"),
    "edit_note": _(
        "It takes the place of this message and of everything after it. What tools have done is not undone."
    ),
    "edit_cancel": _("Cancel"),
    "edit_busy": _("Something is still going on here. Send it when that has ended."),
    "earlier_versions_one": _("{n} earlier version"),
    "earlier_versions_other": _("{n} earlier versions"),
    "agent_from_next": _("From the next message on, {agent} answers."),
    "agent_from_here": _("From here on, {agent} answers."),
    "tokens_one": _("{n} token"),
    "tokens_other": _("{n} tokens"),
    "message_interrupted": _("cut off here"),
    "message_unstored": _("cut off here and not stored: the agent does not know this text"),
    "message_continued": _("sent by the button “Continue”"),
    "message_queued": _("Queued: starts when the running turn has ended"),
    "message_sending": _("Sending…"),
    "message_waiting": _("Will be sent when connected"),
    "message_too_long": _("This message is too long. Please send it in parts."),
    "thinking": _("The agent is working"),
    # The bar and the composer
    "bar_working": _("Working"),
    "bar_retrying": _("Asking the model again in {left}"),
    "retry_reason": _("{reason}."),
    "bar_asked": _("Waiting for your decision"),
    "bar_queued": _("Starting"),
    "bar_background_one": _("{n} agent works in the background"),
    "bar_background_other": _("{n} agents work in the background"),
    "bar_tools_one": _("{n} tool"),
    "bar_tools_other": _("{n} tools"),
    "bar_queue_one": _("{n} message queued"),
    "bar_queue_other": _("{n} messages queued"),
    "cancel_turn": _("Cancel turn"),
    "cancel_with_agents_one": _("{label} and {n} agent"),
    "cancel_with_agents_other": _("{label} and {n} agents"),
    "cancel_turn_queued_one": _("Cancel turn and {n} queued"),
    "cancel_turn_queued_other": _("Cancel turn and {n} queued"),
    "cancel_later": _("Cancel after this step"),
    "cancel_later_queued_one": _("Cancel after this step, and {n} queued now"),
    "cancel_later_queued_other": _("Cancel after this step, and {n} queued now"),
    "bar_ends_after_step": _("ends after this step"),
    # Files
    "attach_remove": _("Remove {name}"),
    "attach_uploading": _("Uploading {name}"),
    "attach_done": _("{name} is attached."),
    "attach_failed": _("{name} is not attached. {reason}"),
    "attach_too_large": _("The file is too large: at most {limit} MB."),
    "attach_too_many_one": _("A message has {n} file at most."),
    "attach_too_many_other": _("A message has {n} files at most."),
    "attach_unreachable": _("The server could not be reached. Remove it and attach it again."),
    "attached_files": _("Attached files"),
    "file_text": _("Text"),
    "queue_edit": _("Edit “{text}”"),
    "queue_remove": _("Remove “{text}” from the queue"),
    "withdraw_already_finished": _("That message is with the agent already."),
    "withdraw_not_found": _("That message is not there any more."),
    "withdraw_denied": _("You may not remove this message."),
    "command_cancelled_one": _("cancelled {n} tool"),
    "command_cancelled_other": _("cancelled {n} tools"),
    "send_again": _("Send again"),
    "cancel_again": _("Still trying to stop… Ask again"),
    "send": _("Send"),
    "queue": _("Queue"),
    # The connection
    "connection_new": _("New conversation"),
    "connection_connecting": _("Connecting…"),
    "connection_resuming": _("Catching up…"),
    "connection_online": _("Connected"),
    "connection_slow": _("Slow connection"),
    "connection_offline": _("Offline"),
    "connection_reconnecting": _("Reconnecting…"),
    "connection_restarting": _("Server restarting…"),
    "connection_busy": _("Waiting…"),
    "connection_signed_out": _("Signed out"),
    "connection_other_user": _("Signed in as somebody else"),
    "connection_not_found": _("Not available"),
    "connection_outdated": _("Reload needed"),
    "banner_resuming": _("Catching up…"),
    "banner_offline": _("You are offline. The turn continues on the server for now."),
    "banner_offline_idle": _("You are offline. What you write is sent when you are back."),
    "banner_reconnecting": _("Reconnecting… The turn continues on the server for now."),
    "banner_reconnecting_idle": _("Reconnecting… What you write is sent afterwards."),
    "banner_restarting": _("The server is restarting. This page reconnects by itself."),
    "banner_busy": _("Too many messages at once. This page reconnects in a moment."),
    "banner_signed_out": _("Your session ended. What you write is kept until you sign in again."),
    "banner_other_user": _(
        "You are signed in as somebody else now. Nothing more is sent from here."
    ),
    "banner_not_found": _("There is no such conversation, or you can no longer see it."),
    "banner_outdated": _("A new version is ready."),
    # Answers to what was asked for
    "server_error": _("{message}"),
    "trying_again": _("The server has a problem. This page asks it again by itself."),
    "cancel_turn_already_finished": _("The turn had already finished."),
    "cancel_turn_not_found": _("That turn is not there any more."),
    "cancel_turn_denied": _("You may not cancel this turn."),
    "cancel_turn_not_cancellable": _("This turn cannot be cancelled now."),
    "cancel_tool_already_finished": _("{tool} had already finished."),
    "cancel_tool_not_found": _("That call is not there any more."),
    "cancel_tool_denied": _("You may not cancel {tool}."),
    "cancel_tool_not_cancellable": _(
        "{tool} cannot be cancelled alone. Cancel turn ends the whole turn."
    ),
    "decide_tool_already_finished": _("{tool} does not wait for a decision any more."),
    "decide_tool_not_found": _("That call is not there any more."),
    "decide_tool_denied": _("You may not decide on {tool}."),
    "set_deadline_already_finished": _("{tool} had already finished; its limit stays."),
    "set_deadline_not_found": _("That call is not there any more."),
    "set_deadline_denied": _("You may not change the limit of {tool}."),
    "set_deadline_not_cancellable": _("The limit of {tool} cannot be changed."),
    "continue_turn_not_found": _("That turn is not there any more."),
    "continue_turn_denied": _("You may not continue this turn."),
    "resume_conversation_not_found": _("You may not let this conversation go on."),
    # The list of conversations
    "edit_offline": _("The server was not reached; nothing was changed. Try again."),
    "mark_asking_one": _("waits for you"),
    "mark_asking_other": _("waits for {n} decisions"),
    "mark_parked": _("parked"),
    "mark_working": _("working"),
    "mark_queued": _("queued"),
    "mark_tools_one": _("{n} tool running"),
    "mark_tools_other": _("{n} tools running"),
    "mark_unread": _("new"),
    "mark_interrupted": _("interrupted, can go on"),
    "back": _("All conversations"),
    "back_asked_one": _("All conversations: another one waits for your decision"),
    "back_asked_other": _("All conversations: others wait for {n} decisions"),
    # Spoken by the live regions
    "say_asked": _("{tool} waits for your decision."),
    "say_asked_by": _("{agent} waits for your decision on {tool}."),
    "say_asked_elsewhere": _("Another conversation waits for your decision."),
    "say_started": _("The agent is working."),
    "say_finished_one": _("Agent finished. {n} word."),
    "say_finished_other": _("Agent finished. {n} words."),
    "say_call_succeeded": _("{tool} finished."),
    "say_call_ended": _("{tool}: {outcome}."),
    "say_calls_ended_one": _("{n} tool finished."),
    "say_calls_ended_other": _("{n} tools finished."),
    "say_slow": _("{tool} has been running for {seconds} seconds."),
    "say_earlier_one": _("{n} earlier message shown."),
    "say_earlier_other": _("{n} earlier messages shown."),
    "earlier_failed": _("Earlier messages could not be fetched. Try again."),
    "say_connected": _("Connected again."),
}

# What the list of conversations needs of them.
LIST_TEXTS = {
    key: text
    for key, text in CHAT_TEXTS.items()
    if key.startswith("mark_") or key in {"title_asked", "edit_offline"}
}
