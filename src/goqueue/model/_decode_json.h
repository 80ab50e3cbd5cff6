/* Formats rows of JSON from columns, with the texts of records read in place. */
enum { JSON_COLUMNS_MAX = 16, JSON_NUMBER_BYTES = 24 };
enum { STEP_BYTES = 32 };

typedef struct {
    PyObject *bytes; /* NULL after a failure */
    char *at, *end;
} text_t;

static int begin_text(text_t *text, Py_ssize_t size) {
    text->bytes = size < 0 ? NULL : PyBytes_FromStringAndSize(NULL, size);
    if (text->bytes == NULL)
        return -1;
    text->at = PyBytes_AS_STRING(text->bytes);
    text->end = text->at + size;
    return 0;
}

static int make_room(text_t *text, Py_ssize_t more) {
    if (text->end - text->at >= more)
        return 0;
    Py_ssize_t length = text->at - PyBytes_AS_STRING(text->bytes);
    Py_ssize_t size = PyBytes_GET_SIZE(text->bytes);
    if (more > PY_SSIZE_T_MAX / 4 || size > PY_SSIZE_T_MAX / 4) {
        PyErr_NoMemory();
        return -1;
    }
    size += size > more ? size : more;
    if (_PyBytes_Resize(&text->bytes, size) < 0)
        return -1;
    text->at = PyBytes_AS_STRING(text->bytes) + length;
    text->end = PyBytes_AS_STRING(text->bytes) + size;
    return 0;
}

static int add_bytes(text_t *text, const void *bytes, Py_ssize_t count) {
    if (make_room(text, count) < 0)
        return -1;
    memcpy(text->at, bytes, (size_t)count);
    text->at += count;
    return 0;
}

static inline bool is_plain(uint8_t byte) {
    return byte >= 0x20 && byte < 0x80 && byte != '"' && byte != '\\';
}

/* Where the bytes end that JSON takes as they are: ASCII, no control, no quote, no backslash. */
static const uint8_t *plain_end(const uint8_t *at, const uint8_t *end) {
    for (; end - at >= STEP_BYTES; at += STEP_BYTES) {
        /* Without a way out in the middle a compiler makes a few vector instructions of this. */
        uint8_t has_others = 0;
        for (int place = 0; place < STEP_BYTES; place++)
            has_others |= (uint8_t)!is_plain(at[place]);
        if (has_others)
            break;
    }
    while (at < end && is_plain(*at))
        at++;
    return at;
}

static int add_escaped(text_t *text, uint8_t byte) {
    static const char digits[] = "0123456789abcdef";
    static const char shorts[] = "\"\"\\\\\bb\ff\nn\rr\tt"; /* the byte, and what stands for it */
    for (const char *pair = shorts; *pair; pair += 2) {
        if ((char)byte == pair[0])
            return add_bytes(text, (char[]){'\\', pair[1]}, 2);
    }
    return add_bytes(text, (char[]){'\\', 'u', '0', '0', digits[byte >> 4], digits[byte & 15]}, 6);
}

static int add_string(text_t *text, const uint8_t *data, field_t field) {
    if (field.start < 0)
        return add_bytes(text, "null", 4);
    const uint8_t *at = data + field.start, *end = data + field.end;
    if (make_room(text, end - at + 2) < 0)
        return -1;
    *text->at++ = '"';
    while (at < end) {
        const uint8_t *stop = plain_end(at, end);
        if (add_bytes(text, at, stop - at) < 0)
            return -1;
        at = stop;
        if (at < end && *at < 0x80) {
            if (add_escaped(text, *at++) < 0)
                return -1;
        }
        for (Py_ssize_t bytes; at < end && *at >= 0x80; at += bytes) {
            if ((bytes = character_bytes(at, end - at)) == 0) {
                PyErr_SetString(PyExc_ValueError, "A field is not UTF-8.");
                return -1;
            }
            if (add_bytes(text, at, bytes) < 0)
                return -1;
        }
    }
    return add_bytes(text, "\"", 1);
}

static int add_number(text_t *text, long long number) {
    char digits[24], *first = digits + sizeof digits;
    unsigned long long rest = (unsigned long long)number;
    if (number < 0)
        rest = 0 - rest;
    do {
        *--first = (char)('0' + rest % 10);
    } while ((rest /= 10) > 0);
    if (number < 0)
        *--first = '-';
    return add_bytes(text, first, digits + sizeof digits - first);
}

static int add_object(text_t *text, PyObject *object) {
    if (PyBytes_Check(object))
        return add_bytes(text, PyBytes_AS_STRING(object), PyBytes_GET_SIZE(object));
    long long number = PyLong_AsLongLong(object);
    if (number == -1 && PyErr_Occurred())
        return -1;
    return add_number(text, number);
}

