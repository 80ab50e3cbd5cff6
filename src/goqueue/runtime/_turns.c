/* What many sockets have brought, and what is for many of them, in one call each.
 *
 * This is `turn_reference.py` once more, with the same names, arguments and answers, which the
 * tests compare; where this module cannot be built, that one is used. The lock of the interpreter
 * is let go once for all system calls, not once for each.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <errno.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/socket.h>

enum { READY_MAX = 256, APART = -1 };

/* ---- Receiving ---- */

typedef struct {
    PyObject *connection;
    int descriptor;
    bool is_apart;
    Py_ssize_t start, received;
} row_t;

/* Find out whose socket is ready: 1 if that is known, 0 if not, -1 with an exception set. */
static int identify(row_t *row, PyObject *connections, PyObject *apart) {
    PyObject *key = PyLong_FromLong(row->descriptor);
    if (key == NULL)
        return -1;
    row->connection = Py_XNewRef(PyDict_GetItemWithError(connections, key));
    int is_apart = row->connection == NULL || PySet_GET_SIZE(apart) == 0 ? 0 : PySet_Contains(apart, key);
    Py_DECREF(key);
    if (is_apart < 0 || PyErr_Occurred()) {
        Py_CLEAR(row->connection);
        return -1;
    }
    row->is_apart = is_apart == 1;
    return row->connection != NULL;
}

static Py_ssize_t identify_all(row_t *rows, const struct epoll_event *events, int ready,
                               PyObject *connections, PyObject *apart) {
    Py_ssize_t count = 0;
    for (int number = 0; number < ready; number++) {
        rows[count] = (row_t){.descriptor = events[number].data.fd, .start = APART};
        int found = identify(&rows[count], connections, apart);
        if (found < 0) {
            while (count > 0)
                Py_DECREF(rows[--count].connection);
            return -1;
        }
        count += found;
    }
    return count;
}

/* Receive for each row that is not apart, one after the other; no object is touched. */
static void receive_rows(row_t *rows, Py_ssize_t count, char *data, Py_ssize_t size, Py_ssize_t room_min) {
    Py_ssize_t at = 0;
    for (row_t *row = rows; row < rows + count && size - at >= room_min; row++) {
        if (row->is_apart)
            continue;
        ssize_t received = recv(row->descriptor, data + at, (size_t)(size - at), MSG_DONTWAIT);
        row->start = at;
        row->received = received < 0 ? -errno : received;
        if (received > 0)
            at += received;
    }
}

static int append_row(PyObject *list, const row_t *row) {
    PyObject *item = Py_BuildValue("Onn", row->connection, row->start, row->received);
    int done = item == NULL ? -1 : PyList_Append(list, item);
    Py_XDECREF(item);
    return done;
}

/* The rows that something is to be done about, those that are apart last; takes their references. */
static PyObject *list_rows(row_t *rows, Py_ssize_t count) {
    PyObject *list = PyList_New(0);
    for (row_t *row = rows; list != NULL && row < rows + count; row++)
        if (row->start != APART && append_row(list, row) < 0)
            Py_CLEAR(list);
    for (row_t *row = rows; list != NULL && row < rows + count; row++)
        if (row->is_apart && append_row(list, row) < 0)
            Py_CLEAR(list);
    for (row_t *row = rows; row < rows + count; row++)
        Py_DECREF(row->connection);
    return list;
}

PyDoc_STRVAR(receive_ready_doc,
             "receive_ready(epoll, connections, apart, buffer, room_min)\n\n"
             "Receive from all sockets that are ready, while there is room for so much: a "
             "connection, where its bytes start and how many they are, or a negative error, each.");

