/* Decodes the bytes of records: numbers, fields, whole records, and their Python objects.
 *
 * Every position is checked before a byte is read there. Every number is read by `read_number`,
 * every field by `read_field`, and both take the end of the record that they are in.
 */
#include "_records.h"

enum { NUMBER_BYTES_MAX = 10 };

static PyObject *corrupt_batch; /* the class of the error that says that bytes make no sense */
static PyObject *invalid_timestamp;

/* ---- Reading. What fails returns a sentence that says why, and what succeeds NULL. ---- */

typedef struct {
    Py_ssize_t start, end; /* both -1 for what is not there */
} field_t;

typedef struct {
    Py_ssize_t start, end;     /* of all its bytes, its length included */
    Py_ssize_t rest_start;     /* where the offset delta begins */
    Py_ssize_t headers_start;  /* where the number of headers stands */
    int64_t timestamp_delta, offset_delta, header_count;
    field_t key, value;
} record_t;

/* A zig-zag variable-length number that ends before `end`; `at` is moved behind it. */
static inline problem_t read_number(const uint8_t *data, Py_ssize_t *at, Py_ssize_t end,
                                    int64_t *number) {
    Py_ssize_t position = *at;
    uint64_t raw = 0;
    for (int shift = 0; shift < 7 * NUMBER_BYTES_MAX; shift += 7) {
        if (position >= end)
            return BEYOND_RECORD;
        uint64_t byte = data[position++];
        if (shift == 63 && byte > 1)
            return NUMBER_TOO_LONG;
        raw |= (byte & 0x7F) << shift;
        if (byte < 0x80) {
            *number = (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1);
            *at = position;
            return NULL;
        }
    }
    return NUMBER_TOO_LONG;
}

/* A length and so many bytes. Any length below zero means that there is nothing. */
static inline problem_t read_field(const uint8_t *data, Py_ssize_t *at, Py_ssize_t end,
                                   field_t *field) {
    int64_t length;
    problem_t problem = read_number(data, at, end, &length);
    if (problem != NULL)
        return problem;
    if (length < 0) {
        field->start = field->end = -1;
        return NULL;
    }
    if (length > end - *at)
        return BEYOND_RECORD;
    field->start = *at;
    field->end = *at += (Py_ssize_t)length;
    return NULL;
}

/* A record as far as its value. `at` is left behind the value. */
static inline problem_t read_record_start(const uint8_t *data, Py_ssize_t *at, Py_ssize_t size,
                                          record_t *record) {
    int64_t length;
    problem_t problem;
    record->start = *at;
    if ((problem = read_number(data, at, size, &length)) != NULL)
        return problem;
    if (length < RECORD_BYTES_MIN || length > size - *at)
        return BEYOND_BATCH;
    record->end = *at + (Py_ssize_t)length;
    *at += 1; /* attributes, which mean nothing yet */
    if ((problem = read_number(data, at, record->end, &record->timestamp_delta)) != NULL)
        return problem;
    record->rest_start = *at;
    if ((problem = read_number(data, at, record->end, &record->offset_delta)) != NULL ||
        (problem = read_field(data, at, record->end, &record->key)) != NULL)
        return problem;
    return read_field(data, at, record->end, &record->value);
}

static inline problem_t read_header(const uint8_t *data, Py_ssize_t *at, Py_ssize_t end,
                                    field_t *name, field_t *content) {
    problem_t problem;
    if ((problem = read_field(data, at, end, name)) != NULL ||
        (problem = read_field(data, at, end, content)) != NULL)
        return problem;
    bool is_named = name->start >= 0 && is_utf8(data + name->start, data + name->end);
    return is_named ? NULL : HEADER_NAME;
}

static inline problem_t read_header_count(const uint8_t *data, Py_ssize_t *at, Py_ssize_t end,
                                          int64_t *count) {
    problem_t problem = read_number(data, at, end, count);
    if (problem != NULL)
        return problem;
    if (*count < 0 || *count > end - *at)
        return HEADER_COUNT;
    return *count > RECORD_HEADERS_MAX ? HEADERS_TOO_MANY : NULL;
}

/* A whole record, all of whose fields are where they say they are. */
static inline problem_t read_record(const uint8_t *data, Py_ssize_t *at, Py_ssize_t size,
                                    record_t *record) {
    problem_t problem = read_record_start(data, at, size, record);
    if (problem != NULL)
        return problem;
    record->headers_start = *at;
    if ((problem = read_header_count(data, at, record->end, &record->header_count)) != NULL)
        return problem;
    for (int64_t number = 0; number < record->header_count; number++) {
        field_t name, content;
        if ((problem = read_header(data, at, record->end, &name, &content)) != NULL)
            return problem;
    }
    return *at == record->end ? NULL : NOT_FILLED;
}

static PyObject *refuse(problem_t problem) {
    if (!PyErr_Occurred())
        PyErr_SetString(corrupt_batch, problem);
    return NULL;
}

/* ---- Values for Python ---- */

static PyObject *bytes_of(const uint8_t *data, field_t field) {
    if (field.start < 0)
        return Py_NewRef(Py_None);
    return PyBytes_FromStringAndSize((const char *)data + field.start, field.end - field.start);
}

static PyObject *text_of(const uint8_t *data, field_t field) {
    if (field.start < 0)
        return Py_NewRef(Py_None);
    return PyUnicode_DecodeUTF8((const char *)data + field.start, field.end - field.start, NULL);
}

/* Both are taken over, and either may be missing after a failure. */
static PyObject *pair_of(PyObject *first, PyObject *second) {
    PyObject *pair = first != NULL && second != NULL ? PyTuple_Pack(2, first, second) : NULL;
    Py_XDECREF(first);
    Py_XDECREF(second);
    return pair;
}

/* The headers of a record, from their number on. */
static PyObject *headers_of(const uint8_t *data, Py_ssize_t at, Py_ssize_t end) {
    int64_t count;
    problem_t problem = read_header_count(data, &at, end, &count);
    if (problem != NULL)
        return refuse(problem);
    PyObject *headers = PyTuple_New((Py_ssize_t)count);
    for (Py_ssize_t number = 0; headers != NULL && number < count; number++) {
        field_t name, content;
        PyObject *pair = NULL;
        if ((problem = read_header(data, &at, end, &name, &content)) != NULL)
            refuse(problem);
        else
            pair = pair_of(text_of(data, name), bytes_of(data, content));
        if (pair == NULL)
            Py_CLEAR(headers);
        else
            PyTuple_SET_ITEM(headers, number, pair);
    }
    return headers;
}

/* An empty instance of a NamedTuple with so many fields. */
static PyObject *new_row(PyTypeObject *type, Py_ssize_t fields) { return type->tp_alloc(type, fields); }

static bool is_row_type(PyObject *type) {
    if (PyType_Check(type) && PyType_IsSubtype((PyTypeObject *)type, &PyTuple_Type))
        return true;
    PyErr_SetString(PyExc_TypeError, "The class of the rows must be a NamedTuple.");
    return false;
}
