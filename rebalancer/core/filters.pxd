from rebalancer.core.counts cimport DomainCounts, has_pods
from rebalancer.core.resources cimport Loads, Requests, fits

cdef class HardSpread:
    cdef public DomainCounts pods
    cdef public long long limit
    cdef public const long long[::1] domains

cpdef void keep_roomy(Loads loads, Requests requests, unsigned char[::1] feasible) except *
cpdef void keep_even(HardSpread rule, unsigned char[::1] feasible) except *
cpdef void drop_occupied(DomainCounts pods, unsigned char[::1] feasible) except *
cpdef void keep_occupied(DomainCounts pods, unsigned char[::1] feasible) except *
cpdef void keep_labelled(DomainCounts pods, unsigned char[::1] feasible) except *
