/* The commonest requests, read and answered many at once.
 *
 * This is `request_reference.py` once more, with the same names, arguments and answers, which the
 * tests compare; where this module cannot be built, that one is used. No byte is read that was not
 * counted first. Whatever has another form ends the run, and is left to others.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum {
    PRODUCE = 0,
    VERSION_MIN = 5,
    VERSION_MAX = 12,
    FLEXIBLE_FROM = 9,
    ACKS_LEADER = 1,
    ACKS_ALL = -1,
    HEAD_BYTES = 12, /* length, what is asked for, in which version, and the correlation id */
    PLAIN_BODY_BYTES = 14,
    FLEXIBLE_BODY_BYTES = 9, /* with the tags of the header that come before it */
    PLAIN_PARTITION_BYTES = 12,
    FLEXIBLE_PARTITION_BYTES = 5,
    END_TAGS_BYTES = 3,
    SIZE_BYTES_MAX = 5,
    COUNT_MAX = 1 << 16,
    ANSWER_ID_AT = 4, /* after the answer's length */
};

/* What is left of one request, from its first byte that was not read yet. */
typedef struct {
    const uint8_t *at, *end;
} rest_t;

typedef struct {
    int32_t correlation_id;
    int16_t version, acks;
    const uint8_t *key, *key_end; /* the topic's name up to the number of the partition */
    const uint8_t *batch, *batch_end;
} request_t;

static inline int16_t get_16(const uint8_t *at) { return (int16_t)(at[0] << 8 | at[1]); }

static inline int32_t get_32(const uint8_t *at) {
    return (int32_t)((uint32_t)(uint16_t)get_16(at) << 16 | (uint16_t)get_16(at + 2));
}

static inline bool has(const rest_t *rest, Py_ssize_t count) { return rest->end - rest->at >= count; }

/* Versions in which lengths have a fixed size. */
static bool read_plain(rest_t *rest, request_t *request) {
    if (!has(rest, PLAIN_BODY_BYTES))
        return false;
    const uint8_t *body = rest->at;
    Py_ssize_t name_bytes = get_16(body + 12);
    request->acks = get_16(body + 2);
    if (get_16(body) != -1 || get_32(body + 8) != 1 || name_bytes <= 0)
        return false;
    rest->at += PLAIN_BODY_BYTES;
    if (!has(rest, name_bytes + PLAIN_PARTITION_BYTES))
        return false;
    const uint8_t *partition = rest->at + name_bytes;
    request->key = rest->at;
    request->key_end = partition + 8;
    request->batch = partition + PLAIN_PARTITION_BYTES;
    request->batch_end = rest->end;
    return get_32(partition) == 1 && get_32(partition + 8) > 0 &&
           get_32(partition + 8) == rest->end - request->batch;
}

/* A length that is one too large, in as many bytes as it needs; -1 if that is not one. */
static int64_t read_length(rest_t *rest) {
    int64_t length = 0;
    for (int byte = 0; byte < SIZE_BYTES_MAX && has(rest, 1); byte++) {
        uint8_t bits = *rest->at++;
        length |= (int64_t)(bits & 0x7F) << 7 * byte;
        if (bits < 0x80)
            return length - 1;
    }
    return -1;
}

/* Versions in which counts and lengths are one too large and as short as can be. */
static bool read_flexible(rest_t *rest, request_t *request) {
    if (!has(rest, 1 + FLEXIBLE_BODY_BYTES) || *rest->at++ != 0)
        return false;
    const uint8_t *body = rest->at;
    Py_ssize_t name_bytes = (Py_ssize_t)body[8] - 1;
    request->acks = get_16(body + 1);
    /* A longer name would need a second byte for its length. */
    if (body[0] != 0 || body[7] != 2 || name_bytes <= 0 || body[8] >= 0x80)
        return false;
    rest->at += FLEXIBLE_BODY_BYTES;
    if (!has(rest, name_bytes + FLEXIBLE_PARTITION_BYTES))
        return false;
    request->key = rest->at;
    rest->at += name_bytes + FLEXIBLE_PARTITION_BYTES;
    request->key_end = rest->at;
    if (rest->at[-FLEXIBLE_PARTITION_BYTES] != 2)
        return false;
    int64_t size = read_length(rest);
    if (size <= 0 || rest->end - rest->at != size + END_TAGS_BYTES)
        return false;
    request->batch = rest->at;
    request->batch_end = rest->at + size;
    return memcmp(request->batch_end, "\0\0\0", END_TAGS_BYTES) == 0;
}

