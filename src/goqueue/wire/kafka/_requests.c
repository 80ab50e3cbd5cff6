/* The commonest requests, read many at once.
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

static PyObject *row_of(const request_t *request, const uint8_t *data) {
    Py_ssize_t key_bytes = request->key_end - request->key;
    PyObject *key = PyBytes_FromStringAndSize(NULL, key_bytes + 1);
    if (key == NULL)
        return NULL;
    memcpy(PyBytes_AS_STRING(key), request->key, (size_t)key_bytes);
    PyBytes_AS_STRING(key)[key_bytes] = (char)request->version;
    return Py_BuildValue("iNnn", (int)request->correlation_id, key,
                         (Py_ssize_t)(request->batch - data), (Py_ssize_t)(request->batch_end - data));
}

/* List the requests that `rest` begins with, as long as they want the same acks. */
static int list_requests(rest_t *rest, const uint8_t *data, const Py_buffer *client_id,
                         Py_ssize_t frame_bytes_max, Py_ssize_t count_max, int16_t *acks,
                         PyObject *rows) {
    while (PyList_GET_SIZE(rows) < count_max && has(rest, HEAD_BYTES)) {
        Py_ssize_t frame_bytes = get_32(rest->at);
        if (frame_bytes < 0 || frame_bytes > frame_bytes_max || !has(rest, 4 + frame_bytes))
            return 0;
        request_t request;
        rest_t frame = {rest->at, rest->at + 4 + frame_bytes};
        if (!read_request(frame, client_id, &request))
            return 0;
        if (PyList_GET_SIZE(rows) == 0)
            *acks = request.acks;
        else if (request.acks != *acks)
            return 0;
        PyObject *row = row_of(&request, data);
        if (row == NULL || PyList_Append(rows, row) < 0) {
            Py_XDECREF(row);
            return -1;
        }
        Py_DECREF(row);
        rest->at = frame.end;
    }
    return 0;
}

PyDoc_STRVAR(read_run_doc,
             "read_run(data, start, client_id, frame_bytes_max, count_max)\n\n"
             "The requests from `start` on that each bring one batch for one partition: where they "
             "end, the acks they want, and a row for each; None if there is none.");

static PyObject *read_run(PyObject *module, PyObject *arguments) {
    Py_buffer buffer, client_id;
    Py_ssize_t start, frame_bytes_max, count_max;
    int16_t acks = 0;
    PyObject *answer = NULL;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "y*ny*nn", &buffer, &start, &client_id, &frame_bytes_max,
                          &count_max))
        return NULL;
    PyObject *rows = PyList_New(0);
    const uint8_t *data = buffer.buf;
    if (start < 0 || start > buffer.len) {
        PyErr_SetString(PyExc_ValueError, "The start lies outside the bytes.");
    } else if (rows != NULL) {
        rest_t rest = {data + start, data + buffer.len};
        if (list_requests(&rest, data, &client_id, frame_bytes_max, count_max, &acks, rows) == 0)
            answer = PyList_GET_SIZE(rows) == 0
                         ? Py_NewRef(Py_None)
                         : Py_BuildValue("niO", (Py_ssize_t)(rest.at - data), (int)acks, rows);
    }
    Py_XDECREF(rows);
    PyBuffer_Release(&client_id);
    PyBuffer_Release(&buffer);
    return answer;
}

/* ---- The module ---- */

static PyMethodDef functions[] = {
    {"read_run", read_run, METH_VARARGS, read_run_doc},
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
