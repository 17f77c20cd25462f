from rebalancer.core.numbers cimport truncate
from rebalancer.core.windows cimport Ring

cdef double _NO_CHANCE

cdef class LandingTable:
    cdef public Py_ssize_t count
    cdef public int[::1] nodes
    cdef public double[::1] probability, chance
    cdef public long long[::1] order, merged, rounded

cpdef void collect(LandingTable landings, Ring ring) except *
cdef void _sort(LandingTable landings) except *
cdef void _merge(LandingTable landings, Py_ssize_t first, Py_ssize_t middle, Py_ssize_t width) except *
