from rebalancer.core.effects cimport (
    Demands,
    MoveEffect,
    RulesOfMove,
    Terms,
    find_broken,
    find_effect,
    find_promises,
    find_unwanted,
    judge,
)
from rebalancer.core.landings cimport LandingTable
from rebalancer.core.prediction cimport ClusterArrays, PodArrays, foresee
from rebalancer.core.rows cimport Book, promise, skip_moved
from rebalancer.core.rules cimport PodMove

cdef int _NO_GAIN, _NO_NODE, _UNPREDICTED, _GOOD, _BACK, _BREAKS
cdef Py_ssize_t _SOFT

cdef class Mover:
    cdef public Py_ssize_t cls, replacement
    cdef public RulesOfMove rules, guards
    cdef public const unsigned char[::1] mine, foreign
    cdef public bint leaves, gone
    cdef public PodArrays pod
    cdef public ClusterArrays cluster

cdef class Bench:
    cdef public Terms terms
    cdef public Demands demands
    cdef public MoveEffect effect
    cdef public PodMove move
    cdef public double[::1] nothing
    cdef public list movers
    cdef public object python
    cdef public tuple takers
    cdef public bint has_pending, feeding

cdef class RefusedRow:
    cdef public int code
    cdef public Py_ssize_t term, limit, left, count
    cdef public double cost, sure, risk, leaving, avoided, foreign
    cdef public int[::1] nodes
    cdef public double[::1] probability, gain, shares
    cdef public unsigned char[::1] named
    cdef public tuple takers

cpdef RefusedRow note(Bench bench, Mover mover, int code, Py_ssize_t term, double cost)

cpdef int judge_pod(
    Bench bench,
    Mover mover,
    Py_ssize_t pod,
    Py_ssize_t node,
    double cost,
    bint lives,
    bint in_place,
    bint for_gain,
) except -1
cpdef int judge_landings(
    Bench bench,
    Mover mover,
    Py_ssize_t pod,
    Py_ssize_t node,
    const double[::1] added,
    double cost,
    bint in_place,
    bint for_gain,
) except -1
cdef int _judge_harm(Bench bench, Mover mover, PodMove move, const double[::1] chance) except -1
cpdef void ask(
    Book book, Terms terms, Mover mover, const unsigned char[::1] moved, Py_ssize_t most_lowered
) except *
