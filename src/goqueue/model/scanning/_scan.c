/* Scans the batches of a log for keys and trace ids, without making objects of its records.
 *
 * This is `reference.py` in C, with the same names, arguments and results, which the tests
 * compare; if this module cannot be built, that one is used. Nothing here holds the interpreter lock
 * while it reads, because whole segments are read while the event loop goes on.
 */
#define _GNU_SOURCE /* for memmem */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../_records.h"
#include "../_search.h"

enum {
    LENGTH_AT = 8,
    LENGTH_PREFIX_BYTES = 12,
    MAGIC_AT = 16,
    ATTRIBUTES_AT = 21,
    LAST_DELTA_AT = 23,
    COUNT_AT = 57,
    HEADER_BYTES = 61,
    MAGIC = 2,
    CODEC_MASK = 7,
    CONTROL = 32,
};

/* Why a scan has stopped. */
enum { AT_END, AT_COMPRESSED, AT_DAMAGE };

enum { TRACE_BYTES = 32, PARENT_BYTES = 55, ROOT_HEAD = 7 };
enum { TRACE_TIME = 8 }; /* digits, which stand apart from the others in one of the two formats */

static PyObject *corrupt_batch;

typedef struct {
    const uint8_t *start; /* NULL for what is not there */
    Py_ssize_t size;
} span_t;

