"""The files by which tools and tests tell each other something, in the directory of a site."""

EFFECTS = "effects.txt"
LET_GO = "let-go"  # `Site.let_go` makes it
ENDED = "ended.txt"  # the calls whose bodies have seen their end
