from rebalancer.core.counts cimport PodNodes

cdef Py_ssize_t _ROLES

cdef class ClassSet:
    cdef public Py_ssize_t first, size
    cdef public const int[::1] classes

cdef class DomainMap:
    cdef public const int[::1] of_node
    cdef public Py_ssize_t size

cdef class Tally:
    cdef public long long[::1] counts, touched
    cdef public Py_ssize_t used
    cdef public long long least, most

cpdef bint has_class(ClassSet some, Py_ssize_t cls) except -1
cpdef Py_ssize_t place_of(ClassSet some, Py_ssize_t cls) except -2
cpdef Py_ssize_t class_at(ClassSet some, Py_ssize_t place) except -1
cpdef Py_ssize_t find(
    const int[::1] sorted_, Py_ssize_t first, Py_ssize_t last, long long value
) except -2
cpdef void clear(Tally tally) except *
cpdef long long count_role(
    Tally tally, Py_ssize_t role, ClassSet some, PodNodes pods, DomainMap domains
) except -1
cpdef void add(Tally tally, Py_ssize_t domain, Py_ssize_t role, long long amount) except *
cpdef void find_extremes(Tally tally, ClassSet some, PodNodes pods, DomainMap domains) except *
