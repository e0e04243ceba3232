"""The signals that the app `turns` sends."""

from django.dispatch import Signal

# Sent after the commit when a cancel request has taken effect, by the process and thread that wrote it. Arguments:
# sender (the model class of the requests), source (the channel), what ("turn" or "call"), seconds. Also mode: "now",
# or "after_step" or "report", which take longer by design.
cancel_settled = Signal()

# Sent when a person is forgotten, within the transaction, so that an exception in a receiver rolls everything back.
# Arguments: sender (the user model), user (saved, without name and rights), old_name, new_name (of USERNAME_FIELD).
user_forgotten = Signal()