/* A column of JSON: texts among the bytes of a batch, or numbers and bytes that are JSON already. */
typedef struct {
    fields_t fields;
    bool is_text;
    PyObject *items;
} json_column_t;

static void close_column(json_column_t *column) {
    Py_CLEAR(column->items);
    if (column->is_text)
        close_fields(&column->fields);
}

static int open_column(PyObject *given, Py_ssize_t count, json_column_t *column) {
    column->is_text = PyTuple_Check(given);
    if (column->is_text) {
        if (open_fields(given, &column->fields) < 0) {
            column->is_text = false;
            return -1;
        }
        column->items = Py_NewRef(column->fields.places);
    } else {
        column->items = PySequence_Fast(given, "A column is a sequence, or a tuple that names one.");
    }
    if (column->items != NULL && PySequence_Fast_GET_SIZE(column->items) == count)
        return 0;
    if (column->items != NULL)
        PyErr_SetString(PyExc_ValueError, "A column has more or fewer rows than there are.");
    return -1;
}

static int add_cell(text_t *text, const json_column_t *column, Py_ssize_t row) {
    PyObject *item = PySequence_Fast_GET_ITEM(column->items, row);
    if (!column->is_text)
        return add_object(text, item);
    field_t field;
    if (field_at(&column->fields, item, &field) < 0)
        return -1;
    return add_string(text, column->fields.source.data, field);
}

static int add_rows(text_t *text, PyObject *fragments, const json_column_t *columns,
                    Py_ssize_t column_count, Py_ssize_t row_count) {
    for (Py_ssize_t row = 0; row < row_count; row++) {
        if (row > 0 && add_bytes(text, ",", 1) < 0)
            return -1;
        for (Py_ssize_t column = 0; column <= column_count; column++) {
            if (add_object(text, PyTuple_GET_ITEM(fragments, column)) < 0 ||
                (column < column_count && add_cell(text, &columns[column], row) < 0))
                return -1;
        }
    }
    return 0;
}

/* About what the rows will need, so that they are rarely moved to a larger place. */
static Py_ssize_t expected_bytes(PyObject *fragments, const json_column_t *columns,
                                 Py_ssize_t column_count, Py_ssize_t row_count) {
    Py_ssize_t of_row = 1 + JSON_NUMBER_BYTES * column_count, of_texts = 0;
    for (Py_ssize_t number = 0; number <= column_count; number++) {
        PyObject *fragment = PyTuple_GET_ITEM(fragments, number);
        of_row += PyBytes_Check(fragment) ? PyBytes_GET_SIZE(fragment) : 0;
    }
    for (Py_ssize_t number = 0; number < column_count; number++) {
        const json_column_t *column = &columns[number];
        field_t field;
        for (Py_ssize_t row = 0; column->is_text && row < row_count; row++) {
            PyObject *place = PySequence_Fast_GET_ITEM(column->items, row);
            if (field_at(&column->fields, place, &field) < 0)
                return -1;
            of_texts += field.end - field.start;
        }
    }
    return of_texts + of_row * row_count;
}

PyDoc_STRVAR(json_rows_doc,
             "json_rows(fragments, columns, count)\n\n"
             "Rows of JSON with commas between them. A row is fragment, cell, fragment, cell and so\n"
             "on to the last fragment. A column is a sequence of numbers or of bytes that are JSON,\n"
             "or the arguments of `texts` as a tuple. ValueError if a text is not UTF-8.");

static PyObject *json_rows(PyObject *module, PyObject *arguments) {
    PyObject *fragments, *given;
    Py_ssize_t row_count, opened = 0;
    json_column_t columns[JSON_COLUMNS_MAX] = {0};
    (void)module;
    if (!PyArg_ParseTuple(arguments, "O!O!n", &PyTuple_Type, &fragments, &PyTuple_Type, &given,
                          &row_count))
        return NULL;
    Py_ssize_t column_count = PyTuple_GET_SIZE(given);
    if (row_count < 0 || column_count > JSON_COLUMNS_MAX ||
        PyTuple_GET_SIZE(fragments) != column_count + 1) {
        PyErr_SetString(PyExc_ValueError, "There must be one fragment more than columns.");
        return NULL;
    }
    text_t text = {NULL, NULL, NULL};
    bool is_sound = true;
    for (; is_sound && opened < column_count; opened++)
        is_sound = open_column(PyTuple_GET_ITEM(given, opened), row_count, &columns[opened]) == 0;
    if (is_sound)
        is_sound = begin_text(&text, expected_bytes(fragments, columns, column_count, row_count)) == 0 &&
                   add_rows(&text, fragments, columns, column_count, row_count) == 0;
    for (Py_ssize_t column = 0; column < opened; column++)
        close_column(&columns[column]);
    if (is_sound)
        _PyBytes_Resize(&text.bytes, text.at - PyBytes_AS_STRING(text.bytes));
    else
        Py_CLEAR(text.bytes);
    return text.bytes;
}
