/* Small batches that arrived together and are appended to one log together.
 *
 * This is `run_reference.py` in C, with the same names, arguments and results, which the tests
 * compare; if this module cannot be built, that one is used. It checks batch headers, checksums and
 * records. A batch that is not plain is refused without a reason, which the ordinary path finds.
 */
#define _GNU_SOURCE /* for memmem */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "_crc.h"
#include "_records.h"
#include "_search.h"

enum {
    LENGTH_AT = 8,
    LENGTH_PREFIX_BYTES = 12,
    EPOCH_AT = 12,
    MAGIC_AT = 16,
    CRC_AT = 17,
    ATTRIBUTES_AT = 21,
    LAST_DELTA_AT = 23,
    BASE_TIMESTAMP_AT = 27,
    MAX_TIMESTAMP_AT = 35,
    PRODUCER_ID_AT = 43,
    COUNT_AT = 57,
    HEADER_BYTES = 61,
    MAGIC = 2,
};

static const uint8_t ATTRIBUTE_PREFIX[] = "goqueue-";

/* ---- Numbers, the highest byte first ---- */

static inline uint16_t get_16(const uint8_t *at) { return (uint16_t)(at[0] << 8 | at[1]); }

static inline uint32_t get_32(const uint8_t *at) {
    return (uint32_t)get_16(at) << 16 | get_16(at + 2);
}

static inline int64_t get_64(const uint8_t *at) {
    return (int64_t)((uint64_t)get_32(at) << 32 | get_32(at + 4));
}

static inline void put_32(uint8_t *at, uint32_t number) {
    for (int byte = 3; byte >= 0; byte--, number >>= 8)
        at[byte] = (uint8_t)number;
}

static inline void put_64(uint8_t *at, int64_t number) {
    put_32(at, (uint32_t)((uint64_t)number >> 32));
    put_32(at + 4, (uint32_t)number);
}

/* ---- Batches ---- */

typedef struct {
    const uint8_t *data;
    Py_ssize_t size;
} batch_t;

typedef struct {
    long long bytes_max, time_min, time_max;
} limits_t;

static uint32_t sum_bytes(const uint8_t *data, Py_ssize_t size) {
    lane_t lane = {data, size, UINT32_MAX};
    if (has_crc_instruction())
        finish_fast(&lane);
    finish_plainly(&lane);
    return (uint32_t)lane.crc ^ UINT32_MAX;
}

/* Whether all records can be read, are in time, and the newest of them has the time of the batch. */
static bool has_good_records(const batch_t *batch, int32_t count, const limits_t *limits) {
    checked_t checked;
    return check_all(batch->data + HEADER_BYTES, batch->size - HEADER_BYTES, count, false,
                     get_64(batch->data + BASE_TIMESTAMP_AT), &checked) == NULL &&
           checked.newest == get_64(batch->data + MAX_TIMESTAMP_AT) &&
           checked.oldest >= limits->time_min && checked.newest <= limits->time_max;
}

static bool needs_no_look(const batch_t *batch, const limits_t *limits) {
    const uint8_t *data = batch->data;
    Py_ssize_t size = batch->size;
    if (size < HEADER_BYTES || size > limits->bytes_max || data[MAGIC_AT] != MAGIC)
        return false;
    int32_t count = (int32_t)get_32(data + COUNT_AT);
    return (int32_t)get_32(data + LENGTH_AT) == size - LENGTH_PREFIX_BYTES && count > 0 &&
           (int32_t)get_32(data + LAST_DELTA_AT) == count - 1 && get_16(data + ATTRIBUTES_AT) == 0 &&
           get_64(data + PRODUCER_ID_AT) < 0 && get_64(data) == 0 &&
           sum_bytes(data + ATTRIBUTES_AT, size - ATTRIBUTES_AT) == get_32(data + CRC_AT) &&
           has_good_records(batch, count, limits) &&
           !has_bytes(data + HEADER_BYTES, (size_t)(size - HEADER_BYTES), ATTRIBUTE_PREFIX,
                      sizeof ATTRIBUTE_PREFIX - 1);
}

/* ---- Spans: where batches begin and end, in turns ---- */

enum { SPAN_BYTES = 2 * (int)sizeof(int32_t) };

/* The batch that a span with this number shows, moved by `shift`; -1 with an exception set if that
 * lies outside the buffer. */