/* The request whose bytes, its length included, are `frame`. */
static bool read_request(rest_t frame, const Py_buffer *client_id, request_t *request) {
    if (!has(&frame, HEAD_BYTES + client_id->len) || get_16(frame.at + 4) != PRODUCE)
        return false;
    request->version = get_16(frame.at + 6);
    request->correlation_id = get_32(frame.at + 8);
    frame.at += HEAD_BYTES;
    if (request->version < VERSION_MIN || request->version > VERSION_MAX ||
        memcmp(frame.at, client_id->buf, (size_t)client_id->len) != 0)
        return false;
    frame.at += client_id->len;
    bool is_read = request->version >= FLEXIBLE_FROM ? read_flexible(&frame, request)
                                                     : read_plain(&frame, request);
    return is_read && (request->acks == ACKS_LEADER || request->acks == ACKS_ALL);
}

/* ---- Runs ---- */

/* The requests of a run, and which share each of them belongs to. */
typedef struct {
    request_t *requests;
    int32_t *share_of;
    Py_ssize_t count, share_count;
} run_t;

static bool is_same_key(const request_t *one, const request_t *other) {
    Py_ssize_t size = one->key_end - one->key;
    return size == other->key_end - other->key && memcmp(one->key, other->key, (size_t)size) == 0;
}

/* The share that the request at `place` belongs to; -1 if it is the first of its key. Clients go
 * round the partitions, so the one to try first is that after the last request's. */
static int32_t find_share(const run_t *run, const int32_t *firsts, Py_ssize_t place) {
    int32_t begin = place == 0 ? 0 : run->share_of[place - 1] + 1;
    for (int32_t tried = 0; tried < run->share_count; tried++) {
        int32_t share = (int32_t)((begin + tried) % run->share_count);
        if (is_same_key(&run->requests[firsts[share]], &run->requests[place]))
            return share;
    }
    return -1;
}

static void divide(run_t *run, int32_t *firsts) {
    for (Py_ssize_t place = 0; place < run->count; place++) {
        int32_t share = find_share(run, firsts, place);
        if (share < 0) {
            share = (int32_t)run->share_count++;
            firsts[share] = (int32_t)place;
        }
        run->share_of[place] = share;
    }
}

/* Read the requests that `rest` begins with, as long as they want the same acks in the same version:
 * then no partition has two keys, and what is for one keeps its order. */
static void list_requests(rest_t *rest, const Py_buffer *client_id, Py_ssize_t frame_bytes_max,
                          Py_ssize_t count_max, run_t *run) {
    while (run->count < count_max && has(rest, HEAD_BYTES)) {
        Py_ssize_t frame_bytes = get_32(rest->at);
        if (frame_bytes < 0 || frame_bytes > frame_bytes_max || !has(rest, 4 + frame_bytes))
            return;
        request_t *request = &run->requests[run->count];
        rest_t frame = {rest->at, rest->at + 4 + frame_bytes};
        if (!read_request(frame, client_id, request) || request->acks != run->requests[0].acks ||
            request->version != run->requests[0].version)
            return;
        run->count++;
        rest->at = frame.end;
    }
}

static inline void put_number(PyObject *numbers, Py_ssize_t index, Py_ssize_t number) {
    int32_t narrow = (int32_t)number;
    memcpy(PyBytes_AS_STRING(numbers) + index * (Py_ssize_t)sizeof narrow, &narrow, sizeof narrow);
}

static PyObject *key_of(const request_t *request) {
    Py_ssize_t key_bytes = request->key_end - request->key;
    PyObject *key = PyBytes_FromStringAndSize(NULL, key_bytes + 1);
    if (key != NULL) {
        memcpy(PyBytes_AS_STRING(key), request->key, (size_t)key_bytes);
        PyBytes_AS_STRING(key)[key_bytes] = (char)request->version;
    }
    return key;
}

