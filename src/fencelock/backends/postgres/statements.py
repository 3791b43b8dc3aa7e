"""The statements of a schema, each with its name; `schema.sql` has the functions that they call."""

from __future__ import annotations

from fencelock.backends.postgres.link import Statement
from fencelock.backends.postgres.records import ROW

__all__ = ["Statements"]


class Statements:
    """The statements of a schema."""

    def __init__(self, schema: str) -> None:
        where = f'"{schema}"'
        self.acquire = Statement(
            "acquire", f"SELECT {where}.acquire($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)", binary=[2]
        )
        self.settle = Statement("settle", f"SELECT {where}.settle($1, $2, $3)", binary=[1])
        self.leave = Statement("leave", f"SELECT {where}.leave($1, $2, $3, $4)", binary=[2])
        self.renew = Statement("renew", f"SELECT {where}.renew($1, $2, $3, $4, $5)")
        self.look = Statement(
            "look",
            f"SELECT held, (SELECT count(*) FROM {where}.queue WHERE place = $1 AND token < $2) "
            f"FROM {where}.queue WHERE place = $1 AND token = $2 AND owner = $3",
            binary=[1],
        )
        self.inspect = Statement(
            "inspect",
            f"SELECT {ROW} FROM {where}.queue WHERE place = $1 "
            "AND deadline > clock_timestamp() ORDER BY token",
            binary=[1],
        )
        self.list = Statement(
            "list",
            f"SELECT {ROW} FROM {where}.queue WHERE place >= $1 AND place < $2 "
            "AND deadline > clock_timestamp() ORDER BY place, token",
            binary=[1, 2],
        )
        self.break_ = Statement("break", f"SELECT {ROW} FROM {where}.break($1, $2, $3)", binary=[2])
        self.sweep = Statement(
            "sweep", f"DELETE FROM {where}.queue WHERE deadline < clock_timestamp() - interval '1 minute'"
        )
