/* A server that answers HTTP publishes as if they were stored, and throws them away: the ceiling of
 * `http_bench publish`.
 *
 *   http_sink --ready-file F
 *
 * A request is found by its Content-Length. A path that ends in /batch gets as many results as its
 * body has messages, any other one result. One thread, epoll.
 */
#define _GNU_SOURCE
#include "http.h"

#include <getopt.h>

static const char ONE[] = "{\"id\":\"sink/0/0\",\"topic\":\"sink\",\"partition\":0,\"offset\":0,"
                          "\"timestamp\":1700000000000}";

static buffer_t answer_one, answer_many;
static int64_t answer_many_count = -1;

static void put_answer(buffer_t *answer, const buffer_t *body) {
    char head[128];
    answer->length = 0;
    buffer_add(answer, head,
               (size_t)snprintf(head, sizeof head,
                                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
                                "content-length: %zu\r\n\r\n",
                                body->length));
    buffer_add(answer, body->data, body->length);
}

static void build_many(int64_t count) {
    buffer_t body = {0};
    buffer_text(&body, "{\"results\":[");
    for (int64_t i = 0; i < count; i++) {
        buffer_text(&body, i ? ",{\"published\":" : "{\"published\":");
        buffer_text(&body, ONE);
        buffer_text(&body, "}");
    }
    buffer_text(&body, "],\"failed\":0}");
    put_answer(&answer_many, &body);
    answer_many_count = count;
    free(body.data);
}

static int64_t count_messages(const char *body, size_t length) {
    json_t json = {.at = body, .end = body + length};
    int64_t found = 0;
    while (json_next(&json))
        found += json_is(&json, "value");
    return found;
}

static void answer(http_connection_t *connection, const char *head, const char *body,
                   size_t length) {
    const char *line_end = memchr(head, '\r', (size_t)(body - head));
    const char batch[] = "/batch HTTP/1.1";
    size_t tail = sizeof batch - 1;
    if ((size_t)(line_end - head) > tail && memcmp(line_end - tail, batch, tail) == 0) {
        int64_t count = count_messages(body, length);
        if (count != answer_many_count)
            build_many(count);
        buffer_add(&connection->out, answer_many.data, answer_many.length);
    } else {
        buffer_add(&connection->out, answer_one.data, answer_one.length);
    }
}

/* False when the connection is over. */
static bool serve(http_connection_t *connection) {
    buffer_t *in = &connection->in;
    buffer_reserve(in, HTTP_READ_BYTES);
    ssize_t got = recv(connection->fd, in->data + in->length, in->capacity - in->length, 0);
    if (got < 0 && errno == EAGAIN)
        return true;
    if (got <= 0)
        return false;
    in->length += (size_t)got;
    for (;;) {
        char *end = memmem(in->data, in->length, "\r\n\r\n", 4);
        const char *length = end ? http_header(in->data, end + 2, "content-length:") : NULL;
        if (length == NULL)
            return in->length < HTTP_HEAD_BYTES_MAX;
        size_t body = strtoull(length, NULL, 10);
        size_t whole = (size_t)(end + 4 - in->data) + body;
        if (body > HTTP_BODY_BYTES_MAX)
            return false;
        if (whole > in->length)
            return true;
        answer(connection, in->data, end + 4, body);
        memmove(in->data, in->data + whole, in->length - whole);
        in->length -= whole;
        http_send(connection);
    }
}

static void accept_one(int listener) {
    int fd = accept(listener, NULL, NULL);
    http_connection_t *connection = fd < 0 ? NULL : calloc(1, sizeof *connection);
    if (connection == NULL)
        return;
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    connection->fd = fd;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
    epoll_ctl(http_epoll, EPOLL_CTL_ADD, fd, &event);
}

static void close_one(http_connection_t *connection) {
    close(connection->fd);
    free(connection->in.data);
    free(connection->out.data);
    free(connection);
}

static void write_ready_file(int listener, const char *path) {
    struct sockaddr_in address;
    socklen_t length = sizeof address;
    char partial[4096];
    snprintf(partial, sizeof partial, "%s.partial", path);
    if (getsockname(listener, (struct sockaddr *)&address, &length) != 0)
        http_die("address");
    FILE *file = fopen(partial, "w");
    if (file == NULL ||
        fprintf(file, "{\"http\": \"127.0.0.1:%d\"}\n", ntohs(address.sin_port)) < 0 ||
        fclose(file) != 0 || rename(partial, path) != 0)
        http_die("ready file");
}

int main(int argc, char **argv) {
    static const struct option names[] = {{"ready-file", 1, 0, 'f'}, {0, 0, 0, 0}};
    const char *ready_file = NULL;
    int name;
    die_with_parent();
    while ((name = getopt_long(argc, argv, "", names, NULL)) != -1) {
        if (name != 'f')
            return 2;
        ready_file = optarg;
    }
    if (ready_file == NULL) {
        fprintf(stderr, "usage: http_sink --ready-file F\n");
        return 2;
    }
    buffer_t body = {0};
    buffer_text(&body, ONE);
    put_answer(&answer_one, &body);
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0 ||
        listen(listener, 256) != 0)
        http_die("listen");
    http_epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    epoll_ctl(http_epoll, EPOLL_CTL_ADD, listener, &event);
    write_ready_file(listener, ready_file);
    for (;;) {
        struct epoll_event events[256];
        int ready = epoll_wait(http_epoll, events, 256, -1);
        for (int i = 0; i < ready; i++) {
            http_connection_t *connection = events[i].data.ptr;
            if (connection == NULL)
                accept_one(listener);
            else if ((events[i].events & ~(uint32_t)EPOLLOUT) && !serve(connection))
                close_one(connection);
            else
                http_send(connection);
        }
    }
}