static inline uint32_t get_32(const uint8_t *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static inline int64_t get_64(const uint8_t *at) {
    return (int64_t)((uint64_t)get_32(at) << 32 | get_32(at + 4));
}

/* ---- Hashes ---- */

static const uint64_t MULTIPLIER = 0x9E3779B97F4A7C15u;
enum { KEY_SEED = 1, TRACE_SEED = 2 };

static uint64_t hash_of(const uint8_t *data, Py_ssize_t size, uint64_t seed) {
    uint64_t hash = (seed + (uint64_t)size) * MULTIPLIER;
    while (size > 0) {
        uint64_t word = 0;
        Py_ssize_t part = size < 8 ? size : 8;
        for (Py_ssize_t byte = 0; byte < part; byte++)
            word |= (uint64_t)data[byte] << 8 * byte;
        hash = (hash ^ word) * MULTIPLIER;
        hash ^= hash >> 32;
        data += part;
        size -= part;
    }
    hash *= MULTIPLIER;
    return hash ^ hash >> 29;
}

typedef struct {
    uint64_t *numbers;
    Py_ssize_t count, room;
    bool is_out_of_memory;
} numbers_t;

static void add_number(numbers_t *list, uint64_t number) {
    if (list->count == list->room) {
        Py_ssize_t room = list->room ? 2 * list->room : 1024;
        uint64_t *grown = realloc(list->numbers, (size_t)room * sizeof *grown);
        if (grown == NULL) {
            list->is_out_of_memory = true;
            return;
        }
        list->numbers = grown;
        list->room = room;
    }
    list->numbers[list->count++] = number;
}

static PyObject *bytes_of_numbers(numbers_t *list) {
    PyObject *bytes = NULL;
    if (list->is_out_of_memory)
        PyErr_NoMemory();
    else
        bytes = PyBytes_FromStringAndSize((const char *)list->numbers,
                                          list->count * (Py_ssize_t)sizeof *list->numbers);
    free(list->numbers);
    return bytes;
}

/* ---- Trace ids ---- */

static bool is_named(span_t name, const char *other) {
    return (size_t)name.size == strlen(other) && memcmp(name.start, other, (size_t)name.size) == 0;
}

/* Both formats require lower case, so that a trace id can be searched for as it is. */
static bool copy_hex(const uint8_t *from, int count, uint8_t *to) {
    for (int place = 0; place < count; place++) {
        uint8_t digit = from[place];
        if (!((digit >= '0' && digit <= '9') || (digit >= 'a' && digit <= 'f')))
            return false;
        to[place] = digit;
    }
    return true;
}

/* version-TRACE-parent-flags */
static bool read_parent(span_t content, uint8_t *trace) {
    const uint8_t *at = content.start;
    return content.size >= PARENT_BYTES && at[2] == '-' && at[35] == '-' &&
           copy_hex(at + 3, TRACE_BYTES, trace);
}

/* Root=1-TIME-REST;... */
static bool read_root(span_t content, uint8_t *trace) {
    const uint8_t *at = memmem(content.start, (size_t)content.size, "Root=1-", ROOT_HEAD);
    if (at == NULL || content.start + content.size - at < ROOT_HEAD + TRACE_BYTES + 1)
        return false;
    at += ROOT_HEAD;
    return at[TRACE_TIME] == '-' && copy_hex(at, TRACE_TIME, trace) &&
           copy_hex(at + TRACE_TIME + 1, TRACE_BYTES - TRACE_TIME, trace + TRACE_TIME);
}

static bool read_trace(span_t name, span_t content, uint8_t *trace) {
    if (content.start == NULL)
        return false;
    return (is_named(name, "traceparent") && read_parent(content, trace)) ||
           (is_named(name, "AWSTraceHeader") && read_root(content, trace));
}

/* ---- Records ---- */

typedef struct {
    const uint8_t *at, *end; /* of what follows */
    int64_t delta;
    span_t key, value;
    int64_t header_count;
} record_t;

static inline problem_t take_span(const uint8_t **at, const uint8_t *end, span_t *span) {
    int64_t length;
    problem_t problem = take_field(at, end, &length);
    if (problem != NULL)
        return problem;
    span->start = length < 0 ? NULL : *at - length;
    span->size = length < 0 ? 0 : (Py_ssize_t)length;
    return NULL;
}

/* A record up to its headers; `at` is moved behind the record. */
static inline problem_t open_record(const uint8_t **at, const uint8_t *end, record_t *record) {
    int64_t length, shift;
    problem_t problem = take_int(at, end, &length);
    if (problem != NULL)
        return problem;
    if (length < RECORD_BYTES_MIN || length > end - *at)
        return BEYOND_BATCH;
    record->at = *at + 1;
    record->end = *at += length;
    if ((problem = take_number(&record->at, record->end, LONG_BYTES_MAX, &shift)) != NULL ||
        (problem = take_int(&record->at, record->end, &record->delta)) != NULL ||
        (problem = take_span(&record->at, record->end, &record->key)) != NULL ||
        (problem = take_span(&record->at, record->end, &record->value)) != NULL ||
        (problem = take_int(&record->at, record->end, &record->header_count)) != NULL)
        return problem;
    return record->header_count < 0 || record->header_count > record->end - record->at
               ? HEADER_COUNT
               : NULL;
}

static inline problem_t take_header(record_t *record, span_t *name, span_t *content) {
    problem_t problem = take_span(&record->at, record->end, name);
    if (problem == NULL && name->start == NULL)
        problem = HEADER_NAME;
    return problem != NULL ? problem : take_span(&record->at, record->end, content);
}

static problem_t hash_record(record_t *record, numbers_t *hashes) {
    if (record->key.start != NULL)
        add_number(hashes, hash_of(record->key.start, record->key.size, KEY_SEED));
    for (; record->header_count > 0; record->header_count--) {
        span_t name, content;
        uint8_t trace[TRACE_BYTES];
        problem_t problem = take_header(record, &name, &content);
        if (problem != NULL)
            return problem;
        if (read_trace(name, content, trace))
            add_number(hashes, hash_of(trace, TRACE_BYTES, TRACE_SEED));
    }
    return record->at == record->end ? NULL : NOT_FILLED;
}

/* ---- What is looked for: a record must satisfy each condition that is there ---- */

typedef struct {
    Py_buffer key, trace, name, content, text;
    span_t needle; /* occurs in the bytes of any batch that has such a record */
} wanted_t;

static bool is_equal(span_t found, const Py_buffer *wanted) {
    return found.start != NULL && found.size == wanted->len &&
           memcmp(found.start, wanted->buf, (size_t)found.size) == 0;
}

static bool has_text(span_t found, const Py_buffer *text) {
    return found.start != NULL &&
           has_bytes(found.start, (size_t)found.size, text->buf, (size_t)text->len);
}

static problem_t match_record(record_t *record, const wanted_t *wanted, bool *is_match) {
    bool has_trace = wanted->trace.buf == NULL, has_header = wanted->name.buf == NULL;
    bool contains = wanted->text.buf == NULL;
    bool has_key = wanted->key.buf == NULL || is_equal(record->key, &wanted->key);
    contains = contains || has_text(record->key, &wanted->text) ||
               has_text(record->value, &wanted->text);
    for (; record->header_count > 0; record->header_count--) {
        span_t name, content;
        uint8_t trace[TRACE_BYTES];
        problem_t problem = take_header(record, &name, &content);
        if (problem != NULL)
            return problem;
        has_trace = has_trace || (read_trace(name, content, trace) &&
                                  memcmp(trace, wanted->trace.buf, TRACE_BYTES) == 0);
        has_header = has_header ||
                     (is_equal(name, &wanted->name) && (wanted->content.buf == NULL ||
                                                        is_equal(content, &wanted->content)));
        contains = contains || has_text(content, &wanted->text);
    }
    *is_match = has_key && has_trace && has_header && contains;
    return record->at == record->end ? NULL : NOT_FILLED;
}

/* ---- Batches ---- */

typedef problem_t visit_t(const uint8_t *payload, const uint8_t *end, int64_t count, int64_t offset,
                          const wanted_t *wanted, numbers_t *found);

static problem_t hash_all(const uint8_t *payload, const uint8_t *end, int64_t count, int64_t offset,
                          const wanted_t *wanted, numbers_t *found) {
    (void)offset, (void)wanted;
    for (; count > 0; count--) {
        record_t record;
        problem_t problem = open_record(&payload, end, &record);
        if (problem == NULL)
            problem = hash_record(&record, found);
        if (problem != NULL)
            return problem;
    }
    return payload == end ? NULL : BYTES_LEFT;
}

static problem_t match_all(const uint8_t *payload, const uint8_t *end, int64_t count, int64_t offset,
                           const wanted_t *wanted, numbers_t *found) {
    if (!has_bytes(payload, (size_t)(end - payload), wanted->needle.start,
                   (size_t)wanted->needle.size))
        return NULL;
    for (; count > 0; count--) {
        record_t record;
        bool is_match;
        problem_t problem = open_record(&payload, end, &record);
        if (problem == NULL)
            problem = match_record(&record, wanted, &is_match);
        if (problem != NULL)
            return problem;
        if (is_match)
            add_number(found, (uint64_t)offset + (uint64_t)record.delta);
    }
    return payload == end ? NULL : BYTES_LEFT;
}

typedef struct {
    Py_buffer buffer;
    Py_ssize_t at, last; /* where the next batch begins, and where the last one did */
    int64_t offset;      /* of the next batch */
} walk_t;

/* Visit whole batches up to the end, a compressed batch, or what is not the batch that must follow. */
static int walk_batches(walk_t *walk, visit_t *visit, const wanted_t *wanted, numbers_t *found) {
    const uint8_t *data = walk->buffer.buf;
    walk->last = -1;
    while (walk->buffer.len - walk->at >= HEADER_BYTES && !found->is_out_of_memory) {
        const uint8_t *batch = data + walk->at;
        int64_t size = (int64_t)(int32_t)get_32(batch + LENGTH_AT) + LENGTH_PREFIX_BYTES;
        int32_t last_delta = (int32_t)get_32(batch + LAST_DELTA_AT);
        int32_t count = (int32_t)get_32(batch + COUNT_AT);
        int64_t next;
        if (__builtin_add_overflow(walk->offset, (int64_t)last_delta + 1, &next) ||
            get_64(batch) != walk->offset || batch[MAGIC_AT] != MAGIC || size < HEADER_BYTES ||
            last_delta < 0 || count < 0)
            return AT_DAMAGE;
        if (size > walk->buffer.len - walk->at)
            return AT_END;
        uint8_t attributes = batch[ATTRIBUTES_AT + 1];
        if (!(attributes & CONTROL) && count > 0) {
            if (attributes & CODEC_MASK)
                return AT_COMPRESSED;
            Py_ssize_t before = found->count;
            if (visit(batch + HEADER_BYTES, batch + size, count, walk->offset, wanted, found) !=
                NULL) {
                found->count = before;
                return AT_DAMAGE;
            }
        }
        walk->last = walk->at;
        walk->at += (Py_ssize_t)size;
        walk->offset = next;
    }
    return AT_END;
}

static PyObject *refuse(problem_t problem) {
    PyErr_SetString(corrupt_batch, problem);
    return NULL;
}

static int check_walk(walk_t *walk) {
    if (walk->at >= 0 && walk->at <= walk->buffer.len)
        return 0;
    PyErr_SetString(PyExc_ValueError, "The position lies outside the bytes.");
    return -1;
}

static PyObject *list_of_numbers(numbers_t *list) {
    PyObject *offsets = list->is_out_of_memory ? PyErr_NoMemory() : PyList_New(list->count);
    for (Py_ssize_t place = 0; offsets != NULL && place < list->count; place++) {
        PyObject *offset = PyLong_FromLongLong((long long)list->numbers[place]);
        if (offset == NULL)
            Py_CLEAR(offsets);
        else
            PyList_SET_ITEM(offsets, place, offset);
    }
    free(list->numbers);
    return offsets;
}

static PyObject *result_of(PyObject *found, const walk_t *walk, int stop) {
    return found == NULL ? NULL : Py_BuildValue("NnLin", found, walk->at, (long long)walk->offset,
                                               stop, walk->last);
}

PyDoc_STRVAR(hashes_doc,
             "hashes(data, position, offset)\n\n"
             "The hashes of the keys and trace ids in the batches from a position on, as bytes of\n"
             "64-bit numbers; where the scan has stopped, at which offset, and why; and where the\n"
             "last batch begins, or -1.");

static PyObject *hashes(PyObject *module, PyObject *arguments) {
    walk_t walk;
    long long offset;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "y*nL", &walk.buffer, &walk.at, &offset))
        return NULL;
    walk.offset = offset;
    PyObject *result = NULL;
    if (check_walk(&walk) == 0) {
        numbers_t found = {0};
        int stop;
        Py_BEGIN_ALLOW_THREADS
        stop = walk_batches(&walk, hash_all, NULL, &found);
        Py_END_ALLOW_THREADS
        result = result_of(bytes_of_numbers(&found), &walk, stop);
    }
    PyBuffer_Release(&walk.buffer);
    return result;
}

