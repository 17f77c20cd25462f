from rebalancer.core.counts cimport DomainCounts, PodNodes, has_pods
from rebalancer.core.resources cimport Loads, Requests, fits

cdef class HardSpread:
    cdef public DomainCounts pods
    cdef public long long limit
    cdef public const long long[::1] domains

cdef class AttachCounts:
    cdef public long long[::1] attached, there, newest

cdef class AttachLimit:
    cdef public const long long[::1] start
    cdef public const int[::1] classes
    cdef public const long long[::1] left_start
    cdef public const int[::1] left, own
    cdef public const long long[::1] own_count, limit
    cdef public const unsigned char[::1] mine
    cdef public long long wanted
    cdef public AttachCounts counts

cpdef void keep_roomy(Loads loads, Requests requests, unsigned char[::1] feasible) except *
cpdef void keep_even(HardSpread rule, unsigned char[::1] feasible) except *
cpdef void drop_occupied(DomainCounts pods, unsigned char[::1] feasible) except *
cpdef void keep_occupied(DomainCounts pods, unsigned char[::1] feasible) except *
cpdef void keep_labelled(DomainCounts pods, unsigned char[::1] feasible) except *
cpdef void keep_attachable(
    AttachLimit rule, PodNodes pods, unsigned char[::1] feasible
) except *
cdef void _count_volume(AttachLimit rule, PodNodes pods, Py_ssize_t volume) except *
cpdef void drop_closed(
    const unsigned char[::1] closed, unsigned char[::1] feasible
) except *
