from rebalancer.core.numbers cimport truncate

cdef long long _MAX
cdef int _LEAST, _MOST, _RATIO
cdef Py_ssize_t _DEFAULTED

cdef class Loads:
    cdef public const long long[:, ::1] allocatable
    cdef public long long[:, ::1] used, scored_used
    cdef public const long long[::1] max_pods
    cdef public long long[::1] pod_count
    cdef public const long long[:, ::1] requests, scored

cdef class Scoring:
    cdef public int strategy
    cdef public const long long[::1] resources, weights, ratios, balanced
    cdef public bint improvement
    cdef public long long fit_weight, balance_weight

cdef class Requests:
    cdef public const long long[::1] amounts, scored, checked
    cdef public const unsigned char[::1] counted
    cdef public bint balances

cpdef void hold(Loads loads, Py_ssize_t cls, Py_ssize_t node, long long sign) except *
cpdef bint fits(Loads loads, Requests requests, Py_ssize_t node) except -1
cpdef long long score(Loads loads, Scoring scoring, Requests requests, Py_ssize_t node) except? -1
cpdef bint is_short(Loads loads, Requests requests, Py_ssize_t node, Py_ssize_t row) except -1
cpdef long long score_fit(Loads loads, Scoring scoring, Requests requests, Py_ssize_t node) except? -1
cdef long long _score_one(Scoring scoring, long long requested, long long allocatable) except? -1
cpdef long long score_balance(Loads loads, Scoring scoring, Requests requests, Py_ssize_t node) except? -1
cdef long long _balance(Loads loads, Scoring scoring, Requests requests, Py_ssize_t node, long long pods) except? -1
cdef double _deviate(Loads loads, Scoring scoring, Requests requests, Py_ssize_t node, long long pods) except? -1
cdef double _share(Loads loads, Requests requests, Py_ssize_t node, Py_ssize_t row, long long pods) except? -1
