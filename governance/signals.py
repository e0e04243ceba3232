"""What governance tells the outside: sent after commit, never used to come in."""

from django.dispatch import Signal

# Sent after commit when a limit was edited, in the editing process and thread.
# Arguments: sender (the policy's model class), tool_name ("" = the default limits), version (of all policies).
policy_changed = Signal()
