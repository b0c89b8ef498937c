"""Limits of filters, each with its reason. A filter over one of them is refused."""

from __future__ import annotations

from typing import Final

from zbroker.limits import KIB, MIB

FILTER_MAX_CHARS: Final = 8 * KIB  # parsing takes milliseconds, while others wait
DEPTH_MAX: Final = 64  # nesting; what walks a tree calls itself
NODES_MAX: Final = 2_000  # fields, values, operators and calls; each costs time per message
IN_MAX: Final = 1_000  # values of one IN or BEGINS WITH
PATTERNS_MAX: Final = 32  # regular expressions of one filter
PATTERN_MAX_CHARS: Final = 1 * KIB
PATTERN_MEMORY_BYTES: Final = 1 * MIB  # a compiled pattern with its automata
PATTERN_STEPS_MAX: Final = 1_250  # of RE2's program (\pL+ has 1,201); at worst some 10 us per byte
#: steps of a program times bytes of a text: what one search may cost, some 60 ms where RE2 has to
#: follow every step at every byte. A longer text is NULL to a regular expression.
STEP_BYTES_MAX: Final = 16 * MIB
REPLACE_STEP_BYTES_MAX: Final = 16 * STEP_BYTES_MAX  # each match may look at all that follows it
STEPS_AT_ONCE_MAX: Final = 256  # of filters that go over a batch without a break: 1 s for 1 MiB
TEXT_MAX_CHARS: Final = 1 * MIB  # a text that a function makes; a longer one is NULL
NUMBER_MAX_CHARS: Final = 64  # a longer text is not a number; reading digits takes time
PATH_MAX_CHARS: Final = 1 * KIB
PATH_STEPS_MAX: Final = 32
INDEX_MAX: Final = 999_999_999  # of an array
SELECT_MAX_CHARS: Final = 8 * KIB
SELECT_ENTRIES_MAX: Final = 500
FIELDS_APART_MAX: Final = 32  # with more fields a payload is decoded whole
NEEDS_MAX: Final = 32  # byte strings looked for in a body; each is a scan

INTEGER_MIN: Final = -(1 << 63)
INTEGER_MAX: Final = (1 << 64) - 1  # unsigned above the signed range, as in JSON and msgpack
