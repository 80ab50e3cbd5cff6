/* Small batches that came together and go into one log together.
 *
 * This is `run_reference.py` once more, with the same names, arguments and answers, which the tests
 * compare; where this module cannot be built, that one is used. It looks at the headers of batches
 * and sums up their bytes. Whatever is not plain is refused without a reason: others find that.
 */
#define _GNU_SOURCE /* for memmem */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "_crc.h"

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
    PRODUCER_EPOCH_AT = 51,
    SEQUENCE_AT = 53,
    COUNT_AT = 57,
    HEADER_BYTES = 61,
    HEADER_FIELDS = 13,
    MAGIC = 2,
    NO_TIMESTAMP = -1,
};

static const char ATTRIBUTE_PREFIX[] = "goqueue-";

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

static bool is_in_time(const uint8_t *data, const limits_t *limits) {
    int64_t newest = get_64(data + MAX_TIMESTAMP_AT);
    return newest == NO_TIMESTAMP || (newest <= limits->time_max &&
                                      get_64(data + BASE_TIMESTAMP_AT) >= limits->time_min);
}

static bool needs_no_look(const batch_t *batch, const limits_t *limits) {
    const uint8_t *data = batch->data;
    Py_ssize_t size = batch->size;
    if (size < HEADER_BYTES || size > limits->bytes_max || data[MAGIC_AT] != MAGIC)
        return false;
    int32_t count = (int32_t)get_32(data + COUNT_AT);
    return (int32_t)get_32(data + LENGTH_AT) == size - LENGTH_PREFIX_BYTES && count > 0 &&
           (int32_t)get_32(data + LAST_DELTA_AT) == count - 1 && get_16(data + ATTRIBUTES_AT) == 0 &&
           get_64(data + PRODUCER_ID_AT) < 0 && is_in_time(data, limits) &&
           sum_bytes(data + ATTRIBUTES_AT, size - ATTRIBUTES_AT) == get_32(data + CRC_AT) &&
           memmem(data + HEADER_BYTES, (size_t)(size - HEADER_BYTES), ATTRIBUTE_PREFIX,
                  sizeof ATTRIBUTE_PREFIX - 1) == NULL;
}

/* The batch from one place to another in a buffer; -1 with an exception set if that is outside. */
static int find_batch(const Py_buffer *buffer, long long start, long long end, batch_t *batch) {
    if (start < 0 || end < start || end > buffer->len) {
        PyErr_SetString(PyExc_ValueError, "A span lies outside the bytes.");
        return -1;
    }
    batch->data = (const uint8_t *)buffer->buf + start;
    batch->size = (Py_ssize_t)(end - start);
    return 0;
}

/* The same for a span, which is a pair of numbers. */
static int batch_of(const Py_buffer *buffer, PyObject *span, batch_t *batch) {
    Py_ssize_t start, end;
    if (!PyTuple_Check(span)) {
        PyErr_SetString(PyExc_TypeError, "A span is a pair of numbers.");
        return -1;
    }
    return PyArg_ParseTuple(span, "nn", &start, &end) ? find_batch(buffer, start, end, batch) : -1;
}

PyDoc_STRVAR(is_plain_doc, "is_plain(data, start, end, bytes_max, time_min, time_max)\n\n"
                           "Whether the batch from start to end needs no closer look.");

static PyObject *is_plain(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    Py_buffer buffer;
    long long numbers[5];
    (void)module;
    if (count != 6) {
        PyErr_SetString(PyExc_TypeError, "is_plain takes six arguments.");
        return NULL;
    }
    for (int number = 0; number < 5; number++) {
        numbers[number] = PyLong_AsLongLong(arguments[number + 1]);
        if (numbers[number] == -1 && PyErr_Occurred())
            return NULL;
    }
    if (PyObject_GetBuffer(arguments[0], &buffer, PyBUF_SIMPLE) < 0)
        return NULL;
    batch_t batch;
    limits_t limits = {numbers[2], numbers[3], numbers[4]};
    int is_found = find_batch(&buffer, numbers[0], numbers[1], &batch);
    bool is_good = is_found == 0 && needs_no_look(&batch, &limits);
    PyBuffer_Release(&buffer);
    return is_found < 0 ? NULL : PyBool_FromLong(is_good);
}

/* ---- Gathering ---- */

