from rebalancer.core.counts cimport (
    DomainCounts,
    PodNodes,
    add_pod,
    count_pods,
    has_pods,
    remove_pod,
)
from rebalancer.core.filters cimport (
    AttachLimit,
    HardSpread,
    drop_closed,
    drop_occupied,
    keep_attachable,
    keep_even,
    keep_labelled,
    keep_occupied,
    keep_roomy,
)
from rebalancer.core.landings cimport LandingTable, collect
from rebalancer.core.resources cimport (
    Loads,
    Requests,
    Scoring,
    hold,
    score,
    score_balance,
    score_fit,
)
from rebalancer.core.scores cimport (
    Board,
    Preferences,
    Weights,
    add_up,
    find_extremes,
    read_scores,
    write_each,
)
from rebalancer.core.windows cimport Ring, fold, number_kinds, share_out, weigh_windows

cdef int _ROOM, _EVEN, _PODS, _PORTS, _DISKS, _VOLUMES, _CORDONS, _FILTERS

cdef class PodArrays:
    cdef public Requests requests
    cdef public Preferences preferences
    cdef public list spread, repelled, attracted, ports, disks, volumes, counted
    cdef public const unsigned char[::1] alone, removed
    cdef public bint first, unknown, fails_to_score

cdef class ClusterArrays:
    cdef public PodNodes living, existing
    cdef public Loads loads
    cdef public Scoring scoring
    cdef public Weights weights
    cdef public const int[::1] order
    cdef public Py_ssize_t most
    cdef public Board board
    cdef public const unsigned char[::1] checks
    cdef public Ring ring
    cdef public LandingTable landings
    cdef public unsigned char[::1] feasible

cpdef void foresee(
    ClusterArrays cluster, PodArrays pod, Py_ssize_t cls, Py_ssize_t node, bint lives, bint gone
) except *
cpdef void predict(ClusterArrays cluster, PodArrays pod) except *
cdef void _choose(ClusterArrays cluster, PodArrays pod) except *
cpdef Py_ssize_t find_feasible(ClusterArrays cluster, PodArrays pod) except -1
cpdef void count_rules(ClusterArrays cluster, PodArrays pod) except *
cpdef void keep_passing(
    ClusterArrays cluster, PodArrays pod, int number, unsigned char[::1] feasible
) except *
cdef void _keep_all_even(PodArrays pod, unsigned char[::1] feasible) except *
cdef void _keep_within_limits(ClusterArrays cluster, PodArrays pod, unsigned char[::1] feasible) except *
cdef void _drop_all(list kinds, unsigned char[::1] feasible) except *
cpdef void keep_attracting(PodArrays pod, unsigned char[::1] feasible) except *
cpdef void score_each(
    ClusterArrays cluster, PodArrays pod, const int[::1] nodes, long long[::1] scores
) except *
cdef Py_ssize_t _line_up(ClusterArrays cluster) except -1
