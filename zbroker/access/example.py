"""The example of an access file: what `zbroker-admin access example` prints."""

from __future__ import annotations

from typing import Final

EXAMPLE: Final = """\
# The access rules. `security.access` in the config of the broker names this file. It is read again
# when it changes. Only actions that a role allows are permitted. See docs/reference/access.md
#
#   zbroker-admin key new pricer           makes pricer.key_secret, and pricer.key for this file
#   zbroker-admin access check FILE        says whether it can be used
#   zbroker-admin access explain FILE pricer publish prices.eu

# -- principals, with their keys and roles ---------------------------------------------------------

[principal.pricer]
keys = [                        # as in NAME.key; several while you change from one to another
    "put-here-what-key-new-printed-1-........",
]
roles = ["feed"]
# names = ["pricer", "pricer-*"]  # of its clients; by default its own name, that followed by
#                                 # - or . and anything, and generated names

[principal.risk]
keys = ["put-here-what-key-new-printed-2-........"]
roles = ["reader"]

[principal.ann]                 # two people share one key: a password distinguishes them
keys = ["put-here-what-key-new-printed-3-........"]
password = "scrypt$16384$8$1$AAAAAAAAAAAAAAAAAAAAAA==$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
roles = ["reader", "operator"]  # `zbroker-admin key password` prints the line above

[principal.ben]
keys = ["put-here-what-key-new-printed-3-........"]
password = "scrypt$16384$8$1$AAAAAAAAAAAAAAAAAAAAAA==$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
roles = ["reader"]

# -- roles: what they allow; a deny overrides every allow ------------------------------------------

[[role.feed.allow]]
actions = ["publish"]           # publish subscribe replay consume replicate admin_read admin_write
topics = ["prices.*", "trades"] # * matches any characters; without `topics`: every topic

[[role.reader.allow]]
actions = ["subscribe", "replay"]
topics = ["prices.*"]

[[role.reader.allow]]
actions = ["subscribe", "replay"]
topics = ["trades"]
filter = "/region = 'EU'"       # only messages for which it is true: docs/reference/filters.md

[[role.reader.deny]]
actions = ["*"]
topics = ["*.secret"]

[[role.operator.allow]]
actions = ["admin_read", "admin_write"]
"""
