"""The table of speeds: what governing a call costs, how long a cancel takes, how late a deadline comes."""
