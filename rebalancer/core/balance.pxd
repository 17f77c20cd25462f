from rebalancer.core.rules cimport PodMove, Rule

cdef double _OVER_WEIGHT, _EVEN_WEIGHT, _ROUNDING, _INFINITE
cdef long long _PODS

cdef class Amounts:
    cdef public const long long[:, ::1] requested, used
    cdef public const long long[::1] pods, changes

cdef class Thresholds:
    cdef public const long long[::1] rows
    cdef public const double[:, ::1] capacity
    cdef public const unsigned char[:, ::1] counts
    cdef public const double[::1] over, under, mean
    cdef public double gap
    cdef public const unsigned char[::1] usable

cdef class Measurement:
    cdef public const long long[::1] rows
    cdef public const double[:, ::1] demands
    cdef public const unsigned char[::1] known, judged, lasts, by_request
    cdef public bint larger

cdef class BalanceRule(Rule):
    cdef public Amounts amounts
    cdef public const double[:, ::1] demands
    cdef public Thresholds thresholds
    cdef public Measurement measured
    cdef public object masks
    cdef public double[::1] inviting, full, cost
    cdef public unsigned char[::1] gives
    cdef public double[:, ::1] below
    cdef public long long changes
    cdef public double most_even, emptiest
    cdef public Py_ssize_t cls
    cdef public bint is_ready
    cdef double find_requested(self, Py_ssize_t row, Py_ssize_t node, Py_ssize_t leaves, Py_ssize_t enters) except? -1
    cdef double find_used(self, Py_ssize_t row, Py_ssize_t node, Py_ssize_t leaves, Py_ssize_t enters) except? -1
    cdef double share_of(self, Py_ssize_t row, Py_ssize_t node, Py_ssize_t leaves, Py_ssize_t enters) except? -1
    cdef double cost_of(self, Py_ssize_t node, Py_ssize_t leaves, Py_ssize_t enters) except? -1
    cdef void change(self, PodMove move, double[::1] out) except *
    cdef void begin(self, Py_ssize_t cls) except *
    cdef double gain_at(self, Py_ssize_t node) except? -1
    cdef double relief_at(self, Py_ssize_t node) except? -1
    cdef void get_ready(self) except *
    cdef void update(self) except *
    cdef void look_at(self, Py_ssize_t node) except *
    cdef bint may_give(self, Py_ssize_t node) except -1

cpdef void write_relief(BalanceRule rule, Py_ssize_t cls, const int[::1] nodes, double[::1] out) except *
cpdef void update(BalanceRule rule) except *
cdef double _find_least(const double[::1] values, const unsigned char[::1] some) except? -1