PyDoc_STRVAR(record_hashes_doc, "record_hashes(payload, count)\n\n"
                                "The hashes of the keys and trace ids of decompressed records.");

static PyObject *record_hashes(PyObject *module, PyObject *arguments) {
    Py_buffer payload;
    Py_ssize_t count;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "y*n", &payload, &count))
        return NULL;
    numbers_t found = {0};
    problem_t problem;
    Py_BEGIN_ALLOW_THREADS
    problem = hash_all(payload.buf, (const uint8_t *)payload.buf + payload.len, count, 0, NULL, &found);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&payload);
    PyObject *bytes = bytes_of_numbers(&found);
    if (problem != NULL)
        Py_CLEAR(bytes);
    return problem == NULL ? bytes : refuse(problem);
}

/* ---- Searching ---- */

static void choose_needle(wanted_t *wanted) {
    const Py_buffer *all[] = {&wanted->key, &wanted->name, &wanted->content, &wanted->text};
    wanted->needle = (span_t){(const uint8_t *)"", 0};
    if (wanted->trace.buf != NULL)
        wanted->needle = (span_t){(const uint8_t *)wanted->trace.buf + TRACE_TIME,
                                  TRACE_BYTES - TRACE_TIME};
    for (size_t number = 0; number < sizeof all / sizeof *all; number++) {
        if (all[number]->buf != NULL && all[number]->len > wanted->needle.size)
            wanted->needle = (span_t){all[number]->buf, all[number]->len};
    }
}

