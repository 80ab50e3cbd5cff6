/* Encodes records from columns into the bytes of a batch, for code that writes many records.
 *
 * This is `encode_reference.py` in C, with the same names, arguments, results and refusals, which
 * the tests compare; if this module cannot be built, that one is used. Columns have Arrow's layout:
 * contiguous values, bounds between them, and a validity bit for each.
 * Batch headers, compression and checksums are processed afterwards.
 *
 * `_encode_columns.h` reads the columns, and checks every position before it reads a byte there.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "_encode_columns.h"

/* ---- Numbers ---- */

static inline uint64_t zigzag(int64_t number) {
    return ((uint64_t)number << 1) ^ (uint64_t)(number >> 63);
}

static inline Py_ssize_t number_bytes(int64_t number) {
    uint64_t rest = zigzag(number);
    Py_ssize_t bytes = 1;
    while (rest > 0x7F) {
        rest >>= 7;
        bytes++;
    }
    return bytes;
}

static inline uint8_t *write_number(uint8_t *at, int64_t number) {
    uint64_t rest = zigzag(number);
    while (rest > 0x7F) {
        *at++ = (uint8_t)(rest & 0x7F) | 0x80;
        rest >>= 7;
    }
    *at++ = (uint8_t)rest;
    return at;
}

static inline Py_ssize_t field_bytes(value_t value) {
    return value.data == NULL ? 1 : number_bytes(value.size) + value.size;
}

static inline uint8_t *write_field(uint8_t *at, value_t value) {
    if (value.data == NULL)
        return write_number(at, -1);
    at = write_number(at, value.size);
    memcpy(at, value.data, (size_t)value.size);
    return at + value.size;
}

/* ---- Records ---- */

/* A record that is to be written: where it is in the columns, and what it adds up to. */
typedef struct {
    Py_ssize_t place;
    int64_t timestamp_delta, offset_delta;
    span_t headers;           /* in the columns of names and contents */
    Py_ssize_t header_count;  /* with those that have a column of their own */
    Py_ssize_t body_bytes;    /* behind the record's length */
} record_t;

static problem_t measure_headers(const columns_t *columns, record_t *record) {
    problem_t problem = headers_at(columns, record->place, &record->headers);
    if (problem != NULL)
        return problem;
    record->header_count = record->headers.end - record->headers.start;
    for (Py_ssize_t one = record->headers.start; one < record->headers.end; one++) {
        value_t name, content;
        if ((problem = value_at(&columns->names, one, &name)) != NULL ||
            (problem = value_at(&columns->contents, one, &content)) != NULL)
            return problem;
        if (name.data == NULL)
            return NO_NAME;
        record->body_bytes += field_bytes(name) + field_bytes(content);
    }
    for (Py_ssize_t one = 0; one < columns->extra_count; one++) {
        value_t content;
        if ((problem = value_at(&columns->extras[one].contents, record->place, &content)) != NULL)
            return problem;
        if (content.data == NULL)
            continue;
        record->header_count++;
        record->body_bytes += field_bytes(columns->extras[one].name) + field_bytes(content);
    }
    record->body_bytes += number_bytes(record->header_count);
    return NULL;
}

static problem_t measure_record(const columns_t *columns, int64_t base_timestamp,
                                record_t *record) {
    value_t key, value;
    problem_t problem;
    if (record->place < 0 || record->place >= columns->count)
        return OUTSIDE_COLUMN;
    if (__builtin_sub_overflow(columns->times[record->place], base_timestamp,
                               &record->timestamp_delta))
        return OUT_OF_RANGE;
    if ((problem = value_at(&columns->keys, record->place, &key)) != NULL ||
        (problem = value_at(&columns->values, record->place, &value)) != NULL)
        return problem;
    record->body_bytes = 1 + number_bytes(record->timestamp_delta) +
                         number_bytes(record->offset_delta) + field_bytes(key) + field_bytes(value);
    return measure_headers(columns, record);
}

/* What was measured is there, so that nothing can fail here. */
static inline value_t sure_value(const column_t *column, Py_ssize_t place) {
    value_t value = {NULL, 0};
    (void)value_at(column, place, &value);
    return value;
}

