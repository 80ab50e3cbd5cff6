/* Publishing to the NATS peer without a client library: one thread, plain sockets, epoll, so that
 * the server and not a client is measured, as `raw_bench` does for Kafka.
 *
 *   nats_publish publish --queue Q ...   makes a file-backed stream and publishes numbered messages
 *                                        over --connections with --depth unacknowledged on each;
 *                                        every acknowledgement is read, and the stream must then
 *                                        hold as many messages
 */
#define _GNU_SOURCE
#include "lanes.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LINE_BYTES_MAX = 4096, INPUT_BYTES = 1 << 18 };

typedef struct {
    int fd;
    char *out, *in;
    size_t out_length, out_sent, out_capacity, in_length;
} connection_t;

/* ---- sockets ---------------------------------------------------------------------------- */

static void put(connection_t *connection, const char *data, size_t length) {
    size_t wanted = connection->out_length + length;
    if (wanted > connection->out_capacity) {
        connection->out_capacity = 2 * wanted;
        connection->out = realloc(connection->out, connection->out_capacity);
        if (connection->out == NULL)
            fail("no memory");
    }
    memcpy(connection->out + connection->out_length, data, length);
    connection->out_length = wanted;
}

/* Writes what the socket takes; true when something is left. */
static bool send_queued(connection_t *connection) {
    while (connection->out_sent < connection->out_length) {
        ssize_t sent = send(connection->fd, connection->out + connection->out_sent,
                            connection->out_length - connection->out_sent, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN)
            return true;
        if (sent < 0) {
            note_failure("the connection broke while sending");
            return false;
        }
        connection->out_sent += (size_t)sent;
    }
    connection->out_sent = connection->out_length = 0;
    return false;
}

static bool receive(connection_t *connection) {
    ssize_t got = recv(connection->fd, connection->in + connection->in_length,
                       INPUT_BYTES - connection->in_length, 0);
    if (got < 0 && errno == EAGAIN)
        return true;
    if (got <= 0) {
        note_failure("the connection broke");
        return false;
    }
    connection->in_length += (size_t)got;
    return true;
}

/* ---- protocol --------------------------------------------------------------------------- */

/* One thing that the server said: the words of a line, and the payload of a message. */
typedef struct {
    const char *line, *payload;
    size_t line_length, payload_length, total;
} said_t;

/* Whether a whole line, with its payload if it has one, has arrived. */
static bool next_said(const connection_t *connection, size_t at, said_t *said) {
    const char *begin = connection->in + at;
    size_t length = connection->in_length - at;
    const char *end = memmem(begin, length, "\r\n", 2);
    if (end == NULL)
        return false;
    *said = (said_t){.line = begin, .line_length = (size_t)(end - begin)};
    said->total = said->line_length + 2;
    if (memcmp(begin, "MSG ", 4) != 0)
        return true;
    const char *last = end;
    while (last[-1] != ' ')
        last--;
    said->payload = end + 2;
    said->payload_length = (size_t)atoll(last);
    said->total += said->payload_length + 2;
    return said->total <= length;
}

static void forget(connection_t *connection, size_t length) {
    memmove(connection->in, connection->in + length, connection->in_length - length);
    connection->in_length -= length;
}

/* Sends what is queued and waits for a line that begins so; ends the program if it is an error. */
static said_t wait_for(connection_t *connection, const char *wanted) {
    said_t said;
    send_queued(connection);
    while (!is_over()) {
        while (next_said(connection, 0, &said)) {
            if (memcmp(said.line, wanted, strlen(wanted)) == 0)
                return said;
            if (said.line[0] == '-')
                fail(said.line);
            forget(connection, said.total);
        }
        receive(connection);
    }
    fail("the server did not answer");
    return said;
}

