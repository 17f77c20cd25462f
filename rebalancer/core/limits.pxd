cdef Py_ssize_t _IN_FLIGHT, _PARTS

cdef class LimitLists:
    cdef public const long long[::1] start, limit, amount

cdef class LimitArrays:
    cdef public long long[::1] used
    cdef public Py_ssize_t owners
    cdef public const long long[::1] counter
    cdef public long long[::1] most
    cdef public const long long[::1] strategy
    cdef public const unsigned char[::1] of_ready, of_open, closed
    cdef public LimitLists of_class, of_node
    cdef public long long[::1] spared

cpdef Py_ssize_t find_full(
    LimitArrays limits,
    Py_ssize_t cls,
    Py_ssize_t node,
    Py_ssize_t strategy,
    Py_ssize_t first,
    Py_ssize_t last,
    bint ready,
    Py_ssize_t itself,
    bint for_room,
) except? -1
cpdef bint is_about(
    LimitArrays limits, Py_ssize_t limit, Py_ssize_t node, Py_ssize_t strategy, bint ready
) except -1
cpdef long long count_left(LimitArrays limits, Py_ssize_t limit) except? -1
cpdef void count(
    LimitArrays limits, Py_ssize_t cls, Py_ssize_t node, Py_ssize_t strategy, Py_ssize_t first, bint ready
) except *
