from rebalancer.core.balance cimport Amounts
from rebalancer.core.rules cimport PodMove, Rule

cdef class Capacity:
    cdef public const long long[:, ::1] allocatable
    cdef public const long long[::1] max_pods
    cdef public const long long[:, ::1] requests

cdef class RoomRule(Rule):
    cdef public Amounts amounts
    cdef public Capacity capacity
    cdef public const unsigned char[::1] nodes
    cdef public const long long[::1] rows, needs
    cdef public long long places, wanted, total, changes
    cdef public bint counted
    cdef public long long[::1] rooms
    cdef void read(self) except *
    cdef long long lack(self, long long rooms) except -1
    cdef long long fit(self, Py_ssize_t node, Py_ssize_t leaves, Py_ssize_t enters) except -1
    cdef long long divide(self, long long free, long long need) except -1
    cdef void change(self, PodMove move, double[::1] out) except *
