from rebalancer.core.counts cimport PodNodes
from rebalancer.core.rules cimport PodMove, RoleRule
from rebalancer.core.tallies cimport (
    ClassSet,
    DomainMap,
    Tally,
    class_at,
    clear,
    count_role,
)

cdef Py_ssize_t _ROLES, _DECLARE, _BOTH, _MATCH, _NO_DOMAIN

cdef class Apart:
    cdef public long long inside, alone, outside, matched

cdef class NearRule(RoleRule):
    cdef public long long apart, apart_domains, helped
    cdef public Apart now, left, then
    cdef void read(self) except *
    cdef void count_in(
        self,
        Apart apart,
        Py_ssize_t domain,
        long long sign,
        Py_ssize_t role,
        long long more,
        Py_ssize_t other,
        long long others,
    ) except *
    cdef void begin(self, Py_ssize_t cls) except *
    cdef long long count_at(self, Py_ssize_t domain, long long more) except? -1
    cdef double gain_at(self, Py_ssize_t node) except? -1
    cdef void change(self, PodMove move, double[::1] out) except *
    cdef void shift(
        self,
        Apart apart,
        Py_ssize_t domain,
        long long sign,
        Py_ssize_t role,
        long long more,
        Py_ssize_t other,
        long long others,
    ) except *

cdef long long _sum_up(Apart apart) except? -1
cdef void _copy(Apart apart, Apart other) except *
cdef long long _count_all(ClassSet some, PodNodes pods) except? -1
