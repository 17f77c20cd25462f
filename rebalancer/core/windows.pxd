cdef Py_ssize_t _MAX_KINDS

cdef class LandingShares:
    cdef public long long round
    cdef public long long[::1] value, table, number, written
    cdef public double[::1] begun, left, running, ended

cdef class Ring:
    cdef public Py_ssize_t count, windows, size
    cdef public long long[::1] nodes, rank, kind, first, sorted, times, queue
    cdef public double[::1] weight, chance
    cdef public LandingShares shares

cpdef void weigh_windows(Ring ring, Py_ssize_t nodes, Py_ssize_t most) except *
cpdef void slide(
    Ring ring, const long long[::1] values, long long sign, long long[::1] extremes, Py_ssize_t offset
) except *
cdef bint _is_even(const long long[::1] values, Py_ssize_t count) except -1
cpdef void fill(Ring ring, long long[::1] extremes, Py_ssize_t offset, long long value) except *
cpdef void count_distinct(
    Ring ring,
    const long long[::1] labels,
    const unsigned char[::1] ignored,
    long long[::1] seen,
    long long[::1] distinct,
    Py_ssize_t offset,
) except *
cpdef Py_ssize_t number_kinds(Ring ring, const long long[::1] extremes, Py_ssize_t rows) except -1
cdef void _sort_kinds(Ring ring, const long long[::1] extremes, Py_ssize_t rows, Py_ssize_t kinds) except *
cdef bint _is_less(
    Ring ring, const long long[::1] extremes, Py_ssize_t rows, Py_ssize_t kind, Py_ssize_t other
) except -1
cdef Py_ssize_t _number(Ring ring, const long long[::1] extremes, Py_ssize_t rows) except -1
cdef Py_ssize_t _find_kind(
    Ring ring, const long long[::1] extremes, Py_ssize_t rows, Py_ssize_t window, Py_ssize_t kinds
) except -1
cdef bint _is_same(
    const long long[::1] extremes, Py_ssize_t rows, Py_ssize_t size, Py_ssize_t window, Py_ssize_t other
) except -1
cdef void _choose_representatives(Ring ring) except *
cpdef void share_out(Ring ring, const long long[::1] totals, Py_ssize_t kind) except *
cdef void _choose_best(Ring ring, const long long[::1] totals) except *
cdef void _number_values(Ring ring, const long long[::1] totals) except *
cdef void _mark_shares(Ring ring, const long long[::1] totals, Py_ssize_t kind) except *
cdef Py_ssize_t _count_best(Ring ring, Py_ssize_t front, Py_ssize_t back, Py_ssize_t best) except -1
cdef void _add_shares(Ring ring) except *
cpdef void fold(Ring ring) except *
