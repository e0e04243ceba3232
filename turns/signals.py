"""What turns tell the outside: sent after commit, never used to come in."""

from django.dispatch import Signal

# Sent when a request to cancel has come true and that is committed. The process and thread that wrote it send it.
# Arguments: sender (the model class of the requests), source (by what means), what ("turn" or "call"), seconds.
# Also mode: "now", or "after_step" and "report", which wait on purpose.
cancel_settled = Signal()
