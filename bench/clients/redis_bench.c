/* The client of the Redis peer: hiredis on a stream.
 *
 *   redis_bench publish   XADD of numbered messages over --connections, --depth outstanding on each;
 *                         every id is read, and the stream must then hold what was acknowledged
 *   redis_bench consume   XREADGROUP and XACK by --consumers with a connection each, --batch at a
 *                         time; each message must come once and none be pending afterwards
 *   redis_bench read      XREAD from the first message on, in order
 *   redis_bench endtoend  a paced XADD and an XREAD that waits; latency of each message
 *   redis_bench create    makes ready for a reader (a stream needs nothing)
 *   redis_bench remove    removes the stream
 */
#define _GNU_SOURCE
#include "lanes.h"
#include "pace.h"

#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <pthread.h>

enum { ID_BYTES = 64, READ_COUNT = 1000, WAIT_MS = 100 };

static const char *const GROUP = "bench";
static pthread_barrier_t barrier;

static redisContext *open_connection(void) {
    redisContext *redis = redisConnect(options.host, options.port);
    if (redis == NULL || redis->err)
        fail(redis == NULL ? "connect" : redis->errstr);
    return redis;
}

/* Ends the program when the answer is an error; an answer must be freed by the caller. */
static redisReply *checked(redisContext *redis, redisReply *reply, const char *what) {
    if (reply == NULL || reply->type == REDIS_REPLY_ERROR) {
        fprintf(stderr, "redis_bench: %s: %s\n", what, reply == NULL ? redis->errstr : reply->str);
        exit(1);
    }
    return reply;
}

static redisReply *get_reply(redisContext *redis, const char *what) {
    void *reply = NULL;
    if (redisGetReply(redis, &reply) != REDIS_OK)
        reply = NULL;
    return checked(redis, reply, what);
}

static int64_t ask_integer(redisContext *redis, const char *command, const char *what) {
    redisReply *reply = checked(redis, redisCommand(redis, command, options.queue), what);
    int64_t value = reply->integer;
    freeReplyObject(reply);
    return value;
}

/* ---- publish ---------------------------------------------------------------------------- */

static void append_message(redisContext *redis, const char *payload) {
    const char *words[] = {"XADD", options.queue, "*", "v", payload};
    size_t lengths[] = {4, strlen(options.queue), 1, 1, (size_t)options.size};
    if (redisAppendCommandArgv(redis, 5, words, lengths) != REDIS_OK)
        fail(redis->errstr);
}

/* Takes what has been answered so far: an id for every message. */
static int64_t count_ids(redisContext *redis) {
    int64_t count = 0;
    void *found = NULL;
    while (redisGetReplyFromReader(redis, &found) == REDIS_OK && found != NULL) {
        redisReply *reply = found;
        if (reply->type == REDIS_REPLY_STRING)
            count++;
        else
            note_failure(reply->str != NULL ? reply->str : "an answer without an id");
        freeReplyObject(reply);
        found = NULL;
    }
    if (redis->err)
        note_failure(redis->errstr);
    return count;
}

static void open_lane(lane_t *lane) {
    redisContext *redis = open_connection();
    redis->flags &= ~REDIS_BLOCK;
    int flags = fcntl(redis->fd, F_GETFL);
    fcntl(redis->fd, F_SETFL, flags | O_NONBLOCK);
    lane_open(lane, redis->fd, redis);
}

static void put_message(lane_t *lane, char *payload) { append_message(lane->self, payload); }

static bool flush_lane(lane_t *lane) {
    int is_done = 0;
    redisContext *redis = lane->self;
    if (redisBufferWrite(redis, &is_done) != REDIS_OK)
        note_failure(redis->errstr);
    return !is_done;
}

static int64_t take_ids(lane_t *lane) {
    redisContext *redis = lane->self;
    if (redisBufferRead(redis) != REDIS_OK) {
        note_failure(redis->errstr);
        return 0;
    }
    return count_ids(redis);
}

static int64_t stored(void) { return ask_integer(open_connection(), "XLEN %s", "length"); }

/* ---- consume ---------------------------------------------------------------------------- */

/* The entries of the one stream that an answer to a read holds; NULL when there are none. */
static redisReply *entries_of(redisReply *reply) {
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 1)
        return NULL;
    return reply->element[0]->element[1];
}

/* [id, [field, value]] */
static redisReply *value_of(redisReply *entry) { return entry->element[1]->element[1]; }

static void append_group_read(redisContext *redis, const char *name) {
    redisAppendCommand(redis, "XREADGROUP GROUP %s %s COUNT %d BLOCK %d STREAMS %s >", GROUP, name,
                       options.batch, WAIT_MS, options.queue);
}

/* Queues one XACK for all of these and returns how many there are. */
static int append_ack(redisContext *redis, redisReply *entries) {
    const char *words[3 + 65536] = {"XACK", options.queue, GROUP};
    int count = entries == NULL ? 0 : (int)entries->elements;
    for (int i = 0; i < count; i++) {
        redisReply *entry = entries->element[i];
        take_once(value_of(entry)->str, value_of(entry)->len);
        words[3 + i] = entry->element[0]->str;
    }
    if (count > 0)
        redisAppendCommandArgv(redis, 3 + count, words, NULL);
    return count;
}

/* An ack and the next read travel together, so the answer to one is not waited for in vain. */
static void *run_consumer(void *argument) {
    redisContext *redis = open_connection();
    char name[ID_BYTES];
    snprintf(name, sizeof name, "consumer-%ld", (long)(intptr_t)argument);
    pthread_barrier_wait(&barrier);
    append_group_read(redis, name);
    while (!is_over()) {
        redisReply *reply = get_reply(redis, "read");
        int count = append_ack(redis, entries_of(reply));
        bool is_last = received >= options.count;
        if (!is_last)
            append_group_read(redis, name);
        freeReplyObject(reply);
        if (count > 0) {
            redisReply *acked = get_reply(redis, "ack");
            if (acked->type != REDIS_REPLY_INTEGER || acked->integer != count)
                note_failure("an ack was not taken in");
            freeReplyObject(acked);
        }
        if (is_last)
            break;
    }
    pthread_barrier_wait(&barrier);
    redisFree(redis);
    return NULL;
}