static int open_wanted(wanted_t *wanted) {
    if (wanted->trace.buf != NULL && wanted->trace.len != TRACE_BYTES) {
        PyErr_SetString(PyExc_ValueError, "A trace id has 32 digits.");
        return -1;
    }
    choose_needle(wanted);
    return 0;
}

static void close_wanted(wanted_t *wanted) {
    PyBuffer_Release(&wanted->key);
    PyBuffer_Release(&wanted->trace);
    PyBuffer_Release(&wanted->name);
    PyBuffer_Release(&wanted->content);
    PyBuffer_Release(&wanted->text);
}

PyDoc_STRVAR(find_doc,
             "find(data, position, offset, key, trace, name, content, text)\n\n"
             "The offsets of the records in the batches from a position on that satisfy all given\n"
             "conditions; where the scan has stopped, at which offset, and why; and where the last\n"
             "batch begins, or -1.");

static PyObject *find(PyObject *module, PyObject *arguments) {
    walk_t walk;
    wanted_t wanted;
    long long offset;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "y*nLz*z*z*z*z*", &walk.buffer, &walk.at, &offset, &wanted.key,
                          &wanted.trace, &wanted.name, &wanted.content, &wanted.text))
        return NULL;
    PyObject *result = NULL;
    walk.offset = offset;
    if (check_walk(&walk) == 0 && open_wanted(&wanted) == 0) {
        numbers_t found = {0};
        int stop;
        Py_BEGIN_ALLOW_THREADS
        stop = walk_batches(&walk, match_all, &wanted, &found);
        Py_END_ALLOW_THREADS
        result = result_of(list_of_numbers(&found), &walk, stop);
    }
    close_wanted(&wanted);
    PyBuffer_Release(&walk.buffer);
    return result;
}

