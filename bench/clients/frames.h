/* The few Kafka frames the raw load generator sends and the sink answers, byte by byte.
 *
 * Written by hand and apart from the broker's own codec, so that a mistake in one is not hidden by
 * the same mistake in the other. Layouts: the protocol guide of Apache Kafka, Produce v7, Fetch v4.
 */
#ifndef BENCH_FRAMES_H
#define BENCH_FRAMES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { API_PRODUCE = 0, API_FETCH = 1, API_METADATA = 3, API_VERSIONS = 18 };
enum { PRODUCE_VERSION = 7, FETCH_VERSION = 4 };
enum { ERROR_UNSUPPORTED_VERSION = 35 };
enum { BATCH_HEADER_BYTES = 61 };

static inline uint8_t *put_i8(uint8_t *at, int value) {
    *at = (uint8_t)value;
    return at + 1;
}

static inline uint8_t *put_i16(uint8_t *at, int value) {
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
    return at + 2;
}

static inline uint8_t *put_i32(uint8_t *at, int64_t value) {
    for (int shift = 24; shift >= 0; shift -= 8)
        *at++ = (uint8_t)(value >> shift);
    return at;
}

static inline uint8_t *put_i64(uint8_t *at, int64_t value) {
    for (int shift = 56; shift >= 0; shift -= 8)
        *at++ = (uint8_t)((uint64_t)value >> shift);
    return at;
}

static inline uint8_t *put_string(uint8_t *at, const char *text) {
    size_t length = strlen(text);
    at = put_i16(at, (int)length);
    memcpy(at, text, length);
    return at + length;
}

static inline uint8_t *put_varint(uint8_t *at, int64_t value) {
    uint64_t zigzag = ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
    while (zigzag >= 0x80) {
        *at++ = (uint8_t)(zigzag | 0x80);
        zigzag >>= 7;
    }
    *at++ = (uint8_t)zigzag;
    return at;
}

static inline int16_t get_i16(const uint8_t *at) { return (int16_t)((at[0] << 8) | at[1]); }

static inline int32_t get_i32(const uint8_t *at) {
    return (int32_t)(((uint32_t)at[0] << 24) | ((uint32_t)at[1] << 16) | ((uint32_t)at[2] << 8) |
                     at[3]);
}

static inline int64_t get_i64(const uint8_t *at) {
    return (int64_t)(((uint64_t)(uint32_t)get_i32(at) << 32) | (uint32_t)get_i32(at + 4));
}

/* Frames are built once per run, so the plain bitwise form is fast enough. */
static inline uint32_t crc32c(const uint8_t *data, size_t length) {
    uint32_t crc = 0xFFFFFFFFu;
    for (size_t i = 0; i < length; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (0x82F63B78u & (0u - (crc & 1u)));
    }
    return ~crc;
}

static inline size_t varint_size(int64_t value) {
    uint8_t scratch[10];
    return (size_t)(put_varint(scratch, value) - scratch);
}

/* One RecordBatch v2 of `records` keyless records of `value_bytes` each. */
static inline uint8_t *put_batch(uint8_t *start, int records, int value_bytes, int64_t now_ms) {
    uint8_t *at = start;
    at = put_i64(at, 0); /* base offset */
    uint8_t *length_at = at;
    at = put_i32(at, 0);
    at = put_i32(at, -1); /* partition leader epoch */
    at = put_i8(at, 2);   /* magic */
    uint8_t *crc_at = at;
    at = put_i32(at, 0);
    at = put_i16(at, 0); /* attributes: no compression, create time */
    at = put_i32(at, records - 1);
    at = put_i64(at, now_ms);
    at = put_i64(at, now_ms);
    at = put_i64(at, -1); /* producer id */
    at = put_i16(at, -1);
    at = put_i32(at, -1);
    at = put_i32(at, records);
    for (int i = 0; i < records; i++) {
        size_t body = 1 + varint_size(0) + varint_size(i) + varint_size(-1) +
                      varint_size(value_bytes) + (size_t)value_bytes + varint_size(0);
        at = put_varint(at, (int64_t)body);
        at = put_i8(at, 0);
        at = put_varint(at, 0);
        at = put_varint(at, i);
        at = put_varint(at, -1);
        at = put_varint(at, value_bytes);
        memset(at, 'x', (size_t)value_bytes);
        at += value_bytes;
        at = put_varint(at, 0);
    }
    put_i32(length_at, at - length_at - 4);
    put_i32(crc_at, crc32c(crc_at + 4, (size_t)(at - crc_at - 4)));
    return at;
}

static inline uint8_t *put_request_header(uint8_t *at, int api, int version) {
    at = put_i16(at, api);
    at = put_i16(at, version);
    at = put_i32(at, 0); /* correlation id: at byte 8 of the frame */
    return put_string(at, "bench");
}

#endif
