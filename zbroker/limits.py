"""Every limit, with its unit and its reason. Those marked [config] are defaults of `[limits]`."""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB

#: sequences and positions fit a signed 64-bit column (Spark's bigint)
U63_MAX: Final = (1 << 63) - 1

TOPIC_MAX_BYTES: Final = 255
NAME_MAX_BYTES: Final = 255
HEADER_MAX_BYTES: Final = 64 * KIB  # a wire header; its cost is paid once per batch
FRAMES_MAX: Final = 4  # a command has a header and at most one body; more is a mistake
MESSAGE_MAX_BYTES: Final = 16 * MIB  # [config] one message must fit a batch on every path
MESSAGE_LARGEST_BYTES: Final = 1 * GIB  # what [limits] message_bytes can be set to
BATCH_MAX_BYTES: Final = 1 * MIB  # [config] a packed body, unless it is a single larger message
BATCH_COUNT_MAX: Final = 65_535  # columns index messages with u16
BATCH_TOPICS_MAX: Final = 65_535
ROUTING_KEY_MAX_BYTES: Final = 255  # as in AMQP, whose clients have no longer ones
EXTRA_MAX_BYTES: Final = 16 * KIB  # key and headers of one message; those of a few fit a header
FRAME_SLACK_BYTES: Final = 64 * KIB  # MAXMSGSIZE = message limit + this (array and bin headers)
#: Limits are for what comes in: a reader takes any body that some setting once let into the log.
STORED_MAX_BYTES: Final = MESSAGE_LARGEST_BYTES + FRAME_SLACK_BYTES

WINDOW_BYTES: Final = 32 * MIB  # [config] unacknowledged per publisher
CREDIT_MAX_BYTES: Final = 64 * MIB  # per connection of a subscriber
CREDIT_DEFAULT_BYTES: Final = 8 * MIB
SUBSCRIPTIONS_MAX: Final = 1_000  # per connection
#: [config] per principal, where security is on; what one may take of what all of them need
PRINCIPAL_SUBSCRIPTIONS_MAX: Final = 10_000
PRINCIPAL_CREDIT_BYTES: Final = 256 * MIB
LOOKUPS_MAX: Final = 10_000  # points that are looked up for subscriptions, as bookmarks
COMPILE_MS: Final = 250  # [config] of each second; a quarter of a core, by the estimate of budgets
CLIENTS_MAX: Final = 10_000  # [config] logged-on connections of one listener
STAGED_BYTES: Final = 16 * GIB  # [config] of one principal, and of the log that it holds back
NAMES_MAX: Final = 10_000  # [config] publishers of one principal; each takes about 2 KiB for ever
QUEUES_OF_ONE_MAX: Final = 1_000  # [config] names of queues of one principal, likewise
CONNECTIONS_MAX: Final = 20_000  # [config] of one listener; each has a descriptor and some KiB
TOPICS_MAX: Final = 100_000  # names remembered as checked; then the memory starts over

GROUP_MAX_BYTES: Final = 4 * MIB  # one write and one sync; bounds the time of both
GROUP_BUFFERS_MAX: Final = 1_000  # pwritev takes at most 1,024 (IOV_MAX)
JOURNAL_CREDIT_BYTES: Final = 64 * MIB  # unreceipted appends of one requester
LIVE_CREDIT_BYTES: Final = 16 * MIB  # of unrecorded messages from ingest to delivery; then drops
UNRECORDED_NAMED_MAX: Final = 100  # topics in one ack; its header must stay small
FILTERED_RUNS_MAX: Final = 1_000  # runs of sequences in one ack, likewise: 16 bytes each

SEGMENT_MIN_BYTES: Final = 1 * MIB
SEGMENT_FIRST_BYTES: Final = 16 * MIB  # so that the first start need not zero-fill 256 MiB
SEGMENT_BYTES: Final = 256 * MIB  # [config]

HOLDINGS_MAX: Final = 100  # that one reader tells of; the rest counts in `lowest`
STATE_BODY_BYTES: Final = 512 * KIB  # of one state record; a snapshot has as many as it takes

CONFIG_MAX_BYTES: Final = 120 * KIB  # as JSON; one message hands it to the processes
BEAT_MS: Final = 500  # processes tell the supervisor that they live, and their numbers
IDLE_BEAT_MS: Final = 2_000  # with the same numbers; a silent process is killed after five of them
HEARTBEAT_MS: Final = 30_000  # to clients that asked for no interval
INGEST_TURN_MAX: Final = 256  # messages of one turn of ingest: latency of the first one
HOLDER_MAX: Final = 64  # characters by which a program that has a session calls itself
SESSION_MAX_BYTES: Final = 200  # the name of a session with transactions
SESSION_TIMEOUT_MAX_MS: Final = 3_600_000  # that a session without a connection is kept, by default
END_CODE_MAX: Final = 64  # characters of the code with which a program ends its session
END_TEXT_MAX: Final = 1_024  # and of what it says of that
REASON_MAX: Final = 1_024  # characters of why a message of a queue is rejected
