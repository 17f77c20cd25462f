from rebalancer.core.counts cimport PodNodes
from rebalancer.core.rules cimport PodMove, Rule
from rebalancer.core.tallies cimport ClassSet, DomainMap, Tally, add, clear, count_role, has_class

cdef Py_ssize_t _ROLES, _PODS, _IMMOBILE, _SUMS, _EXCESS, _DEFICIT, _STUCK, _LACKING, _FEW_FLOORS, _EMPTY
cdef long long _NEVER, _UNKNOWN

cdef class OpenDomains:
    cdef public const unsigned char[::1] flags
    cdef public Py_ssize_t number

cdef class FloorSums:
    cdef public long long pods, highest
    cdef public Py_ssize_t floors
    cdef public long long[::1] values

cdef class EvenRule(Rule):
    cdef public ClassSet classes
    cdef public PodNodes pods
    cdef public DomainMap domains
    cdef public Tally tally
    cdef public OpenDomains open
    cdef public const long long[::1] immobile
    cdef public long long max_skew
    cdef public bint too_few
    cdef public FloorSums now, other
    cdef public long long total, counting, empty, minimum
    cdef public Py_ssize_t first, second
    cdef void read(self) except *
    cdef bint matters(self, Py_ssize_t domain) except -1
    cdef void find_emptiest(self) except *
    cdef bint is_emptier(self, Py_ssize_t domain, Py_ssize_t other) except -1
    cdef double gain_at(self, Py_ssize_t node) except? -1
    cdef long long find_minimum(self, Py_ssize_t left, Py_ssize_t entered) except? -1
    cdef void change(self, PodMove move, double[::1] out) except *

cdef void _fill(EvenRule rule, FloorSums sums, long long total) except *
cdef void _add_domain(
    EvenRule rule, FloorSums sums, long long pods, long long immobile, bint open_, long long times
) except *
cdef long long _find_best(EvenRule rule, FloorSums sums, Py_ssize_t left, Py_ssize_t entered) except? -1
cdef void _replace(
    EvenRule rule, FloorSums sums, Py_ssize_t domain, long long before, long long after
) except *
