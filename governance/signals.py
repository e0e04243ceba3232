"""The signals of governance. They are sent after the commit, so receivers cannot prevent a change."""

from django.dispatch import Signal

# Sent after the commit of an edited limit, in the process and thread of the edit. Arguments: sender (the policy's model
# class), tool_name ("" for the default limits), version (of all policies).
policy_changed = Signal()
