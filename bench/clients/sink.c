/* A server that acknowledges Kafka produce requests and throws them away: the client's ceiling.
 *
 *   sink --ready-file F [--partitions N]
 *
 * Speaks ApiVersions, Metadata and Produce, as little as librdkafka and raw_bench need. Every topic
 * asked for exists, with N partitions. Record batches are skipped over, never looked into. One
 * thread, epoll: it costs less processor time than any broker could, and that is its purpose.
 */
#define _GNU_SOURCE
#include "frames.h"
#include "timing.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { FRAME_BYTES_MAX = 64 << 20, ANSWER_BYTES = 1 << 18, READ_BYTES = 1 << 18 };
enum { NAME_BYTES_MAX = 255, METADATA_PARTITION_BYTES = 26 };

typedef struct {
    int fd;
    uint8_t *in;
    size_t in_length, in_capacity;
    uint8_t out[ANSWER_BYTES];
    size_t out_length;
} connection_t;

typedef struct {
    const uint8_t *at, *end;
} cursor_t;

static int port, partition_count = 6;

static bool has(const cursor_t *cursor, size_t bytes) {
    return (size_t)(cursor->end - cursor->at) >= bytes;
}

/* A nullable string: -1 for null or for too few bytes, else its length with `text` at its start. */
static int take_string(cursor_t *cursor, const uint8_t **text) {
    if (!has(cursor, 2))
        return -1;
    int length = get_i16(cursor->at);
    cursor->at += 2;
    if (length < 0 || !has(cursor, (size_t)length))
        return -1;
    *text = cursor->at;
    cursor->at += length;
    return length;
}

static uint8_t *put_name(uint8_t *at, const uint8_t *name, int length) {
    at = put_i16(at, length);
    memcpy(at, name, (size_t)length);
    return at + length;
}

/* ApiVersions v0 to v2, and v3 in its compact form; above that, v0 with the error. */
static uint8_t *answer_versions(uint8_t *at, int version) {
    static const int offered[][3] = {{API_PRODUCE, 3, PRODUCE_VERSION}, {API_FETCH, 4, 4},
                                     {API_METADATA, 1, 4}, {API_VERSIONS, 0, 3}};
    int count = (int)(sizeof offered / sizeof *offered);
    bool is_compact = version == 3;
    at = put_i16(at, version > 3 ? ERROR_UNSUPPORTED_VERSION : 0);
    at = is_compact ? put_i8(at, count + 1) : put_i32(at, count);
    for (int i = 0; i < count; i++) {
        for (int field = 0; field < 3; field++)
            at = put_i16(at, offered[i][field]);
        if (is_compact)
            at = put_i8(at, 0);
    }
    if (version >= 1 && version <= 3)
        at = put_i32(at, 0);
    return is_compact ? put_i8(at, 0) : at;
}

/* Metadata v1 to v4. */
static uint8_t *answer_metadata(uint8_t *at, int version, cursor_t body, const uint8_t *out_end) {
    if (version >= 3)
        at = put_i32(at, 0); /* throttle */
    at = put_i32(at, 1);     /* one broker */
    at = put_i32(at, 0);
    at = put_string(at, "127.0.0.1");
    at = put_i32(at, port);
    at = put_i16(at, -1); /* rack */
    if (version >= 2)
        at = put_string(at, "sink");
    at = put_i32(at, 0); /* controller */
    int topics = has(&body, 4) ? get_i32(body.at) : 0;
    body.at += 4;
    uint8_t *count_at = at;
    at = put_i32(at, 0);
    int written = 0;
    size_t topic_bytes = NAME_BYTES_MAX + 16 + (size_t)partition_count * METADATA_PARTITION_BYTES;
    for (int i = 0; i < topics && (size_t)(out_end - at) > topic_bytes; i++) {
        const uint8_t *name;
        int length = take_string(&body, &name);
        if (length < 0 || length > NAME_BYTES_MAX)
            break;
        at = put_i16(at, 0);
        at = put_name(at, name, length);
        at = put_i8(at, 0);
        at = put_i32(at, partition_count);
        for (int p = 0; p < partition_count; p++) {
            at = put_i16(at, 0);
            at = put_i32(at, p);
            at = put_i32(at, 0);              /* leader */
            at = put_i32(put_i32(at, 1), 0);  /* replicas */
            at = put_i32(put_i32(at, 1), 0);  /* in sync */
        }
        written++;
    }
    put_i32(count_at, written);
    return at;
}

/* Produce v3 to v7. Returns NULL when the client asked for no answer. */
static uint8_t *answer_produce(uint8_t *at, int version, cursor_t body, const uint8_t *out_end) {
    const uint8_t *name;
    take_string(&body, &name); /* transactional id */
    if (!has(&body, 10))
        return at;
    bool is_silent = get_i16(body.at) == 0;
    body.at += 6;
    int topics = get_i32(body.at);
    body.at += 4;
    at = put_i32(at, topics);
    for (int t = 0; t < topics; t++) {
        int length = take_string(&body, &name);
        if (length < 0 || length > NAME_BYTES_MAX || !has(&body, 4))
            return at;
        int partitions = get_i32(body.at);
        body.at += 4;
        at = put_i32(put_name(at, name, length), partitions);
        for (int p = 0; p < partitions; p++) {
            if (!has(&body, 8) || out_end - at < 64)
                return at;
            at = put_i32(at, get_i32(body.at));
            at = put_i16(at, 0);
            at = put_i64(at, 0);  /* base offset */
            at = put_i64(at, -1); /* append time */
            if (version >= 5)
                at = put_i64(at, 0);
            int32_t records = get_i32(body.at + 4);
            body.at += 8;
            if (records > 0) {
                if (!has(&body, (size_t)records))
                    return at;
                body.at += records;
            }
        }
    }
    return is_silent ? NULL : put_i32(at, 0);
}