/* One share of a run: its key, and the numbers of its requests, packed. */
static PyObject *share_of(const run_t *run, int32_t share, int32_t first, const uint8_t *data) {
    Py_ssize_t count = 0, at = 0, number_bytes = (Py_ssize_t)sizeof(int32_t);
    for (Py_ssize_t place = first; place < run->count; place++)
        count += run->share_of[place] == share;
    PyObject *key = key_of(&run->requests[first]);
    PyObject *places = PyBytes_FromStringAndSize(NULL, count * number_bytes);
    PyObject *ids = PyBytes_FromStringAndSize(NULL, count * number_bytes);
    PyObject *spans = PyBytes_FromStringAndSize(NULL, 2 * count * number_bytes);
    if (key == NULL || places == NULL || ids == NULL || spans == NULL) {
        Py_XDECREF(key);
        Py_XDECREF(places);
        Py_XDECREF(ids);
        Py_XDECREF(spans);
        return NULL;
    }
    for (Py_ssize_t place = first; at < count; place++) {
        const request_t *request = &run->requests[place];
        if (run->share_of[place] != share)
            continue;
        put_number(places, at, place);
        put_number(ids, at, request->correlation_id);
        put_number(spans, 2 * at, request->batch - data);
        put_number(spans, 2 * at + 1, request->batch_end - data);
        at++;
    }
    return Py_BuildValue("NNNN", key, places, ids, spans);
}

static PyObject *shares_of(run_t *run, int32_t *firsts, const uint8_t *data) {
    divide(run, firsts);
    PyObject *shares = PyList_New(run->share_count);
    for (int32_t share = 0; shares != NULL && share < run->share_count; share++) {
        PyObject *one = share_of(run, share, firsts[share], data);
        if (one == NULL)
            Py_CLEAR(shares);
        else
            PyList_SET_ITEM(shares, share, one);
    }
    return shares;
}

/* What `read_run` answers when there is memory for as many requests as there may be. */
static PyObject *run_of(rest_t rest, const uint8_t *data, const Py_buffer *client_id,
                        Py_ssize_t frame_bytes_max, Py_ssize_t count_max) {
    run_t run = {PyMem_New(request_t, (size_t)count_max), PyMem_New(int32_t, (size_t)count_max), 0, 0};
    int32_t *firsts = PyMem_New(int32_t, (size_t)count_max);
    PyObject *answer = NULL;
    if (run.requests == NULL || run.share_of == NULL || firsts == NULL) {
        PyErr_NoMemory();
    } else {
        list_requests(&rest, client_id, frame_bytes_max, count_max, &run);
        PyObject *shares = run.count == 0 ? Py_NewRef(Py_None) : shares_of(&run, firsts, data);
        if (shares == Py_None)
            answer = shares;
        else if (shares != NULL)
            answer = Py_BuildValue("ninN", (Py_ssize_t)(rest.at - data), (int)run.requests[0].acks,
                                   run.count, shares);
    }
    PyMem_Free(run.requests);
    PyMem_Free(run.share_of);
    PyMem_Free(firsts);
    return answer;
}

PyDoc_STRVAR(read_run_doc,
             "read_run(data, start, client_id, frame_bytes_max, count_max)\n\n"
             "The requests from `start` on that each bring one batch for one partition: where they "
             "end, the acks they want, how many they are, and their shares by partition; None if "
             "there is none.");

static PyObject *read_run(PyObject *module, PyObject *arguments) {
    Py_buffer buffer, client_id;
    Py_ssize_t start, frame_bytes_max, count_max;
    PyObject *answer = NULL;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "y*ny*nn", &buffer, &start, &client_id, &frame_bytes_max,
                          &count_max))
        return NULL;
    const uint8_t *data = buffer.buf;
    if (start < 0 || start > buffer.len || buffer.len > INT32_MAX)
        PyErr_SetString(PyExc_ValueError, "The start lies outside the bytes.");
    else if (count_max < 1 || count_max > COUNT_MAX)
        PyErr_SetString(PyExc_ValueError, "That many requests are not read at once.");
    else
        answer = run_of((rest_t){data + start, data + buffer.len}, data, &client_id,
                        frame_bytes_max, count_max);
    PyBuffer_Release(&client_id);
    PyBuffer_Release(&buffer);
    return answer;
}

