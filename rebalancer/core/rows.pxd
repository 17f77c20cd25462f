from rebalancer.core.numbers cimport truncate

cdef double _STEPS

cdef class Rows:
    cdef public const long long[::1] start, end
    cdef public const int[::1] node, pods, rank
    cdef public long long[::1] next_pod
    cdef public const double[::1] cost

cdef class Book:
    cdef public Rows rows
    cdef public double[:, ::1] promised, key
    cdef public unsigned char[::1] closed, lowered
    cdef public long long[::1] looked, best, touched, concerned
    cdef public int[::1] landing

cpdef void promise(Book book, Py_ssize_t cls, const double[:, ::1] gains, Py_ssize_t most_lowered) except *
cpdef void set_key(Book book, Py_ssize_t row, Py_ssize_t entry, double gain) except *
cpdef Py_ssize_t find_best(Book book, Py_ssize_t cls) except? -1
cpdef bint is_worth(Book book, Py_ssize_t row) except -1
cpdef bint is_before(Book book, Py_ssize_t one, Py_ssize_t other) except -1
cpdef void skip_moved(Rows rows, Py_ssize_t cls, const unsigned char[::1] moved) except *
cpdef void open_all(Book book, Py_ssize_t moves) except *
cpdef void open_refused(Book book, Py_ssize_t cls) except *
cpdef void close_class(Book book, Py_ssize_t cls) except *
cpdef bint stands(Book book, Py_ssize_t cls, Py_ssize_t row, Py_ssize_t moves) except -1
