/* Decodes records from the bytes of a batch, for code that processes every record.
 *
 * This is `decode_reference.py` in C, with the same names, arguments, results and refusals, which
 * the tests compare; if this module cannot be built, that one is used. It handles only bytes: batch
 * headers, compression and checksums are processed before.
 *
 * `_records.h` checks records, `_decode_reading.h` reads the bytes, `_decode_columns.h` makes columns for Arrow,
 * `_decode_checksums.h` sums up fields and `_decode_json.h` writes JSON; they are parts of this file.
 */
#define _GNU_SOURCE /* for memmem */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "_decode_reading.h"

/* ---- Where it is read from ---- */

/* The bytes that are read, and where a step of the reading begins. */
typedef struct {
    Py_buffer buffer;
    const uint8_t *data;
    Py_ssize_t size, at, count;
} source_t;

/* 0, or -1 with an exception set; the buffer is released in that case. */
static int check_source(source_t *source) {
    source->data = source->buffer.buf;
    source->size = source->buffer.len;
    if (source->at >= 0 && source->at <= source->size && source->size <= INT32_MAX)
        return 0;
    PyErr_SetString(PyExc_ValueError, "The position lies outside the bytes, or these are too many.");
    PyBuffer_Release(&source->buffer);
    return -1;
}

/* The rows and where the next one begins; what was read before damage is given out first. */
static PyObject *step_of(source_t *source, PyObject *rows, problem_t problem) {
    PyBuffer_Release(&source->buffer);
    if (rows != NULL && problem != NULL && PyList_GET_SIZE(rows) == 0) {
        refuse(problem);
        Py_CLEAR(rows);
    }
    if (rows != NULL && PyErr_Occurred())
        Py_CLEAR(rows);
    return rows == NULL ? NULL : pair_of(rows, PyLong_FromSsize_t(source->at));
}

static int add_row(PyObject **rows, PyObject *row) {
    if (row == NULL || PyList_Append(*rows, row) < 0)
        Py_CLEAR(*rows);
    Py_XDECREF(row);
    return *rows == NULL ? -1 : 0;
}

/* ---- Records ---- */

/* Where a batch begins, and the time that all its records have if it gives them one. */
typedef struct {
    int64_t offset, timestamp, append_time;
    bool has_append_time;
} base_t;

static bool read_append_time(PyObject *given, base_t *base) {
    base->has_append_time = given != Py_None;
    base->append_time = base->has_append_time ? PyLong_AsLongLong(given) : 0;
    return !PyErr_Occurred();
}

static problem_t place_record(const record_t *record, const base_t *base, int64_t *offset,
                              int64_t *timestamp) {
    if (__builtin_add_overflow(base->offset, record->offset_delta, offset) ||
        __builtin_add_overflow(base->timestamp, record->timestamp_delta, timestamp))
        return OUT_OF_RANGE;
    if (base->has_append_time)
        *timestamp = base->append_time;
    return NULL;
}

static PyObject *record_row(PyTypeObject *type, const uint8_t *data, const record_t *record,
                            int64_t offset, int64_t timestamp) {
    PyObject *row = new_row(type, 5);
    if (row == NULL)
        return NULL;
    PyTuple_SET_ITEM(row, 0, bytes_of(data, record->key));
    PyTuple_SET_ITEM(row, 1, bytes_of(data, record->value));
    PyTuple_SET_ITEM(row, 2, record->header_count == 0
                                 ? PyTuple_New(0)
                                 : headers_of(data, record->headers_start, record->end));
    PyTuple_SET_ITEM(row, 3, PyLong_FromLongLong(timestamp));
    PyTuple_SET_ITEM(row, 4, PyLong_FromLongLong(offset));
    for (Py_ssize_t field = 0; field < 5; field++) {
        if (PyTuple_GET_ITEM(row, field) == NULL) {
            Py_DECREF(row);
            return NULL;
        }
    }
    return row;
}

/* Large records, and those with many headers, are made a few at a time. */
enum { ROWS_BYTES_MAX = 256 << 10 };

PyDoc_STRVAR(records_doc,
             "records(data, position, count_max, base_offset, base_timestamp, append_time, row)\n\n"
             "Up to so many records from a position on, as rows of key, value, headers, timestamp\n"
             "and offset; and the position after them. Large ones are fewer.");

