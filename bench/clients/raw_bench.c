/* Load without a client library: prebuilt Kafka frames over plain sockets, one thread, epoll.
 *
 *   raw_bench produce --host H --port P --topic T ...   batches of fixed size, N per connection
 *                                                       outstanding; every answer's code is read
 *   raw_bench fetch   --host H --port P --topic T ...   reads whole partitions; walks the batch
 *                                                       headers and checks the offsets, decodes
 *                                                       no record
 *
 * Prints one JSON object. Exit code 0 means the run took place; "failed" says how it went.
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

enum { CONNECTIONS_MAX = 1024, DEPTH_MAX = 1024, PARTITIONS_MAX = 10000 };
enum { CORRELATION_AT = 8 };

typedef struct {
    const char *host;
    int port;
    const char *topic;
    int partitions;
    int connections;
    int depth;
    int records; /* per batch */
    int size;    /* bytes of one value */
    int64_t count;
    int64_t warmup;
    double seconds_max;
    int fetch_bytes;
    int acks;
} options_t;

typedef struct {
    int fd;
    int index;
    uint8_t *out;
    size_t out_length, out_sent, out_capacity;
    uint8_t *in;
    size_t in_length, in_capacity;
    int64_t sent_at[DEPTH_MAX]; /* ring: answers come in the order of the requests */
    int32_t correlation_next, correlation_due;
    int partition_next;
    bool wants_write;
} connection_t;

typedef struct {
    int64_t started, answered, failed, warm; /* requests */
    int64_t records, bytes;                  /* fetched */
    int first_error;
    int64_t begin_ns;
    samples_t latency;
} totals_t;

static options_t options = {.host = "127.0.0.1", .partitions = 6, .connections = 1, .depth = 1,
                            .records = 1, .size = 1000, .count = 10000, .seconds_max = 30,
                            .fetch_bytes = 1 << 20, .acks = 1};
static totals_t totals;
static connection_t connections[CONNECTIONS_MAX];
static uint8_t *template_frame;
static size_t template_length, partition_at;
static int64_t fetch_next[PARTITIONS_MAX], fetch_end[PARTITIONS_MAX];
static int64_t fetch_missing; /* records not yet read */
static int epoll_fd;

