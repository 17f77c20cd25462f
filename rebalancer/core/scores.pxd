from rebalancer.core.counts cimport DomainCounts
from rebalancer.core.numbers cimport round_half_up, truncate
from rebalancer.core.windows cimport Ring, count_distinct, fill, slide

cdef long long _MAX, _BEYOND
cdef Py_ssize_t _TAINTS, _AFFINITY, _LEAST_PODS, _MOST_PODS, _SIZES
cdef int _BY_TAINTS, _BY_AFFINITY, _BY_PODS, _BY_SPREAD, _PLUG_INS

cdef class Weights:
    cdef public long long taints, affinity, pods, spread

cdef class Preference:
    cdef public DomainCounts pods
    cdef public long long weight

cdef class SpreadArrays:
    cdef public DomainCounts pods
    cdef public long long shift
    cdef public const long long[::1] labels
    cdef public long long[::1] seen
    cdef public bint per_node

cdef class Preferences:
    cdef public const long long[::1] taints
    cdef public const unsigned char[::1] marked
    cdef public const long long[::1] affinity, fixed
    cdef public list pods, spread
    cdef public const unsigned char[::1] ignored
    cdef public bint ignores

cdef class Board:
    cdef public const double[::1] logarithms
    cdef public long long[::1] fixed, taints, affinity, pods, spread
    cdef public long long[::1] totals, bounded, low, high, done, extremes
    cdef public double[::1] sums

cpdef void read_scores(Board board, Ring ring, Preferences preferences) except *
cdef void _add_preference(Board board, Ring ring, Preference preference) except *
cpdef Py_ssize_t find_extremes(Board board, Ring ring, Preferences preferences) except -1
cdef void _count_domains(
    Board board, Ring ring, Preferences preferences, SpreadArrays constraint, Py_ssize_t offset
) except *
cdef void _bound_spread(Board board, Ring ring, Preferences preferences, Py_ssize_t row) except *
cdef void _find_bound(
    Board board, Ring ring, Preferences preferences, long long sign, long long[::1] bounds
) except *
cdef bint _has_sizes(
    Board board, Py_ssize_t rows, Py_ssize_t size, Py_ssize_t window, Py_ssize_t other
) except -1
cdef void _score_spread(Board board, Ring ring, Preferences preferences, Py_ssize_t window) except *
cdef void _add_spread(Board board, Ring ring, SpreadArrays constraint, double weight) except *
cpdef void add_up(
    Board board, Ring ring, Preferences preferences, Weights weights, Py_ssize_t window
) except *
cdef void _add_one(
    Board board, Ring ring, Preferences preferences, Weights weights, Py_ssize_t window, int number
) except *
cdef void _add_taints(Board board, Ring ring, Weights weights, Py_ssize_t window) except *
cdef void _add_affinity(Board board, Ring ring, Weights weights, Py_ssize_t window) except *
cpdef void write_each(
    Board board,
    Ring ring,
    Preferences preferences,
    Weights weights,
    long long[::1] scores,
    Py_ssize_t first,
) except *
cdef void _add_pods(Board board, Ring ring, Weights weights, Py_ssize_t window) except *
cdef void _add_evenness(
    Board board, Ring ring, Preferences preferences, Weights weights, Py_ssize_t window
) except *