static PyObject *records(PyObject *module, PyObject *arguments) {
    source_t source;
    base_t base;
    PyObject *append_time, *type;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "y*nnLLOO", &source.buffer, &source.at, &source.count,
                          &base.offset, &base.timestamp, &append_time, &type) ||
        check_source(&source) < 0)
        return NULL;
    PyObject *rows = NULL;
    problem_t problem = NULL;
    if (is_row_type(type) && read_append_time(append_time, &base))
        rows = PyList_New(0);
    Py_ssize_t start = source.at;
    while (rows != NULL && problem == NULL && PyList_GET_SIZE(rows) < source.count &&
           source.at - start < ROWS_BYTES_MAX) {
        record_t record;
        int64_t offset, timestamp;
        Py_ssize_t at = source.at;
        if ((problem = read_record(source.data, &at, source.size, &record)) != NULL ||
            (problem = place_record(&record, &base, &offset, &timestamp)) != NULL)
            break;
        source.at = at;
        add_row(&rows, record_row((PyTypeObject *)type, source.data, &record, offset, timestamp));
    }
    return step_of(&source, rows, problem);
}

static PyObject *raw_row(PyTypeObject *type, const uint8_t *data, const record_t *record) {
    PyObject *row = new_row(type, 6);
    if (row == NULL)
        return NULL;
    field_t whole = {record->start, record->end};
    PyTuple_SET_ITEM(row, 0, PyLong_FromLongLong(record->offset_delta));
    PyTuple_SET_ITEM(row, 1, PyLong_FromLongLong(record->timestamp_delta));
    PyTuple_SET_ITEM(row, 2, bytes_of(data, record->key));
    PyTuple_SET_ITEM(row, 3, PyBool_FromLong(record->key.start >= 0 && record->value.start < 0));
    PyTuple_SET_ITEM(row, 4, bytes_of(data, whole));
    PyTuple_SET_ITEM(row, 5, PyLong_FromSsize_t(record->rest_start - record->start));
    for (Py_ssize_t field = 0; field < 6; field++) {
        if (PyTuple_GET_ITEM(row, field) == NULL) {
            Py_DECREF(row);
            return NULL;
        }
    }
    return row;
}

PyDoc_STRVAR(raw_records_doc,
             "raw_records(data, position, count_max, row)\n\n"
             "The same records as rows of offset delta, timestamp delta, key, whether it is a\n"
             "tombstone, all its bytes, and where in these the offset delta begins.");

static PyObject *raw_records(PyObject *module, PyObject *arguments) {
    source_t source;
    PyObject *type;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "y*nnO", &source.buffer, &source.at, &source.count, &type) ||
        check_source(&source) < 0)
        return NULL;
    PyObject *rows = is_row_type(type) ? PyList_New(0) : NULL;
    problem_t problem = NULL;
    while (rows != NULL && problem == NULL && PyList_GET_SIZE(rows) < source.count) {
        record_t record;
        Py_ssize_t at = source.at;
        if ((problem = read_record_start(source.data, &at, source.size, &record)) != NULL)
            break;
        source.at = record.end; /* Headers are carried along, whatever is in them. */
        add_row(&rows, raw_row((PyTypeObject *)type, source.data, &record));
    }
    return step_of(&source, rows, problem);
}

/* ---- The index of a batch: where everything is ---- */

enum { OFFSETS, TIMESTAMPS, ENDS, KEY_STARTS, KEY_ENDS, VALUE_STARTS, VALUE_ENDS, HEADER_STARTS };
enum { COLUMN_COUNT = HEADER_STARTS + 1 };

typedef struct {
    PyObject *columns[COLUMN_COUNT]; /* bytes, of 64-bit numbers in the first two, else of 32-bit */
    int64_t *offsets, *timestamps;
    int32_t *narrow[COLUMN_COUNT]; /* none for the first two */
    bool has_gaps, has_headers;
} index_t;

static void drop_index(index_t *index) {
    for (int column = 0; column < COLUMN_COUNT; column++)
        Py_CLEAR(index->columns[column]);
}