/* The header of a batch as the row type, a named tuple, has it. */
static PyObject *header_of(const uint8_t *data, PyTypeObject *row) {
    PyObject *header = row->tp_alloc(row, HEADER_FIELDS);
    if (header == NULL)
        return NULL;
    PyObject *fields[HEADER_FIELDS] = {
        PyLong_FromLongLong(get_64(data)),
        PyLong_FromLong((int32_t)get_32(data + LENGTH_AT)),
        PyLong_FromLong((int32_t)get_32(data + EPOCH_AT)),
        PyLong_FromLong((int8_t)data[MAGIC_AT]),
        PyLong_FromUnsignedLong(get_32(data + CRC_AT)),
        PyLong_FromLong((int16_t)get_16(data + ATTRIBUTES_AT)),
        PyLong_FromLong((int32_t)get_32(data + LAST_DELTA_AT)),
        PyLong_FromLongLong(get_64(data + BASE_TIMESTAMP_AT)),
        PyLong_FromLongLong(get_64(data + MAX_TIMESTAMP_AT)),
        PyLong_FromLongLong(get_64(data + PRODUCER_ID_AT)),
        PyLong_FromLong((int16_t)get_16(data + PRODUCER_EPOCH_AT)),
        PyLong_FromLong((int32_t)get_32(data + SEQUENCE_AT)),
        PyLong_FromLong((int32_t)get_32(data + COUNT_AT)),
    };
    bool is_whole = true;
    for (int field = 0; field < HEADER_FIELDS; field++) {
        is_whole = is_whole && fields[field] != NULL;
        PyTuple_SET_ITEM(header, field, fields[field]);
    }
    if (!is_whole)
        Py_CLEAR(header);
    return header;
}

/* How many bytes the batches have together; -1 with an exception set if one has no header. */
static Py_ssize_t size_of_run(const Py_buffer *buffer, PyObject *spans) {
    Py_ssize_t size = 0;
    for (Py_ssize_t span = 0; span < PyList_GET_SIZE(spans); span++) {
        batch_t batch;
        if (batch_of(buffer, PyList_GET_ITEM(spans, span), &batch) < 0)
            return -1;
        if (batch.size < HEADER_BYTES) {
            PyErr_SetString(PyExc_ValueError, "A batch is shorter than its header.");
            return -1;
        }
        size += batch.size;
    }
    return size;
}

/* Copy the batches to `run` with the offsets that follow one another, and list their headers. */
static int fill_run(const Py_buffer *buffer, PyObject *spans, int64_t offset, int32_t epoch,
                    PyTypeObject *row, uint8_t *run, PyObject *headers) {
    for (Py_ssize_t span = 0; span < PyList_GET_SIZE(spans); span++) {
        batch_t batch;
        if (batch_of(buffer, PyList_GET_ITEM(spans, span), &batch) < 0)
            return -1;
        memcpy(run, batch.data, (size_t)batch.size);
        put_64(run, offset);
        put_32(run + EPOCH_AT, (uint32_t)epoch);
        PyObject *header = header_of(run, row);
        if (header == NULL)
            return -1;
        PyList_SET_ITEM(headers, span, header);
        offset = (int64_t)((uint64_t)offset + (uint64_t)(int32_t)get_32(run + LAST_DELTA_AT) + 1);
        run += batch.size;
    }
    return 0;
}

PyDoc_STRVAR(gather_run_doc,
             "gather_run(data, spans, base_offset, leader_epoch, row)\n\n"
             "The batches in these spans one after the other, stamped, and their headers.");

static PyObject *gather_run(PyObject *module, PyObject *arguments) {
    Py_buffer buffer;
    PyObject *spans, *row, *run = NULL, *headers = NULL, *answer = NULL;
    long long offset;
    int epoch;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "y*O!LiO!", &buffer, &PyList_Type, &spans, &offset, &epoch,
                          &PyType_Type, &row))
        return NULL;
    Py_ssize_t size = -1;
    if (!PyType_IsSubtype((PyTypeObject *)row, &PyTuple_Type))
        PyErr_SetString(PyExc_TypeError, "The row type must be a tuple.");
    else
        size = size_of_run(&buffer, spans);
    if (size >= 0) {
        run = PyBytes_FromStringAndSize(NULL, size);
        headers = PyList_New(PyList_GET_SIZE(spans));
    }
    if (run != NULL && headers != NULL &&
        fill_run(&buffer, spans, offset, epoch, (PyTypeObject *)row,
                 (uint8_t *)PyBytes_AS_STRING(run), headers) == 0)
        answer = PyTuple_Pack(2, run, headers);
    Py_XDECREF(run);
    Py_XDECREF(headers);
    PyBuffer_Release(&buffer);
    return answer;
}

/* ---- The module ---- */

static PyMethodDef functions[] = {
    {"is_plain", (PyCFunction)(void (*)(void))is_plain, METH_FASTCALL, is_plain_doc},
    {"gather_run", gather_run, METH_VARARGS, gather_run_doc},
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
