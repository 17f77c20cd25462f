from rebalancer.core.counts cimport add_pod, remove_pod
from rebalancer.core.prediction cimport ClusterArrays, PodArrays, find_feasible, predict
from rebalancer.core.resources cimport fits, hold

cdef Py_ssize_t _MAX_TAKERS, _ROOM
cdef unsigned char _OUT, _QUEUED, _REFUSED

cdef class Queue:
    cdef public const int[::1] classes
    cdef public const long long[::1] start
    cdef public const int[::1] pods
    cdef public const long long[::1] rank, affected_start, affected
    cdef public list lowered, clusters
    cdef public int[::1] node_of
    cdef public long long[::1] roomy, fitting
    cdef public unsigned char[::1] concerned, place
    cdef public long long[::1] next, left
    cdef public long long[:, ::1] takers

cpdef Py_ssize_t find_concerned(
    Queue queue, Py_ssize_t cls, Py_ssize_t replacement, Py_ssize_t node, const int[::1] leaving
) except -1
cdef void _find_given_room(Queue queue, Py_ssize_t node, const int[::1] leaving) except *
cdef bint _is_on(ClusterArrays cluster, PodArrays pod, Py_ssize_t node) except -1
cdef void _hold(
    ClusterArrays cluster, Py_ssize_t node, const int[::1] classes, long long sign
) except *
cdef void _find_affected(Queue queue, Py_ssize_t cls) except *
cdef bint _has_room(ClusterArrays cluster, PodArrays pod) except -1
cdef bint _fits(Queue queue, Py_ssize_t number) except -1
cpdef Py_ssize_t take(Queue queue) except -1
cdef Py_ssize_t _find_first(Queue queue) except? -2
cdef Py_ssize_t _find_next(Queue queue, Py_ssize_t number) except? -2
cdef Py_ssize_t _land(ClusterArrays cluster, PodArrays pod) except? -2
cdef void _put(Queue queue, ClusterArrays cluster, Py_ssize_t index, long long sign) except *
cdef void _retry(Queue queue, Py_ssize_t cls) except *
