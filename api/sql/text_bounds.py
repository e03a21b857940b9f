"""How large and how deep the text of a statement may be, told from its tokens alone.

The parser tries several readings of what could be a type, a nested join or a pipe, each of them
whole: its time doubles with each level of some texts. Its tokens cost what the text is long, so
they are counted first; what gets through all the same is read where it can be ended
(`api.sql.worker`).
"""

from __future__ import annotations

import sqlglot
from sqlglot.errors import SqlglotError
from sqlglot.parser import Parser
from sqlglot.tokenizer_core import Token, TokenType

from api.sql.unequal import Unequal
from infra.errors import Usage

MAX_CHARS = 100_000
MAX_TOKENS = 20_000
_DEEPEST = 100
"""Brackets and CASEs within each other."""
_DEEPEST_TYPES = 4
"""The same of names that could be those of a type, as in `struct(struct(`."""
_OPEN_JOINS = 5
"""Joins that wait for their ON."""

_OPENS = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE})
_CLOSES = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END})
_ALONE = frozenset({TokenType.CROSS, TokenType.NATURAL})
"""Joins that have no ON begin with these."""


def require_bounded(sql: str) -> None:
    """Raises `Usage` for a text that is too large or too deep to be read."""
    if len(sql) > MAX_CHARS:
        raise Usage(f"the statement has {len(sql)} characters; {MAX_CHARS} are the most")
    tokens = _tokens(sql)
    if len(tokens) > MAX_TOKENS:
        raise Usage(f"the statement has {len(tokens)} parts; {MAX_TOKENS} are the most")
    if any(token.token_type is TokenType.PIPE_GT for token in tokens):
        raise Unequal("|> is not allowed in a statement; write SELECT ... FROM (SELECT ...)")
    _require_shallow(tokens)
    _require_joined(tokens)


def _tokens(sql: str) -> list[Token]:
    try:
        return sqlglot.tokenize(sql, dialect="spark")
    except SqlglotError as error:
        raise Usage(f"not Spark SQL: {str(error).splitlines()[0]}") from None


def _require_shallow(tokens: list[Token]) -> None:
    inside: list[bool] = []  # for each bracket that is open, whether a type's name stands before
    for before, token in zip([None, *tokens], tokens, strict=False):
        if token.token_type in _OPENS:
            inside.append(before is not None and before.token_type in Parser.TYPE_TOKENS)
            if len(inside) > _DEEPEST or sum(inside) > _DEEPEST_TYPES:
                raise Usage("the statement is nested too deeply")
        elif token.token_type in _CLOSES and inside:
            inside.pop()


def _require_joined(tokens: list[Token]) -> None:
    waiting = 0
    for before, token in zip([None, *tokens], tokens, strict=False):
        if token.token_type is TokenType.JOIN:
            waiting += before is None or before.token_type not in _ALONE
        elif token.token_type in (TokenType.ON, TokenType.USING):
            waiting = max(0, waiting - 1)
        if waiting > _OPEN_JOINS:
            raise Usage(
                f"{waiting} joins in a row lack their ON; write ON after each, or CROSS JOIN"
            )