static void fail(const char *what) {
    fprintf(stderr, "raw_bench: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void *allocate(void *old, size_t bytes) {
    void *memory = realloc(old, bytes);
    if (memory == NULL)
        fail("memory");
    return memory;
}

static void note_failure(int code) {
    totals.failed++;
    if (totals.first_error == 0)
        totals.first_error = code;
}

/* ---- produce --------------------------------------------------------------------------- */

static void build_produce_frame(void) {
    size_t batch = BATCH_HEADER_BYTES + (size_t)options.records * ((size_t)options.size + 32);
    template_frame = allocate(NULL, batch + strlen(options.topic) + 128);
    uint8_t *at = template_frame + 4;
    at = put_request_header(at, API_PRODUCE, PRODUCE_VERSION);
    at = put_i16(at, -1); /* transactional id */
    at = put_i16(at, options.acks);
    at = put_i32(at, 30000);
    at = put_i32(at, 1);
    at = put_string(at, options.topic);
    at = put_i32(at, 1);
    partition_at = (size_t)(at - template_frame);
    at = put_i32(at, 0);
    uint8_t *size_at = at;
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    int64_t now_ms = (int64_t)wall.tv_sec * 1000 + wall.tv_nsec / 1000000;
    at = put_batch(at + 4, options.records, options.size, now_ms);
    put_i32(size_at, at - size_at - 4);
    template_length = (size_t)(at - template_frame);
    put_i32(template_frame, (int64_t)template_length - 4);
}

static void queue_produce(connection_t *connection) {
    size_t wanted = connection->out_length + template_length;
    if (wanted > connection->out_capacity) {
        connection->out_capacity = wanted * 2;
        connection->out = allocate(connection->out, connection->out_capacity);
    }
    uint8_t *frame = connection->out + connection->out_length;
    memcpy(frame, template_frame, template_length);
    put_i32(frame + CORRELATION_AT, connection->correlation_next);
    put_i32(frame + partition_at, connection->partition_next);
    connection->partition_next =
        (connection->partition_next + options.connections) % options.partitions;
    connection->sent_at[connection->correlation_next % options.depth] = now_ns();
    connection->correlation_next++;
    connection->out_length += template_length;
    totals.started++;
}

/* Produce v7 answer: topics[name, partitions[index, error, base, time, start]], throttle. */
static void read_produced(const uint8_t *body, size_t length) {
    if (length < 4 + 2)
        return note_failure(-1);
    size_t name = (size_t)get_i16(body + 4);
    if (get_i32(body) != 1 || length < 4 + 2 + name + 4 + 30)
        return note_failure(-1);
    const uint8_t *partition = body + 4 + 2 + name + 4;
    int error = get_i16(partition + 4);
    if (error != 0 || get_i64(partition + 6) < 0)
        note_failure(error == 0 ? -1 : error);
}

/* ---- fetch ----------------------------------------------------------------------------- */

static bool owns(const connection_t *connection, int partition) {
    return partition % options.connections == connection->index &&
           fetch_next[partition] < fetch_end[partition];
}

static void queue_fetch(connection_t *connection) {
    int wanted = 0;
    for (int p = 0; p < options.partitions; p++)
        wanted += owns(connection, p);
    if (wanted == 0)
        return;
    size_t bytes = 128 + strlen(options.topic) + (size_t)wanted * 16;
    if (bytes > connection->out_capacity) {
        connection->out_capacity = bytes;
        connection->out = allocate(connection->out, bytes);
    }
    uint8_t *at = connection->out + 4;
    at = put_request_header(at, API_FETCH, FETCH_VERSION);
    put_i32(connection->out + CORRELATION_AT, connection->correlation_next);
    at = put_i32(at, -1);                           /* replica */
    at = put_i32(at, 500);                          /* wait, ms */
    at = put_i32(at, 1);                            /* bytes at least */
    at = put_i32(at, 52428800);                     /* bytes at most */
    at = put_i8(at, 0);                             /* read uncommitted */
    at = put_string(put_i32(at, 1), options.topic); /* one topic */
    at = put_i32(at, wanted);
    for (int p = 0; p < options.partitions; p++) {
        if (!owns(connection, p))
            continue;
        at = put_i32(at, p);
        at = put_i64(at, fetch_next[p]);
        at = put_i32(at, options.fetch_bytes);
    }
    connection->out_length = (size_t)(at - connection->out);
    put_i32(connection->out, (int64_t)connection->out_length - 4);
    connection->sent_at[0] = now_ns();
    connection->correlation_next++;
    totals.started++;
}

/* Whole batches only: a fetch may end inside one, which is then asked for again. */
static void read_batches(int partition, const uint8_t *at, size_t length) {
    const uint8_t *end = at + length;
    while (end - at >= BATCH_HEADER_BYTES) {
        size_t batch = 12 + (size_t)get_i32(at + 8);
        if (batch > (size_t)(end - at))
            break;
        int64_t base = get_i64(at);
        int64_t next = base + get_i32(at + 23) + 1;
        if (base > fetch_next[partition] || at[16] != 2)
            return note_failure(-2);
        if (next > fetch_next[partition]) {
            totals.records += next - fetch_next[partition];
            fetch_missing -= next - fetch_next[partition];
            totals.bytes += (int64_t)batch;
            fetch_next[partition] = next;
        }
        at += batch;
    }
}

/* Fetch v4 answer: throttle, topics[name, partitions[index, error, high, stable, aborted[],
 * records]]. */
static void read_fetched(const uint8_t *body, size_t length) {
    const uint8_t *end = body + length;
    const uint8_t *at = body + 4;
    if (length < 14)
        return note_failure(-1);
    int topics = get_i32(at);
    at += 4;
    for (int t = 0; t < topics; t++) {
        at += 2 + get_i16(at);
        int partitions = get_i32(at);
        at += 4;
        for (int i = 0; i < partitions; i++) {
            if (end - at < 30)
                return note_failure(-1);
            int partition = get_i32(at);
            int error = get_i16(at + 4);
            int aborted = get_i32(at + 22);
            at += 26 + (aborted > 0 ? 16 * (size_t)aborted : 0);
            if (end - at < 4)
                return note_failure(-1);
            int32_t records = get_i32(at);
            at += 4;
            if (error != 0 || partition < 0 || partition >= options.partitions)
                return note_failure(error == 0 ? -1 : error);
            if (records > 0) {
                if (records > end - at)
                    return note_failure(-1);
                read_batches(partition, at, (size_t)records);
                at += records;
            }
        }
    }
}

/* ---- sockets --------------------------------------------------------------------------- */

static void open_connection(connection_t *connection, int index) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)options.port)};
    if (inet_pton(AF_INET, options.host, &address.sin_addr) != 1)
        fail("host");
    connection->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connection->fd < 0 ||
        connect(connection->fd, (struct sockaddr *)&address, sizeof address) != 0)
        fail("connect");
    int one = 1;
    setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(connection->fd, F_SETFL, O_NONBLOCK);
    connection->index = index;
    connection->partition_next = index % options.partitions;
    connection->in_capacity = 1 << 16;
    connection->in = allocate(NULL, connection->in_capacity);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, connection->fd, &event) != 0)
        fail("epoll_ctl");
}