static int new_index(index_t *index, Py_ssize_t count) {
    memset(index, 0, sizeof *index);
    for (int column = 0; column < COLUMN_COUNT; column++) {
        Py_ssize_t size = (Py_ssize_t)sizeof(int32_t) * (count + (column == ENDS));
        if (column <= TIMESTAMPS)
            size = (Py_ssize_t)sizeof(int64_t) * count;
        PyObject *bytes = PyBytes_FromStringAndSize(NULL, size);
        if (bytes == NULL) {
            drop_index(index);
            return -1;
        }
        index->columns[column] = bytes;
        index->narrow[column] = (int32_t *)(void *)PyBytes_AS_STRING(bytes);
    }
    index->offsets = (int64_t *)(void *)PyBytes_AS_STRING(index->columns[OFFSETS]);
    index->timestamps = (int64_t *)(void *)PyBytes_AS_STRING(index->columns[TIMESTAMPS]);
    return 0;
}

/* Positions fit 32 bits, because the source does. */
static void note_record(index_t *index, Py_ssize_t place, const record_t *record) {
    index->narrow[ENDS][place + 1] = (int32_t)record->end;
    index->narrow[KEY_STARTS][place] = (int32_t)record->key.start;
    index->narrow[KEY_ENDS][place] = (int32_t)record->key.end;
    index->narrow[VALUE_STARTS][place] = (int32_t)record->value.start;
    index->narrow[VALUE_ENDS][place] = (int32_t)record->value.end;
    index->narrow[HEADER_STARTS][place] =
        record->header_count ? (int32_t)record->headers_start : -1;
    index->has_headers |= record->header_count != 0;
    index->has_gaps |= record->offset_delta != place;
}

static problem_t fill_index(index_t *index, source_t *source, const base_t *base) {
    index->narrow[ENDS][0] = 0;
    for (Py_ssize_t place = 0; place < source->count; place++) {
        record_t record;
        problem_t problem = read_record(source->data, &source->at, source->size, &record);
        if (problem != NULL)
            return problem;
        note_record(index, place, &record);
        problem = place_record(&record, base, &index->offsets[place], &index->timestamps[place]);
        if (problem != NULL)
            return problem;
    }
    return source->at == source->size ? NULL : BYTES_LEFT;
}

static PyObject *view_of(PyObject *bytes, const char *format) {
    PyObject *view = PyMemoryView_FromObject(bytes);
    PyObject *numbers = view == NULL ? NULL : PyObject_CallMethod(view, "cast", "s", format);
    Py_XDECREF(view);
    return numbers;
}

static PyObject *views_of(const index_t *index) {
    PyObject *views = PyTuple_New(COLUMN_COUNT);
    for (int column = 0; views != NULL && column < COLUMN_COUNT; column++) {
        bool is_left_out = (column == OFFSETS && !index->has_gaps) ||
                           (column == HEADER_STARTS && !index->has_headers);
        PyObject *view = is_left_out
                             ? Py_NewRef(Py_None)
                             : view_of(index->columns[column], column <= TIMESTAMPS ? "q" : "i");
        if (view == NULL)
            Py_CLEAR(views);
        else
            PyTuple_SET_ITEM(views, column, view);
    }
    return views;
}

PyDoc_STRVAR(index_doc,
             "index(data, count, base_offset, base_timestamp, append_time)\n\n"
             "Where everything is in a batch of so many records, as columns of numbers: offsets\n"
             "(None if they have no gaps), timestamps, the ends of the records after a zero, starts\n"
             "and ends of keys and of values, and where headers begin (None if there are none).");

static PyObject *index_records(PyObject *module, PyObject *arguments) {
    source_t source = {.at = 0};
    base_t base;
    PyObject *append_time, *views = NULL;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "y*nLLO", &source.buffer, &source.count, &base.offset,
                          &base.timestamp, &append_time) ||
        check_source(&source) < 0)
        return NULL;
    index_t index;
    if (source.count < 0)
        source.count = 0;
    /* A batch may promise more records than there are bytes, and must not get memory for them. */
    if (source.count > source.size / (RECORD_BYTES_MIN + 1)) {
        refuse(BEYOND_BATCH);
    } else if (read_append_time(append_time, &base) && new_index(&index, source.count) == 0) {
        problem_t problem = fill_index(&index, &source, &base);
        views = problem == NULL ? views_of(&index) : refuse(problem);
        drop_index(&index);
    }
    PyBuffer_Release(&source.buffer);
    return views;
}

