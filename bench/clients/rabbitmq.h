/* Connections, queues and confirmed publishing of librabbitmq. */
#ifndef BENCH_RABBITMQ_H
#define BENCH_RABBITMQ_H

#include "lanes.h"
#include "pace.h"

#include <amqp.h>
#include <amqp_tcp_socket.h>
#include <sys/time.h>
#include <unistd.h>

enum { CHANNEL = 1, FRAME_BYTES_MAX = 131072 };

static const char *const DEAD_LETTERS = "bench-dead-letters";

typedef struct {
    amqp_connection_state_t connection;
    const char *queue;
    int64_t confirmed;       /* the last tag that was confirmed */
    int64_t confirmed_total; /* kept by those who count for themselves */
} publisher_t;

static inline void check(amqp_rpc_reply_t reply, const char *what) {
    if (reply.reply_type == AMQP_RESPONSE_NORMAL)
        return;
    const char *why = "refused by the server";
    if (reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION)
        why = amqp_error_string2(reply.library_error);
    fprintf(stderr, "rabbitmq_bench: %s: %s\n", what, why);
    exit(1);
}

static inline amqp_connection_state_t open_connection(void) {
    amqp_connection_state_t connection = amqp_new_connection();
    amqp_socket_t *socket = amqp_tcp_socket_new(connection);
    if (socket == NULL || amqp_socket_open(socket, options.host, options.port) != AMQP_STATUS_OK)
        fail("connect");
    check(amqp_login(connection, "/", 0, FRAME_BYTES_MAX, 0, AMQP_SASL_METHOD_PLAIN, "guest",
                     "guest"),
          "login");
    amqp_channel_open(connection, CHANNEL);
    check(amqp_get_rpc_reply(connection), "channel");
    return connection;
}

static inline void close_connection(amqp_connection_state_t connection) {
    check(amqp_channel_close(connection, CHANNEL, AMQP_REPLY_SUCCESS), "close the channel");
    check(amqp_connection_close(connection, AMQP_REPLY_SUCCESS), "close");
    amqp_destroy_connection(connection);
}

/* ---- queues ----------------------------------------------------------------------------- */

static inline amqp_table_entry_t text_entry(const char *key, const char *text) {
    return (amqp_table_entry_t){.key = amqp_cstring_bytes(key),
                                .value = {.kind = AMQP_FIELD_KIND_UTF8,
                                          .value.bytes = amqp_cstring_bytes(text)}};
}

/* With `live_ms`, what stays that long in the queue goes to the queue of dead letters. */
static inline void declare_queue(amqp_connection_state_t connection, const char *queue,
                                 int64_t live_ms) {
    amqp_table_entry_t entries[] = {
        text_entry("x-queue-type", options.kind),
        {.key = amqp_cstring_bytes("x-message-ttl"),
         .value = {.kind = AMQP_FIELD_KIND_I64, .value.i64 = live_ms}},
        text_entry("x-dead-letter-exchange", ""),
        text_entry("x-dead-letter-routing-key", DEAD_LETTERS),
        text_entry("x-dead-letter-strategy", "at-least-once"),
        text_entry("x-overflow", "reject-publish"),
    };
    amqp_table_t arguments = {.num_entries = live_ms > 0 ? 6 : 1, .entries = entries};
    amqp_queue_declare(connection, CHANNEL, amqp_cstring_bytes(queue), 0, 1, 0, 0, arguments);
    check(amqp_get_rpc_reply(connection), "declare");
}

static inline int64_t count_ready(amqp_connection_state_t connection, const char *queue) {
    amqp_queue_declare_ok_t *answer = amqp_queue_declare(
        connection, CHANNEL, amqp_cstring_bytes(queue), 1, 1, 0, 0, amqp_empty_table);
    check(amqp_get_rpc_reply(connection), "count");
    int64_t count = answer->message_count;
    amqp_maybe_release_buffers(connection);
    return count;
}

static inline void delete_queue(const char *queue) {
    amqp_connection_state_t connection = open_connection();
    amqp_queue_delete(connection, CHANNEL, amqp_cstring_bytes(queue), 0, 0);
    check(amqp_get_rpc_reply(connection), "delete");
    close_connection(connection);
}