/* False when the frame is not one this server knows. */
static bool answer(connection_t *connection, const uint8_t *frame, size_t length) {
    const uint8_t *client, *out_end = connection->out + ANSWER_BYTES;
    cursor_t body = {.at = frame + 8, .end = frame + length};
    if (length < 10)
        return false;
    int api = get_i16(frame), version = get_i16(frame + 2);
    take_string(&body, &client);
    uint8_t *start = connection->out + connection->out_length;
    uint8_t *at = put_i32(start + 4, get_i32(frame + 4));
    if (api == API_PRODUCE)
        at = answer_produce(at, version, body, out_end);
    else if (api == API_METADATA)
        at = answer_metadata(at, version, body, out_end);
    else if (api == API_VERSIONS)
        at = answer_versions(at, version);
    else
        return false;
    if (at != NULL) {
        put_i32(start, at - start - 4);
        connection->out_length += (size_t)(at - start);
    }
    return true;
}

/* Answers are small and clients read them, so a short blocking send is simpler than a queue. */
static bool send_answers(connection_t *connection) {
    size_t sent = 0;
    while (sent < connection->out_length) {
        ssize_t wrote = send(connection->fd, connection->out + sent, connection->out_length - sent,
                             MSG_NOSIGNAL);
        if (wrote < 0)
            return false;
        sent += (size_t)wrote;
    }
    connection->out_length = 0;
    return true;
}

static bool serve(connection_t *connection) {
    ssize_t got = recv(connection->fd, connection->in + connection->in_length,
                       connection->in_capacity - connection->in_length, 0);
    if (got <= 0)
        return false;
    connection->in_length += (size_t)got;
    size_t at = 0;
    while (connection->in_length - at >= 4) {
        size_t frame = (size_t)(uint32_t)get_i32(connection->in + at);
        if (frame > FRAME_BYTES_MAX)
            return false;
        if (connection->in_length - at < frame + 4) {
            if (frame + 4 > connection->in_capacity) {
                uint8_t *grown = realloc(connection->in, frame + 4 + READ_BYTES);
                if (grown == NULL)
                    return false;
                connection->in = grown;
                connection->in_capacity = frame + 4 + READ_BYTES;
            }
            break;
        }
        if (connection->out_length > ANSWER_BYTES / 2 && !send_answers(connection))
            return false;
        if (!answer(connection, connection->in + at + 4, frame))
            return false;
        at += frame + 4;
    }
    memmove(connection->in, connection->in + at, connection->in_length - at);
    connection->in_length -= at;
    return send_answers(connection);
}

static void accept_one(int listener, int epoll_fd) {
    int fd = accept(listener, NULL, NULL);
    connection_t *connection = fd < 0 ? NULL : calloc(1, sizeof *connection);
    if (connection == NULL)
        return;
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    connection->fd = fd;
    connection->in_capacity = READ_BYTES;
    connection->in = malloc(READ_BYTES);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

static int listen_on_loopback(void) {
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&address, length) != 0 || listen(listener, 256) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &length) != 0) {
        perror("sink: listen");
        exit(1);
    }
    port = ntohs(address.sin_port);
    return listener;
}

static void write_ready_file(const char *path) {
    char partial[4096];
    snprintf(partial, sizeof partial, "%s.partial", path);
    FILE *file = fopen(partial, "w");
    if (file == NULL || fprintf(file, "{\"kafka\": \"127.0.0.1:%d\"}\n", port) < 0 ||
        fclose(file) != 0 || rename(partial, path) != 0) {
        perror("sink: ready file");
        exit(1);
    }
}

int main(int argc, char **argv) {
    static const struct option names[] = {
        {"ready-file", 1, 0, 'f'}, {"partitions", 1, 0, 'P'}, {0, 0, 0, 0}};
    const char *ready_file = NULL;
    int name;
    die_with_parent();
    while ((name = getopt_long(argc, argv, "", names, NULL)) != -1) {
        if (name == 'f')
            ready_file = optarg;
        else if (name == 'P')
            partition_count = atoi(optarg);
        else
            return 2;
    }
    if (ready_file == NULL || partition_count < 1 || partition_count > 5000) {
        fprintf(stderr, "usage: sink --ready-file F [--partitions 1..5000]\n");
        return 2;
    }
    int listener = listen_on_loopback();
    int epoll_fd = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listener, &event);
    write_ready_file(ready_file);
    for (;;) {
        struct epoll_event events[256];
        int ready = epoll_wait(epoll_fd, events, 256, -1);
        for (int i = 0; i < ready; i++) {
            connection_t *connection = events[i].data.ptr;
            if (connection == NULL) {
                accept_one(listener, epoll_fd);
            } else if (!serve(connection)) {
                close(connection->fd);
                free(connection->in);
                free(connection);
            }
        }
    }
}
