"""The queue of turns: who may put one in, which is next, and how a process hears of it."""
