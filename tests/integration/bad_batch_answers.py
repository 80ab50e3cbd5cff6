"""What Apache Kafka 4.3.1 answers to the batches of `bad_batches.py`, and where GoQueue differs.

The codes were recorded from a running Apache Kafka, which can be asked again:

    make kafka-answers
"""

from __future__ import annotations

OK, UNKNOWN_SERVER_ERROR, CORRUPT_MESSAGE = 0, -1, 2
INVALID_TIMESTAMP, INVALID_REQUEST, UNSUPPORTED_COMPRESSION_TYPE = 32, 42, 76
TRANSACTIONAL_ID_AUTHORIZATION_FAILED, INVALID_RECORD = 53, 87

# Records that are not compressed, for a topic with the default settings.
RECORD_ANSWERS = {
    "three good records": OK,
    "a record without key, value or headers": OK,
    "more records announced than bytes": INVALID_RECORD,
    "as many records as an integer holds, no bytes": INVALID_RECORD,
    "one record too many announced": INVALID_RECORD,
    "one record too few announced": INVALID_RECORD,
    "last delta too large": INVALID_RECORD,
    "last delta too small": INVALID_RECORD,
    "last delta negative": INVALID_RECORD,
    "no records": INVALID_RECORD,
    "no records, last delta 0": INVALID_RECORD,
    "no records, last delta 5": INVALID_RECORD,
    "count zero before records": INVALID_RECORD,
    "count negative": INVALID_RECORD,
    "bytes after the last record": INVALID_RECORD,
    "deltas with a gap": OK,
    "deltas with a gap, last delta to match": INVALID_RECORD,
    "deltas in the wrong order": OK,
    "deltas twice the same": OK,
    "deltas that begin at 1": OK,
    "delta negative": OK,
    "delta of more than 32 bits": OK,
    "delta in more bytes than it needs": OK,
    "delta in six bytes": INVALID_RECORD,
    "record length negative": INVALID_RECORD,
    "record length zero": INVALID_RECORD,
    "record length too small": INVALID_RECORD,
    "record length too large": INVALID_RECORD,
    "record length of two gigabytes": INVALID_RECORD,
    "record attributes": OK,
    "key length -2": OK,
    "key beyond the record": INVALID_RECORD,
    "key length of two gigabytes": INVALID_RECORD,
    "value length -2": OK,
    "value beyond the record": INVALID_RECORD,
    "headers": OK,
    "header count negative": INVALID_RECORD,
    "header count too large": INVALID_RECORD,
    "header count of two billion": INVALID_RECORD,
    "header count too small": INVALID_RECORD,
    "header without a name": INVALID_RECORD,
    "header name -2": INVALID_RECORD,
    "header name not UTF-8": OK,
    "header name empty": OK,
    "header content null": OK,
    "header content -2": OK,
    "header content beyond the record": INVALID_RECORD,
    "record times later than the batch's": OK,
    "batch time later than its records'": OK,
    "batch time in the far future, not its records'": OK,
    "record time in the far future, not its batch's": INVALID_TIMESTAMP,
    "record time before the batch's base": OK,
    "record times out of 64 bits": INVALID_TIMESTAMP,
    "record time negative": OK,
    "no times": OK,
    "no times, with shifts": OK,
    "times negative": OK,
    "times at the epoch": OK,
    "an hour and a minute ahead": INVALID_TIMESTAMP,
    "59 minutes ahead": OK,
    "base offset 7": INVALID_RECORD,
    "control bit": INVALID_RECORD,
    "delete horizon bit": OK,
    "unknown attribute bit 7": OK,
    "unknown attribute bit 14": OK,
    "append time set by the producer": OK,
    "transactional without a producer": TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    "producer without an epoch": OK,
    "producer without a sequence": INVALID_RECORD,
    "epoch and sequence without a producer": OK,
    "unknown producer from sequence 0": OK,
}