static void send_queued(connection_t *connection) {
    while (connection->out_sent < connection->out_length) {
        ssize_t sent = send(connection->fd, connection->out + connection->out_sent,
                            connection->out_length - connection->out_sent, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN)
            break;
        if (sent < 0)
            fail("send");
        connection->out_sent += (size_t)sent;
    }
    bool is_left = connection->out_sent < connection->out_length;
    if (!is_left)
        connection->out_sent = connection->out_length = 0;
    if (is_left != connection->wants_write) {
        struct epoll_event event = {.events = is_left ? EPOLLIN | EPOLLOUT : EPOLLIN,
                                    .data.ptr = connection};
        epoll_ctl(epoll_fd, EPOLL_CTL_MOD, connection->fd, &event);
        connection->wants_write = is_left;
    }
}

static void read_answer(connection_t *connection, const uint8_t *frame, size_t length,
                        void (*read_body)(const uint8_t *, size_t)) {
    int64_t now = now_ns();
    totals.answered++;
    if (totals.answered == totals.warm)
        totals.begin_ns = now;
    else if (totals.answered > totals.warm)
        samples_add(&totals.latency,
                    now - connection->sent_at[connection->correlation_due % options.depth]);
    if (get_i32(frame) != connection->correlation_due)
        note_failure(-3);
    connection->correlation_due++;
    read_body(frame + 4, length - 4);
}

/* Takes in what has arrived; false when the other side has closed. */
static bool receive(connection_t *connection, void (*read_body)(const uint8_t *, size_t)) {
    ssize_t got = recv(connection->fd, connection->in + connection->in_length,
                       connection->in_capacity - connection->in_length, 0);
    if (got < 0 && errno == EAGAIN)
        return true;
    if (got <= 0)
        return false;
    connection->in_length += (size_t)got;
    size_t at = 0;
    while (connection->in_length - at >= 4) {
        size_t frame = (size_t)get_i32(connection->in + at);
        if (frame + 4 > connection->in_capacity) {
            memmove(connection->in, connection->in + at, connection->in_length - at);
            connection->in_length -= at;
            at = 0;
            connection->in_capacity = frame + 4;
            connection->in = allocate(connection->in, connection->in_capacity);
        }
        if (connection->in_length - at < frame + 4)
            break;
        read_answer(connection, connection->in + at + 4, frame, read_body);
        at += frame + 4;
    }
    memmove(connection->in, connection->in + at, connection->in_length - at);
    connection->in_length -= at;
    return true;
}

static void refill_produce(connection_t *connection) {
    while (connection->correlation_next - connection->correlation_due < options.depth &&
           totals.started < options.count + totals.warm)
        queue_produce(connection);
}

static void refill_fetch(connection_t *connection) {
    if (connection->correlation_next == connection->correlation_due)
        queue_fetch(connection);
}

static void run(bool is_fetch) {
    void (*read_body)(const uint8_t *, size_t) = is_fetch ? read_fetched : read_produced;
    void (*refill)(connection_t *) = is_fetch ? refill_fetch : refill_produce;
    struct epoll_event events[256];
    int64_t deadline = now_ns() + (int64_t)(options.seconds_max * 1e9);
    totals.begin_ns = now_ns();
    for (int i = 0; i < options.connections; i++) {
        refill(&connections[i]);
        send_queued(&connections[i]);
    }
    while (totals.failed == 0 && now_ns() < deadline) {
        bool is_done = is_fetch ? fetch_missing == 0
                                : totals.answered == options.count + totals.warm;
        if (is_done)
            break;
        int ready = epoll_wait(epoll_fd, events, 256, 100);
        for (int i = 0; i < ready; i++) {
            connection_t *connection = events[i].data.ptr;
            if ((events[i].events & ~EPOLLOUT) != 0 && !receive(connection, read_body)) {
                note_failure(-4);
                break;
            }
            refill(connection);
            send_queued(connection);
        }
    }
}

