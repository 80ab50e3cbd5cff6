/* HTTP/1.1 over keep-alive sockets for the load generators: one thread, epoll, no library.
 *
 * A connection has one request outstanding. Its answer is read whole, its status and length are
 * checked, and the body is handed to the caller with the members of its JSON objects in order. The
 * scanner is flat: it tells a key from a value and skips over strings at the speed of memchr, and
 * that is all a load generator needs to count messages and pick receipts.
 */
#ifndef BENCH_HTTP_H
#define BENCH_HTTP_H

#include "timing.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HTTP_READ_BYTES = 1 << 16, HTTP_HEAD_BYTES_MAX = 16384, HTTP_ERROR_BYTES = 300 };
#define HTTP_BODY_BYTES_MAX ((size_t)64 << 20)

typedef struct {
    char *data;
    size_t length, capacity;
} buffer_t;

typedef struct http_connection {
    int fd;
    int index;
    int role; /* what the caller uses it for */
    buffer_t out, in;
    size_t out_sent;
    bool is_busy, wants_write;
    int64_t sent_ns;
    buffer_t held; /* what the caller keeps from one answer to the next */
    int64_t held_count;
    bool is_receiving; /* whether the caller asked for messages */
} http_connection_t;

static int http_epoll;
static int64_t http_failed;
static char http_first_error[HTTP_ERROR_BYTES];