# Frames, for a topic with the default settings and for a compacted one.
FRAME_ANSWERS = {
    "a marker": TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    "magic 3": CORRUPT_MESSAGE,
    "magic -1": CORRUPT_MESSAGE,
    "a message of format 0": INVALID_RECORD,
    "a message of format 1": INVALID_RECORD,
    "wrong checksum": CORRUPT_MESSAGE,
    "length too small": CORRUPT_MESSAGE,
    "length too large": INVALID_RECORD,
    "length below a header's": CORRUPT_MESSAGE,
    "length negative": CORRUPT_MESSAGE,
    "two batches": INVALID_RECORD,
    "a batch and loose bytes": OK,
    "a batch cut short": INVALID_RECORD,
    "ten bytes": INVALID_RECORD,
    "no bytes": INVALID_RECORD,
    "codec 5": UNKNOWN_SERVER_ERROR,
    "codec 7": UNKNOWN_SERVER_ERROR,
    "a key missing": OK,
    "a key missing, compressed": OK,
    "keys empty": OK,
}
COMPACTED_ANSWERS = {
    "a key missing": INVALID_RECORD,
    "a key missing, compressed": INVALID_RECORD,
}

# Where the answer to RECORD_ANSWERS is another one: whatever codec the records are packed with,
PACKED_RECORD_ANSWERS = {
    "deltas with a gap": UNKNOWN_SERVER_ERROR,
    "deltas in the wrong order": UNKNOWN_SERVER_ERROR,
    "deltas twice the same": UNKNOWN_SERVER_ERROR,
    "deltas that begin at 1": UNKNOWN_SERVER_ERROR,
    "delta negative": UNKNOWN_SERVER_ERROR,
    "delta of more than 32 bits": UNKNOWN_SERVER_ERROR,
    "record length negative": OK,
    "record length too small": OK,
    "record length too large": OK,
    "record length of two gigabytes": OK,
}
# for a topic with the broker's append time,
APPEND_TIME_ANSWERS = {
    "record time in the far future, not its batch's": OK,
    "record times out of 64 bits": OK,
    "an hour and a minute ahead": OK,
    "append time set by the producer": INVALID_TIMESTAMP,
}
# and for a topic with a compression of its own, from plain and from packed records.
RECOMPRESSED_ANSWERS = {
    "record time negative": UNKNOWN_SERVER_ERROR,
    "times negative": UNKNOWN_SERVER_ERROR,
    "producer without an epoch": UNKNOWN_SERVER_ERROR,
}
PACKED_RECOMPRESSED_ANSWERS = {
    "record length of two gigabytes": UNKNOWN_SERVER_ERROR,
    "record time negative": UNKNOWN_SERVER_ERROR,
    "times negative": UNKNOWN_SERVER_ERROR,
    "producer without an epoch": UNKNOWN_SERVER_ERROR,
}

# Compressed bytes that are not what they should be.
PACKED_ANSWERS = {
    "GZIP": {
        "damaged": INVALID_RECORD,
        "cut short": UNKNOWN_SERVER_ERROR,
        "garbage": UNKNOWN_SERVER_ERROR,
        "garbage behind a header": UNKNOWN_SERVER_ERROR,
        "nothing": UNKNOWN_SERVER_ERROR,
        "nothing for 2 billion": UNKNOWN_SERVER_ERROR,
        "bytes behind it": OK,
    },
    "SNAPPY": {
        "damaged": UNKNOWN_SERVER_ERROR,
        "cut short": UNKNOWN_SERVER_ERROR,
        "garbage": UNKNOWN_SERVER_ERROR,
        "garbage behind a header": UNKNOWN_SERVER_ERROR,
        "nothing": UNKNOWN_SERVER_ERROR,
        "nothing for 2 billion": UNKNOWN_SERVER_ERROR,
        "bytes behind it": UNKNOWN_SERVER_ERROR,
    },
    "LZ4": {
        "damaged": UNKNOWN_SERVER_ERROR,
        "cut short": UNKNOWN_SERVER_ERROR,
        "garbage": UNKNOWN_SERVER_ERROR,
        "garbage behind a header": UNKNOWN_SERVER_ERROR,
        "nothing": UNKNOWN_SERVER_ERROR,
        "nothing for 2 billion": UNKNOWN_SERVER_ERROR,
        "bytes behind it": OK,
    },
    "ZSTD": {
        "damaged": INVALID_RECORD,
        "cut short": UNKNOWN_SERVER_ERROR,
        "garbage": UNKNOWN_SERVER_ERROR,
        "garbage behind a header": UNKNOWN_SERVER_ERROR,
        "nothing": INVALID_RECORD,
        "nothing for 2 billion": INVALID_RECORD,
        "bytes behind it": UNKNOWN_SERVER_ERROR,
    },
}

