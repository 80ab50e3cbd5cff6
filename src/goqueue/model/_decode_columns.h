/* Records of many batches as columns in Arrow's layout; a part of `_decode.c`.
 *
 * Every byte of a requested field is copied once, from its batch to its column, as it is decoded.
 * Memory for as much as the batches can hold is allocated beforehand, and trimmed at the end, so
 * that the pass itself allocates nothing and can release the interpreter lock.
 */
enum { WANTS_KEYS = 1, WANTS_VALUES = 2, WANTS_HEADERS = 4 };
enum { HEADER_BYTES_MIN = 2 }; /* the lengths of its name and of its content */

/* One batch: its records' bytes, how many they are, and where it begins. */
typedef struct {
    source_t source;
    base_t base;
} part_t;

typedef struct {
    part_t *parts;
    Py_ssize_t count, records, bytes; /* of all of them */
} parts_t;

/* A column of bytes: `bounds` has one number more than there are rows. */
typedef struct {
    PyObject *bounds, *content, *present;
    int32_t *bound;
    uint8_t *byte, *bit;
    Py_ssize_t rows;
    int32_t size;
    bool has_absent;
} binary_t;

typedef struct {
    PyObject *offsets, *timestamps, *types;
    int64_t *offset, *timestamp;
    int32_t *type;
    Py_ssize_t rows;
    binary_t keys, values;
    binary_t header_names, header_values;
    binary_t headers; /* whose bounds count headers, and which has no content of its own */
} table_t;

/* ---- Room ---- */

/* A bytes object of so many numbers or bytes, and where they are; NULL after a failure. */
static void *new_room(PyObject **bytes, Py_ssize_t size) {
    *bytes = PyBytes_FromStringAndSize(NULL, size);
    return *bytes == NULL ? NULL : PyBytes_AS_STRING(*bytes);
}

static int new_binary(binary_t *column, Py_ssize_t rows_max, Py_ssize_t bytes_max) {
    column->bound = new_room(&column->bounds, (Py_ssize_t)sizeof(int32_t) * (rows_max + 1));
    column->byte = new_room(&column->content, bytes_max);
    column->bit = new_room(&column->present, rows_max / 8 + 1);
    if (column->bound == NULL || column->byte == NULL || column->bit == NULL)
        return -1;
    column->bound[0] = 0;
    memset(column->bit, 0, (size_t)rows_max / 8 + 1);
    return 0;
}

static void drop_binary(binary_t *column) {
    Py_CLEAR(column->bounds);
    Py_CLEAR(column->content);
    Py_CLEAR(column->present);
}

static void drop_table(table_t *table) {
    Py_CLEAR(table->offsets);
    Py_CLEAR(table->timestamps);
    Py_CLEAR(table->types);
    binary_t *columns[] = {&table->keys, &table->values, &table->headers, &table->header_names,
                           &table->header_values};
    for (size_t column = 0; column < sizeof columns / sizeof *columns; column++)
        drop_binary(columns[column]);
}

static int new_table(table_t *table, const parts_t *parts, int wanted) {
    Py_ssize_t rows = parts->records, bytes = parts->bytes;
    memset(table, 0, sizeof *table);
    table->offset = new_room(&table->offsets, (Py_ssize_t)sizeof(int64_t) * rows);
    table->timestamp = new_room(&table->timestamps, (Py_ssize_t)sizeof(int64_t) * rows);
    table->type = new_room(&table->types, (Py_ssize_t)sizeof(int32_t) * rows);
    if (table->offset == NULL || table->timestamp == NULL || table->type == NULL ||
        ((wanted & WANTS_KEYS) && new_binary(&table->keys, rows, bytes) < 0) ||
        ((wanted & WANTS_VALUES) && new_binary(&table->values, rows, bytes) < 0))
        return -1;
    if (!(wanted & WANTS_HEADERS))
        return 0;
    Py_ssize_t headers = bytes / HEADER_BYTES_MIN;
    return new_binary(&table->headers, rows, 0) < 0 ||
                   new_binary(&table->header_names, headers, bytes) < 0 ||
                   new_binary(&table->header_values, headers, bytes) < 0
               ? -1
               : 0;
}

/* ---- Filling ---- */

static inline void end_row(binary_t *column, bool is_present) {
    Py_ssize_t row = column->rows++;
    if (is_present)
        column->bit[row >> 3] |= (uint8_t)(1 << (row & 7));
    else
        column->has_absent = true;
    column->bound[column->rows] = column->size;
}

static inline void add_field(binary_t *column, const uint8_t *data, field_t field) {
    if (field.start >= 0) {
        size_t length = (size_t)(field.end - field.start);
        memcpy(column->byte + column->size, data + field.start, length);
        column->size += (int32_t)length;
    }
    end_row(column, field.start >= 0);
}

/* The record has been read, and its headers are where they say. */
static void add_headers(table_t *table, const uint8_t *data, const record_t *record) {
    Py_ssize_t at = record->headers_start;
    int64_t count = 0;
    (void)read_header_count(data, &at, record->end, &count);
    for (int64_t number = 0; number < count; number++) {
        field_t name = {-1, -1}, content = {-1, -1};
        (void)read_field(data, &at, record->end, &name);
        (void)read_field(data, &at, record->end, &content);
        add_field(&table->header_names, data, name);
        add_field(&table->header_values, data, content);
    }
    table->headers.size += (int32_t)count;
    end_row(&table->headers, count > 0);
}