static int find_batch(const Py_buffer *buffer, const Py_buffer *spans, Py_ssize_t number,
                      long long shift, batch_t *batch) {
    int32_t span[2];
    memcpy(span, (const uint8_t *)spans->buf + number * SPAN_BYTES, SPAN_BYTES);
    long long start = span[0] + shift, end = span[1] + shift;
    if (start < 0 || end < start || end > buffer->len) {
        PyErr_SetString(PyExc_ValueError, "A span lies outside the bytes.");
        return -1;
    }
    batch->data = (const uint8_t *)buffer->buf + start;
    batch->size = (Py_ssize_t)(end - start);
    return 0;
}

static int judge(const Py_buffer *buffer, const Py_buffer *spans, const limits_t *limits) {
    for (Py_ssize_t number = 0; number < spans->len / SPAN_BYTES; number++) {
        batch_t batch;
        if (find_batch(buffer, spans, number, 0, &batch) < 0)
            return -1;
        if (!needs_no_look(&batch, limits))
            return 0;
    }
    return 1;
}

PyDoc_STRVAR(are_plain_doc, "are_plain(data, spans, bytes_max, time_min, time_max)\n\n"
                            "Whether none of the batches in these spans needs a closer look.");

static PyObject *are_plain(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    Py_buffer buffer, spans;
    long long numbers[3];
    (void)module;
    if (count != 5) {
        PyErr_SetString(PyExc_TypeError, "are_plain takes five arguments.");
        return NULL;
    }
    for (int number = 0; number < 3; number++) {
        numbers[number] = PyLong_AsLongLong(arguments[number + 2]);
        if (numbers[number] == -1 && PyErr_Occurred())
            return NULL;
    }
    if (PyObject_GetBuffer(arguments[0], &buffer, PyBUF_SIMPLE) < 0)
        return NULL;
    int verdict = -1;
    if (PyObject_GetBuffer(arguments[1], &spans, PyBUF_SIMPLE) == 0) {
        limits_t limits = {numbers[0], numbers[1], numbers[2]};
        verdict = judge(&buffer, &spans, &limits);
        PyBuffer_Release(&spans);
    }
    PyBuffer_Release(&buffer);
    return verdict < 0 ? NULL : PyBool_FromLong(verdict);
}

/* ---- Gathering ---- */

typedef struct {
    const Py_buffer *buffer;
    uint8_t *run, *offsets; /* where the next batch, and its offset, are to be put; NULL to count */
    Py_ssize_t run_bytes, count;
    int64_t offset;
    int32_t epoch;
} gathering_t;

static int gather_batch(gathering_t *gathering, const batch_t *batch) {
    if (batch->size < HEADER_BYTES) {
        PyErr_SetString(PyExc_ValueError, "A batch is shorter than its header.");
        return -1;
    }
    gathering->run_bytes += batch->size;
    gathering->count++;
    if (gathering->run == NULL)
        return 0;
    memcpy(gathering->run, batch->data, (size_t)batch->size);
    put_64(gathering->run, gathering->offset);
    put_32(gathering->run + EPOCH_AT, (uint32_t)gathering->epoch);
    memcpy(gathering->offsets, &gathering->offset, sizeof gathering->offset);
    int32_t last_delta = (int32_t)get_32(batch->data + LAST_DELTA_AT);
    gathering->offset = (int64_t)((uint64_t)gathering->offset + (uint64_t)last_delta + 1);
    gathering->run += batch->size;
    gathering->offsets += sizeof gathering->offset;
    return 0;
}

static int gather_piece(gathering_t *gathering, PyObject *piece) {
    Py_buffer spans;
    long long shift;
    if (!PyTuple_Check(piece)) {
        PyErr_SetString(PyExc_TypeError, "A piece is a pair.");
        return -1;
    }
    if (!PyArg_ParseTuple(piece, "y*L", &spans, &shift))
        return -1;
    int done = 0;
    if (shift < -INT32_MAX || shift > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "A span lies outside the bytes.");
        done = -1;
    }
    for (Py_ssize_t number = 0; done == 0 && number < spans.len / SPAN_BYTES; number++) {
        batch_t batch;
        done = find_batch(gathering->buffer, &spans, number, shift, &batch);
        if (done == 0)
            done = gather_batch(gathering, &batch);
    }
    PyBuffer_Release(&spans);
    return done;
}

static int gather_pieces(gathering_t *gathering, PyObject *pieces) {
    gathering->run_bytes = gathering->count = 0;
    for (Py_ssize_t piece = 0; piece < PyList_GET_SIZE(pieces); piece++)
        if (gather_piece(gathering, PyList_GET_ITEM(pieces, piece)) < 0)
            return -1;
    return 0;
}

