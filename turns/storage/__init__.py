"""What everybody shares who reads or writes rows: access, operations, order, repetition, retention."""
