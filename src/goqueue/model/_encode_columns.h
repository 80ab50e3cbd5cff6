/* Columns in Arrow's layout, and the values in them.
 *
 * Every value is read by `value_at`, which reads no byte outside its buffers, whatever their bounds
 * contain.
 */
enum { EXTRAS_MAX = 8 };

static const char OUTSIDE_COLUMN[] = "A place lies outside its column.";
static const char OUTSIDE_DATA[] = "A value lies outside the bytes of its column.";
static const char OUT_OF_RANGE[] = "The times of two records do not fit one batch.";
static const char NO_NAME[] = "A record header has no name.";
static const char TOO_LARGE[] = "A record is too large for a batch.";

/* What fails returns a sentence that says why, and what succeeds NULL. */
typedef const char *problem_t;

typedef struct {
    const uint8_t *data; /* NULL for what is not there */
    Py_ssize_t size;
} value_t;

typedef struct {
    Py_ssize_t start, end;
} span_t;

/* ---- Columns of numbers ---- */

typedef struct {
    Py_buffer buffer;
    Py_ssize_t count;
    bool is_wide; /* 64 bits, not 32 */
} numbers_t;

static int open_numbers(PyObject *given, numbers_t *numbers) {
    if (PyObject_GetBuffer(given, &numbers->buffer, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS) < 0)
        return -1;
    const char *format = numbers->buffer.format == NULL ? "" : numbers->buffer.format;
    numbers->is_wide = strcmp(format, "q") == 0 || strcmp(format, "l") == 0;
    bool is_known = numbers->is_wide || strcmp(format, "i") == 0;
    Py_ssize_t size = numbers->is_wide ? 8 : 4;
    if (is_known && numbers->buffer.itemsize == size &&
        (numbers->buffer.len == 0 || (uintptr_t)numbers->buffer.buf % (uintptr_t)size == 0)) {
        numbers->count = numbers->buffer.len / size;
        return 0;
    }
    PyBuffer_Release(&numbers->buffer);
    PyErr_SetString(PyExc_TypeError, "A column of 32-bit or 64-bit numbers is needed.");
    return -1;
}

static void close_numbers(numbers_t *numbers) { PyBuffer_Release(&numbers->buffer); }

static inline int64_t number_at(const numbers_t *numbers, Py_ssize_t place) {
    return numbers->is_wide ? ((const int64_t *)numbers->buffer.buf)[place]
                            : ((const int32_t *)numbers->buffer.buf)[place];
}

/* ---- Which values are there ---- */

typedef struct {
    Py_buffer buffer;
    Py_ssize_t start; /* the bit of the first value */
    bool is_whole;    /* all are there, and there are no bits */
} validity_t;

static int open_validity(PyObject *given, Py_ssize_t start, Py_ssize_t count,
                         validity_t *validity) {
    validity->start = start;
    validity->is_whole = given == Py_None;
    if (validity->is_whole)
        return 0;
    if (PyObject_GetBuffer(given, &validity->buffer, PyBUF_SIMPLE) < 0)
        return -1;
    if (start >= 0 && start <= PY_SSIZE_T_MAX - count &&
        (start + count + 7) / 8 <= validity->buffer.len)
        return 0;
    PyBuffer_Release(&validity->buffer);
    PyErr_SetString(PyExc_ValueError, "There are fewer bits than values.");
    return -1;
}

static void close_validity(validity_t *validity) {
    if (!validity->is_whole)
        PyBuffer_Release(&validity->buffer);
}

static inline bool is_there(const validity_t *validity, Py_ssize_t place) {
    Py_ssize_t bit = validity->start + place;
    return validity->is_whole ||
           ((const uint8_t *)validity->buffer.buf)[bit >> 3] >> (bit & 7) & 1;
}

/* ---- Columns of bytes ---- */

typedef struct {
    Py_buffer data;
    numbers_t bounds;
    validity_t validity;
    Py_ssize_t count;
    bool is_absent; /* no value is there, and no buffer is open */
} column_t;

/* From a tuple (data, bounds, validity, start), or None for a column without any value. */
static int open_column(PyObject *given, column_t *column) {
    PyObject *bounds, *validity;
    Py_ssize_t start;
    column->is_absent = true;
    column->count = 0;
    if (given == Py_None)
        return 0;
    if (!PyTuple_Check(given)) {
        PyErr_SetString(PyExc_TypeError, "A column is a tuple of data, bounds, validity and start.");
        return -1;
    }
    if (!PyArg_ParseTuple(given, "y*OOn", &column->data, &bounds, &validity, &start))
        return -1;
    if (open_numbers(bounds, &column->bounds) == 0) {
        column->count = column->bounds.count > 0 ? column->bounds.count - 1 : 0;
        if (open_validity(validity, start, column->count, &column->validity) == 0) {
            column->is_absent = false;
            return 0;
        }
        close_numbers(&column->bounds);
    }
    PyBuffer_Release(&column->data);
    return -1;
}

static void close_column(column_t *column) {
    if (column->is_absent)
        return;
    close_validity(&column->validity);
    close_numbers(&column->bounds);
    PyBuffer_Release(&column->data);
    column->is_absent = true;
}

static inline problem_t value_at(const column_t *column, Py_ssize_t place, value_t *value) {
    value->data = NULL;
    value->size = 0;
    if (column->is_absent)
        return NULL;
    if (place < 0 || place >= column->count)
        return OUTSIDE_COLUMN;
    if (!is_there(&column->validity, place))
        return NULL;
    int64_t start = number_at(&column->bounds, place), end = number_at(&column->bounds, place + 1);
    if (start < 0 || end < start || end > column->data.len)
        return OUTSIDE_DATA;
    /* A column of empty values may have no bytes at all, and no address. */
    value->data = column->data.buf == NULL ? (const uint8_t *)"" : column->data.buf;
    value->data += start;
    value->size = (Py_ssize_t)(end - start);
    return NULL;
}