static uint8_t *write_record(uint8_t *at, const columns_t *columns, const record_t *record) {
    at = write_number(at, record->body_bytes);
    *at++ = 0; /* attributes, which mean nothing yet */
    at = write_number(at, record->timestamp_delta);
    at = write_number(at, record->offset_delta);
    at = write_field(at, sure_value(&columns->keys, record->place));
    at = write_field(at, sure_value(&columns->values, record->place));
    at = write_number(at, record->header_count);
    for (Py_ssize_t one = record->headers.start; one < record->headers.end; one++) {
        at = write_field(at, sure_value(&columns->names, one));
        at = write_field(at, sure_value(&columns->contents, one));
    }
    for (Py_ssize_t one = 0; one < columns->extra_count; one++) {
        value_t content = sure_value(&columns->extras[one].contents, record->place);
        if (content.data != NULL)
            at = write_field(write_field(at, columns->extras[one].name), content);
    }
    return at;
}

/* ---- A batch that grows ---- */

/* What is added, and how much of it there may be. */
typedef struct {
    PyObject *batch; /* a bytearray */
    Py_ssize_t count, first, bytes_max, records_max;
    int64_t base_timestamp;
} order_t;

/* As many records as fit, at least one if the batch has none; they are noted in `records`. */
static problem_t measure_step(const order_t *order, const columns_t *columns,
                              const numbers_t *places, record_t *records, Py_ssize_t *taken,
                              Py_ssize_t *bytes) {
    Py_ssize_t size = PyByteArray_GET_SIZE(order->batch);
    Py_ssize_t room = order->records_max - order->count;
    *taken = *bytes = 0;
    for (Py_ssize_t at = order->first; at < places->count && *taken < room; at++) {
        record_t *record = &records[*taken];
        record->place = (Py_ssize_t)number_at(places, at);
        record->offset_delta = order->count + *taken;
        problem_t problem = measure_record(columns, order->base_timestamp, record);
        if (problem != NULL)
            return problem;
        if (record->body_bytes > INT32_MAX)
            return TOO_LARGE;
        Py_ssize_t whole = number_bytes(record->body_bytes) + record->body_bytes;
        if (size + *bytes + whole > order->bytes_max && record->offset_delta > 0)
            return NULL;
        *bytes += whole;
        ++*taken;
    }
    return NULL;
}

static int write_step(const order_t *order, const columns_t *columns, const record_t *records,
                      Py_ssize_t taken, Py_ssize_t bytes) {
    Py_ssize_t size = PyByteArray_GET_SIZE(order->batch);
    if (PyByteArray_Resize(order->batch, size + bytes) < 0)
        return -1;
    uint8_t *at = (uint8_t *)PyByteArray_AS_STRING(order->batch) + size;
    for (Py_ssize_t one = 0; one < taken; one++)
        at = write_record(at, columns, &records[one]);
    return 0;
}

static long long newest_of(const order_t *order, const columns_t *columns, const record_t *records,
                           Py_ssize_t taken) {
    int64_t newest = taken > 0 ? columns->times[records[0].place] : order->base_timestamp;
    for (Py_ssize_t one = 1; one < taken; one++) {
        int64_t time = columns->times[records[one].place];
        newest = time > newest ? time : newest;
    }
    return newest;
}

static PyObject *append_step(const order_t *order, const columns_t *columns,
                             const numbers_t *places) {
    Py_ssize_t left = places->count - order->first, room = order->records_max - order->count;
    Py_ssize_t taken, bytes;
    record_t *records = PyMem_New(record_t, (size_t)(left < room ? left : room) + 1);
    if (records == NULL)
        return PyErr_NoMemory();
    problem_t problem = measure_step(order, columns, places, records, &taken, &bytes);
    PyObject *answer = NULL;
    if (problem != NULL)
        PyErr_SetString(PyExc_ValueError, problem);
    else if (write_step(order, columns, records, taken, bytes) == 0)
        answer = Py_BuildValue("nL", taken, newest_of(order, columns, records, taken));
    PyMem_Free(records);
    return answer;
}

PyDoc_STRVAR(append_doc,
             "append(batch, count, base_timestamp, columns, places, first, bytes_max, records_max)\n\n"
             "Add records to the bytes of a batch that has `count` of them: those at these places of\n"
             "the columns, from the `first` place on, as many as fit; how many that were, and the newest\n"
             "of their times.");