PyDoc_STRVAR(gather_run_doc,
             "gather_run(data, pieces, base_offset, leader_epoch)\n\n"
             "The batches in these spans one after the other, stamped; their offsets; the next one.");

static PyObject *gather_run(PyObject *module, PyObject *arguments) {
    Py_buffer buffer;
    PyObject *pieces, *run = NULL, *offsets = NULL, *answer = NULL;
    gathering_t gathering = {.buffer = &buffer};
    long long offset;
    int epoch;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "y*O!Li", &buffer, &PyList_Type, &pieces, &offset, &epoch))
        return NULL;
    if (gather_pieces(&gathering, pieces) == 0) {
        run = PyBytes_FromStringAndSize(NULL, gathering.run_bytes);
        offsets = PyBytes_FromStringAndSize(NULL, gathering.count * (Py_ssize_t)sizeof(int64_t));
    }
    if (run != NULL && offsets != NULL) {
        gathering.run = (uint8_t *)PyBytes_AS_STRING(run);
        gathering.offsets = (uint8_t *)PyBytes_AS_STRING(offsets);
        gathering.offset = offset;
        gathering.epoch = epoch;
        if (gather_pieces(&gathering, pieces) == 0)
            answer = Py_BuildValue("OOL", run, offsets, (long long)gathering.offset);
    }
    Py_XDECREF(run);
    Py_XDECREF(offsets);
    PyBuffer_Release(&buffer);
    return answer;
}

/* ---- Marks for an index ---- */

typedef struct {
    int64_t position, due, interval, newest, newest_offset;
} marking_t;

static int mark_batch(marking_t *marking, const uint8_t *data, int64_t at, PyObject *marks) {
    int64_t offset = get_64(data), newest = get_64(data + MAX_TIMESTAMP_AT);
    if (newest > marking->newest) {
        marking->newest = newest;
        marking->newest_offset = offset;
    }
    if (at < marking->due)
        return 0;
    marking->due = at + marking->interval;
    PyObject *mark = Py_BuildValue("LLLL", (long long)offset, (long long)at,
                                   (long long)marking->newest, (long long)marking->newest_offset);
    int done = mark == NULL ? -1 : PyList_Append(marks, mark);
    Py_XDECREF(mark);
    return done;
}

static int mark_batches(marking_t *marking, const Py_buffer *run, PyObject *marks) {
    Py_ssize_t at = 0;
    while (at < run->len) {
        const uint8_t *data = (const uint8_t *)run->buf + at;
        int64_t size = run->len - at < HEADER_BYTES
                           ? 0
                           : (int64_t)(int32_t)get_32(data + LENGTH_AT) + LENGTH_PREFIX_BYTES;
        if (size < HEADER_BYTES || size > run->len - at) {
            PyErr_SetString(PyExc_ValueError, "A run is made of whole batches.");
            return -1;
        }
        if (mark_batch(marking, data, marking->position + at, marks) < 0)
            return -1;
        at += (Py_ssize_t)size;
    }
    return 0;
}

PyDoc_STRVAR(mark_run_doc, "mark_run(run, position, due, interval, newest, newest_offset)\n\n"
                           "What an index is told of a run that begins at `position` in its file.");

static PyObject *mark_run(PyObject *module, PyObject *arguments) {
    Py_buffer run;
    long long position, due, interval, newest, newest_offset;
    PyObject *answer = NULL;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "y*LLLLL", &run, &position, &due, &interval, &newest,
                          &newest_offset))
        return NULL;
    marking_t marking = {position, due, interval, newest, newest_offset};
    PyObject *marks = PyList_New(0);
    if (marks != NULL && mark_batches(&marking, &run, marks) == 0)
        answer = Py_BuildValue("OLL", marks, (long long)marking.newest,
                               (long long)marking.newest_offset);
    Py_XDECREF(marks);
    PyBuffer_Release(&run);
    return answer;
}

/* ---- The module ---- */

static PyMethodDef functions[] = {
    {"are_plain", (PyCFunction)(void (*)(void))are_plain, METH_FASTCALL, are_plain_doc},
    {"gather_run", gather_run, METH_VARARGS, gather_run_doc},
    {"mark_run", mark_run, METH_VARARGS, mark_run_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "goqueue.model._runs",
    .m_doc = "Small batches that came together; what run_reference does, compiled.",
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC PyInit__runs(void) {
    fill_crc_table();
    return PyModule_Create(&module_definition);
}
