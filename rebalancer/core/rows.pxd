from rebalancer.core.numbers cimport truncate

cdef double _STEPS, _CLEARLY, _MANY_TIMES

cdef class Rows:
    cdef public const long long[::1] start
    cdef public const int[::1] cls, node, pods
    cdef public long long[::1] next_pod
    cdef public const long long[::1] end
    cdef public const double[::1] cost
    cdef public const int[::1] rank

cdef class Book:
    cdef public Rows rows
    cdef public double[:, ::1] promised, key, gains
    cdef public long long[:, ::1] looked, landing
    cdef public double[::1] shares, of_rule
    cdef public unsigned char[::1] closed, lowered, stale, named
    cdef public long long[::1] leading, best, turns, touched, concerned, asked, heap, place
    cdef public Py_ssize_t size, moves, marked

cpdef void promise(Book book, Py_ssize_t cls, const double[:, ::1] gains, Py_ssize_t most_lowered) except *
cpdef void set_key(Book book, Py_ssize_t row, Py_ssize_t entry, double gain) except *
cpdef bint has_pods(Rows rows, Py_ssize_t row) except -1
cpdef Py_ssize_t find_best(Book book, Py_ssize_t cls) except? -1
cpdef bint is_worth(Book book, Py_ssize_t row) except -1
cpdef bint is_before(Book book, Py_ssize_t one, Py_ssize_t other) except -1
cpdef void skip_moved(Rows rows, Py_ssize_t cls, const unsigned char[::1] moved) except *
cpdef void open_all(Book book) except *
cpdef void open_refused(Book book, Py_ssize_t cls) except *
cpdef void close(Book book, Py_ssize_t row) except *
cpdef void refuse(Book book, Py_ssize_t row, Py_ssize_t landing) except *
cpdef void close_class(Book book, Py_ssize_t cls) except *
cpdef bint stands(Book book, Py_ssize_t cls, Py_ssize_t row) except -1
cpdef Py_ssize_t first_row(Book book) except? -1
cpdef bint is_outdated(Book book, Py_ssize_t row) except -1
cpdef bint promises_rules(Book book, Py_ssize_t row) except -1
cdef bint _is_for_rules(Book book, Py_ssize_t row) except -1
cpdef void settle(Book book, Py_ssize_t cls) except *
cdef void _take_out(Book book, Py_ssize_t place) except *
cdef void _put(Book book, Py_ssize_t cls, Py_ssize_t place) except *
cdef Py_ssize_t _rise(Book book, Py_ssize_t place) except -1
cdef void _sink(Book book, Py_ssize_t place) except *
cdef Py_ssize_t _better_below(Book book, Py_ssize_t place) except -1
cdef bint _goes_before(Book book, Py_ssize_t one, Py_ssize_t other) except -1
cpdef bint lower(Book book, Py_ssize_t row, const double[::1] gains, bint compared) except -1
cdef bint _is_behind(Book book, Py_ssize_t row, Py_ssize_t other) except -1
