/* Checksums of many fields at once; a part of `_decode.c`.
 *
 * The CRC-32C instruction has a latency of three cycles and a throughput of one per cycle, so three
 * fields are processed in parallel.
 */
#include "_crc.h"

enum { CRC_LANES = 3 };

#if HAS_CRC_INSTRUCTION
static WITH_CRC void add_in_step(lane_t *lanes) {
    Py_ssize_t least = lanes[0].left;
    for (int lane = 1; lane < CRC_LANES; lane++)
        least = lanes[lane].left < least ? lanes[lane].left : least;
    lane_t first = lanes[0], second = lanes[1], third = lanes[2];
    for (Py_ssize_t word = least / (Py_ssize_t)sizeof(uint64_t); word > 0; word--) {
        add_word(&first);
        add_word(&second);
        add_word(&third);
    }
    lanes[0] = first, lanes[1] = second, lanes[2] = third;
    for (int lane = 0; lane < CRC_LANES; lane++)
        finish_fast(&lanes[lane]);
}

#else
static void add_in_step(lane_t *lanes) { (void)lanes; }
#endif

/* The checksums of the rows from `bounds[0]` to `bounds[1]`, to `bounds[2]` and so on. */
static void sum_rows(const uint8_t *data, const int32_t *bounds, Py_ssize_t rows, uint32_t *sums) {
    bool is_fast = has_crc_instruction();
    for (Py_ssize_t row = 0; row < rows; row += CRC_LANES) {
        lane_t lanes[CRC_LANES] = {{NULL, 0, 0}};
        Py_ssize_t count = rows - row < CRC_LANES ? rows - row : CRC_LANES;
        for (Py_ssize_t lane = 0; lane < count; lane++) {
            Py_ssize_t place = row + lane;
            lanes[lane] = (lane_t){data + bounds[place], bounds[place + 1] - bounds[place], UINT32_MAX};
        }
        if (is_fast)
            add_in_step(lanes);
        for (Py_ssize_t lane = 0; lane < count; lane++) {
            finish_plainly(&lanes[lane]);
            sums[row + lane] = (uint32_t)lanes[lane].crc ^ UINT32_MAX;
        }
    }
}

static bool are_bounds(const int32_t *bounds, Py_ssize_t rows, Py_ssize_t size) {
    if (bounds[0] < 0 || bounds[rows] > size)
        return false;
    for (Py_ssize_t row = 0; row < rows; row++) {
        if (bounds[row + 1] < bounds[row])
            return false;
    }
    return true;
}

PyDoc_STRVAR(checksums_doc,
             "checksums(data, bounds)\n\n"
             "The CRC-32C of the bytes from each of the bounds to the next, as 32-bit numbers.");

static PyObject *checksums(PyObject *module, PyObject *arguments) {
    source_t source = {.at = 0};
    PyObject *column, *sums = NULL;
    Py_buffer bounds;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "y*O", &source.buffer, &column) || check_source(&source) < 0)
        return NULL;
    if (get_numbers(column, &bounds) == 0) {
        Py_ssize_t rows = bounds.len / (Py_ssize_t)sizeof(int32_t) - 1;
        if (rows < 0 || !are_bounds(bounds.buf, rows, source.size))
            PyErr_SetString(PyExc_ValueError, "The bounds lie outside the bytes, or out of order.");
        else if ((sums = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)sizeof(uint32_t) * rows)) != NULL) {
            Py_BEGIN_ALLOW_THREADS
            sum_rows(source.data, bounds.buf, rows, (uint32_t *)(void *)PyBytes_AS_STRING(sums));
            Py_END_ALLOW_THREADS
        }
        PyBuffer_Release(&bounds);
    }
    PyBuffer_Release(&source.buffer);
    return sums;
}
