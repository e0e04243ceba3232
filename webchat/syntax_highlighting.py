"""Highlights code in answers with CSS classes on spans.

It distinguishes little more than keywords, strings, numbers and comments.

Answers are untrusted, and Python's `re` blocks all other threads while it matches. The patterns therefore must not
backtrack, so their repetitions are possessive or bounded, and the time is linear in the length of the code.
"""

import re
from collections.abc import Iterator
from functools import cache

from django.utils.html import escape

WORD, TEXT, NUMBER, NAME, REMARK, ADDED, REMOVED = "k", "s", "m", "n", "c", "gi", "gd"
CLASSES = frozenset((WORD, TEXT, NUMBER, NAME, REMARK, ADDED, REMOVED))

# Each group in a pattern is named after the CSS class of its text. A word (`w`) is looked up in the keywords of the
# language.
_HASH = r"(?P<c>#[^\n]*+)"
_BLOCK = r"/\*(?:[^*]|\*(?!/))*+(?:\*/)?"
_SLASHES = rf"(?P<c>//[^\n]*+|{_BLOCK})"
_DOUBLE = r'"(?:[^"\\\n]|\\(?s:.))*+"?'
_SINGLE = r"'(?:[^'\\\n]|\\(?s:.))*+'?"
_TEXTS = rf"(?P<s>{_DOUBLE}|{_SINGLE})"
_CHARACTER = r"'(?:[^'\\\n]|\\[^\n][^'\n]{0,8}+)'"  # a lone apostrophe does not start a string
_BLOCK_TEXT = r'"""(?:[^"\\]|\\(?s:.)|"(?!""))*+(?:""")?'
_TRIPLE = rf"{_BLOCK_TEXT}|'{{3}}(?:[^'\\]|\\(?s:.)|'(?!''))*+(?:'{{3}})?"
_PATTERN = (  # a regular expression in JavaScript, only where it cannot be a division; bounded, because its end may be missing
    r"(?:(?<=[=(,:;!&|?\[{}])|(?<=[=(,:;!&|?\[{}] )|(?<=return ))"
    r"/(?![/*])(?:[^/\\\[\n]|\\[^\n]|\[(?:[^\]\\\n]|\\[^\n]){0,40}+\]){1,80}+/[a-z]*+"
)
_BEGIN = r"(?<![^\n])"  # the beginning of a line
_NUMBER = r"(?<![\w.])\d[\w.]*+"
_W = r"(?P<w>(?<!\w)[^\W\d]\w*+)"
_REST = rf"(?P<m>{_NUMBER})|{_W}"
_PATTERNS = {
    "bash": rf"(?P<c>(?<!\S)#[^\n]*+)|(?P<s>{_DOUBLE}|(?<!\w)'[^']*+')|(?P<n>\$\w++|\$\{{[^\n}}]*+\}}?)|{_REST}",
    "c": rf"(?P<n>{_BEGIN}[ \t]*+\#[ \t]*+\w++)|{_SLASHES}|(?P<s>{_DOUBLE}|{_CHARACTER})|{_REST}",
    "css": (
        rf"(?P<c>{_BLOCK})|{_TEXTS}|(?P<k>@[\w-]++|!important)|(?P<n>(?<![\w-])[a-zA-Z-][\w-]*+(?=:\s))"
        rf"|(?P<m>{_NUMBER}%?|\#[\da-fA-F]{{3,8}}(?=[;,)!}}]))|{_W}"
    ),
    "diff": rf"(?P<gi>{_BEGIN}\+[^\n]*+)|(?P<gd>{_BEGIN}-[^\n]*+)|(?P<k>{_BEGIN}@@[^\n]*+)",
    "dockerfile": rf"(?P<k>{_BEGIN}[A-Z]++(?=\s))|{_HASH}|{_TEXTS}|(?P<n>\$\w++)",
    "go": rf"{_SLASHES}|(?P<s>{_DOUBLE}|`[^`]*+`?|{_CHARACTER})|{_REST}",
    "html": (
        r"(?P<c><!--(?:[^-]|-(?!->))*+(?:-->)?)|(?P<k><[/!]?[\w:.-]++|/?>)|(?P<n>(?<=\s)[\w:.-]++(?==))"
        r"""|(?P<s>(?<==)(?:"[^"]*+"?|'[^']*+'?))|(?P<m>&\#?\w{1,30}+;)"""
    ),
    "ini": rf"(?P<c>{_BEGIN}[;#][^\n]*+)|(?P<k>{_BEGIN}\[[^\n\]]*+\]?)|(?P<n>{_BEGIN}[\w.-]++)|{_TEXTS}|{_REST}",
    "java": rf"{_SLASHES}|(?P<s>{_BLOCK_TEXT}|{_DOUBLE}|{_CHARACTER})|(?P<n>@\w++)|{_REST}",
    "javascript": rf"{_SLASHES}|(?P<s>{_PATTERN}|{_DOUBLE}|{_SINGLE}|`(?:[^`\\]|\\(?s:.))*+`?)|{_REST}",
    "json": rf"(?P<n>{_DOUBLE}(?=:))|(?P<s>{_DOUBLE})|{_REST}",
    "markdown": (
        rf"(?P<k>{_BEGIN}\#{{1,6}}[ \t][^\n]*+)|(?P<c>{_BEGIN}>[^\n]*+)|(?P<s>`++[^`\n]*+`*+)"
        rf"|(?P<m>{_BEGIN}[ \t]*+(?:[-*+]|\d++[.)])(?=\s))|(?P<n>!?\[[^\[\]\n]*+\]\([^()\n]*+\)|\*\*[^*\n]++\*\*)"
    ),
    "python": (
        rf"{_HASH}|(?P<s>(?:(?<!\w)[rbfuRBFU]{{1,2}}+)?(?:{_TRIPLE}|{_DOUBLE}|{_SINGLE}))|(?P<n>(?<!\w)@[\w.]++)"
        rf"|(?P<k>{_BEGIN}[ \t]*+(?:match|case)(?= [^\n:=]*+:))|{_REST}"
    ),
    "ruby": rf"{_HASH}|{_TEXTS}|(?P<n>@++\w++|(?<![\w:]):\w++)|{_REST}",
    "rust": rf"{_SLASHES}|(?P<s>{_DOUBLE}|{_CHARACTER})|(?P<n>#!?\[[^\n\]]*+\]?|(?<!\w)\w++!)|{_REST}",
    "sql": rf"(?P<c>--[^\n]*+|{_BLOCK})|(?P<s>'[^']*+'?)|{_REST}",
    "toml": rf"{_HASH}|(?P<k>{_BEGIN}\[[^\n\]]*+\]*+)|(?P<n>{_BEGIN}[\w.-]++)|(?P<s>{_TRIPLE}|{_DOUBLE}|{_SINGLE})|{_REST}",
    "yaml": rf"(?P<c>(?<!\S)#[^\n]*+)|(?P<n>(?<![\w.-])[\w.-]++(?=:\s))|(?P<s>(?<!\w)(?:{_DOUBLE}|{_SINGLE}))|{_REST}",
}
_C = """auto bool break case char const constexpr continue default do double else enum extern false float for goto if inline int
long nullptr register return short signed sizeof static struct switch true typedef union unsigned void volatile while NULL
catch class concept delete explicit friend mutable namespace new noexcept operator override private protected public
requires template this throw try typename using virtual wchar_t"""
_JAVASCRIPT = """async await break case catch class const continue debugger default delete do else export extends false finally
for from function get if import in instanceof let new null of return set static super switch this throw true try typeof
undefined var void while with yield abstract any as boolean declare enum implements interface keyof namespace never number
private protected public readonly string type unknown"""
_WORDS = {
    "bash": "case do done elif else esac export fi for function if in local readonly return select then until while",
    "c": _C,
    "go": """break case chan const continue default defer else fallthrough false for func go goto if import interface iota map nil
        package range return select struct switch true type var""",
    "java": """abstract assert boolean break byte case catch char class const continue default do double else enum extends false
        final finally float for if implements import instanceof int interface long native new null package private protected
        public record return sealed short static super switch synchronized this throw throws transient true try var void
        volatile while yield""",
    "javascript": _JAVASCRIPT,
    "json": "false null true",
    "python": """False None True and as assert async await break class continue def del elif else except finally for from global if
        import in is lambda nonlocal not or pass raise return try while with yield""",
    "ruby": """BEGIN END alias and begin break case class def defined do else elsif end ensure false for if in module next nil not or
        redo rescue retry return self super then true undef unless until when while yield""",
    "rust": """as async await bool break char const continue crate dyn else enum extern false fn for i8 i16 i32 i64 i128 if impl in
        isize let loop match mod move mut pub ref return self static str struct super trait true type u8 u16 u32 u64 u128 unsafe
        use usize where while""",
    "sql": """add all alter and as asc begin between by case check column commit constraint create cross default delete desc
        distinct drop else end exists explain false foreign from full grant group having if in index inner insert into is
        join key left like limit not null offset on or order outer over partition primary references returning right rollback
        select set table then transaction true union unique update using values view when where with""",
    "toml": "false true",
    "yaml": "false no null true yes",
}  # fmt: skip
_SAME = {
    "c++": "c", "cc": "c", "cpp": "c", "h": "c", "hpp": "c", "csharp": "java", "cs": "java", "kotlin": "java",
    "docker": "dockerfile", "golang": "go", "js": "javascript", "jsonc": "javascript", "jsx": "javascript", "mjs": "javascript",
    "ts": "javascript", "tsx": "javascript", "typescript": "javascript", "md": "markdown", "patch": "diff", "py": "python",
    "rb": "ruby", "rs": "rust", "console": "bash", "sh": "bash", "shell": "bash", "zsh": "bash", "scss": "css",
    "postgresql": "sql", "svg": "html", "vue": "html", "xml": "html", "yml": "yaml",
}  # fmt: skip
LANGUAGES = frozenset(_PATTERNS) | frozenset(_SAME)


def highlight(code: str, language: str) -> str:
    """Return code as HTML. Code in an unknown language is escaped but not highlighted."""
    name = _SAME.get(language, language)
    return "".join(_spans(code, name)) if name in _PATTERNS else escape(code)


def _spans(code: str, name: str) -> Iterator[str]:
    pattern, words = _compiled(name)
    end = 0
    for match in pattern.finditer(code):
        kind, text = match.lastgroup, match.group()
        if kind == "w":
            kind = _class_of(text, words, is_called=code.startswith("(", match.end()))
        if kind:
            yield f'{escape(code[end : match.start()])}<span class="{kind}">{escape(text)}</span>'
            end = match.end()
    yield escape(code[end:])


def _class_of(text: str, words: frozenset[str], *, is_called: bool) -> str:
    if text in words:
        return WORD
    return NAME if is_called else ""


@cache
def _compiled(name: str) -> tuple[re.Pattern[str], frozenset[str]]:
    """Return the pattern and the keywords of a language. Keywords of SQL are included in upper and lower case."""
    words = _WORDS.get(name, "")
    return re.compile(_PATTERNS[name]), frozenset(
        f"{words} {words.upper()}".split() if name == "sql" else words.split()
    )