static inline void set_prefetch(amqp_connection_state_t connection) {
    amqp_basic_qos(connection, CHANNEL, 0, (uint16_t)options.prefetch, 0);
    check(amqp_get_rpc_reply(connection), "prefetch");
}

/* `from` is where a stream is read from; a queue has no such place. */
static inline void subscribe(amqp_connection_state_t connection, const char *queue,
                             const char *from) {
    amqp_table_entry_t entry = text_entry("x-stream-offset", from != NULL ? from : "");
    amqp_table_t arguments = {.num_entries = from != NULL, .entries = &entry};
    amqp_basic_consume(connection, CHANNEL, amqp_cstring_bytes(queue), amqp_empty_bytes, 0, 0, 0,
                       arguments);
    check(amqp_get_rpc_reply(connection), "consume");
}

/* Where a message stands in its stream; -1 when it does not say. */
static inline int64_t offset_of(const amqp_envelope_t *envelope) {
    const amqp_table_t *headers = &envelope->message.properties.headers;
    for (int i = 0; i < headers->num_entries; i++) {
        const amqp_table_entry_t *entry = &headers->entries[i];
        if (entry->key.len == strlen("x-stream-offset") &&
            memcmp(entry->key.bytes, "x-stream-offset", entry->key.len) == 0)
            return entry->value.value.i64;
    }
    return -1;
}

/* ---- publishing ------------------------------------------------------------------------- */

static inline publisher_t *open_publisher(const char *queue) {
    publisher_t *publisher = calloc(1, sizeof *publisher);
    publisher->connection = open_connection();
    publisher->queue = queue;
    amqp_confirm_select(publisher->connection, CHANNEL);
    check(amqp_get_rpc_reply(publisher->connection), "confirms");
    return publisher;
}

static inline publisher_t *open_delaying_publisher(void) {
    amqp_connection_state_t connection = open_connection();
    declare_queue(connection, DEAD_LETTERS, 0);
    declare_queue(connection, options.queue, options.delay_ms);
    close_connection(connection);
    return open_publisher(options.queue);
}

static inline void publish(publisher_t *publisher, const char *payload) {
    amqp_basic_properties_t properties = {._flags = AMQP_BASIC_DELIVERY_MODE_FLAG,
                                          .delivery_mode = AMQP_DELIVERY_PERSISTENT};
    amqp_bytes_t body = {.len = (size_t)options.size, .bytes = (void *)payload};
    if (amqp_basic_publish(publisher->connection, CHANNEL, amqp_empty_bytes,
                           amqp_cstring_bytes(publisher->queue), 0, 0, &properties,
                           body) != AMQP_STATUS_OK)
        note_failure("a message could not be sent");
}

/* How many messages a frame confirms: all up to its tag that were not, or one. */
static inline int64_t confirms_of(publisher_t *publisher, const amqp_frame_t *frame) {
    if (frame->frame_type != AMQP_FRAME_METHOD ||
        frame->payload.method.id != AMQP_BASIC_ACK_METHOD) {
        note_failure("a message was refused instead of confirmed");
        return 0;
    }
    amqp_basic_ack_t *ack = frame->payload.method.decoded;
    int64_t count = ack->multiple ? (int64_t)ack->delivery_tag - publisher->confirmed : 1;
    publisher->confirmed += count;
    return count;
}

static inline int64_t wait_for_confirm(publisher_t *publisher) {
    amqp_frame_t frame;
    amqp_maybe_release_buffers(publisher->connection);
    if (amqp_simple_wait_frame(publisher->connection, &frame) != AMQP_STATUS_OK) {
        note_failure("the connection broke");
        return 0;
    }
    return confirms_of(publisher, &frame);
}

/* Takes the confirms that are there, without waiting for others. */
static inline int64_t read_confirms(publisher_t *publisher) {
    int64_t count = 0;
    amqp_maybe_release_buffers(publisher->connection);
    while (failed == 0) {
        amqp_frame_t frame;
        struct timeval none = {0};
        int status = amqp_simple_wait_frame_noblock(publisher->connection, &frame, &none);
        if (status == AMQP_STATUS_TIMEOUT)
            break;
        if (status != AMQP_STATUS_OK) {
            note_failure(amqp_error_string2(status));
            break;
        }
        count += confirms_of(publisher, &frame);
    }
    return count;
}

#endif