static void report(bool is_fetch, double cpu) {
    double seconds = (double)(now_ns() - totals.begin_ns) / 1e9;
    int64_t timed = totals.answered > totals.warm ? totals.answered - totals.warm : 0;
    int64_t unanswered = totals.started - totals.answered;
    int64_t missing = is_fetch ? fetch_missing : options.count + totals.warm - totals.answered;
    int64_t records = is_fetch ? totals.records : totals.answered * options.records;
    printf("{\"requests\": %lld, \"seconds\": %.6f, \"requests_per_s\": %.1f, "
           "\"failed\": %lld, \"unanswered\": %lld, \"missing\": %lld, \"first_error\": %d, "
           "\"acked\": %lld, \"bytes\": %lld, \"timed_records\": %lld, \"cpu_seconds\": %.4f, ",
           (long long)timed, seconds, (double)timed / seconds, (long long)totals.failed,
           (long long)unanswered, (long long)missing, totals.first_error, (long long)records,
           (long long)totals.bytes, (long long)(is_fetch ? records : timed * options.records), cpu);
    samples_print(&totals.latency);
    printf("}\n");
}

static void read_options(int argc, char **argv) {
    static const struct option names[] = {
        {"host", 1, 0, 'h'},    {"port", 1, 0, 'p'},        {"topic", 1, 0, 't'},
        {"partitions", 1, 0, 'P'}, {"connections", 1, 0, 'c'}, {"depth", 1, 0, 'd'},
        {"records", 1, 0, 'r'}, {"size", 1, 0, 's'},        {"count", 1, 0, 'n'},
        {"warmup", 1, 0, 'w'},  {"seconds-max", 1, 0, 'm'}, {"fetch-bytes", 1, 0, 'f'},
        {"acks", 1, 0, 'a'},    {"ends", 1, 0, 'e'},        {0, 0, 0, 0}};
    int name;
    while ((name = getopt_long(argc, argv, "", names, NULL)) != -1) {
        switch (name) {
        case 'h': options.host = optarg; break;
        case 'p': options.port = atoi(optarg); break;
        case 't': options.topic = optarg; break;
        case 'P': options.partitions = atoi(optarg); break;
        case 'c': options.connections = atoi(optarg); break;
        case 'd': options.depth = atoi(optarg); break;
        case 'r': options.records = atoi(optarg); break;
        case 's': options.size = atoi(optarg); break;
        case 'n': options.count = atoll(optarg); break;
        case 'w': options.warmup = atoll(optarg); break;
        case 'm': options.seconds_max = atof(optarg); break;
        case 'f': options.fetch_bytes = atoi(optarg); break;
        case 'a': options.acks = atoi(optarg); break;
        case 'e': {
            /* End offsets by partition, comma separated: where a fetch run stops. */
            int partition = 0;
            for (char *end = strtok(optarg, ","); end != NULL && partition < PARTITIONS_MAX;
                 end = strtok(NULL, ","))
                fetch_missing += fetch_end[partition++] = atoll(end);
            break;
        }
        default: exit(2);
        }
    }
    if (options.topic == NULL || options.port == 0 || options.connections < 1 ||
        options.connections > CONNECTIONS_MAX || options.depth < 1 || options.depth > DEPTH_MAX ||
        options.partitions < 1 || options.partitions > PARTITIONS_MAX) {
        fprintf(stderr, "raw_bench: --topic, --port, or a number out of range\n");
        exit(2);
    }
}

int main(int argc, char **argv) {
    die_with_parent();
    if (argc < 2 || (strcmp(argv[1], "produce") != 0 && strcmp(argv[1], "fetch") != 0)) {
        fprintf(stderr, "usage: raw_bench produce|fetch --host H --port P --topic T ...\n");
        return 2;
    }
    bool is_fetch = strcmp(argv[1], "fetch") == 0;
    read_options(argc - 1, argv + 1);
    epoll_fd = epoll_create1(0);
    totals.warm = is_fetch ? 0 : options.warmup;
    if (!is_fetch)
        build_produce_frame();
    for (int i = 0; i < options.connections; i++)
        open_connection(&connections[i], i);
    double cpu = cpu_seconds();
    run(is_fetch);
    report(is_fetch, cpu_seconds() - cpu);
    return 0;
}
