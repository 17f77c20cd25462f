cdef Py_ssize_t _LEAST_ROOM

cdef class PodNodes:
    cdef public long long[::1] start, size, room
    cdef public int[::1] nodes
    cdef public Py_ssize_t used

cdef class DomainCounts:
    cdef public const int[::1] classes
    cdef public const long long[::1] counted, domain
    cdef public Py_ssize_t size
    cdef public long long[::1] counts
    cdef public bint terminating

cpdef void add_pod(PodNodes pods, Py_ssize_t cls, Py_ssize_t node) except *
cpdef void remove_pod(PodNodes pods, Py_ssize_t cls, Py_ssize_t node) except *
cpdef Py_ssize_t count_pods(DomainCounts rule, PodNodes pods) except -1
cpdef bint has_pods(DomainCounts rule) except -1
cdef void _widen(PodNodes pods, Py_ssize_t cls) except *
