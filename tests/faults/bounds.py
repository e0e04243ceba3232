"""The bounds that docs/reliability.md promises, in seconds, and what a test adds to them on a machine that is busy."""

CANCEL_BY_POLL = 1.5  # G2: from the wish to the end of the turn, whatever was lost
BUSY = 15.0  # two cores may be shared, half as fast, or stand still for a while
BUSY_EXIT = 10.0  # the same where a whole process has to go
# The environment of a process in which nothing hangs: however busy the machine is, it leaves in order.
PATIENT_EXIT = {"FAULTS_EXIT_BOUND": "60"}
