cdef class DomainCounts:
    cdef public const long long[::1] counted, domain
    cdef public Py_ssize_t size
    cdef public long long[::1] counts

cpdef void count_pods(DomainCounts rule, const int[::1] nodes) except *
cpdef void count_per_node(DomainCounts rule, const int[::1] pods) except *
cpdef bint has_pods(DomainCounts rule) except -1