static inline void http_die(const char *what) {
    fprintf(stderr, "http: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* Notes the first failure in words that stay inside a JSON string. */
static inline void http_note_failure(const char *format, ...) {
    if (http_failed++ > 0)
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(http_first_error, sizeof http_first_error, format, arguments);
    va_end(arguments);
    for (char *at = http_first_error; *at; at++)
        if (*at == '"' || *at == '\\' || *at < ' ') /* what is not ASCII is negative */
            *at = '\'';
}

/* ---- buffers --------------------------------------------------------------------------- */

static inline void buffer_reserve(buffer_t *buffer, size_t more) {
    size_t wanted = buffer->length + more;
    if (wanted <= buffer->capacity)
        return;
    size_t capacity = wanted * 2 < 4096 ? 4096 : wanted * 2;
    buffer->data = realloc(buffer->data, capacity);
    if (buffer->data == NULL)
        http_die("memory");
    buffer->capacity = capacity;
}

static inline void buffer_add(buffer_t *buffer, const void *data, size_t length) {
    buffer_reserve(buffer, length);
    memcpy(buffer->data + buffer->length, data, length);
    buffer->length += length;
}

static inline void buffer_text(buffer_t *buffer, const char *text) {
    buffer_add(buffer, text, strlen(text));
}

static inline void buffer_fill(buffer_t *buffer, char sign, size_t count) {
    buffer_reserve(buffer, count);
    memset(buffer->data + buffer->length, sign, count);
    buffer->length += count;
}

static inline void buffer_number(buffer_t *buffer, int64_t number, int digits) {
    char text[32];
    buffer_add(buffer, text,
               (size_t)snprintf(text, sizeof text, "%0*lld", digits, (long long)number));
}

/* ---- requests -------------------------------------------------------------------------- */

/* Puts a request before its body, which is known now: `method path`, then the body's length. */
static inline void http_put_request(buffer_t *out, const char *method, const char *path,
                                    const buffer_t *body) {
    char head[1024];
    int length = snprintf(head, sizeof head,
                          "%s %s HTTP/1.1\r\nHost: localhost\r\n"
                          "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
                          method, path, body ? body->length : 0);
    if (length < 0 || (size_t)length >= sizeof head)
        http_die("path too long");
    buffer_add(out, head, (size_t)length);
    if (body)
        buffer_add(out, body->data, body->length);
}

static inline void http_send(http_connection_t *connection) {
    buffer_t *out = &connection->out;
    while (connection->out_sent < out->length) {
        ssize_t sent = send(connection->fd, out->data + connection->out_sent,
                            out->length - connection->out_sent, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN)
            break;
        if (sent < 0)
            http_die("send");
        connection->out_sent += (size_t)sent;
    }
    bool is_left = connection->out_sent < out->length;
    if (!is_left)
        connection->out_sent = out->length = 0;
    if (is_left != connection->wants_write) {
        struct epoll_event event = {.events = is_left ? EPOLLIN | EPOLLOUT : EPOLLIN,
                                    .data.ptr = connection};
        epoll_ctl(http_epoll, EPOLL_CTL_MOD, connection->fd, &event);
        connection->wants_write = is_left;
    }
}

/* Sends what the caller has put into `out`; the time counts from here. */
static inline void http_start(http_connection_t *connection) {
    connection->is_busy = true;
    connection->sent_ns = now_ns();
    http_send(connection);
}

static inline void http_open(http_connection_t *connection, const char *host, int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    if (inet_pton(AF_INET, host, &address.sin_addr) != 1)
        http_die("host");
    connection->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connection->fd < 0 ||
        connect(connection->fd, (struct sockaddr *)&address, sizeof address) != 0)
        http_die("connect");
    int one = 1;
    setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(connection->fd, F_SETFL, O_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
    if (epoll_ctl(http_epoll, EPOLL_CTL_ADD, connection->fd, &event) != 0)
        http_die("epoll_ctl");
}

/* ---- answers --------------------------------------------------------------------------- */

typedef struct {
    int status;
    char *body;
    size_t length;
} http_answer_t;

static inline const char *http_header(const char *head, const char *end, const char *name) {
    size_t length = strlen(name);
    for (const char *line = head; line < end; line++) {
        line = memchr(line, '\n', (size_t)(end - line));
        if (line == NULL || line + 1 + length >= end)
            return NULL;
        if (strncasecmp(line + 1, name, length) == 0)
            return line + 1 + length;
    }
    return NULL;
}

/* Bytes of the answer at the start of `in`; 0 while it is not whole. */
static inline size_t http_parse(const buffer_t *in, http_answer_t *answer) {
    size_t looked = in->length < HTTP_HEAD_BYTES_MAX ? in->length : HTTP_HEAD_BYTES_MAX;
    char *end = memmem(in->data, looked, "\r\n\r\n", 4);
    if (end == NULL) {
        if (in->length >= HTTP_HEAD_BYTES_MAX)
            http_note_failure("the head of an answer does not end");
        return 0;
    }
    if (in->length < 13 || strncmp(in->data, "HTTP/1.1 ", 9) != 0) {
        http_note_failure("this is no HTTP/1.1 answer: %.40s", in->data);
        return 0;
    }
    answer->status = atoi(in->data + 9);
    const char *length = http_header(in->data, end + 2, "content-length:");
    answer->length = length ? strtoull(length, NULL, 10) : 0;
    if ((length == NULL && answer->status != 204) || answer->length > HTTP_BODY_BYTES_MAX) {
        http_note_failure("an answer of status %d has no usable length", answer->status);
        return 0;
    }
    answer->body = end + 4;
    size_t whole = (size_t)(answer->body - in->data) + answer->length;
    return whole <= in->length ? whole : 0;
}

/* Takes in what has arrived. `take` is called with a whole answer and may start the next request.
 * An answer whose status is not 2xx is a failure and is not handed on. */
static inline void http_receive(http_connection_t *connection,
                                void (*take)(http_connection_t *, const http_answer_t *)) {
    buffer_t *in = &connection->in;
    buffer_reserve(in, HTTP_READ_BYTES);
    ssize_t got = recv(connection->fd, in->data + in->length, in->capacity - in->length, 0);
    if (got < 0 && errno == EAGAIN)
        return;
    if (got <= 0)
        return http_note_failure("the server has closed the connection");
    in->length += (size_t)got;
    buffer_reserve(in, 1);
    in->data[in->length] = 0; /* whatever reads numbers stops here */
    http_answer_t answer;
    size_t whole = http_parse(in, &answer);
    if (whole == 0)
        return;
    if (whole != in->length || !connection->is_busy)
        return http_note_failure("more has come than was asked for");
    connection->is_busy = false;
    in->length = 0;
    if (answer.status < 200 || answer.status > 299)
        return http_note_failure("status %d: %.*s", answer.status,
                                 (int)(answer.length < 200 ? answer.length : 200), answer.body);
    take(connection, &answer);
}

/* Serves the sockets until `is_done`, a failure or the deadline. An event without a connection is
 * the caller's own timer. */
static inline void http_run(bool (*is_done)(void),
                            void (*take)(http_connection_t *, const http_answer_t *),
                            void (*on_timer)(void), int64_t deadline_ns) {
    struct epoll_event events[256];
    while (http_failed == 0 && !is_done() && now_ns() < deadline_ns) {
        int ready = epoll_wait(http_epoll, events, 256, 100);
        for (int i = 0; i < ready && http_failed == 0; i++) {
            http_connection_t *connection = events[i].data.ptr;
            if (connection == NULL) {
                on_timer();
                continue;
            }
            if ((events[i].events & ~(uint32_t)EPOLLOUT) != 0)
                http_receive(connection, take);
            http_send(connection);
        }
    }
}

/* ---- JSON ------------------------------------------------------------------------------ */

typedef struct {
    const char *at, *end;
    const char *key, *value; /* of the member that was found; strings without their quotes */
    size_t key_length, value_length;
    bool is_string;
} json_t;

/* The closing quote of the string that begins at `at`. */
static inline const char *json_string_end(const char *at, const char *end) {
    while ((at = memchr(at, '"', (size_t)(end - at))) != NULL) {
        const char *back = at;
        while (back[-1] == '\\')
            back--;
        if ((at - back) % 2 == 0)
            return at;
        at++;
    }
    return NULL;
}

/* Steps to the next member whose value is a string, a number, true, false or null. */
static inline bool json_next(json_t *json) {
    for (;;) {
        const char *open = memchr(json->at, '"', (size_t)(json->end - json->at));
        const char *close = open ? json_string_end(open + 1, json->end) : NULL;
        if (close == NULL || close + 2 >= json->end)
            return false;
        json->at = close + 1;
        if (*json->at != ':')
            continue; /* a string in a list */
        const char *value = json->at + 1;
        json->at = value;
        if (*value == '{' || *value == '[')
            continue;
        json->key = open + 1;
        json->key_length = (size_t)(close - open - 1);
        json->is_string = *value == '"';
        if (json->is_string) {
            const char *last = json_string_end(value + 1, json->end);
            if (last == NULL)
                return false;
            json->value = value + 1;
            json->value_length = (size_t)(last - value - 1);
            json->at = last + 1;
            return true;
        }
        json->value = value;
        json->value_length = strcspn(value, ",}]");
        json->at = value + json->value_length;
        return true;
    }
}

static inline bool json_is(const json_t *json, const char *key) {
    return strlen(key) == json->key_length && memcmp(json->key, key, json->key_length) == 0;
}

static inline int64_t json_number(const json_t *json) { return strtoll(json->value, NULL, 10); }

/* Messages that an answer to a publish says are stored. */
static inline int64_t count_offsets(const http_answer_t *answer) {
    json_t json = {.at = answer->body, .end = answer->body + answer->length};
    int64_t found = 0;
    while (json_next(&json))
        found += json_is(&json, "offset");
    return found;
}

#endif
