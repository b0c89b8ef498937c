"""Content filters: which messages are wanted, by what is in them. Pure.

    text -> parser, tree_builder -> nodes -> compiler -> one Python function per message type
                                   \\--> needs: bytes without which no message can match

The language is on docs/reference/filters.md. `expressions` asks for a value instead of a truth,
`paths` names one value in a payload, `projection` leaves parts of payloads out.
"""

from zbroker.filters.content_filter import (
    Filter,
    MessageMetadata,
    Test,
    chars_to_compile,
    check_at_once,
    compile_at_once,
    compile_filter,
)
from zbroker.filters.expressions import Expression, compile_expression, parse_key
from zbroker.filters.paths import Path, parse_path
from zbroker.filters.payloads import Payloads
from zbroker.filters.projection import Select, compile_select
from zbroker.filters.vocabulary import BUILT_IN, FIXED, Vocabulary

__all__ = [
    "BUILT_IN",
    "FIXED",
    "Expression",
    "Filter",
    "MessageMetadata",
    "Path",
    "Payloads",
    "Select",
    "Test",
    "Vocabulary",
    "chars_to_compile",
    "check_at_once",
    "compile_at_once",
    "compile_expression",
    "compile_filter",
    "compile_select",
    "parse_key",
    "parse_path",
]