static connection_t *open_connection(int index) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)options.port)};
    connection_t *connection = calloc(1, sizeof *connection);
    char hello[LINE_BYTES_MAX];
    int one = 1;
    if (inet_pton(AF_INET, options.host, &address.sin_addr) != 1)
        fail("host");
    connection->in = malloc(INPUT_BYTES);
    connection->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(connection->fd, (struct sockaddr *)&address, sizeof address) != 0)
        fail("connect");
    setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    snprintf(hello, sizeof hello,
             "CONNECT {\"verbose\":false,\"pedantic\":false,\"lang\":\"c\",\"version\":\"1\","
             "\"protocol\":1,\"headers\":true,\"no_responders\":true}\r\n"
             "SUB _INBOX.%d 1\r\nPING\r\n",
             index);
    put(connection, hello, strlen(hello));
    forget(connection, wait_for(connection, "PONG").total);
    return connection;
}

/* Asks the JetStream API and copies its answer. */
static void ask(const char *subject, const char *body, char *answer, size_t size) {
    connection_t *connection = open_connection(CONNECTIONS_MAX);
    char request[LINE_BYTES_MAX];
    snprintf(request, sizeof request, "PUB $JS.API.%s.%s _INBOX.%d %zu\r\n%s\r\n", subject,
             options.queue, CONNECTIONS_MAX, strlen(body), body);
    put(connection, request, strlen(request));
    said_t said = wait_for(connection, "MSG ");
    snprintf(answer, size, "%.*s", (int)said.payload_length, said.payload);
    if (strstr(answer, "\"error\":") != NULL)
        fail(answer);
    close(connection->fd);
}

/* ---- lanes ------------------------------------------------------------------------------ */

static void open_lane(lane_t *lane) {
    connection_t *connection = open_connection((int)(lane - lanes));
    fcntl(connection->fd, F_SETFL, O_NONBLOCK);
    lane_open(lane, connection->fd, connection);
}

static void put_message(lane_t *lane, char *payload) {
    char line[LINE_BYTES_MAX];
    int length = snprintf(line, sizeof line, "PUB %s _INBOX.%d %d\r\n", options.queue,
                          (int)(lane - lanes), options.size);
    put(lane->self, line, (size_t)length);
    put(lane->self, payload, (size_t)options.size);
    put(lane->self, "\r\n", 2);
}

static bool flush_lane(lane_t *lane) { return send_queued(lane->self); }

static bool is_stored(const said_t *said) {
    return memmem(said->payload, said->payload_length, "\"seq\":", 6) != NULL &&
           memmem(said->payload, said->payload_length, "\"error\":", 8) == NULL;
}

static int64_t take_acks(lane_t *lane) {
    connection_t *connection = lane->self;
    size_t at = 0;
    int64_t count = 0;
    said_t said;
    receive(connection);
    for (; next_said(connection, at, &said); at += said.total) {
        if (said.payload != NULL && is_stored(&said))
            count++;
        else if (said.payload != NULL || said.line[0] == '-')
            note_failure(said.payload != NULL ? said.payload : said.line);
        else if (memcmp(said.line, "PING", 4) == 0)
            put(connection, "PONG\r\n", 6);
    }
    forget(connection, at);
    return count;
}

static int64_t stored(void) {
    char answer[LINE_BYTES_MAX];
    ask("STREAM.INFO", "", answer, sizeof answer);
    const char *count = strstr(answer, "\"messages\":");
    return count == NULL ? -1 : atoll(count + strlen("\"messages\":"));
}

int main(int argc, char **argv) {
    static const lane_calls_t calls = {put_message, flush_lane, take_acks};
    char body[LINE_BYTES_MAX], answer[LINE_BYTES_MAX];
    if (strcmp(begin(argc, argv, "nats_publish"), "publish") != 0)
        fail("publish");
    snprintf(body, sizeof body, "{\"name\":\"%s\",\"subjects\":[\"%s\"],\"storage\":\"file\"}",
             options.queue, options.queue);
    ask("STREAM.CREATE", body, answer, sizeof answer);
    run_publish(open_lane, &calls, stored);
    return 0;
}
