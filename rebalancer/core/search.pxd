from rebalancer.core.effects cimport gains_less, is_gamble
from rebalancer.core.limits cimport LimitArrays, find_full, count_left
from rebalancer.core.moves cimport Bench, Mover, RefusedRow, ask, judge_pod, note
from rebalancer.core.rows cimport (
    Book,
    close,
    close_class,
    first_row,
    is_outdated,
    lower,
    promises_rules,
    refuse,
)

cdef int _NONE, _GOOD, _REVIEW, _GO_ON, _NEXT, _AT_ONCE, _GOOD_MOVE, _LIMITED
cdef double _ROUNDING

cdef class CandidateArrays:
    cdef public const double[::1] cost
    cdef public const unsigned char[::1] ready, reviewed, in_place
    cdef public const long long[::1] limits_of
    cdef public const unsigned char[::1] for_room
    cdef public const long long[::1] of_owner

cdef class Search:
    cdef public Book book
    cdef public Bench bench
    cdef public LimitArrays limits
    cdef public CandidateArrays candidates
    cdef public const unsigned char[::1] moved
    cdef public Py_ssize_t first_of_wave, first_quota, row
    cdef public double least
    cdef public bint only_certain, only_rules, again, steered, any_starting
    cdef public int code
    cdef public Py_ssize_t most_alike, most_in_vain, most_lowered, in_vain, closely
    cdef public unsigned char[::1] freed, starting, kept_back
    cdef public long long[::1] refused_alike, waits, held
    cdef public list looks, alike

cpdef int find_move(Search search) except -1
cdef int _look_at(Search search, Py_ssize_t row, Py_ssize_t cls) except -1
cdef Mover _find_mover(Bench bench, Py_ssize_t cls)
cdef int _judge_row(Search search, Py_ssize_t row, Mover mover) except -1
cpdef int go_on(
    Search search,
    Py_ssize_t row,
    bint good,
    const double[::1] gain,
    const double[::1] best,
    Py_ssize_t landing,
) except -1
cdef bint _is_uncertain(
    Book book, Py_ssize_t row, const double[::1] gain, const double[::1] best
) except -1
cpdef bint is_little(Search search, Py_ssize_t row) except -1
cdef bint _is_passed_over(Search search, Py_ssize_t row, Py_ssize_t cls) except -1
cdef bint _is_limited(Search search, Py_ssize_t row, Py_ssize_t cls) except -1
cpdef void keep_back(Search search, Py_ssize_t row) except *