/* ---- Fields by their places ---- */

/* A column of 32-bit numbers, as `index` makes them. */
static int get_numbers(PyObject *column, Py_buffer *buffer) {
    if (PyObject_GetBuffer(column, buffer, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS) < 0)
        return -1;
    bool is_aligned = buffer->len == 0 || (uintptr_t)buffer->buf % sizeof(int32_t) == 0;
    if (buffer->itemsize == (Py_ssize_t)sizeof(int32_t) && is_aligned && buffer->format != NULL &&
        strcmp(buffer->format, "i") == 0)
        return 0;
    PyBuffer_Release(buffer);
    memset(buffer, 0, sizeof *buffer);
    PyErr_SetString(PyExc_TypeError, "A column of 32-bit numbers is needed.");
    return -1;
}

/* Fields of a batch: its bytes, columns of where they start and end, and the places to look at. */
typedef struct {
    source_t source;
    Py_buffer starts, ends;
    Py_ssize_t count; /* of the columns */
    PyObject *places; /* as a list or tuple */
} fields_t;

static void close_fields(fields_t *fields) {
    Py_CLEAR(fields->places);
    PyBuffer_Release(&fields->ends);
    PyBuffer_Release(&fields->starts);
    PyBuffer_Release(&fields->source.buffer);
}

/* From the arguments (data, starts, ends, places); after a failure there is nothing to close. */
static int open_fields(PyObject *arguments, fields_t *fields) {
    PyObject *starts, *ends, *places;
    memset(fields, 0, sizeof *fields);
    if (!PyArg_ParseTuple(arguments, "y*OOO", &fields->source.buffer, &starts, &ends, &places) ||
        check_source(&fields->source) < 0)
        return -1;
    if (get_numbers(starts, &fields->starts) == 0 && get_numbers(ends, &fields->ends) == 0)
        fields->places = PySequence_Fast(places, "Places are numbers in a row.");
    if (fields->places == NULL) {
        close_fields(fields);
        return -1;
    }
    Py_ssize_t size = fields->starts.len < fields->ends.len ? fields->starts.len : fields->ends.len;
    fields->count = size / (Py_ssize_t)sizeof(int32_t);
    return 0;
}

static int field_at(const fields_t *fields, PyObject *place_number, field_t *field) {
    Py_ssize_t place = PyNumber_AsSsize_t(place_number, PyExc_IndexError);
    if (place == -1 && PyErr_Occurred())
        return -1;
    if (place < 0 || place >= fields->count) {
        PyErr_SetString(PyExc_IndexError, "A place lies outside its column.");
        return -1;
    }
    field->start = ((const int32_t *)fields->starts.buf)[place];
    field->end = ((const int32_t *)fields->ends.buf)[place];
    if (field->start >= 0 && (field->end < field->start || field->end > fields->source.size)) {
        PyErr_SetString(PyExc_ValueError, "A field lies outside the bytes of its batch.");
        return -1;
    }
    return 0;
}

static PyObject *values_at(PyObject *arguments, PyObject *value_of(const uint8_t *, field_t)) {
    fields_t fields;
    if (open_fields(arguments, &fields) < 0)
        return NULL;
    Py_ssize_t count = PySequence_Fast_GET_SIZE(fields.places);
    PyObject *values = PyList_New(count);
    for (Py_ssize_t number = 0; values != NULL && number < count; number++) {
        field_t field;
        PyObject *place = PySequence_Fast_GET_ITEM(fields.places, number), *value = NULL;
        if (field_at(&fields, place, &field) == 0)
            value = value_of(fields.source.data, field);
        if (value == NULL)
            Py_CLEAR(values);
        else
            PyList_SET_ITEM(values, number, value);
    }
    close_fields(&fields);
    return values;
}

PyDoc_STRVAR(slices_doc, "slices(data, starts, ends, places)\n\n"
                         "The bytes from start to end at each of these places; None below zero.");

static PyObject *slices(PyObject *module, PyObject *arguments) {
    (void)module;
    return values_at(arguments, bytes_of);
}

PyDoc_STRVAR(texts_doc, "texts(data, starts, ends, places)\n\n"
                        "The same as text; UnicodeDecodeError if one of them is not UTF-8.");

