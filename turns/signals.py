"""The signals that the app `turns` sends."""

from django.dispatch import Signal

# Sent after the commit when a cancel request has taken effect, by the process and thread that wrote it. Of the
# arguments, `sender` is the model class of the requests, `source` is the channel, `what` is "turn" or "call", and
# `seconds` is the time that the cancel took. `mode` is "now", "after_step" or "report"; the last two take longer by
# design.
cancel_settled = Signal()

# Sent when a person is forgotten, within the transaction, so that an exception in a receiver rolls everything back.
# Of the arguments, `sender` is the user model, and `user` is the saved user without name and rights. `old_name` and
# `new_name` are the old and the new value of `USERNAME_FIELD`.
user_forgotten = Signal()