static PyObject *receive_ready(PyObject *module, PyObject *arguments) {
    PyObject *epoll, *connections, *apart;
    Py_buffer buffer;
    Py_ssize_t room_min;
    struct epoll_event events[READY_MAX];
    row_t rows[READY_MAX];
    (void)module;
    if (!PyArg_ParseTuple(arguments, "OO!O!w*n", &epoll, &PyDict_Type, &connections, &PySet_Type,
                          &apart, &buffer, &room_min))
        return NULL;
    PyObject *answer = NULL;
    int descriptor = PyObject_AsFileDescriptor(epoll);
    if (descriptor >= 0) {
        /* It does not wait. */
        int ready = epoll_wait(descriptor, events, READY_MAX, 0);
        Py_ssize_t count = -1;
        if (ready < 0)
            PyErr_SetFromErrno(PyExc_OSError);
        else
            count = identify_all(rows, events, ready, connections, apart);
        if (count >= 0) {
            Py_BEGIN_ALLOW_THREADS
            receive_rows(rows, count, buffer.buf, buffer.len, room_min);
            Py_END_ALLOW_THREADS
            answer = list_rows(rows, count);
        }
    }
    PyBuffer_Release(&buffer);
    return answer;
}

/* ---- Sending ---- */

typedef struct {
    PyObject *bytes;
    int descriptor;
    Py_ssize_t sent;
} piece_t;

/* Take the pieces, each with a reference; how many were taken before something was wrong. */
static Py_ssize_t take_pieces(piece_t *pieces, PyObject *descriptors, PyObject *bytes) {
    Py_ssize_t count = PyList_GET_SIZE(bytes), taken = 0;
    for (; taken < count; taken++) {
        PyObject *piece = PyList_GET_ITEM(bytes, taken);
        long descriptor = PyLong_AsLong(PyList_GET_ITEM(descriptors, taken));
        if (descriptor == -1 && PyErr_Occurred())
            break;
        if (!PyBytes_Check(piece)) {
            PyErr_SetString(PyExc_TypeError, "Only bytes are sent.");
            break;
        }
        pieces[taken] = (piece_t){Py_NewRef(piece), (int)descriptor, 0};
    }
    return taken;
}

static void send_pieces(piece_t *pieces, Py_ssize_t count) {
    for (piece_t *piece = pieces; piece < pieces + count; piece++) {
        piece->sent = send(piece->descriptor, PyBytes_AS_STRING(piece->bytes),
                           (size_t)PyBytes_GET_SIZE(piece->bytes), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (piece->sent < 0)
            piece->sent = -errno;
    }
}

static PyObject *list_short(const piece_t *pieces, Py_ssize_t count) {
    PyObject *list = PyList_New(0);
    for (Py_ssize_t number = 0; list != NULL && number < count; number++) {
        if (pieces[number].sent == PyBytes_GET_SIZE(pieces[number].bytes))
            continue;
        PyObject *item = Py_BuildValue("nn", number, pieces[number].sent);
        if (item == NULL || PyList_Append(list, item) < 0)
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list;
}

PyDoc_STRVAR(send_all_doc,
             "send_all(descriptors, pieces)\n\n"
             "Send a piece to each; which of them did not go out whole, and how many bytes of them "
             "did, or a negative error.");

static PyObject *send_all(PyObject *module, PyObject *arguments) {
    PyObject *descriptors, *bytes, *answer = NULL;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "O!O!", &PyList_Type, &descriptors, &PyList_Type, &bytes))
        return NULL;
    Py_ssize_t count = PyList_GET_SIZE(bytes);
    if (PyList_GET_SIZE(descriptors) != count) {
        PyErr_SetString(PyExc_ValueError, "One of the lists is shorter than the other.");
        return NULL;
    }
    piece_t *pieces = PyMem_New(piece_t, (size_t)count);
    if (pieces == NULL)
        return PyErr_NoMemory();
    Py_ssize_t taken = take_pieces(pieces, descriptors, bytes);
    if (taken == count) {
        Py_BEGIN_ALLOW_THREADS
        send_pieces(pieces, count);
        Py_END_ALLOW_THREADS
        answer = list_short(pieces, count);
    }
    while (taken > 0)
        Py_DECREF(pieces[--taken].bytes);
    PyMem_Free(pieces);
    return answer;
}

/* ---- The module ---- */

static PyMethodDef functions[] = {
    {"receive_ready", receive_ready, METH_VARARGS, receive_ready_doc},
    {"send_all", send_all, METH_VARARGS, send_all_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "goqueue.runtime._turns",
    .m_doc = "Many sockets in one call; what turn_reference does, compiled.",
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC PyInit__turns(void) { return PyModule_Create(&module_definition); }