/* ---- All columns of some records ---- */

/* A header that a record has once, if its column has a value for it. */
typedef struct {
    value_t name; /* of a bytes object that the caller's tuple holds */
    column_t contents;
} extra_t;

typedef struct {
    column_t keys, values;
    numbers_t lists; /* the bounds of each record's headers, among names and contents */
    validity_t lists_validity;
    column_t names, contents;
    bool has_lists;
    extra_t extras[EXTRAS_MAX];
    Py_ssize_t extra_count;
    numbers_t timestamps;
    const int64_t *times;
    Py_ssize_t count;
} columns_t;

static void close_columns(columns_t *columns) {
    while (columns->extra_count > 0)
        close_column(&columns->extras[--columns->extra_count].contents);
    close_column(&columns->contents);
    close_column(&columns->names);
    if (columns->has_lists) {
        close_validity(&columns->lists_validity);
        close_numbers(&columns->lists);
    }
    close_column(&columns->values);
    close_column(&columns->keys);
    if (columns->times != NULL)
        close_numbers(&columns->timestamps);
}

static int open_times(PyObject *given, columns_t *columns) {
    if (open_numbers(given, &columns->timestamps) < 0)
        return -1;
    if (!columns->timestamps.is_wide) {
        close_numbers(&columns->timestamps);
        PyErr_SetString(PyExc_TypeError, "Times are 64-bit numbers.");
        return -1;
    }
    static const int64_t none;
    columns->times = columns->timestamps.buffer.buf == NULL ? &none : columns->timestamps.buffer.buf;
    columns->count = columns->timestamps.count;
    return 0;
}

/* From a tuple (bounds, validity, start, names, contents), or None for records without headers. */
static int open_lists(PyObject *given, columns_t *columns) {
    PyObject *bounds, *validity, *names, *contents;
    Py_ssize_t start;
    if (given == Py_None)
        return 0;
    if (!PyTuple_Check(given)) {
        PyErr_SetString(PyExc_TypeError, "Headers are a tuple of five.");
        return -1;
    }
    if (!PyArg_ParseTuple(given, "OOnOO", &bounds, &validity, &start, &names, &contents) ||
        open_numbers(bounds, &columns->lists) < 0)
        return -1;
    Py_ssize_t count = columns->lists.count > 0 ? columns->lists.count - 1 : 0;
    if (open_validity(validity, start, count, &columns->lists_validity) < 0) {
        close_numbers(&columns->lists);
        return -1;
    }
    columns->has_lists = true;
    return open_column(names, &columns->names) < 0 ? -1 : open_column(contents, &columns->contents);
}

/* From a tuple of pairs (name, column). */
static int open_extras(PyObject *given, columns_t *columns) {
    if (!PyTuple_Check(given) || PyTuple_GET_SIZE(given) > EXTRAS_MAX) {
        PyErr_SetString(PyExc_ValueError, "Extra headers are a tuple of few columns.");
        return -1;
    }
    for (Py_ssize_t place = 0; place < PyTuple_GET_SIZE(given); place++) {
        PyObject *pair = PyTuple_GET_ITEM(given, place), *name, *column;
        if (!PyTuple_Check(pair)) {
            PyErr_SetString(PyExc_TypeError, "An extra header is a name and a column.");
            return -1;
        }
        extra_t *extra = &columns->extras[place];
        if (!PyArg_ParseTuple(pair, "SO", &name, &column) ||
            open_column(column, &extra->contents) < 0)
            return -1;
        extra->name.data = (const uint8_t *)PyBytes_AS_STRING(name);
        extra->name.size = PyBytes_GET_SIZE(name);
        columns->extra_count = place + 1;
    }
    return 0;
}

/* From a tuple (keys, values, headers, extras, times); after a failure there is nothing to close. */
static int open_columns(PyObject *given, columns_t *columns) {
    PyObject *keys, *values, *headers, *extras, *times;
    memset(columns, 0, sizeof *columns);
    columns->keys.is_absent = columns->values.is_absent = true;
    columns->names.is_absent = columns->contents.is_absent = true;
    if (!PyTuple_Check(given)) {
        PyErr_SetString(PyExc_TypeError, "Columns are a tuple of five.");
        return -1;
    }
    if (!PyArg_ParseTuple(given, "OOOOO", &keys, &values, &headers, &extras, &times))
        return -1;
    if (open_times(times, columns) == 0 && open_column(keys, &columns->keys) == 0 &&
        open_column(values, &columns->values) == 0 && open_lists(headers, columns) == 0 &&
        open_extras(extras, columns) == 0)
        return 0;
    close_columns(columns);
    return -1;
}

/* Where the headers of a record are among the names and contents. */
static inline problem_t headers_at(const columns_t *columns, Py_ssize_t place, span_t *span) {
    span->start = span->end = 0;
    if (!columns->has_lists)
        return NULL;
    if (place < 0 || place >= columns->lists.count - 1)
        return OUTSIDE_COLUMN;
    if (!is_there(&columns->lists_validity, place))
        return NULL;
    int64_t start = number_at(&columns->lists, place), end = number_at(&columns->lists, place + 1);
    if (start < 0 || end < start || end > columns->names.count)
        return OUTSIDE_DATA;
    span->start = (Py_ssize_t)start;
    span->end = (Py_ssize_t)end;
    return NULL;
}