static PyObject *append(PyObject *module, PyObject *arguments) {
    order_t order;
    PyObject *given, *places_given;
    columns_t columns;
    numbers_t places;
    long long base_timestamp;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "O!nLOOnnn", &PyByteArray_Type, &order.batch, &order.count,
                          &base_timestamp, &given, &places_given, &order.first, &order.bytes_max,
                          &order.records_max))
        return NULL;
    order.base_timestamp = base_timestamp;
    if (open_numbers(places_given, &places) < 0)
        return NULL;
    PyObject *answer = NULL;
    if (order.count < 0 || order.first < 0 || order.first > places.count ||
        order.count > order.records_max) {
        PyErr_SetString(PyExc_ValueError, OUTSIDE_COLUMN);
    } else if (open_columns(given, &columns) == 0) {
        answer = append_step(&order, &columns, &places);
        close_columns(&columns);
    }
    close_numbers(&places);
    return answer;
}

/* ---- Partitions of keys ---- */

/* The hash of Kafka's default partitioner: MurmurHash2 of 32 bits with its seed. */
static uint32_t murmur2(value_t value) {
    const uint32_t multiplier = 0x5BD1E995;
    const uint8_t *at = value.data;
    Py_ssize_t left = value.size;
    uint32_t hash = 0x9747B28Cu ^ (uint32_t)value.size;
    for (; left >= 4; at += 4, left -= 4) {
        uint32_t word = (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 |
                        (uint32_t)at[3] << 24;
        word *= multiplier;
        word ^= word >> 24;
        hash = hash * multiplier ^ word * multiplier;
    }
    if (left > 0) {
        for (Py_ssize_t byte = 0; byte < left; byte++)
            hash ^= (uint32_t)at[byte] << (8 * byte);
        hash *= multiplier;
    }
    hash ^= hash >> 13;
    hash *= multiplier;
    return hash ^ hash >> 15;
}

static problem_t fill_partitions(const column_t *keys, int32_t partition_count, int32_t *numbers) {
    for (Py_ssize_t place = 0; place < keys->count; place++) {
        value_t key;
        problem_t problem = value_at(keys, place, &key);
        if (problem != NULL)
            return problem;
        numbers[place] = key.data == NULL
                             ? -1
                             : (int32_t)((murmur2(key) & 0x7FFFFFFF) % (uint32_t)partition_count);
    }
    return NULL;
}

PyDoc_STRVAR(partitions_doc, "partitions(keys, partition_count)\n\n"
                             "The partition of each key, as 32-bit numbers; -1 where there is none.");

static PyObject *partitions(PyObject *module, PyObject *arguments) {
    PyObject *given, *numbers = NULL;
    column_t keys = {.is_absent = true};
    int partition_count;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "Oi", &given, &partition_count))
        return NULL;
    if (partition_count < 1) {
        PyErr_SetString(PyExc_ValueError, "A topic has at least one partition.");
        return NULL;
    }
    if (open_column(given, &keys) < 0)
        return NULL;
    Py_ssize_t bytes = keys.count * (Py_ssize_t)sizeof(int32_t);
    PyObject *data = PyByteArray_FromStringAndSize(NULL, bytes);
    if (data != NULL) {
        problem_t problem =
            fill_partitions(&keys, partition_count, (int32_t *)PyByteArray_AS_STRING(data));
        if (problem != NULL) {
            PyErr_SetString(PyExc_ValueError, problem);
        } else {
            PyObject *view = PyMemoryView_FromObject(data);
            numbers = view == NULL ? NULL : PyObject_CallMethod(view, "cast", "s", "i");
            Py_XDECREF(view);
        }
        Py_DECREF(data);
    }
    close_column(&keys);
    return numbers;
}

/* ---- The module ---- */

static PyMethodDef functions[] = {
    {"append", append, METH_VARARGS, append_doc},
    {"partitions", partitions, METH_VARARGS, partitions_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "goqueue.model._encode",
    .m_doc = "Records into the bytes of a batch; what encode_reference does, compiled.",
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC PyInit__encode(void) { return PyModule_Create(&module_definition); }