# GoQueue's answers where they differ from all of these, and why.
_UNREADABLE = "Apache Kafka stores it, and a consumer cannot read it or gets wrong offsets"
_NO_INTERNAL_ERROR = "Apache Kafka fails with an internal error"
_SENT_WITHOUT_ID = "Apache Kafka names the authorization of the transactional id that is missing"
DIFFERENT = {
    "deltas with a gap": (INVALID_RECORD, _UNREADABLE),
    "deltas in the wrong order": (INVALID_RECORD, _UNREADABLE),
    "deltas twice the same": (INVALID_RECORD, _UNREADABLE),
    "deltas that begin at 1": (INVALID_RECORD, _UNREADABLE),
    "delta negative": (INVALID_RECORD, _UNREADABLE),
    "delta of more than 32 bits": (INVALID_RECORD, _UNREADABLE),
    "record length negative": (INVALID_RECORD, _UNREADABLE),
    "record length too small": (INVALID_RECORD, _UNREADABLE),
    "record length too large": (INVALID_RECORD, _UNREADABLE),
    "record length of two gigabytes": (INVALID_RECORD, _UNREADABLE),
    "key length -2": (INVALID_RECORD, _UNREADABLE),
    "value length -2": (INVALID_RECORD, _UNREADABLE),
    "header content -2": (INVALID_RECORD, _UNREADABLE),
    "header name not UTF-8": (
        INVALID_RECORD,
        "a name is text in the protocol, and readers over HTTP get text",
    ),
    "record times out of 64 bits": (INVALID_TIMESTAMP, _UNREADABLE),
    "delete horizon bit": (
        INVALID_RECORD,
        "only compaction sets it; the base timestamp means something else then",
    ),
    "append time set by the producer": (
        INVALID_TIMESTAMP,
        "Apache Kafka refuses it on topics with append time only",
    ),
    "transactional without a producer": (INVALID_REQUEST, _SENT_WITHOUT_ID),
    "a marker": (INVALID_REQUEST, _SENT_WITHOUT_ID),
    "producer without an epoch": (
        INVALID_RECORD,
        "a producer id without an epoch protects from nothing",
    ),
    "a batch and loose bytes": (INVALID_RECORD, "Apache Kafka drops the loose bytes silently"),
    "codec 5": (UNSUPPORTED_COMPRESSION_TYPE, _NO_INTERNAL_ERROR),
    "codec 7": (UNSUPPORTED_COMPRESSION_TYPE, _NO_INTERNAL_ERROR),
    "record time negative": (OK, _NO_INTERNAL_ERROR),
    "times negative": (OK, _NO_INTERNAL_ERROR),
    "damaged": (INVALID_RECORD, _NO_INTERNAL_ERROR),
    "cut short": (INVALID_RECORD, _NO_INTERNAL_ERROR),
    "garbage": (INVALID_RECORD, _NO_INTERNAL_ERROR),
    "garbage behind a header": (INVALID_RECORD, _NO_INTERNAL_ERROR),
    "nothing": (INVALID_RECORD, _NO_INTERNAL_ERROR),
    "nothing for 2 billion": (INVALID_RECORD, _NO_INTERNAL_ERROR),
    "bytes behind it": (INVALID_RECORD, _UNREADABLE),
}

# The records that are named in the answer.
RECORD_ERRORS = {
    "record time in the far future, not its batch's": [1],
    "an hour and a minute ahead": [0, 1],
    "a key missing": [1],
    "a key missing, compressed": [1],
}