static problem_t add_part(table_t *table, part_t *part, int64_t start, int64_t end) {
    source_t *source = &part->source;
    for (Py_ssize_t place = 0; place < source->count; place++) {
        record_t record;
        Py_ssize_t row = table->rows;
        problem_t problem = read_record(source->data, &source->at, source->size, &record);
        if (problem == NULL)
            problem = place_record(&record, &part->base, &table->offset[row], &table->timestamp[row]);
        if (problem != NULL)
            return problem;
        if (table->offset[row] < start || table->offset[row] >= end)
            continue;
        table->type[row] = part->base.has_append_time;
        table->rows++;
        if (table->keys.bounds != NULL)
            add_field(&table->keys, source->data, record.key);
        if (table->values.bounds != NULL)
            add_field(&table->values, source->data, record.value);
        if (table->headers.bounds != NULL)
            add_headers(table, source->data, &record);
    }
    return source->at == source->size ? NULL : BYTES_LEFT;
}

/* ---- What Python gives ---- */

static void close_parts(parts_t *parts) {
    for (Py_ssize_t number = 0; number < parts->count; number++)
        PyBuffer_Release(&parts->parts[number].source.buffer);
    PyMem_Free(parts->parts);
}

static int open_part(PyObject *given, part_t *part) {
    PyObject *append_time;
    source_t *source = &part->source;
    source->at = 0;
    if (!PyTuple_Check(given)) {
        PyErr_SetString(PyExc_TypeError, "A batch is a tuple of its bytes and where they belong.");
        return -1;
    }
    if (!PyArg_ParseTuple(given, "y*nLLO", &source->buffer, &source->count, &part->base.offset,
                          &part->base.timestamp, &append_time) ||
        check_source(source) < 0)
        return -1;
    if (source->count < 0)
        source->count = 0;
    /* A batch may promise more records than there are bytes, and must not get memory for them. */
    if (source->count > source->size / (RECORD_BYTES_MIN + 1))
        refuse(BEYOND_BATCH);
    else if (read_append_time(append_time, &part->base))
        return 0;
    PyBuffer_Release(&source->buffer);
    return -1;
}

/* 0, or -1 with an exception set; `close_parts` has to follow in both cases. */
static int open_parts(PyObject *given, parts_t *parts) {
    memset(parts, 0, sizeof *parts);
    PyObject *sequence = PySequence_Fast(given, "Batches are tuples in a row.");
    Py_ssize_t count = sequence == NULL ? 0 : PySequence_Fast_GET_SIZE(sequence);
    if (sequence != NULL && (parts->parts = PyMem_Calloc((size_t)count + 1, sizeof(part_t))) == NULL)
        PyErr_NoMemory();
    while (parts->parts != NULL && parts->count < count) {
        part_t *part = &parts->parts[parts->count];
        if (open_part(PySequence_Fast_GET_ITEM(sequence, parts->count), part) < 0)
            break;
        parts->count++;
        parts->records += part->source.count;
        parts->bytes += part->source.size;
        if (parts->bytes > INT32_MAX) {
            PyErr_SetString(PyExc_ValueError, "The batches have more bytes than fit one column.");
            break;
        }
    }
    Py_XDECREF(sequence);
    return PyErr_Occurred() ? -1 : 0;
}

/* ---- What Python gets ---- */

static PyObject *none(void) { return Py_NewRef(Py_None); }

/* Hands out a bytes object of which only a part has been filled. */
static PyObject *filled(PyObject **room, Py_ssize_t size) {
    PyObject *bytes = *room;
    *room = NULL;
    return bytes == NULL || _PyBytes_Resize(&bytes, size) < 0 ? NULL : bytes;
}

static PyObject *binary_of(binary_t *column) {
    if (column->bounds == NULL)
        return none();
    Py_ssize_t bounds_bytes = (Py_ssize_t)sizeof(int32_t) * (column->rows + 1);
    PyObject *present = column->has_absent ? filled(&column->present, (column->rows + 7) / 8) : none();
    return Py_BuildValue("(NNN)", filled(&column->bounds, bounds_bytes),
                         filled(&column->content, column->size), present);
}

static PyObject *headers_column(table_t *table) {
    binary_t *headers = &table->headers;
    if (headers->bounds == NULL)
        return none();
    headers->size = 0; /* it counted headers, and has no bytes */
    return Py_BuildValue("(NNN)", binary_of(headers), binary_of(&table->header_names),
                         binary_of(&table->header_values));
}

static PyObject *table_of(table_t *table) {
    Py_ssize_t rows = table->rows;
    return Py_BuildValue("(NNNNNN)",
                         filled(&table->offsets, (Py_ssize_t)sizeof(int64_t) * rows),
                         filled(&table->timestamps, (Py_ssize_t)sizeof(int64_t) * rows),
                         filled(&table->types, (Py_ssize_t)sizeof(int32_t) * rows),
                         binary_of(&table->keys), binary_of(&table->values), headers_column(table));
}

PyDoc_STRVAR(columns_doc,
             "columns(batches, start, end, wanted)\n\n"
             "The records from one offset up to another of batches, which are tuples of the\n"
             "arguments of `index`, as columns for Arrow: offsets, timestamps, whether a time is\n"
             "the broker's, keys, values and headers. `wanted` says which of the last three.");

static PyObject *columns(PyObject *module, PyObject *arguments) {
    PyObject *given, *answer = NULL;
    long long start, end;
    int wanted;
    parts_t parts;
    table_t table;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "OLLi", &given, &start, &end, &wanted))
        return NULL;
    if (open_parts(given, &parts) == 0 ) {
        problem_t problem = NULL;
        if (new_table(&table, &parts, wanted) == 0) {
            Py_BEGIN_ALLOW_THREADS
            for (Py_ssize_t number = 0; problem == NULL && number < parts.count; number++)
                problem = add_part(&table, &parts.parts[number], start, end);
            Py_END_ALLOW_THREADS
            answer = problem == NULL ? table_of(&table) : refuse(problem);
        }
        drop_table(&table);
    }
    close_parts(&parts);
    return answer;
}