PyDoc_STRVAR(find_records_doc, "find_records(payload, count, offset, key, trace, name, content, text)\n\n"
                               "The same for decompressed records; `offset` is that of their batch.");

static PyObject *find_records(PyObject *module, PyObject *arguments) {
    Py_buffer payload;
    Py_ssize_t count;
    long long offset;
    wanted_t wanted;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "y*nLz*z*z*z*z*", &payload, &count, &offset, &wanted.key,
                          &wanted.trace, &wanted.name, &wanted.content, &wanted.text))
        return NULL;
    PyObject *offsets = NULL;
    if (open_wanted(&wanted) == 0) {
        numbers_t found = {0};
        problem_t problem;
        Py_BEGIN_ALLOW_THREADS
        problem = match_all(payload.buf, (const uint8_t *)payload.buf + payload.len, count, offset,
                            &wanted, &found);
        Py_END_ALLOW_THREADS
        offsets = list_of_numbers(&found);
        if (problem != NULL) {
            Py_CLEAR(offsets);
            refuse(problem);
        }
    }
    close_wanted(&wanted);
    PyBuffer_Release(&payload);
    return offsets;
}

/* ---- Bloom filters ---- */

enum { BITS_PER_HASH = 10, PROBES = 7, FILTER_BYTES_MIN = 8 };

PyDoc_STRVAR(bloom_doc, "bloom(hashes)\n\nA Bloom filter of hashes, with ten bits for each.");

static PyObject *bloom(PyObject *module, PyObject *arguments) {
    Py_buffer hashes;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "y*", &hashes))
        return NULL;
    Py_ssize_t count = hashes.len / (Py_ssize_t)sizeof(uint64_t);
    Py_ssize_t size = (count * BITS_PER_HASH + 7) / 8;
    if (size < FILTER_BYTES_MIN)
        size = FILTER_BYTES_MIN;
    PyObject *filter = PyBytes_FromStringAndSize(NULL, size);
    if (filter != NULL) {
        uint8_t *bits = (uint8_t *)PyBytes_AS_STRING(filter);
        Py_BEGIN_ALLOW_THREADS
        memset(bits, 0, (size_t)size);
        for (Py_ssize_t number = 0; number < count; number++) {
            uint64_t hash;
            memcpy(&hash, (const uint8_t *)hashes.buf + number * (Py_ssize_t)sizeof hash, sizeof hash);
            uint32_t place = (uint32_t)hash, step = (uint32_t)(hash >> 32) | 1;
            for (int probe = 0; probe < PROBES; probe++, place += step) {
                uint64_t bit = (uint64_t)place * ((uint64_t)size * 8) >> 32;
                bits[bit / 8] |= (uint8_t)(1 << bit % 8);
            }
        }
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&hashes);
    return filter;
}

static PyMethodDef functions[] = {
    {"hashes", hashes, METH_VARARGS, hashes_doc},
    {"record_hashes", record_hashes, METH_VARARGS, record_hashes_doc},
    {"find", find, METH_VARARGS, find_doc},
    {"find_records", find_records, METH_VARARGS, find_records_doc},
    {"bloom", bloom, METH_VARARGS, bloom_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "goqueue.model.scanning._scan",
    .m_doc = "Keys and trace ids in the batches of a log; what reference.py does, compiled.",
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC PyInit__scan(void) {
    PyObject *errors = PyImport_ImportModule("goqueue.model.errors");
    if (errors == NULL)
        return NULL;
    corrupt_batch = PyObject_GetAttrString(errors, "CorruptBatch");
    Py_DECREF(errors);
    return corrupt_batch == NULL ? NULL : PyModule_Create(&module_definition);
}
