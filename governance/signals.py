"""What governance tells the outside: sent after commit, never used to come in."""

from django.dispatch import Signal

# Sent when a limit was edited and the edit is committed, in the process that made it, in the thread of the edit.
# Arguments: sender (the policy's model class), tool_name ("" = the default limits), version (of all policies).
policy_changed = Signal()
