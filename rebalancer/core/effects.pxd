from rebalancer.core.rules cimport PodMove, Rule, moves_for, write_changes, write_gains

cdef Py_ssize_t _ENTRIES, _IMBALANCE, _ROOM, _VAIN
cdef double _TOLERANCE, _UNWANTED_SHARE, _BACK_SHARE, _LESS, _LESS_BESIDE_HARD
cdef int _UNNAMED, _NAMED, _HARMED
cdef int _GOOD, _OTHER_SYSTEM, _LEAVING, _AVOIDED, _BACK, _NO_GAIN
cdef int _BREAKS, _RARELY, _OFTEN, _LITTLE, _NOTHING

cdef class Terms:
    cdef public const long long[::1] entry
    cdef public const double[::1] weight
    cdef public const long long[::1] strategy
    cdef public Py_ssize_t strategies
    cdef public list nodes

cdef class RulesOfMove:
    cdef public list rules
    cdef public const long long[::1] term
    cdef public const double[::1] weight

cdef class MoveEffect:
    cdef public Py_ssize_t landings, vain_count
    cdef public double[::1] changes, broken, gain, best, shares, of_rule, of_term
    cdef public unsigned char[::1] named, mine
    cdef public double sure, risk, back, leaving, avoided, foreign
    cdef public long long[::1] vain

cdef class Demands:
    cdef public double better, worse, harmless, pods, imbalance
    cdef public const unsigned char[::1] leaving, avoided

cpdef void find_effect(
    Terms terms,
    RulesOfMove rules,
    PodMove move,
    const double[::1] chance,
    const unsigned char[::1] mine,
    const double[::1] added,
    MoveEffect effect,
) except *
cdef void _begin(Terms terms, MoveEffect effect, Py_ssize_t landings) except *
cdef void _make_room(MoveEffect effect, Py_ssize_t landings) except *
cdef void _add_rules(
    RulesOfMove rules, Py_ssize_t first, Py_ssize_t last, PodMove move, MoveEffect effect, double added
) except *
cdef void _add_term(Terms terms, Py_ssize_t term, const double[::1] chance, MoveEffect effect) except *
cdef void _sum_up(const double[::1] chance, MoveEffect effect) except *
cpdef bint find_broken(RulesOfMove guards, PodMove move, MoveEffect effect) except -1
cpdef int sign_at(MoveEffect effect, Py_ssize_t place, Py_ssize_t entries) except -2
cpdef int judge(
    Demands demands,
    RulesOfMove guards,
    PodMove move,
    const double[::1] chance,
    const unsigned char[::1] foreign,
    MoveEffect effect,
    double cost,
    bint in_place,
) except -1
cpdef int find_unwanted(
    Demands demands,
    PodMove move,
    const double[::1] chance,
    const unsigned char[::1] foreign,
    MoveEffect effect,
) except -1
cdef void _find_vain(PodMove move, MoveEffect effect) except *
cdef bint _weigh(MoveEffect effect, const double[::1] chance, Py_ssize_t entries) except -1
cdef bint _breaks_hard(MoveEffect effect) except -1
cdef bint _is_loss(MoveEffect effect) except -1
cdef int _compare(Demands demands, MoveEffect effect, double cost) except -1
cpdef bint gains_less(double hard, double soft, double most_hard, double most_soft) except -1
cpdef bint is_gamble(const double[::1] gain, const double[::1] best) except -1
cpdef void find_promises(
    Terms terms,
    RulesOfMove rules,
    Py_ssize_t cls,
    const int[::1] nodes,
    const unsigned char[::1] mine,
    double[:, ::1] gains,
    long long[::1] leading,
    double[::1] shares,
    double[::1] of_rule,
) except *
cdef bint _may_leave(Terms terms, Py_ssize_t term, Py_ssize_t node) except -1
cdef bint _is_set(const unsigned char[::1] some, Py_ssize_t node) except -1
cdef void _let_lead(
    Terms terms,
    Py_ssize_t term,
    Py_ssize_t place,
    double gain,
    long long[::1] leading,
    double[::1] shares,
) except *