/* ---- Answers ---- */

typedef struct {
    Py_buffer places, ids, template, offsets;
    Py_ssize_t offset_at, first;
} answers_t;

static inline void put_32(uint8_t *at, uint32_t number) {
    for (int byte = 3; byte >= 0; byte--, number >>= 8)
        at[byte] = (uint8_t)number;
}

static const uint8_t *number_at(const Py_buffer *numbers, Py_ssize_t number, size_t size) {
    return (const uint8_t *)numbers->buf + number * (Py_ssize_t)size;
}

static void stamp_answer(uint8_t *answer, const answers_t *answers, Py_ssize_t number) {
    int32_t correlation_id;
    memcpy(&correlation_id, number_at(&answers->ids, number, sizeof correlation_id),
           sizeof correlation_id);
    put_32(answer + ANSWER_ID_AT, (uint32_t)correlation_id);
    if (answers->offsets.len > 0) {
        uint64_t offset;
        memcpy(&offset, number_at(&answers->offsets, answers->first + number, sizeof offset),
               sizeof offset);
        put_32(answer + answers->offset_at, (uint32_t)(offset >> 32));
        put_32(answer + answers->offset_at + 4, (uint32_t)offset);
    }
}

/* How many answers there are to make; -1 with an exception set if that cannot be. */
static Py_ssize_t count_answers(const answers_t *answers) {
    Py_ssize_t count = answers->places.len / (Py_ssize_t)sizeof(int32_t);
    Py_ssize_t known = answers->offsets.len / (Py_ssize_t)sizeof(int64_t);
    bool has_room = answers->template.len >= ANSWER_ID_AT + 4 && answers->offset_at >= 0 &&
                    answers->offset_at <= answers->template.len - 8;
    bool has_offsets = known == 0 || (answers->first >= 0 && answers->first <= known - count);
    if (answers->ids.len == answers->places.len && has_room && has_offsets)
        return count;
    PyErr_SetString(PyExc_ValueError, "The numbers of answers do not fit each other.");
    return -1;
}

static int put_answers(PyObject *parts, const answers_t *answers) {
    Py_ssize_t count = count_answers(answers);
    for (Py_ssize_t number = 0; number < count; number++) {
        int32_t place;
        memcpy(&place, number_at(&answers->places, number, sizeof place), sizeof place);
        PyObject *answer = PyBytes_FromStringAndSize(answers->template.buf, answers->template.len);
        if (answer == NULL)
            return -1;
        stamp_answer((uint8_t *)PyBytes_AS_STRING(answer), answers, number);
        if (PyList_SetItem(parts, place, answer) < 0)
            return -1;
    }
    return count < 0 ? -1 : 0;
}

PyDoc_STRVAR(answer_run_doc,
             "answer_run(parts, places, correlation_ids, template, offset_at, offsets, first)\n\n"
             "Put the answers of a share into their places: the template with an id, and an offset, "
             "each.");

static PyObject *answer_run(PyObject *module, PyObject *arguments) {
    PyObject *parts;
    answers_t answers;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "O!y*y*y*ny*n", &PyList_Type, &parts, &answers.places,
                          &answers.ids, &answers.template, &answers.offset_at, &answers.offsets,
                          &answers.first))
        return NULL;
    int done = put_answers(parts, &answers);
    PyBuffer_Release(&answers.places);
    PyBuffer_Release(&answers.ids);
    PyBuffer_Release(&answers.template);
    PyBuffer_Release(&answers.offsets);
    return done < 0 ? NULL : Py_NewRef(Py_None);
}

/* ---- The module ---- */

static PyMethodDef functions[] = {
    {"read_run", read_run, METH_VARARGS, read_run_doc},
    {"answer_run", answer_run, METH_VARARGS, answer_run_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "goqueue.wire.kafka._requests",
    .m_doc = "The commonest requests, many at once; what request_reference does, compiled.",
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC PyInit__requests(void) { return PyModule_Create(&module_definition); }