static PyObject *texts(PyObject *module, PyObject *arguments) {
    (void)module;
    return values_at(arguments, text_of);
}

PyDoc_STRVAR(headers_doc, "headers(data, start, end)\n\n"
                          "The headers of a record, from their number on up to the record's end.");

static PyObject *headers(PyObject *module, PyObject *arguments) {
    source_t source;
    Py_ssize_t end;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "y*nn", &source.buffer, &source.at, &end) ||
        check_source(&source) < 0)
        return NULL;
    PyObject *found = NULL;
    if (end < source.at || end > source.size)
        PyErr_SetString(PyExc_ValueError, "The headers lie outside the bytes of their batch.");
    else
        found = headers_of(source.data, source.at, end);
    PyBuffer_Release(&source.buffer);
    return found;
}

#include "_decode_checksums.h"
#include "_decode_columns.h"
#include "_decode_json.h"
#include "_search.h"

/* ---- Checking ---- */

PyDoc_STRVAR(check_records_doc,
             "check_records(data, position, count, base_timestamp, has_gaps)\n\n"
             "Check all records of a batch. Returns the index of the first one without a key, or -1,\n"
             "and the oldest and the newest timestamp, or -1.");

static PyObject *check_records(PyObject *module, PyObject *arguments) {
    source_t source;
    long long base_timestamp;
    int has_gaps;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "y*nnLp", &source.buffer, &source.at, &source.count,
                          &base_timestamp, &has_gaps) ||
        check_source(&source) < 0)
        return NULL;
    checked_t checked;
    problem_t problem = check_all(source.data + source.at, source.size - source.at, source.count,
                                  has_gaps != 0, base_timestamp, &checked);
    PyBuffer_Release(&source.buffer);
    if (problem == OUT_OF_RANGE) {
        PyErr_SetString(invalid_timestamp, problem);
        return NULL;
    }
    if (problem != NULL)
        return refuse(problem);
    if (checked.oldest == INT64_MAX)
        checked.oldest = -1;
    return Py_BuildValue("iLL", (int)checked.first_without_key, (long long)checked.oldest,
                         (long long)checked.newest);
}

/* ---- Searching ---- */

PyDoc_STRVAR(contains_doc, "contains(needle, data, start)\n\n"
                           "Whether some bytes occur in a buffer at or after a position.");

static PyObject *contains(PyObject *module, PyObject *arguments) {
    source_t source;
    Py_buffer needle;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "y*y*n", &needle, &source.buffer, &source.at))
        return NULL;
    PyObject *answer = NULL;
    if (check_source(&source) == 0) {
        answer = PyBool_FromLong(has_bytes(source.data + source.at,
                                           (size_t)(source.size - source.at), needle.buf,
                                           (size_t)needle.len));
        PyBuffer_Release(&source.buffer);
    }
    PyBuffer_Release(&needle);
    return answer;
}

/* ---- The module ---- */

static PyMethodDef functions[] = {
    {"records", records, METH_VARARGS, records_doc},
    {"raw_records", raw_records, METH_VARARGS, raw_records_doc},
    {"index", index_records, METH_VARARGS, index_doc},
    {"columns", columns, METH_VARARGS, columns_doc},
    {"checksums", checksums, METH_VARARGS, checksums_doc},
    {"slices", slices, METH_VARARGS, slices_doc},
    {"texts", texts, METH_VARARGS, texts_doc},
    {"headers", headers, METH_VARARGS, headers_doc},
    {"json_rows", json_rows, METH_VARARGS, json_rows_doc},
    {"check_records", check_records, METH_VARARGS, check_records_doc},
    {"contains", contains, METH_VARARGS, contains_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "goqueue.model._decode",
    .m_doc = "Records out of the bytes of a batch; what decode_reference does, compiled.",
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC PyInit__decode(void) {
    PyObject *errors = PyImport_ImportModule("goqueue.model.errors");
    if (errors == NULL)
        return NULL;
    fill_crc_table();
    corrupt_batch = PyObject_GetAttrString(errors, "CorruptBatch");
    invalid_timestamp = PyObject_GetAttrString(errors, "InvalidTimestamp");
    Py_DECREF(errors);
    return corrupt_batch == NULL || invalid_timestamp == NULL ? NULL : PyModule_Create(&module_definition);
}