static void check_none_pending(redisContext *redis) {
    redisReply *reply =
        checked(redis, redisCommand(redis, "XPENDING %s %s", options.queue, GROUP), "pending");
    if (reply->elements < 1 || reply->element[0]->integer != 0)
        note_failure("messages are pending after their acks");
    freeReplyObject(reply);
}

static void run_consume(void) {
    pthread_t threads[CONSUMERS_MAX];
    redisContext *redis = open_connection();
    freeReplyObject(checked(
        redis, redisCommand(redis, "XGROUP CREATE %s %s 0", options.queue, GROUP), "group"));
    numbers = calloc((size_t)options.count, sizeof *numbers);
    pthread_barrier_init(&barrier, NULL, (unsigned)options.consumers + 1);
    for (int i = 0; i < options.consumers; i++)
        if (pthread_create(&threads[i], NULL, run_consumer, (void *)(intptr_t)i) != 0)
            fail("thread");
    pthread_barrier_wait(&barrier);
    int64_t begin_ns = now_ns();
    double cpu = cpu_seconds();
    pthread_barrier_wait(&barrier);
    double seconds = (double)(now_ns() - begin_ns) / 1e9;
    cpu = cpu_seconds() - cpu;
    for (int i = 0; i < options.consumers; i++)
        pthread_join(threads[i], NULL);
    check_none_pending(redis);
    print_outcome(seconds, received, received, options.count - received, cpu, NULL);
}

/* ---- read and end to end ------------------------------------------------------------------ */

/* Reads what comes after `last`, which then is the last of those; waits for a while if need be. */
static void read_after(redisContext *redis, char *last, void (*take)(const char *, size_t)) {
    redisReply *reply = checked(redis,
                                redisCommand(redis, "XREAD COUNT %d BLOCK %d STREAMS %s %s",
                                             READ_COUNT, WAIT_MS, options.queue, last),
                                "read");
    redisReply *entries = entries_of(reply);
    for (size_t i = 0; entries != NULL && i < entries->elements; i++) {
        redisReply *entry = entries->element[i];
        take(value_of(entry)->str, value_of(entry)->len);
        snprintf(last, ID_BYTES, "%s", entry->element[0]->str);
    }
    freeReplyObject(reply);
}

static void run_read(void) {
    redisContext *redis = open_connection();
    char last[ID_BYTES] = "0";
    int64_t begin_ns = 0, first = 0;
    double cpu = cpu_seconds();
    while (received < options.count && !is_over()) {
        read_after(redis, last, take_next);
        if (begin_ns == 0 && received > 0) { /* what a reader waits for the first is not reading */
            begin_ns = now_ns();
            first = received;
            cpu = cpu_seconds();
        }
    }
    print_outcome((double)(now_ns() - begin_ns) / 1e9, received, received - first,
                  options.count - received, cpu_seconds() - cpu, NULL);
}

typedef struct {
    redisContext *redis;
    int64_t acked;
} sender_t;

static void send_paced(const char *payload, void *self) {
    append_message(((sender_t *)self)->redis, payload);
}

/* Writes what is due, as far as the server takes it, and takes the answers that are there. */
static void after_tick(void *self) {
    sender_t *sender = self;
    int is_done = 0;
    if (redisBufferWrite(sender->redis, &is_done) != REDIS_OK)
        note_failure(sender->redis->errstr);
    if (redisBufferRead(sender->redis) != REDIS_OK)
        note_failure(sender->redis->errstr);
    sender->acked += count_ids(sender->redis);
}

static void *run_sender(void *self) {
    sender_t *sender = self;
    struct timespec pause = {.tv_nsec = 1000000};
    run_pace(send_paced, after_tick, self);
    for (; sender->acked < options.count && !is_over(); nanosleep(&pause, NULL))
        after_tick(self);
    return NULL;
}

static void run_end_to_end(void) {
    lane_t lane = {0};
    lane_epoll = epoll_create1(0);
    open_lane(&lane);
    redisContext *redis = open_connection();
    sender_t sender = {.redis = lane.self};
    char last[ID_BYTES] = "0";
    pthread_t thread;
    double cpu = cpu_seconds();
    if (pthread_create(&thread, NULL, run_sender, &sender) != 0)
        fail("thread");
    while (received < options.count && !is_over())
        read_after(redis, last, take_paced);
    pthread_join(thread, NULL);
    print_pace(cpu_seconds() - cpu, sender.acked);
}

static void run_remove(void) { ask_integer(open_connection(), "UNLINK %s", "remove"); }

int main(int argc, char **argv) {
    static const lane_calls_t calls = {put_message, flush_lane, take_ids};
    const char *mode = begin(argc, argv, "redis_bench");
    if (strcmp(mode, "publish") == 0)
        run_publish(open_lane, &calls, stored);
    else if (strcmp(mode, "consume") == 0)
        run_consume();
    else if (strcmp(mode, "read") == 0)
        run_read();
    else if (strcmp(mode, "endtoend") == 0)
        run_end_to_end();
    else if (strcmp(mode, "remove") == 0 || strcmp(mode, "create") == 0) {
        if (mode[0] == 'r')
            run_remove();
        print_outcome(0, 0, 0, 0, 0, NULL);
    } else
        fail("publish, consume, read, endtoend, create or remove");
    return 0;
}
